package httpapi

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// event is one line of a watch.
type event struct {
	Type   string
	Object struct {
		Kind, Reason string
		Code         int
		Data         map[string]string
		Metadata     struct {
			Name, ResourceVersion string
			Annotations           map[string]string
		}
	}
}

func (e event) String() string {
	text := e.Type + " " + e.Object.Metadata.Name
	if e.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true" {
		text += "end"
	}
	if e.Object.Kind == "Status" {
		text += fmt.Sprintf("%d %s", e.Object.Code, e.Object.Reason)
	}
	return strings.TrimSpace(text)
}

// watch opens a watch and returns a function that reads its next event. ok is false at the end of the stream.
func (s *server) watch(query string, header ...string) func() (event, bool) {
	s.t.Helper()
	return s.watchFor(20*time.Second, query, header...)
}

// watchFor is watch with a limit of its duration.
func (s *server) watchFor(most time.Duration, query string, header ...string) func() (event, bool) {
	s.t.Helper()
	response := s.openFor(most, "GET", configMaps+"?watch=1&"+query, "", header...)
	s.t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != 200 {
		text, _ := io.ReadAll(response.Body)
		s.t.Fatalf("watch %s: %d %s", query, response.StatusCode, text)
	}
	next := lines(s.t, response.Body)
	return func() (event, bool) {
		s.t.Helper()
		line, ok := next()
		if !ok {
			return event{}, false
		}
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatalf("%v in %q", err, line)
		}
		return e, true
	}
}

// rest reads a watch to its end.
func rest(next func() (event, bool)) string {
	var all []string
	for e, ok := next(); ok; e, ok = next() {
		all = append(all, e.String())
	}
	return strings.Join(all, ", ")
}

// Each event of a compressed watch can be decompressed when it arrives, without the next one.
//
// SPEC: MED-5
func TestCompressedWatch(t *testing.T) {
	s := newServer(t, nil)
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	response := s.open("GET", configMaps+"?watch=1&allowWatchBookmarks=true", "", "Accept-Encoding", "gzip")
	defer response.Body.Close()
	if encoding := response.Header.Get("Content-Encoding"); encoding != "gzip" {
		t.Fatalf("Content-Encoding is %q", encoding)
	}
	plain, err := gzip.NewReader(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	next := lines(t, plain)
	read := func(want string) {
		t.Helper()
		line, ok := next()
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil || !ok || e.String() != want {
			t.Fatalf("%q (%v), want %s", line, err, want)
		}
	}
	read("ADDED a")
	read("BOOKMARK end")
	for _, name := range []string{"b", "c", "d"} {
		s.create(configMaps, `{"metadata":{"name":"`+name+`"}}`)
		read("ADDED " + name)
	}
}

// SPEC: WATCH-1, WATCH-2, WATCH-3, WATCH-4, WATCH-5, WATCH-6
func TestWatchFromWhere(t *testing.T) { inBubble(t, nil, testWatchFromWhere) }

func testWatchFromWhere(t *testing.T, s *server) {
	version := s.create(configMaps, `{"metadata":{"name":"a"}}`).At("metadata", "resourceVersion").Str()
	s.create(configMaps, `{"metadata":{"name":"b","labels":{"x":"y"}}}`)
	const streaming = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	for query, want := range map[string]string{
		"":                                   "ADDED a, ADDED b",
		"resourceVersion=0":                  "ADDED a, ADDED b",
		"resourceVersion=" + version:         "ADDED b",
		"labelSelector=x":                    "ADDED b",
		"fieldSelector=metadata.name=a":      "ADDED a",
		"resourceVersion=99999":              "",
		"allowWatchBookmarks=1":              "ADDED a, ADDED b, BOOKMARK end",
		streaming:                            "ADDED a, ADDED b",
		streaming + "&allowWatchBookmarks=1": "ADDED a, ADDED b, BOOKMARK end",
		streaming + "&allowWatchBookmarks=1&resourceVersion=" +
			version: "ADDED a, ADDED b, BOOKMARK end",
		"sendInitialEvents=false&resourceVersionMatch=NotOlderThan":                           "",
		"allowWatchBookmarks=1&resourceVersion=" + version + "&fieldSelector=metadata.name=a": "BOOKMARK",
		streaming + "&resourceVersion=99999&timeoutSeconds=5":                                 "ERROR 504 Timeout",
		"timeoutSeconds=-1": "ERROR 504 Timeout",
	} {
		if !strings.Contains(query, "timeoutSeconds") {
			query += "&timeoutSeconds=1"
		}
		if got := rest(s.watch(query)); got != want {
			t.Errorf("%s: got %s\nwant %s", query, got, want)
		}
	}
}

// SPEC: WATCH-1
func TestWatchPath(t *testing.T) { inBubble(t, nil, testWatchPath) }

func testWatchPath(t *testing.T, s *server) {
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	s.create(configMaps, `{"metadata":{"name":"b"}}`)
	got := s.do("GET", "/api/v1/watch/namespaces/default/configmaps/b?timeoutSeconds=1", "")
	if strings.Count(got.body, "\n") != 1 || !strings.Contains(got.body, `"name":"b"`) {
		t.Errorf("%d %s", got.code, got.body)
	}
}

// SPEC: WATCH-4
func TestBookmarks(t *testing.T) { inBubble(t, nil, testBookmarks) }

func testBookmarks(t *testing.T, s *server) {
	began := time.Now()
	next := s.watchFor(time.Hour, "allowWatchBookmarks=true&timeoutSeconds=400&resourceVersion=2")
	last := ""
	for i := range 5 {
		if i == 2 {
			last = s.create("/api/v1/namespaces/default/secrets", `{"metadata":{"name":"elsewhere"}}`).At("metadata",
				"resourceVersion").Str()
		}
		e, ok := next()
		if !ok || e.Type != "BOOKMARK" || e.Object.Kind != "ConfigMap" {
			t.Fatalf("event %d: %v %v", i, e, ok)
		}
		if took := time.Since(began); took != time.Duration(i+1)*time.Minute {
			t.Errorf("bookmark %d arrives after %s", i, took)
		}
		if i == 4 && e.Object.Metadata.ResourceVersion != last {
			t.Errorf("the bookmark has revision %s, after a write of another type at %s", e.Object.Metadata.ResourceVersion, last)
		}
	}
}

// A bookmark that is due while events are converted is sent behind them. Here a conversion lasts longer than the time
// between two bookmarks. A server that closes does not wait for it.
//
// SPEC: WATCH-8
func TestBookmarksWaitForAConversion(t *testing.T) {
	var quit context.CancelFunc
	inBubble(t, func(c *Config) {
		c.BookmarkInterval = time.Minute
		c.Closing, quit = context.WithCancel(context.Background())
	}, func(t *testing.T, s *server) { testBookmarksWaitForAConversion(t, s, quit) })
}

func testBookmarksWaitForAConversion(t *testing.T, s *server, quit func()) {
	const stored = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	const watched = "/apis/autoscaling/v1/horizontalpodautoscalers?watch=1&allowWatchBookmarks=true"
	kind := s.types.Now().Find("autoscaling", "v2", "horizontalpodautoscalers").Stored
	convert := kind.Convert
	kind.Convert = func(ctx context.Context, objects []object.Value, to *engine.Version) ([]object.Value, error) {
		if objects[0].At("apiVersion").Str() != to.APIVersion {
			select {
			case <-time.After(s.config.BookmarkInterval * 3 / 2):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return convert(ctx, objects, to)
	}
	scale := func(replicas int) {
		got := s.do("PATCH", stored+"/a", fmt.Sprintf(`{"spec":{"maxReplicas":%d}}`, replicas),
			"Content-Type", "application/merge-patch+json")
		if got.code != 200 {
			t.Fatalf("%d %s", got.code, got.body)
		}
	}
	begin := func(query string) func() (string, bool) {
		response := s.openFor(time.Hour, "GET", watched+query, "")
		t.Cleanup(func() { response.Body.Close() })
		return lines(t, response.Body)
	}
	read := func(next func() (string, bool), want string) (revision string) {
		t.Helper()
		line, ok := next()
		var e event
		if err := json.Unmarshal([]byte(line), &e); !ok || err != nil || e.String() != want {
			t.Fatalf("%q (%v), want %s", line, err, want)
		}
		return e.Object.Metadata.ResourceVersion
	}
	made := s.create(stored, `{"metadata":{"name":"a"},"spec":{"maxReplicas":1,
		"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`)
	first := begin("")
	read(first, "ADDED a")
	read(first, "BOOKMARK end")
	read(first, "BOOKMARK")
	second := begin("&resourceVersion=" + made.At("metadata", "resourceVersion").Str())
	scale(2)
	for _, next := range []func() (string, bool){first, second} {
		told := read(next, "MODIFIED a")
		if bookmark := read(next, "BOOKMARK"); bookmark != told {
			t.Errorf("the bookmark after the event of revision %s has %s", told, bookmark)
		}
	}
	scale(3)
	synctest.Wait()
	began := time.Now()
	quit()
	for _, next := range []func() (string, bool){first, second} {
		if line, ok := next(); ok || !began.Equal(time.Now()) {
			t.Errorf("%s after the server has closed, a watch sends %q", time.Since(began), line)
		}
	}
}

// Every watcher gets all events once and in order, in every form.
//
// SPEC: WATCH-1, MED-6, MED-7
func TestManyWatchers(t *testing.T) {
	s := newServer(t, nil)
	const watchers, writes = 30, 300
	forms := []string{"application/json", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
		"application/json;as=Table;g=meta.k8s.io;v=v1"}
	var done sync.WaitGroup
	for i := range watchers {
		response := s.open("GET", configMaps+"?watch=1&resourceVersion=2", "", "Accept", forms[i%len(forms)])
		done.Add(1)
		go func() {
			defer done.Done()
			defer response.Body.Close()
			next := lines(t, response.Body)
			last := int64(0)
			for n := range writes + 2 {
				line, ok := next()
				if !ok {
					t.Errorf("watcher %d ends after %d events", i, n)
					return
				}
				var revision int64
				at := strings.Index(line, `"resourceVersion":"`)
				fmt.Sscan(line[at+len(`"resourceVersion":"`):strings.Index(line[at+20:], `"`)+at+20], &revision)
				if revision <= last {
					t.Errorf("watcher %d: %d after %d", i, revision, last)
				}
				last = revision
				if n == writes+1 && !strings.HasPrefix(line, `{"type":"DELETED"`) {
					t.Errorf("watcher %d: the last event is %s", i, line)
				}
			}
		}()
	}
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	rq := &engine.Request{Resource: s.types.Now().Find("", "v1", "configmaps"), Namespace: "default", Name: "a"}
	for i := range writes {
		patch := engine.Patch{Type: engine.MergePatch, Body: []byte(fmt.Sprintf(`{"data":{"n":"%d"}}`, i))}
		if _, err := s.engine.Patch(context.Background(), rq, patch); err != nil {
			t.Fatal(err)
		}
	}
	s.do("DELETE", configMaps+"/a", "")
	done.Wait()
}

// SPEC: WATCH-6
func TestWatchEndsWhenTheServerCloses(t *testing.T) {
	closing, quit := context.WithCancel(context.Background())
	s := newServer(t, func(c *Config) { c.Closing = closing })
	next := s.watch("resourceVersion=0")
	quit()
	if e, ok := next(); ok {
		t.Errorf("got %v", e)
	}
}

// A client that disconnects leaves no goroutine and no cursor.
//
// SPEC: WATCH-6
func TestWatcherGone(t *testing.T) { inBubble(t, nil, testWatcherGone) }

func testWatcherGone(t *testing.T, s *server) {
	synctest.Wait()
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 50 {
		r, err := http.NewRequestWithContext(ctx, "GET", s.url+configMaps+"?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
	}
	synctest.Wait()
	if during, waiting := runtime.NumGoroutine(), s.store.Stats().Waiting; during < before+50 || waiting != 50 {
		t.Errorf("%d goroutines before, %d with 50 watches, %d cursors wait", before, during, waiting)
	}
	cancel()
	synctest.Wait()
	if after, waiting := runtime.NumGoroutine(), s.store.Stats().Waiting; after > before || waiting != 0 {
		t.Errorf("%d goroutines before, %d after, %d cursors wait", before, after, waiting)
	}
}

// A watch whose client does not read is ended; one without events is not. Both over HTTP/1.1 and HTTP/2.
//
// SPEC: WATCH-6
func TestStalledWatcher(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			var ended sync.Map
			inBubble(t, func(c *Config) {
				c.StallTimeout = 30 * time.Second
				c.Metrics.Request = func(o Observation) { ended.Store(o.Verb+" "+o.Resource, true) }
			}, func(t *testing.T, s *server) {
				testStalledWatcher(t, s, protocol, func(what string) bool {
					synctest.Wait()
					_, is := ended.Load(what)
					return is
				})
			})
		})
	}
}

func testStalledWatcher(t *testing.T, s *server, protocol string, ended func(string) bool) {
	if protocol == "HTTP/1.1" {
		transport := s.transport().Clone()
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(true)
		transport.TLSClientConfig.NextProtos = nil
		s.client.Transport = transport
	}
	idle := s.openFor(time.Hour, "GET", "/api/v1/secrets?watch=1", "")
	defer idle.Body.Close()
	stalled := s.openFor(time.Hour, "GET", configMaps+"?watch=1", "")
	defer stalled.Body.Close()
	if stalled.Proto != protocol {
		t.Fatalf("the protocol is %s, want %s", stalled.Proto, protocol)
	}
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	rq := &engine.Request{Resource: s.types.Now().Find("", "v1", "configmaps"), Namespace: "default", Name: "a"}
	text := strings.Repeat("x", 500<<10)
	for i := range 20 { // more than the buffers of client and connection
		patch := engine.Patch{Type: engine.MergePatch, Body: fmt.Appendf(nil, `{"data":{"n":"%d","t":%q}}`, i, text)}
		if _, err := s.engine.Patch(t.Context(), rq, patch); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(s.config.StallTimeout - time.Millisecond)
	if ended("WATCH configmaps") {
		t.Error("the watch was ended before StallTimeout")
	}
	// The store's throttle may have delayed the last wake-up, and crypto/tls waits up to 5 seconds for its alert to be
	// written when net/http closes the connection.
	time.Sleep(6 * time.Second)
	if !ended("WATCH configmaps") {
		t.Error("the stalled watch was not ended")
	}
	if ended("WATCH secrets") {
		t.Error("the idle watch was ended")
	}
	s.create("/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"}}`)
	if line, err := bufio.NewReader(idle.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"ADDED"`) {
		t.Errorf("the idle watch reads %q, %v", line, err)
	}
}

// A read of 100 KiB whose client does not read is ended like a stalled watch, over HTTP/1.1 and HTTP/2: it holds a slot
// of the requests under way.
//
// SPEC: WRITE-6
func TestStalledReader(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			var ended sync.Map
			inBubble(t, func(c *Config) {
				c.StallTimeout = 10 * time.Second
				c.Metrics.Request = func(o Observation) { ended.Store(o.Verb+" "+o.Resource, true) }
			}, func(t *testing.T, s *server) {
				testStalledReader(t, s, protocol, func(what string) bool {
					synctest.Wait()
					_, is := ended.Load(what)
					return is
				})
			})
		})
	}
}

func testStalledReader(t *testing.T, s *server, protocol string, ended func(string) bool) {
	s.create(configMaps, fmt.Sprintf(`{"metadata":{"name":"a"},"data":{"t":%q}}`, strings.Repeat("x", 100<<10)))
	transport := s.transport().Clone()
	if transport.HTTP2 = (&http.HTTP2Config{MaxReceiveBufferPerStream: 16 << 10}); protocol == "HTTP/1.1" {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(true)
		transport.TLSClientConfig.NextProtos = nil
	}
	s.client.Transport = transport
	stalled := s.openFor(time.Hour, "GET", configMaps+"/a", "")
	defer stalled.Body.Close()
	if stalled.Proto != protocol {
		t.Fatalf("the protocol is %s, want %s", stalled.Proto, protocol)
	}
	time.Sleep(s.config.StallTimeout - time.Millisecond)
	if ended("GET configmaps") {
		t.Error("the answer was ended before StallTimeout")
	}
	// After a failed write, net/http closes an HTTP/1.1 connection, for which crypto/tls takes up to five seconds.
	time.Sleep(5*time.Second + time.Millisecond)
	if !ended("GET configmaps") {
		t.Error("the stalled answer was not ended")
	}
}

// SPEC: WATCH-3
func TestWatchOfAVersionThatIsGone(t *testing.T) { synctest.Test(t, testWatchOfAVersionThatIsGone) }

func testWatchOfAVersionThatIsGone(t *testing.T) {
	s := newServerInBubble(t, store.Config{HistoryBytes: 64 << 10, MemoryHistoryBytes: 32 << 10}, nil)
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	rq := &engine.Request{Resource: s.types.Now().Find("", "v1", "configmaps"), Namespace: "default", Name: "a"}
	text := strings.Repeat("x", 10<<10)
	for i := range 40 {
		patch := engine.Patch{Type: engine.MergePatch, Body: []byte(fmt.Sprintf(`{"data":{"n":"%d","t":%q}}`, i, text))}
		if _, err := s.engine.Patch(context.Background(), rq, patch); err != nil {
			t.Fatal(err)
		}
	}
	for _, accept := range []string{"application/json", "application/json;as=Table;g=meta.k8s.io;v=v1"} {
		if got := rest(s.watch("resourceVersion=2&timeoutSeconds=1", "Accept", accept)); got != "ERROR 410 Expired" {
			t.Errorf("%s: got %s", accept, got)
		}
	}
}

// SPEC: WATCH-1
func TestEventMetrics(t *testing.T) {
	events, size := 0, 0
	inBubble(t, func(c *Config) {
		c.Metrics.Events = func(group, version, resource string, n, bytes int) {
			if resource == "configmaps" {
				events, size = events+n, size+bytes
			}
		}
	}, func(t *testing.T, s *server) { testEventMetrics(t, s, &events, &size) })
}

func testEventMetrics(t *testing.T, s *server, events, size *int) {
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	got := s.do("GET", configMaps+"?watch=1&timeoutSeconds=1", "")
	synctest.Wait()
	if *events != 1 || *size != len(got.body) {
		t.Errorf("%d events, %d bytes; the client has read %d", *events, *size, len(got.body))
	}
}

// A watch without timeoutSeconds ends at a random time between MinRequestTimeout and twice that. A watch with
// timeoutSeconds ends when it says.
//
// SPEC: WATCH-6
func TestWatchThatNamesNoTimeout(t *testing.T) {
	const least = 5 * time.Minute
	inBubble(t, func(c *Config) { c.MinRequestTimeout = least }, testWatchThatNamesNoTimeout)
	for range 1000 {
		if d := (&listParams{}).lasts(least); d < least || d >= 2*least {
			t.Fatalf("a watch of %s", d)
		}
	}
}

func testWatchThatNamesNoTimeout(t *testing.T, s *server) {
	least := s.config.MinRequestTimeout
	lasts := func(query string) time.Duration {
		began := time.Now()
		response := s.openFor(time.Hour, "GET", configMaps+"?watch=1&resourceVersion=2"+query, "")
		defer response.Body.Close()
		if text, err := io.ReadAll(response.Body); err != nil || len(text) > 0 {
			t.Errorf("the watch ends with the error %v and the events %s", err, text)
		}
		return time.Since(began)
	}
	different := map[time.Duration]bool{}
	for range 4 {
		took := lasts("")
		if took < least || took >= 2*least {
			t.Errorf("a watch lasted %s", took)
		}
		different[took] = true
	}
	if len(different) == 1 {
		t.Errorf("all lasted equally long: %v", different)
	}
	if took := lasts("&timeoutSeconds=1"); took != time.Second {
		t.Errorf("a watch of a second lasted %s", took)
	}
}

// The length of a watch is not known: on HTTP/1.1 it comes in chunks, on HTTP/2 in frames.
//
// SPEC: WATCH-1, URI-11
func TestWatchesAreChunked(t *testing.T) { overBoth(t, testWatchesAreChunked) }

func testWatchesAreChunked(t *testing.T, protocol func(*server)) {
	s := newServerInBubble(t, store.Config{}, nil)
	protocol(s)
	response := s.open("GET", configMaps+"?watch&timeoutSeconds=1", "")
	defer response.Body.Close()
	chunked := slices.Equal(response.TransferEncoding, []string{"chunked"})
	if response.StatusCode != 200 || response.ContentLength != -1 || chunked != (response.ProtoMajor == 1) {
		t.Errorf("%s %s: length %d, %v", response.Proto, response.Status, response.ContentLength, response.TransferEncoding)
	}
}
