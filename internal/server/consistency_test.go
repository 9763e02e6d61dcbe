package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// apiClient sends requests to a server as its administrator, over its socket or its pipes.
type apiClient struct {
	*http.Client
	url string
}

func clientOf(t testing.TB, s *Server) *apiClient {
	t.Helper()
	certificate, err := tls.X509KeyPair(s.certificates.admin.Cert, s.certificates.admin.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.certificates.pki.Certificate)
	transport := &http.Transport{DialContext: dialer(s), ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{certificate}}}
	t.Cleanup(transport.CloseIdleConnections)
	return &apiClient{&http.Client{Transport: transport}, s.URL()}
}

func (c *apiClient) send(ctx context.Context, method, path, mediaType string, body any) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = strings.NewReader(string(text))
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, reader)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", mediaType)
	}
	return c.Do(r)
}

// do sends a request and reads the response. Any code other than these is an error.
func (c *apiClient) do(ctx context.Context, method, path, mediaType string, body any, codes ...int) (int,
	jsonObject, error) {
	answer, err := c.send(ctx, method, path, mediaType, body)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, nil, err
	}
	for _, code := range codes {
		if code == answer.StatusCode {
			var obj jsonObject
			err := json.Unmarshal(text, &obj)
			return code, obj, err
		}
	}
	return 0, nil, fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, text)
}

type jsonObject map[string]any

func (o jsonObject) at(keys ...string) any {
	var v any = map[string]any(o)
	for _, key := range keys {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

func (o jsonObject) text(keys ...string) string {
	s, _ := o.at(keys...).(string)
	return s
}

func (o jsonObject) key() string {
	return o.text("metadata", "namespace") + "/" + o.text("metadata", "name")
}

func (o jsonObject) revision() int64 {
	n, _ := strconv.ParseInt(o.text("metadata", "resourceVersion"), 10, 64)
	return n
}

// churned is a type that writers write and watchers watch, with all of its URLs.
type churned struct {
	urls []string // format strings with a place for the namespace
	make func(r *rand.Rand) jsonObject
}

var churnedTypes = []churned{
	{[]string{"/api/v1%sconfigmaps"}, func(r *rand.Rand) jsonObject {
		return jsonObject{"data": map[string]any{"a": strconv.Itoa(r.Int())}}
	}},
	{[]string{"/api/v1%sevents", "/apis/events.k8s.io/v1%sevents"}, func(r *rand.Rand) jsonObject {
		return jsonObject{"reason": colors[r.IntN(len(colors))], "type": "Normal"}
	}},
	{[]string{"/apis/autoscaling/v2%shorizontalpodautoscalers", "/apis/autoscaling/v1%shorizontalpodautoscalers"},
		func(r *rand.Rand) jsonObject {
			return jsonObject{"spec": map[string]any{"maxReplicas": 2 + r.IntN(9),
				"scaleTargetRef": map[string]any{"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}
		}},
}

var (
	colors     = []string{"red", "green", "blue"}
	namespaces = []string{"churn-a", "churn-b"}
)

const churnedNames = 8

func collection(format, namespace string) string {
	if namespace == "" {
		return fmt.Sprintf(format, "/")
	}
	return fmt.Sprintf(format, "/namespaces/"+namespace+"/")
}

// churn is one run of writers and watchers.
type churn struct {
	*testing.T
	client *apiClient
	mu     sync.Mutex
	bumps  map[string]int // by UID: how many conditional updates of annotation "n" were acknowledged
	writes int
}

// write does random writes until ctx ends.
func (c *churn) write(ctx context.Context, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, seed))
	for ctx.Err() == nil {
		if err := c.writeOne(r); err != nil {
			return err
		}
		c.mu.Lock()
		c.writes++
		c.mu.Unlock()
	}
	return nil
}

func (c *churn) writeOne(r *rand.Rand) error {
	ctx := c.Context()
	kind := churnedTypes[r.IntN(len(churnedTypes))]
	in := collection(kind.urls[0], namespaces[r.IntN(len(namespaces))])
	name := fmt.Sprintf("n%d", r.IntN(churnedNames))
	labels := map[string]any{"color": colors[r.IntN(len(colors))]}
	switch n := r.IntN(100); {
	case n < 30:
		obj := kind.make(r)
		obj["metadata"] = map[string]any{"name": name, "labels": labels, "annotations": map[string]any{"n": "0"}}
		if strings.HasSuffix(in, "events") {
			obj["involvedObject"] = map[string]any{"namespace": strings.Split(in, "/")[4], "name": name}
		}
		_, _, err := c.client.do(ctx, http.MethodPost, in, "application/json", obj, 201, 409)
		return err
	case n < 60:
		return c.bump(in+"/"+name, labels)
	case n < 85:
		_, _, err := c.client.do(ctx, http.MethodPatch, in+"/"+name, "application/merge-patch+json",
			jsonObject{"metadata": map[string]any{"labels": labels}}, 200, 404)
		return err
	case n < 99:
		_, _, err := c.client.do(ctx, http.MethodDelete, in+"/"+name, "", nil, 200, 404)
		return err
	}
	_, _, err := c.client.do(ctx, http.MethodDelete, in+"?labelSelector=color%3D"+colors[r.IntN(len(colors))],
		"", nil, 200)
	return err
}

// bump reads an object and writes it back with a number incremented, on the condition that it has not changed.
func (c *churn) bump(path string, labels map[string]any) error {
	code, obj, err := c.client.do(c.Context(), http.MethodGet, path, "", nil, 200, 404)
	if err != nil || code == 404 {
		return err
	}
	n, err := strconv.Atoi(obj.text("metadata", "annotations", "n"))
	if err != nil {
		return fmt.Errorf("%s: %v", path, obj)
	}
	obj.at("metadata", "annotations").(map[string]any)["n"] = strconv.Itoa(n + 1)
	obj.at("metadata").(map[string]any)["labels"] = labels
	code, _, err = c.client.do(c.Context(), http.MethodPut, path, "application/json", obj, 200, 201, 404, 409)
	if code == 200 {
		c.mu.Lock()
		c.bumps[obj.text("metadata", "uid")]++
		c.mu.Unlock()
	}
	return err
}

// watcher replays the events of a watch.
type watcher struct {
	name      string
	path      string // of the collection
	selector  url.Values
	keep      func(jsonObject) bool // the selector as a function
	start     string                // "list", "unset", "zero", "stream", or a version
	resumable bool

	mu      sync.Mutex
	state   map[string]jsonObject
	last    int64 // the version of the last event
	live    bool  // past the initial events
	events  int
	resumed int
}

// run watches until ctx ends, and repeatedly drops the connection after some events, where it can resume.
func (w *watcher) run(ctx context.Context, c *apiClient, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 1))
	if err := w.begin(ctx, c); err != nil {
		return err
	}
	for ctx.Err() == nil {
		query := url.Values{"watch": {"1"}, "timeoutSeconds": {"600"}}
		for key, value := range w.selector {
			query[key] = value
		}
		switch {
		case w.live:
			query.Set("resourceVersion", strconv.FormatInt(w.last, 10))
		case w.start == "zero":
			query.Set("resourceVersion", "0")
		case w.start == "stream":
			query.Set("sendInitialEvents", "true")
			query.Set("resourceVersionMatch", "NotOlderThan")
			query.Set("allowWatchBookmarks", "true")
		}
		drop := -1
		if w.resumable {
			drop = 1 + r.IntN(40)
		}
		if err := w.follow(ctx, c, query, drop); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		w.mu.Lock()
		w.resumed++
		w.mu.Unlock()
	}
	return nil
}

// begin sets the first state, unless the watch itself delivers it.
func (w *watcher) begin(ctx context.Context, c *apiClient) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = map[string]jsonObject{}
	switch w.start {
	case "unset", "zero":
		return nil
	case "stream":
		w.resumable = true
		return nil
	case "list":
		w.resumable, w.live = true, true
		list, revision, err := c.list(ctx, w.path, w.selector)
		w.state, w.last = list, revision
		return err
	}
	w.resumable, w.live = true, true // from before the first object
	var err error
	w.last, err = strconv.ParseInt(w.start, 10, 64)
	return err
}

// follow reads one connection, up to drop events of it (-1: all).
func (w *watcher) follow(ctx context.Context, c *apiClient, query url.Values, drop int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := c.send(ctx, http.MethodGet, w.path+"?"+query.Encode(), "", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != 200 {
		text, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%d %s", answer.StatusCode, text)
	}
	in := json.NewDecoder(answer.Body)
	for n := 0; n != drop || !w.live; n++ {
		var event struct {
			Type   string
			Object jsonObject
		}
		if err := in.Decode(&event); err != nil {
			return err
		}
		if err := w.see(event.Type, event.Object); err != nil {
			return err
		}
		if w.live && drop >= 0 && n >= drop {
			break
		}
	}
	return nil
}

// see checks one event against the events before it.
func (w *watcher) see(kind string, obj jsonObject) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	key, revision := obj.key(), obj.revision()
	told := fmt.Errorf("%s %s at %d, after %d", kind, key, revision, w.last)
	_, has := w.state[key]
	if kind == "MODIFIED" || kind == "DELETED" || kind == "BOOKMARK" {
		if !w.live { // the initial events are over; they arrive in the order of names
			w.last, w.live = 0, true
		}
	}
	switch {
	case kind != "ADDED" && kind != "MODIFIED" && kind != "DELETED" && kind != "BOOKMARK":
		return fmt.Errorf("%s %v", kind, obj)
	case w.live && (revision < w.last || revision == w.last && kind != "BOOKMARK"):
		return fmt.Errorf("out of order, or twice: %w", told)
	case kind == "ADDED" && has:
		return fmt.Errorf("known already: %w", told)
	case (kind == "MODIFIED" || kind == "DELETED") && !has:
		return fmt.Errorf("not known: %w", told)
	case kind == "BOOKMARK" && has:
		return told
	case (kind == "ADDED" || kind == "MODIFIED") && !w.keep(obj):
		return fmt.Errorf("not selected: %w", told)
	}
	w.last = revision
	w.events++
	switch kind {
	case "ADDED", "MODIFIED":
		w.state[key] = obj
	case "DELETED":
		delete(w.state, key)
	}
	return nil
}

// differs describes the difference between the replayed state and this one.
func (w *watcher) differs(want map[string]jsonObject) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, obj := range want {
		if got := w.state[key]; !reflect.DeepEqual(bare(got), bare(obj)) {
			return fmt.Sprintf("%s is %v, want %v", key, got, obj)
		}
	}
	for key := range w.state {
		if _, ok := want[key]; !ok {
			return key + " is not in the list"
		}
	}
	return ""
}

// bare is an object without its type, which the items of lists do not have.
func bare(obj jsonObject) jsonObject {
	without := jsonObject{}
	for key, value := range obj {
		if key != "apiVersion" && key != "kind" {
			without[key] = value
		}
	}
	return without
}

// list reads a collection, by pages of a size that no collection is a multiple of.
func (c *apiClient) list(ctx context.Context, path string, selector url.Values) (map[string]jsonObject, int64, error) {
	items := map[string]jsonObject{}
	query := url.Values{"limit": {"7"}}
	for key, value := range selector {
		query[key] = value
	}
	for {
		_, list, err := c.do(ctx, http.MethodGet, path+"?"+query.Encode(), "", nil, 200)
		if err != nil {
			return nil, 0, err
		}
		found, _ := list["items"].([]any)
		for _, item := range found {
			obj := jsonObject(item.(map[string]any))
			if _, twice := items[obj.key()]; twice {
				return nil, 0, fmt.Errorf("%s is in the list twice", obj.key())
			}
			items[obj.key()] = obj
		}
		next := list.text("metadata", "continue")
		if next == "" {
			return items, list.revision(), nil
		}
		query.Set("continue", next)
	}
}

// watchers are one watcher for every combination of type, version, scope, selector and start.
func watchers(origin string) []*watcher {
	label := func(obj jsonObject) string { return obj.text("metadata", "labels", "color") }
	selections := []struct {
		text  string
		query url.Values
		keep  func(jsonObject) bool
	}{
		{"all", nil, func(jsonObject) bool { return true }},
		{"color=red", url.Values{"labelSelector": {"color=red"}}, func(o jsonObject) bool { return label(o) == "red" }},
		{"color not in (red)", url.Values{"labelSelector": {"color notin (red)"}},
			func(o jsonObject) bool { return label(o) != "red" }},
		{"name n3", url.Values{"fieldSelector": {"metadata.name=n3"}},
			func(o jsonObject) bool { return o.text("metadata", "name") == "n3" }},
		{"blue, not n1", url.Values{"fieldSelector": {"metadata.name!=n1"}, "labelSelector": {"color in (blue)"}},
			func(o jsonObject) bool { return label(o) == "blue" && o.text("metadata", "name") != "n1" }},
	}
	var all []*watcher
	starts := []string{"list", "unset", "zero", "stream", origin}
	for _, kind := range churnedTypes {
		for _, format := range kind.urls {
			for i, s := range selections {
				for _, namespace := range []string{"", namespaces[0]} {
					start := starts[(len(all)+i)%len(starts)]
					all = append(all, &watcher{
						name: fmt.Sprintf("%s: %s from %s", collection(format, namespace), s.text, start),
						path: collection(format, namespace), selector: s.query, start: start,
						keep: func(o jsonObject) bool {
							return s.keep(o) && (namespace == "" || o.text("metadata", "namespace") == namespace)
						},
					})
				}
			}
		}
	}
	about := url.Values{"fieldSelector": {"regarding.name=n2,reason!=red"}}
	all = append(all, &watcher{
		name: "events about n2", path: "/apis/events.k8s.io/v1/events", selector: about, start: "list",
		keep: func(o jsonObject) bool { return o.text("regarding", "name") == "n2" && o.text("reason") != "red" },
	})
	return all
}

// Writers write at random while watchers of every kind watch, drop their connections and resume. In the end the state
// that each watcher has replayed equals a list with the same selector, and no acknowledged update is lost.
// SPEC: WATCH-1, WATCH-2, WATCH-5, WATCH-7, LIST-4, LIST-7, WRITE-1
func TestWatchersAgreeWithLists(t *testing.T) {
	config := Defaults()
	config.Controllers = []string{"namespace-controller"} // other writers create objects without the number
	config.DataDir, config.Storage, config.SecurePort, config.Logger = t.TempDir(), "memory", 0,
		slog.New(slog.DiscardHandler)
	s, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := &churn{T: t, client: clientOf(t, s), bumps: map[string]int{}}
	for _, namespace := range namespaces {
		if _, _, err := c.client.do(t.Context(), http.MethodPost, "/api/v1/namespaces", "application/json",
			jsonObject{"metadata": map[string]any{"name": namespace}}, 201); err != nil {
			t.Fatal(err)
		}
	}
	_, origin, err := c.client.list(t.Context(), "/api/v1/namespaces", nil)
	if err != nil {
		t.Fatal(err)
	}

	const writers = 4
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	writing, stopWriting := context.WithTimeout(t.Context(), 3*time.Second)
	defer stopWriting()
	watching, stopWatching := context.WithCancel(t.Context())
	defer stopWatching()
	var atWriting, atWatching sync.WaitGroup
	all := watchers(strconv.FormatInt(origin, 10))
	for i := range writers {
		atWriting.Go(func() {
			if err := c.write(writing, seed+uint64(i)); err != nil {
				t.Error(err)
			}
		})
	}
	for i, w := range all {
		atWatching.Go(func() {
			time.Sleep(time.Duration(i) * 20 * time.Millisecond) // some begin in the middle of it
			if err := w.run(watching, c.client, seed+uint64(i)); err != nil {
				t.Error(err)
			}
		})
	}
	atWriting.Wait()
	c.compare(all)
	stopWatching()
	atWatching.Wait()
	c.countBumps()
	resumed, events := 0, 0
	for _, w := range all {
		resumed, events = resumed+w.resumed, events+w.events
	}
	t.Logf("%d writes, %d watchers saw %d events and dropped %d connections", c.writes, len(all), events, resumed)
}

// compare waits until the state of every watcher equals a list, and checks that it stays so.
func (c *churn) compare(all []*watcher) {
	for _, w := range all {
		want, _, err := c.client.list(c.Context(), w.path, w.selector)
		if err != nil {
			c.Fatal(err)
		}
		everything, _, err := c.client.list(c.Context(), w.path, nil)
		if err != nil {
			c.Fatal(err)
		}
		for key, obj := range everything {
			if _, listed := want[key]; listed != w.keep(obj) {
				c.Errorf("%s: the list has %s: %v", w.name, key, listed)
			}
		}
		if _, stray := want[""]; stray || len(want) > len(everything) {
			c.Errorf("%s: the list has more than there is", w.name)
		}
		difference := "not compared"
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if difference = w.differs(want); difference == "" {
				break
			}
		}
		if difference != "" {
			c.Errorf("%s: %s", w.name, difference)
		}
		defer func() {
			if later := w.differs(want); difference == "" && later != "" {
				c.Errorf("%s, after the last write: %s", w.name, later)
			}
		}()
	}
}

// countBumps checks whether an acknowledged update was lost.
func (c *churn) countBumps() {
	for _, kind := range churnedTypes {
		items, _, err := c.client.list(c.Context(), collection(kind.urls[0], ""), nil)
		if err != nil {
			c.Fatal(err)
		}
		for key, obj := range items {
			if strings.HasPrefix(key, "kube-system/") { // the server's own
				continue
			}
			if got, want := obj.text("metadata", "annotations", "n"),
				strconv.Itoa(c.bumps[obj.text("metadata", "uid")]); got != want {
				c.Errorf("%s was updated %s times, its number is %s", key, want, got)
			}
		}
	}
}
