package collection

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// runner runs cases on one server.
type runner struct {
	client *load.Client
	quiet  time.Duration // after this long without a change, the controllers have finished
	serial int           // of the last case
	moved  atomic.Int64  // when the last change was seen, in nanoseconds
}

// running is a case while it runs.
type running struct {
	*graph
	serial  int    // of the case
	prefix  string // of its cluster-scoped names
	absent  int    // how many UIDs without an object were used
	phases  []phase
	objects []*made           // in the order in which they were made
	spaces  []string          // its namespaces
	uids    map[string]string // of namespaces
	got     strings.Builder
	counted tally
}

// made is an object that a case has made.
type made struct {
	step
	label string // its name, with a ' for each earlier one with that name
	uid   string
	state state
}

// state is the state of an object at a wait.
type state struct {
	there, deleting bool
	owners          []string
	finalizers      []string
}

// tally counts the objects and namespaces at all waits, by what has happened to them, and the events about them.
type tally struct{ objects, gone, collected, orphaned, waiting, namespaces, events int }

func (t *tally) add(o tally) {
	t.objects += o.objects
	t.gone += o.gone
	t.collected += o.collected
	t.orphaned += o.orphaned
	t.waiting += o.waiting
	t.namespaces += o.namespaces
	t.events += o.events
}

// newRunner defines the custom kinds.
func newRunner(ctx context.Context, server *harness.Server, quiet time.Duration) (*runner, error) {
	r := &runner{client: load.New(server, 8), quiet: quiet}
	for _, name := range []string{"link", "hub"} {
		k := kinds[name]
		scope := "Namespaced"
		if k.cluster {
			scope = "Cluster"
		}
		_, err := r.client.Do(ctx, load.Request{
			Method: http.MethodPost, Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			Body: fmt.Appendf(nil, `{"metadata":{"name":"%[1]s.%[2]s"},"spec":{"group":"%[2]s","scope":"%[3]s","names":{"plural":"%[1]s","kind":"%[4]s"},
				"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, k.resource, group, scope, k.kind)})
		if err != nil {
			return nil, err
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			if _,
				err = r.client.Discard(ctx, load.Request{Method: http.MethodGet, Path: k.path + "/" + k.resource}); err == nil {
				break
			}
			if time.Now().After(end) {
				return nil, err
			}
		}
	}
	return r, nil
}

// run runs cases in parallel and returns them with their results.
func (r *runner) run(ctx context.Context, graphs []*graph) ([]*running, error) {
	watching, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	for _, path := range r.watched() {
		response, err := r.client.Start(watching, load.Request{Method: http.MethodGet, Path: path + "?watch=1",
			Accept: metadataOf("PartialObjectMetadata")})
		if err != nil {
			return nil, err
		}
		watches.Go(func() { r.watch(response.Body) })
	}
	var all []*running
	most := 0
	for _, g := range graphs {
		r.serial++
		c := &running{graph: g, serial: r.serial, prefix: fmt.Sprintf("case%d", r.serial), phases: g.phases(),
			uids: map[string]string{}}
		most = max(most, len(c.phases))
		all = append(all, c)
	}
	if err := load.Each(8, len(all), func(i int) error { return all[i].prepare(ctx, r) }); err != nil {
		return nil, err
	}
	for phase := range most {
		err := load.Each(8, len(all), func(i int) error {
			c := all[i]
			if phase >= len(c.phases) {
				return nil
			}
			for _, s := range c.phases[phase].steps {
				if err := c.do(ctx, r, s); err != nil {
					return fmt.Errorf("%s: %s: %w", c.title, s, err)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if err := r.waitUntilQuiet(ctx); err != nil {
			return nil, err
		}
		if err := r.look(ctx, all, phase); err != nil {
			return nil, err
		}
	}
	return all, r.clear(ctx, all)
}

func (r *runner) watched() []string {
	paths := []string{"/api/v1/namespaces"}
	for _, k := range kinds {
		paths = append(paths, k.path+"/"+k.resource)
	}
	return paths
}

// watch records when an object changes.
func (r *runner) watch(body io.ReadCloser) {
	defer body.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			r.moved.Store(time.Now().UnixNano())
		}
		if err != nil {
			return
		}
	}
}

// waitUntilQuiet waits until no object has changed for a while.
func (r *runner) waitUntilQuiet(ctx context.Context) error {
	r.moved.Store(time.Now().UnixNano())
	for {
		rest := r.quiet - time.Since(time.Unix(0, r.moved.Load()))
		if rest <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rest):
		}
	}
}

// prepare makes the namespaces of a case.
func (c *running) prepare(ctx context.Context, r *runner) error {
	for _, s := range c.steps {
		if s.verb == "create" && s.namespace != "" && !slices.Contains(c.spaces, s.namespace) {
			c.spaces = append(c.spaces, s.namespace)
		}
	}
	slices.Sort(c.spaces)
	for _, name := range c.spaces {
		body, err := r.client.Do(ctx, load.Request{Method: http.MethodPost, Path: "/api/v1/namespaces",
			Body: fmt.Appendf(nil, `{"metadata":{"name":%q}}`, c.prefix+"-"+name)})
		if err != nil {
			return err
		}
		var obj item
		if err := json.Unmarshal(body, &obj); err != nil {
			return err
		}
		c.uids[name] = obj.Metadata.UID
	}
	return nil
}

// latest returns the newest object with a name.
func (c *running) latest(name string) (*made, error) {
	for _, m := range slices.Backward(c.objects) {
		if m.name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("there is no %s", name)
}

// collection returns the URL of the objects of a kind, in a namespace of the case.
func (c *running) collection(m step) string {
	k := kinds[m.kind]
	if k.cluster {
		return k.path + "/" + k.resource
	}
	return k.path + "/namespaces/" + c.prefix + "-" + m.namespace + "/" + k.resource
}

// objectName returns the name of an object in the server. Names of different cases differ if they share a collection.
func (c *running) objectName(m step) string {
	if kinds[m.kind].cluster {
		return c.prefix + "-" + m.name
	}
	return m.name
}

// do runs a step. A missing object, or one that still exists, is not an error: a collector may be the reason, and the
// result shows it.
func (c *running) do(ctx context.Context, r *runner, s step) error {
	if s.verb == "create" {
		return c.create(ctx, r, s)
	}
	if s.verb == "empty" {
		_, err := r.client.Do(ctx, load.Request{Method: http.MethodDelete, Path: "/api/v1/namespaces/" + c.prefix + "-" +
			s.namespace})
		return err
	}
	m, err := c.latest(s.name)
	if err != nil {
		return err
	}
	path := c.collection(m.step) + "/" + c.objectName(m.step)
	switch s.verb {
	case "delete":
		options := `{"preconditions":{"uid":"` + m.uid + `"}`
		if s.policy != "" {
			options += `,"propagationPolicy":"` + strings.ToUpper(s.policy[:1]) + s.policy[1:] + `"`
		}
		_, err = r.client.Do(ctx, load.Request{Method: http.MethodDelete, Path: path, Body: []byte(options + "}")})
	case "release":
		err = c.edit(ctx, r, path, m, func(meta *metadata) {
			meta.Finalizers = slices.DeleteFunc(meta.Finalizers, func(f string) bool { return strings.Contains(f, "/") })
		})
	case "own":
		owners, referencesErr := c.references(s.owners)
		if referencesErr != nil {
			return referencesErr
		}
		err = c.edit(ctx, r, path, m, func(meta *metadata) { meta.OwnerReferences = append(meta.OwnerReferences, owners...) })
	}
	if status := (*load.StatusError)(nil); errors.As(err, &status) &&
		(status.Code == http.StatusNotFound || status.Code == http.StatusConflict) {
		return nil
	}
	return err
}

func (c *running) create(ctx context.Context, r *runner, s step) error {
	owners, err := c.references(s.owners)
	if err != nil {
		return err
	}
	k := kinds[s.kind]
	meta, err := json.Marshal(metadata{Name: c.objectName(s), OwnerReferences: owners, Finalizers: s.finalizers})
	if err != nil {
		return err
	}
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":%s`, k.apiVersion, k.kind, meta)
	if k.body != "" {
		body += "," + k.body
	}
	answer, err := r.client.Do(ctx, load.Request{Method: http.MethodPost, Path: c.collection(s), Body: []byte(body + "}")})
	if status := (*load.StatusError)(nil); errors.As(err, &status) && status.Code == http.StatusConflict {
		return nil // an object with this name still exists
	}
	if err != nil {
		return err
	}
	var obj item
	if err := json.Unmarshal(answer, &obj); err != nil {
		return err
	}
	label := s.name
	for _, m := range c.objects {
		if m.name == s.name {
			label += "'"
		}
	}
	c.objects = append(c.objects, &made{step: s, label: label, uid: obj.Metadata.UID, state: state{there: true}})
	return nil
}

// edit changes the metadata of an object, on the condition that it has not changed since it was read.
func (c *running) edit(ctx context.Context, r *runner, path string, m *made, change func(*metadata)) error {
	for {
		body, err := r.client.Do(ctx, load.Request{Method: http.MethodGet, Path: path})
		if err != nil {
			return err
		}
		var obj item
		if err := json.Unmarshal(body, &obj); err != nil {
			return err
		}
		if obj.Metadata.UID != m.uid {
			return nil
		}
		change(&obj.Metadata)
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": m.uid, "resourceVersion": obj.Metadata.ResourceVersion,
			"ownerReferences": obj.Metadata.OwnerReferences, "finalizers": obj.Metadata.Finalizers,
		}})
		if err != nil {
			return err
		}
		_, err = r.client.Do(ctx, load.Request{Method: http.MethodPatch, Path: path,
			ContentType: "application/merge-patch+json", Body: patch})
		if status := (*load.StatusError)(nil); !errors.As(err, &status) || status.Code != http.StatusConflict {
			return err
		}
	}
}

// absentUID is a UID that neither an object nor another reference has.
const absentUID = "%08d-0000-4000-8000-%012d"

// references makes entries of ownerReferences.
func (c *running) references(wanted []reference) ([]ownerReference, error) {
	var owners []ownerReference
	for _, w := range wanted {
		m, err := c.latest(w.to)
		if err != nil {
			return nil, err
		}
		k := kinds[m.kind]
		o := ownerReference{APIVersion: k.apiVersion, Kind: k.kind, Name: c.objectName(m.step), UID: m.uid,
			BlockOwnerDeletion: w.block}
		switch w.wrong {
		case "name":
			o.Name += "-wrong"
		case "uid":
			o.UID = fmt.Sprintf(absentUID, c.serial, c.absent)
			c.absent++
		case "kind":
			o.APIVersion, o.Kind = "v1", "ServiceAccount"
		case "group":
			o.APIVersion = "unserved.example.com/v1"
		}
		owners = append(owners, o)
	}
	return owners, nil
}

// item is the part of an object that is read.
type item struct {
	Metadata metadata `json:"metadata"`
	// Of an Event.
	Type           string               `json:"type"`
	Reason         string               `json:"reason"`
	Message        string               `json:"message"`
	InvolvedObject struct{ UID string } `json:"involvedObject"`
	// Of a Namespace.
	Status struct {
		Conditions []struct{ Type, Status, Reason, Message string } `json:"conditions"`
	} `json:"status"`
}

type metadata struct {
	Name              string           `json:"name"`
	Namespace         string           `json:"namespace,omitempty"`
	UID               string           `json:"uid,omitempty"`
	ResourceVersion   string           `json:"resourceVersion,omitempty"`
	DeletionTimestamp string           `json:"deletionTimestamp,omitempty"`
	OwnerReferences   []ownerReference `json:"ownerReferences"`
	Finalizers        []string         `json:"finalizers"`
}

type ownerReference struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	BlockOwnerDeletion bool   `json:"blockOwnerDeletion,omitempty"`
}

func metadataOf(kind string) string { return "application/json;as=" + kind + ";g=meta.k8s.io;v=v1" }

func (r *runner) list(ctx context.Context, path, accept string) ([]item, error) {
	body, err := r.client.Do(ctx, load.Request{Method: http.MethodGet, Path: path, Accept: accept})
	if err != nil {
		return nil, err
	}
	var list struct{ Items []item }
	return list.Items, json.Unmarshal(body, &list)
}

// look records the objects of each case that has this phase.
func (r *runner) look(ctx context.Context, all []*running, phase int) error {
	byUID := map[string]item{}
	for _, k := range kinds {
		items, err := r.list(ctx, k.path+"/"+k.resource, metadataOf("PartialObjectMetadataList"))
		if err != nil {
			return err
		}
		for _, o := range items {
			byUID[o.Metadata.UID] = o
		}
	}
	namespaces, err := r.list(ctx, "/api/v1/namespaces", "")
	if err != nil {
		return err
	}
	for _, o := range namespaces {
		byUID[o.Metadata.UID] = o
	}
	events, err := r.list(ctx, "/api/v1/events?fieldSelector=reason%3DOwnerRefInvalidNamespace", "")
	if err != nil {
		return err
	}
	reports := map[string][]item{}
	for _, o := range events {
		reports[o.InvolvedObject.UID] = append(reports[o.InvolvedObject.UID], o)
	}
	for _, c := range all {
		if phase < len(c.phases) {
			c.note(byUID, reports, c.phases[phase].silent)
		}
	}
	return nil
}

// note records the objects of a case.
func (c *running) note(byUID map[string]item, reports map[string][]item, silent bool) {
	if before := c.got.String(); silent {
		defer func() {
			c.got.Reset()
			c.got.WriteString(before)
		}()
	}
	fmt.Fprintln(&c.got, "wait")
	labels := map[string]*made{}
	for _, m := range c.objects {
		labels[m.uid] = m
	}
	for _, m := range c.objects {
		o, there := byUID[m.uid]
		before := m.state
		m.state = state{there: there, deleting: o.Metadata.DeletionTimestamp != "", finalizers: o.Metadata.Finalizers}
		for _, owner := range o.Metadata.OwnerReferences {
			m.state.owners = append(m.state.owners, c.describe(owner, labels))
		}
		c.count(m, before)
		fmt.Fprintf(&c.got, "  %s: %s\n", m.label, m.state)
		c.tell(m, reports[m.uid], labels)
	}
	for _, name := range c.spaces {
		o, there := byUID[c.uids[name]]
		switch {
		case !there:
			c.counted.namespaces++
			fmt.Fprintf(&c.got, "  namespace %s: gone\n", name)
		case o.Metadata.DeletionTimestamp != "":
			c.counted.namespaces++
			for _, condition := range o.Status.Conditions {
				fmt.Fprintf(&c.got, "  namespace %s: %s %s %s: %s\n", name, condition.Type, condition.Status, condition.Reason,
					strings.ReplaceAll(condition.Message, c.prefix+"-", ""))
			}
		}
	}
}

// tell records the events about an object, each once, and without the parts that differ in each run.
func (c *running) tell(m *made, events []item, labels map[string]*made) {
	var texts []string
	for _, e := range events {
		text := strings.ReplaceAll(e.Message, c.prefix+"-", "")
		for uid, of := range labels {
			text = strings.ReplaceAll(text, uid, of.label)
		}
		texts = append(texts, fmt.Sprintf("  event of %s: %s %s: %s\n", m.label, e.Type, e.Reason, text))
	}
	slices.Sort(texts)
	for _, text := range slices.Compact(texts) {
		c.counted.events++
		c.got.WriteString(text)
	}
}

// count adds to the tally how an object has changed since the previous wait.
func (c *running) count(m *made, before state) {
	c.counted.objects++
	switch {
	case before.there && !m.state.there:
		c.counted.gone++
		deleted := slices.ContainsFunc(c.steps, func(s step) bool {
			return s.verb == "delete" && s.name == m.name || s.verb == "empty" && s.namespace == m.namespace
		})
		if !deleted {
			c.counted.collected++
		}
	case m.state.there && len(m.state.owners) < len(before.owners):
		c.counted.orphaned++
	case m.state.deleting && !before.deleting:
		c.counted.waiting++
	}
}

// describe formats a reference in the language of cases.
func (c *running) describe(o ownerReference, labels map[string]*made) string {
	m := labels[o.UID]
	text, block := "?"+strings.TrimPrefix(o.Name, c.prefix+"-"), ""
	if o.BlockOwnerDeletion {
		block = "!"
	}
	if m == nil {
		return text + block
	}
	text = m.label + block
	k := kinds[m.kind]
	switch {
	case o.Name != c.objectName(m.step):
		text += "/name"
	case o.Kind != k.kind:
		text += "/kind"
	case o.APIVersion != k.apiVersion:
		text += "/group"
	}
	return text
}

func (s state) String() string {
	if !s.there {
		return "gone"
	}
	var parts []string
	if s.deleting {
		parts = append(parts, "being deleted")
	} else {
		parts = append(parts, "there")
	}
	if len(s.owners) > 0 {
		parts = append(parts, "owned by "+strings.Join(s.owners, " "))
	}
	if len(s.finalizers) > 0 {
		parts = append(parts, "held by "+strings.Join(s.finalizers, " "))
	}
	return strings.Join(parts, ", ")
}

// clear deletes what cases have left.
func (r *runner) clear(ctx context.Context, all []*running) error {
	gone := func(err error) error {
		if load.Refused(err) {
			return nil
		}
		return err
	}
	return load.Each(8, len(all), func(i int) error {
		c := all[i]
		for _, m := range c.objects {
			if !m.state.there {
				continue
			}
			path := c.collection(m.step) + "/" + c.objectName(m.step)
			_, err := r.client.Do(ctx, load.Request{Method: http.MethodDelete, Path: path,
				Body: []byte(`{"propagationPolicy":"Background"}`)})
			if gone(err) != nil {
				return err
			}
			_, err = r.client.Do(ctx, load.Request{Method: http.MethodPatch, Path: path,
				ContentType: "application/merge-patch+json",
				Body:        []byte(`{"metadata":{"finalizers":null}}`)})
			if gone(err) != nil {
				return err
			}
		}
		for _, name := range c.spaces {
			_, err := r.client.Do(ctx, load.Request{Method: http.MethodDelete,
				Path: "/api/v1/namespaces/" + c.prefix + "-" + name})
			if status := (*load.StatusError)(nil); gone(err) != nil &&
				!(errors.As(err, &status) && status.Code == http.StatusConflict) {
				return err
			}
		}
		return nil
	})
}

// outcome returns the results of a case.
func (c *running) outcome() string { return string(bytes.TrimSpace([]byte(c.got.String()))) }
