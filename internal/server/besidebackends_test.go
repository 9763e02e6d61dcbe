package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Whatever becomes of a backend, and of definitions, while clients ask what is served: each answer is a whole document,
// which has the built-in groups and the group of the backend. What others do beside it is measured (-v).
//
// SPEC: EXT-2, URI-8
func TestDiscoveryBesideChangingBackends(t *testing.T) {
	c, _, b := serveBackend(t)
	c.register(b)
	c.eventually("the backend's resources in discovery", func() bool { return strings.Contains(c.entry(), "things") })
	stop := make(chan bool)
	hang := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	}
	defer close(stop)
	endless := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "[[[["); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	distrusted := func() { // its certificate is not of the authority that is expected
		other := newBackend(t, "").bundle
		c.reconfigure(func(spec map[string]any) { spec["caBundle"] = other })
		b.CloseClientConnections()
	}
	for _, state := range []struct {
		name   string
		answer http.HandlerFunc
		change bool   // the state of the backend is another one from time to time
		begin  func() // nil: nothing else happens
	}{
		{"good", b.good, false, nil},
		{"changing", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }, true, nil},
		{"garbage", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{[") }, false, nil},
		{"endless", endless, false, nil},
		{"hanging", hang, false, nil},
		{"distrusted", b.good, false, distrusted},
		{"gone", b.good, false, func() { b.Listener.Close(); b.CloseClientConnections() }},
	} {
		b.behave(state.answer)
		if state.begin != nil {
			state.begin()
		}
		done := make(chan bool)
		var changes, readers sync.WaitGroup
		changes.Go(func() { c.disturb(b, state.answer, state.change, done) })
		var mu sync.Mutex
		var took []time.Duration
		for n := range 4 {
			readers.Go(func() {
				for range 100 {
					began := time.Now()
					code, text := c.plain("/api/v1/namespaces/default")
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
					if code != 200 || !strings.Contains(text, `"name":"default"`) {
						t.Errorf("%s: a namespace: %d %q", state.name, code, text)
					}
					accept := "application/json"
					if n%2 == 0 {
						accept += ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
					}
					if code, text := c.plain("/apis", "Accept", accept); code != 200 || !hasGroups([]byte(text)) {
						t.Errorf("%s: /apis: %d %.200q", state.name, code, text)
					}
				}
			})
		}
		readers.Wait()
		close(done)
		changes.Wait()
		slices.Sort(took)
		t.Logf("%s: %d GETs of a namespace: median %v, p99 %v", state.name, len(took), took[len(took)/2],
			took[len(took)*99/100])
	}
}

// hasGroups says whether a discovery document has built-in groups and that of the backend.
func hasGroups(text []byte) bool {
	var list struct {
		Groups []struct{ Name string }
		Items  []struct{ Metadata struct{ Name string } }
	}
	if json.Unmarshal(text, &list) != nil {
		return false
	}
	found := map[string]bool{}
	for _, g := range list.Groups {
		found[g.Name] = true
	}
	for _, g := range list.Items {
		found[g.Metadata.Name] = true
	}
	return found["apps"] && found["batch"] && found["apiregistration.k8s.io"] && found["back.example.com"]
}

// disturb has requests wait for the backend, and changes what is served, until done is closed.
func (c *testClient) disturb(b *backend, answer http.HandlerFunc, change bool, done chan bool) {
	var waiting sync.WaitGroup
	for range 4 {
		waiting.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					request, err := http.NewRequestWithContext(c.ctx, "GET", c.url+things+"?timeout=1s", nil)
					if err != nil {
						return
					}
					if answer, err := c.Do(request); err == nil {
						io.Copy(io.Discard, answer.Body)
						answer.Body.Close()
					}
				}
			}
		})
	}
	defer waiting.Wait()
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		if change {
			if i%2 == 0 {
				b.behave(b.good)
			} else {
				b.behave(answer)
			}
		}
		group := fmt.Sprintf("d%d.example.com", i%3)
		service := jsonObject{"metadata": map[string]any{"name": "back", "annotations": map[string]any{
			"now": fmt.Sprint(i)}}, "spec": map[string]any{"type": "ExternalName", "externalName": "127.0.0.1"}}
		c.must(200, "PUT", "/api/v1/namespaces/default/services/back", service)
		if code, _ := c.plain(definitions + "/widgets." + group); code == 404 {
			c.must(201, "POST", definitions, definitionOf(group, "widgets", "Widget"))
		} else {
			// The definition may be one that is being deleted: then it can be gone by now.
			if _, _, err := c.do(c.ctx, "DELETE", definitions+"/widgets."+group, "", nil, 200, 404); err != nil {
				c.t.Error(err)
				return
			}
		}
	}
}
