package plinthtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

// client is a client of a plane, by net/http alone.
type client struct {
	t    testing.TB
	host string
	http.RoundTripper
	agent string
}

func newClient(t testing.TB, p *Plane, as ...User) *client {
	return &client{t, p.Host(), p.Transport(as...), "test/1"}
}

// send sends a request, and returns the answer without its body read.
func (c *client) send(method, path, contentType, body string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.host+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("User-Agent", c.agent)
	answer, err := c.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

// do sends a request with a status that is expected, and returns the body of the answer.
func (c *client) do(want int, method, path, body string) string {
	c.t.Helper()
	contentType := "application/json"
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	answer := c.send(method, path, contentType, body)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if answer.StatusCode != want {
		c.t.Fatalf("%s %s: %s, want %d: %s", method, path, answer.Status, want, text)
	}
	return string(text)
}

func (c *client) apply(want int, manager, path, body string) string {
	c.t.Helper()
	answer := c.send(http.MethodPatch, path+"?fieldManager="+manager, "application/apply-patch+yaml", body)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != want {
		c.t.Fatalf("apply by %s: %s, %v: %s", manager, answer.Status, err, text)
	}
	return string(text)
}

// watched is an event of a watch.
type watched struct {
	Type   string
	Object struct {
		Metadata struct{ Name, ResourceVersion string }
		Data     map[string]string
	}
}

// watch starts a watch, and returns a function that reads its next event; nil at its end, with the error.
func (c *client) watch(path string) (next func() (*watched, error), end func() error) {
	c.t.Helper()
	answer := c.send(http.MethodGet, path, "", "")
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		c.t.Fatalf("GET %s: %s: %s", path, answer.Status, text)
	}
	lines := bufio.NewReader(answer.Body)
	return func() (*watched, error) {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		e := &watched{}
		return e, json.Unmarshal(line, e)
	}, answer.Body.Close
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func configMap(name string, data ...string) string {
	values := map[string]string{}
	for i := 0; i < len(data); i += 2 {
		values[data[i]] = data[i+1]
	}
	text, _ := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]string{"name": name}, "data": values})
	return string(text)
}

// SPEC: BEY-7
func TestPlane(t *testing.T) {
	p := New(t)
	c := newClient(t, p)
	next, end := c.watch(configMaps + "?watch=true")
	if made := c.do(201, "POST", configMaps, configMap("a", "color", "red")); !strings.Contains(made, `"color":"red"`) {
		t.Errorf("made %s", made)
	}
	if e, err := next(); err != nil || e.Type != "ADDED" || e.Object.Metadata.Name != "a" {
		t.Errorf("the watch sends %+v, %v", e, err)
	}
	c.do(409, "POST", configMaps, configMap("a"))
	c.do(404, "GET", configMaps+"/b", "")
	c.do(200, "DELETE", configMaps+"/a", "")
	if e, err := next(); err != nil || e.Type != "DELETED" {
		t.Errorf("the watch sends %+v, %v", e, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if _, err := next(); err == nil {
		t.Error("a closed watch goes on")
	}
	if groups := c.do(200, "GET", "/apis", ""); !strings.Contains(groups, `"apps"`) {
		t.Errorf("the groups are %s", groups)
	}
}

func BenchmarkNew(b *testing.B) {
	newPlaneOnce(b)
	b.ReportAllocs()
	for b.Loop() {
		newPlaneOnce(b)
	}
}

func newPlaneOnce(b *testing.B, o ...Option) {
	p, err := newPlane(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	if err := p.close(); err != nil {
		b.Fatal(err)
	}
}

var _ = []any{bytes.NewReader, fmt.Sprint, os.Stdout, runtime.GC, fstest.MapFS{}, synctest.Wait, time.Now}
