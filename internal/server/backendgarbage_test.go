package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// backedServer is a server and its backend, which is another server, both in a bubble: connections are pipes. The
// backend serves a.example.com/v1, and collects no garbage itself: it does not know the objects of the first one.
type backedServer struct {
	*testClient
	front       *Server
	frontConfig Config
	back        *Server
	behind      *testClient           // goes to the backend directly
	config      Config                // of the backend
	pipes       atomic.Pointer[pipes] // at which it listens
	uids        map[string]string
	follows     bool // the collector runs, and make waits until it has seen the widget
}

const backWidgets = "/apis/a.example.com/v1/namespaces/default/widgets"

func newBackedServer(t *testing.T) *backedServer {
	t.Helper()
	p := &backedServer{uids: map[string]string{}}
	p.frontConfig = quiet(t.TempDir())
	p.frontConfig.Aggregation.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.pipes.Load().dial(ctx, network, address)
	}
	p.frontConfig.Listener = newPipes()
	p.testClient, p.front = serveFrom(t, p.frontConfig)
	trusted := p.must(200, "GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", nil)
	file := filepath.Join(t.TempDir(), "proxy-ca.crt")
	if err := os.WriteFile(file, []byte(trusted.text("data", "requestheader-client-ca-file")), 0o600); err != nil {
		t.Fatal(err)
	}
	p.config = quiet(t.TempDir())
	p.config.Controllers = []string{"*", "-garbage-collector-controller"}
	p.config.FrontProxy = FrontProxy{CAFile: file, UserHeaders: []string{"X-Remote-User"},
		UIDHeaders: []string{"X-Remote-Uid"}, GroupHeaders: []string{"X-Remote-Group"},
		ExtraPrefixes: []string{"X-Remote-Extra-"}}
	p.start()
	p.behind.must(201, "POST", definitions, definitionOf("a.example.com", "widgets", "Widget"))
	p.must(201, "POST", "/api/v1/namespaces/default/services", jsonObject{"metadata": map[string]any{"name": "back"},
		"spec": map[string]any{"type": "ExternalName", "externalName": "127.0.0.1"}})
	p.register()
	return p
}

// start starts the backend.
func (p *backedServer) start() {
	listener := newPipes()
	p.pipes.Store(listener)
	p.config.Listener = listener
	p.behind, p.back = serveFrom(p.t, p.config)
}

// stop stops it.
func (p *backedServer) stop() {
	p.t.Helper()
	if err := p.back.Close(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *backedServer) register() {
	p.t.Helper()
	p.must(201, "POST", apiServices, jsonObject{"metadata": map[string]any{"name": "v1.a.example.com"},
		"spec": map[string]any{"group": "a.example.com", "version": "v1", "groupPriorityMinimum": 2000,
			"versionPriority": 20, "insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default",
				"name": "back"}}})
	p.serves()
}

// serves waits until the backend is served.
func (p *backedServer) serves() {
	p.t.Helper()
	p.eventually("the backend is available", func() bool {
		code, text := p.plain(backWidgets)
		return code == 200 && strings.Contains(text, "WidgetList")
	})
}

// path is the path of an object: those whose names begin with "w" are widgets, the others ConfigMaps.
func (p *backedServer) path(name string) string {
	if strings.HasPrefix(name, "w") {
		return backWidgets + "/" + name
	}
	return configMaps + "/" + name
}

// line executes one step:
//
//	make NAME [OWNER…]       "a!" is an owner whose deletion the object blocks, "a@" one that has another UID
//	hold NAME [OWNER…]       with a finalizer
//	own NAME [OWNER…]        replace its owners
//	let NAME                 remove the finalizer
//	delete NAME POLICY
//	end NAME                 delete it at the backend, past the server
//	gone NAME…               wait until they are gone
//	waits NAME…              wait until they are being deleted, and are not gone
//	free NAME…               wait until they have no owners
//	stop, start              the backend
//	unregister, register     its APIService
func (p *backedServer) line(line string) {
	p.t.Helper()
	words := strings.Fields(line)
	verb, words := words[0], words[1:]
	switch verb {
	case "make", "hold":
		p.make(verb, words[0], words[1:])
	case "own":
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": p.references(words[1:])}})
		if err != nil {
			p.t.Fatal(err)
		}
		p.patch(words[0], string(text))
	case "let":
		p.patch(words[0], `{"metadata":{"finalizers":null}}`)
	case "delete":
		p.must(200, "DELETE", p.path(words[0])+"?propagationPolicy="+words[1], nil)
	case "end":
		p.behind.must(200, "DELETE", p.path(words[0]), nil)
	case "gone":
		for _, name := range words {
			p.gone(p.path(name))
		}
	case "waits", "free":
		for _, name := range words {
			p.eventually(line, func() bool {
				meta := jsonObject(p.must(200, "GET", p.path(name), nil)["metadata"].(map[string]any))
				if verb == "waits" {
					return meta.text("deletionTimestamp") != ""
				}
				return meta["ownerReferences"] == nil
			})
		}
	case "stop":
		p.stop()
	case "start":
		p.start()
		p.serves()
	case "unregister":
		p.must(200, "DELETE", apiServices+"/v1.a.example.com", nil)
		p.eventually("it is not served", func() bool { code, _ := p.plain(backWidgets); return code == 404 })
	case "register":
		p.register()
	default:
		p.t.Fatalf("%q is no step", line)
	}
}

func (p *backedServer) references(owners []string) (refs []any) {
	for _, owner := range owners {
		base := strings.TrimRight(owner, "!@")
		ref := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": base, "uid": p.uids[base]}
		if strings.HasPrefix(base, "w") {
			ref["apiVersion"], ref["kind"] = "a.example.com/v1", "Widget"
		}
		if p.uids[base] == "" || strings.Contains(owner, "@") {
			ref["uid"] = "nobody"
		}
		ref["blockOwnerDeletion"] = strings.Contains(owner, "!")
		refs = append(refs, ref)
	}
	return refs
}

func (p *backedServer) make(verb, name string, owners []string) {
	p.t.Helper()
	meta := map[string]any{"name": name, "ownerReferences": p.references(owners)}
	if verb == "hold" {
		meta["finalizers"] = []any{"a.example.com/held"}
	}
	obj, path := jsonObject{"metadata": meta}, p.path("")
	if strings.HasPrefix(name, "w") {
		obj, path = widget(meta), p.path("w")
	}
	made := p.must(201, "POST", path[:strings.LastIndex(path, "/")], obj)
	p.uids[name] = made.text("metadata", "uid")
	if p.follows && strings.HasPrefix(name, "w") && len(owners) > 0 {
		p.seen()
	}
}

// seen waits until the collector has seen all that the backend has: it follows a watch, and an owner that is deleted
// before an event of a dependent has come does not wait for that dependent, as in the reference. A widget whose owner
// does not exist is behind them in the watch, and goes when it is seen.
func (p *backedServer) seen() {
	p.t.Helper()
	const name = "widget-that-is-seen"
	p.must(201, "POST", backWidgets, widget(map[string]any{"name": name, "ownerReferences": []any{map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "nobody"}}}))
	p.gone(backWidgets + "/" + name)
}

func (p *backedServer) patch(name, body string, orElse ...int) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.ctx, "PATCH", p.url+p.path(name), strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := p.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 && !slices.Contains(orElse, answer.StatusCode) {
		p.t.Fatalf("%s: %s", name, answer.Status)
	}
}

// left are the objects that are left, each with what keeps it: its owners, "+" if it is being deleted, and finalizers.
func (p *backedServer) left() string {
	p.t.Helper()
	var all []string
	for _, list := range []string{configMaps, backWidgets} {
		items, _ := p.must(200, "GET", list, nil)["items"].([]any)
		for _, item := range items {
			meta := jsonObject(item.(map[string]any)["metadata"].(map[string]any))
			name := meta.text("name")
			if strings.HasPrefix(name, "kube") {
				continue
			}
			if meta.text("deletionTimestamp") != "" {
				name += "+"
			}
			owners, _ := meta["ownerReferences"].([]any)
			for _, owner := range owners {
				name += "<" + jsonObject(owner.(map[string]any)).text("name")
			}
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// An object of a backend that an object here owns is collected with it, and the other way round, with all propagation
// policies; also if the backend was away meanwhile.
//
// SPEC: DEL-5, EXT-2
func TestGarbageOfBackends(t *testing.T) { synctest.Test(t, collectAtBackends) }

func collectAtBackends(t *testing.T) {
	p := newBackedServer(t)
	p.follows = true
	for _, scene := range []struct{ name, steps, left string }{
		{"background, a backend's dependent", "make a; make w a; make b; make w2 b; delete a Background; gone a w", "b w2<b"},
		{"background, a backend's owner", "make w; make a w; make w2; make b w2; delete w Background; gone w a", "b<w2 w2"},
		{"both at the backend", "make w; make w2 w; make w3; make w4 w3; delete w Background; gone w w2", "w3 w4<w3"},
		{"a chain through both", "make a; make w a; make b w; make w2 b; delete a Background; gone a w b w2", ""},
		{"foreground, a backend's dependent", "make a; hold w a!; delete a Foreground; waits a w; let w; gone a w", ""},
		{"foreground, a backend's owner", "make w; hold a w!; delete w Foreground; waits w a; let a; gone w a", ""},
		{"foreground, a chain", "make a; make w a!; hold b w!; delete a Foreground; waits a w b; let b; gone a w b", ""},
		{"foreground, a cycle", "make a; make w a!; make b w!; own a b!; delete a Foreground; gone a w b", ""},
		{"foreground, not blocked", "make a; hold w a; delete a Foreground; gone a; waits w; let w; gone w", ""},
		{"orphan, a backend's dependent", "make a; make w a; delete a Orphan; gone a; free w", "w"},
		{"orphan, a backend's owner", "make w; make a w; make w2 w; delete w Orphan; gone w; free a w2", "a w2"},
		{"no such owner", "make w a; gone w; make a w; gone a", ""},
		{"another UID", "make a; make w a@; gone w; make w; make b w@; gone b", "a w"},
		{"two owners", "make a; make w; make b a w; make w2 a w; delete a Background; gone a; free-but w b w2; " +
			"delete w Background; gone w b w2", ""},
		{"an owner at the backend goes while it is away", "make a; make w a; make b; make w2 b; stop; delete a Background; " +
			"gone a; start; gone w", "b w2<b"},
		{"foreground while it is away", "make a; make w a!; stop; delete a Foreground; waits a; start; gone a w", ""},
		{"orphan while it is away", "make a; make w a; stop; delete a Orphan; waits a; start; gone a; free w", "w"},
		{"created while its owner's backend is away", "make w; stop; make a w@; make b w; start; gone a", "b<w w"},
		{"an owner of the backend goes unseen", "make w; make a w; make w2; make b w2; stop; start; end w; gone a", "b<w2 w2"},
		{"an owner goes and comes back", "make w; make a w; stop; start; end w; make w; gone a", "w"},
		{"its APIService goes and comes back", "make a; make w a!; make w2; make b w2; unregister; delete a Foreground; " +
			"gone a; register; gone w", "b<w2 w2"},
	} {
		t.Logf("%s: %s", scene.name, scene.steps)
		for step := range strings.SplitSeq(scene.steps, "; ") {
			if rest, ok := strings.CutPrefix(step, "free-but "); ok { // each but the first has this one as its only owner
				words := strings.Fields(rest)
				for _, name := range words[1:] {
					p.eventually(step, func() bool {
						return strings.Contains(p.left(), name+"<"+words[0]) &&
							!strings.Contains(p.left(), name+"<"+words[0]+"<")
					})
				}
				continue
			}
			p.line(step)
		}
		time.Sleep(time.Minute) // what should stay has time to go
		if left := p.left(); left != scene.left {
			t.Errorf("%s: left %q, want %q", scene.name, left, scene.left)
		}
		p.clear()
	}
}

// clear deletes all objects.
func (p *backedServer) clear() {
	p.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(p.uids)) {
		for _, path := range []string{p.path(name)} {
			if code, _ := p.plain(path); code == 200 {
				p.patch(name, `{"metadata":{"finalizers":null}}`, 404) // it may go meanwhile
				p.do(p.ctx, "DELETE", path+"?propagationPolicy=Background", "", nil, 200, 404)
				p.gone(path)
			}
		}
	}
	clear(p.uids)
	if left := p.left(); left != "" {
		p.t.Fatal(fmt.Sprint("left: ", left))
	}
}

// While it is not known which dependents backends have, no owner is released, and none are orphaned.
//
// SPEC: DEL-5, EXT-2
func TestGarbageOfBackendsAfterARestart(t *testing.T) { synctest.Test(t, collectAfterARestart) }

func collectAfterARestart(t *testing.T) {
	p := newBackedServer(t)
	c := p.frontConfig
	c.Controllers = []string{"*", "-garbage-collector-controller"}
	p.restart(c)
	for _, step := range []string{"make a; make w a; delete a Orphan", "make b; hold w2 b!; delete b Foreground",
		"make w3; make d w3; delete w3 Orphan", "make e; make w4 e; delete e Background", "waits a b w3"} {
		for step := range strings.SplitSeq(step, "; ") {
			p.line(step)
		}
	}
	p.restart(p.frontConfig)
	for _, step := range []string{"gone a w3 w4", "free w d", "waits b w2", "let w2", "gone b w2"} {
		p.line(step)
	}
	if left := p.left(); left != "d w" {
		t.Errorf("left %q", left)
	}
}

// restart starts the first server anew.
func (p *backedServer) restart(c Config) {
	p.t.Helper()
	if err := p.front.Close(); err != nil {
		p.t.Fatal(err)
	}
	c.Listener = newPipes()
	p.testClient, p.front = serveFrom(p.t, c)
	p.serves()
}

// owned is what a backend answers that has things with owners: discovery, and other handlers for the rest.
func (b *backend) owned(list, watch, get http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/apis/back.example.com/v1":
			io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"back.example.com/v1","resources":[`+
				`{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","list","watch",`+
				`"delete","patch"]}]}`)
		case r.URL.Path == things && r.URL.Query().Get("watch") != "":
			watch(w, r)
		case r.URL.Path == things:
			list(w, r)
		case strings.HasSuffix(r.URL.Path, "/things/a"):
			get(w, r)
		default:
			http.NotFound(w, r)
		}
	}
}

// Whatever a backend does whose objects are followed: local objects are collected as before; those that objects of the
// backend own, as far as is known, stay; memory does not grow, and the backend is not asked without a pause. When it is
// good again, what it does not have any more is collected.
//
// SPEC: DEL-5, EXT-2
func TestGarbageBesideBadBackends(t *testing.T) {
	c, _, b := serveBackend(t) // not in a bubble, whose clock stands while a backend writes without end
	stop := make(chan bool)
	defer close(stop)
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }
	}
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	}
	endless := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, body); err != nil {
					return
				}
			}
		}
	}
	meta := `"metadata":{"namespace":"default","name":"a","uid":"1","resourceVersion":"1"}`
	parts := 0
	good := text(`{"kind":"ThingList","metadata":{"resourceVersion":"5"},"items":[]}`)
	b.behave(b.owned(good, hang, text(`{"kind":"Thing",`+meta+`}`)))
	c.register(b)
	c.eventually("the backend's resources in discovery", func() bool { return strings.Contains(c.entry(), "things") })
	c.must(201, "POST", configMaps, ownedBy("kept", "back.example.com/v1", "Thing", "a", "1"))
	for i, bad := range []struct {
		name             string
		list, watch, get http.HandlerFunc
	}{
		{"lists are garbage", text("{["), hang, hang},
		{"lists are of another form", text(`{"items":[1,{"metadata":7}]}`), hang, text(`{}`)},
		{"lists have no revision", text(`{"items":[]}`), hang, text(`[]`)},
		{"lists never end", func(w http.ResponseWriter, r *http.Request) {
			parts++
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1","continue":"%d"},"items":[]}`, parts)
		}, hang, hang},
		{"an endless page", endless(strings.Repeat("[", 1000)), hang, hang},
		{"lists hang", hang, hang, hang},
		{"errors", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }, hang,
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }},
		{"watches are garbage", good, text("{["), text("<html>")},
		{"watches end at once", good, text(""), hang},
		{"an endless event", good, endless(`{"a":`), endless(`[`)},
		{"events never end", good, endless(`{"type":"MODIFIED","object":{` + meta + `}}`), hang},
		{"no revision is known", good, text(`{"type":"ERROR","object":{"code":410}}`), hang},
		{"another object", good, hang, text(`{"metadata":{"namespace":"default","name":"b","uid":"2","resourceVersion":"1"}}`)},
	} {
		var asked atomic.Int64
		counted := func(answer http.HandlerFunc) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { asked.Add(1); answer(w, r) }
		}
		list := counted(bad.list)
		if bad.name == "lists never end" {
			list = bad.list // one list asks for many parts
		}
		b.behave(b.owned(list, counted(bad.watch), counted(bad.get)))
		b.CloseClientConnections() // which ends the watch
		before, began := heap(), time.Now()
		for n := range 4 {
			owner := c.must(201, "POST", configMaps, jsonObject{"metadata": map[string]any{"name": "owner"}})
			c.must(201, "POST", configMaps, ownedBy("dependent", "v1", "ConfigMap", "owner", owner.text("metadata", "uid")))
			c.must(201, "POST", configMaps, ownedBy(fmt.Sprint("other", i, "-", n), "back.example.com/v1", "Thing", "a", "1"))
			c.must(200, "DELETE", configMaps+"/owner?propagationPolicy=Foreground", nil)
			c.gone(configMaps + "/owner")
			c.gone(configMaps + "/dependent")
			time.Sleep(100 * time.Millisecond)
		}
		c.stays(configMaps + "/kept")
		c.stays(configMaps + fmt.Sprint("/other", i, "-", 0))
		took := time.Since(began)
		if n := asked.Load(); n > int64(100*took.Seconds()) {
			t.Errorf("%s: it was asked %d times in %v", bad.name, n, took)
		}
		if grown := heap() - before; grown > 64<<20 {
			t.Errorf("%s: %d MiB", bad.name, grown>>20)
		}
	}
	b.behave(b.owned(good, hang, http.NotFound)) // no Status, but 404, as to the reference's clients
	b.CloseClientConnections()
	c.gone(configMaps + "/kept")
	c.gone(configMaps + "/other0-0")
}

// heap is the size of the objects in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
