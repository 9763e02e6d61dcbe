package replicas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"plinth/conformance/internal/harness"
)

// patience is how long a client waits for an answer: less than many faults last, so that there are unknown outcomes.
const patience = 3 * time.Second

// client is one client: it has one request under way at a time, each at a replica chosen anew.
type client struct {
	*run
	id   int
	rand *rand.Rand
	n    int // how many marks it has used
}

// mark is a text that no other request has.
func (c *client) mark() string {
	c.n++
	return fmt.Sprintf("<%d.%d>", c.id, c.n)
}

// answer is what came back.
type answer struct {
	status  int
	body    object
	err     error
	replica int
	outcome outcome
	// whatever says that it was refused for a reason that is none of the object's.
	whatever   bool
	call, back int64
}

// sure are parts of the messages of status 500 with which a server says that it has done nothing.
var sure = []string{"nothing was written, as the disk", "range is full", "no space"}

func (a *answer) says(part string) bool { return strings.Contains(a.body.text("message"), part) }

func (a *answer) note() string {
	if a.err != nil {
		return a.err.Error()
	}
	if a.status >= 300 {
		first, _, _ := strings.Cut(a.body.text("message"), "\n")
		return fmt.Sprint(a.status, " ", first)
	}
	return fmt.Sprint(a.status, " rv ", a.body.revision())
}

// outcomeOf says what a status means for a write.
func outcomeOf(status int) outcome {
	switch {
	case status < 300:
		return done
	case status >= 500, status == http.StatusRequestTimeout:
		// 504 and 500 are what the server says if it does not know. Some of these are sure, but do not say so.
		return unknown
	}
	return refused
}

// send sends a request to any replica, and to another one if it is not there.
func (c *client) send(method, path, contentType string, body any) (a *answer) {
	first := c.rand.Intn(len(c.replicas))
	for i := range c.replicas {
		a = c.sendTo((first+i)%len(c.replicas), method, path, contentType, body)
		if a.err == nil || a.outcome != refused {
			return a
		}
	}
	pause(c.ctx, 50*time.Millisecond)
	return a
}

// sendTo sends a request to one replica.
func (c *client) sendTo(replica int, method, path, contentType string, body any) *answer {
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	a := &answer{replica: replica, call: c.now()}
	response, err := c.open(ctx, replica, method, path, contentType, body)
	if err == nil {
		defer response.Body.Close()
		a.status = response.StatusCode
		var text []byte
		if text, err = io.ReadAll(response.Body); err == nil {
			err = json.Unmarshal(text, &a.body)
		}
	}
	a.back = c.now()
	switch a.err = err; {
	case err == nil && a.status == http.StatusInternalServerError && slices.ContainsFunc(sure, a.says):
		a.outcome, a.whatever = refused, true
	case err == nil:
		a.outcome = outcomeOf(a.status)
	case notSent(err):
		a.outcome = refused
	default:
		a.outcome = unknown
	}
	return a
}

// notSent says whether an error is that of a connection that never was.
func notSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// open sends a request, and returns when the answer begins.
func (r *run) open(ctx context.Context, replica int, method, path, contentType string, body any) (*http.Response,
	error) {
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, *r.replicas[replica].url.Load()+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	request.Header.Set("Accept", "application/json")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	return r.replicas[replica].client.Do(request)
}

const (
	plainJSON  = "application/json"
	mergePatch = "application/merge-patch+json"
	jsonPatch  = "application/json-patch+json"
	applyPatch = "application/apply-patch+yaml"
)

// object is an object as JSON has it.
type object map[string]any

// at returns what is at a path of fields, or nil.
func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, field := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[field]
	}
	return v
}

func (o object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

func (o object) name() string     { return o.text("metadata", "name") }
func (o object) uid() string      { return o.text("metadata", "uid") }
func (o object) deletion() string { return o.text("metadata", "deletionTimestamp") }

func (o object) revision() int64 {
	n, _ := strconv.ParseInt(o.text("metadata", "resourceVersion"), 10, 64)
	return n
}

// finalizers are those of the object, without the prefix that all have.
func (o object) finalizers() string {
	var names []string
	list, _ := o.at("metadata", "finalizers").([]any)
	for _, f := range list {
		names = append(names, strings.TrimPrefix(f.(string), finalizerPrefix))
	}
	slices.Sort(names)
	return strings.Join(names, "")
}

// data are the fields of a ConfigMap.
func (o object) data() map[string]string {
	fields := map[string]string{}
	m, _ := o.at("data").(map[string]any)
	for k, v := range m {
		fields[k], _ = v.(string)
	}
	return fields
}

// items are those of a list.
func (o object) items() (all []object) {
	list, _ := o.at("items").([]any)
	for _, i := range list {
		all = append(all, object(i.(map[string]any)))
	}
	return all
}

// fieldsText is the state of an object with fields, in an order.
func fieldsText(fields map[string]string) string {
	var all []string
	for k, v := range fields {
		all = append(all, k+"="+v)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// fieldsOf reads fieldsText.
func fieldsOf(state string) map[string]string {
	fields := map[string]string{}
	for _, one := range strings.Fields(state) {
		k, v, _ := strings.Cut(one, "=")
		fields[k] = v
	}
	return fields
}

// configMaps is the path of a namespace's ConfigMaps, or of one of them.
func configMaps(namespace string, name ...string) string {
	return strings.Join(append([]string{"/api/v1/namespaces", namespace, "configmaps"}, name...), "/")
}

// configMap is one.
func configMap(name string, fields map[string]string) object {
	data := map[string]any{}
	for k, v := range fields {
		data[k] = v
	}
	return object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data}
}

// labelled gives an object the label of its side, and another one.
func labelled(o object, pair ...string) object {
	labels := map[string]any{"side": sideOf(dataOf(o))}
	for i := 0; i < len(pair); i += 2 {
		labels[pair[i]] = pair[i+1]
	}
	o["metadata"].(map[string]any)["labels"] = labels
	return o
}

// sideOf is the label by which watches select. It follows from the state, so that each write may change it: that of the
// number of its mark. Without a mark it is "even".
func sideOf(state string) string {
	if number := strings.TrimSuffix(state, ">"); number != "" && (number[len(number)-1]-'0')%2 == 1 {
		return "odd"
	}
	return "even"
}

// query appends parameters to a path.
func query(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return path + "?" + q.Encode()
}
