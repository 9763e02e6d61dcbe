package plinthtest

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"
)

//go:embed testdata/crds
var crds embed.FS

const widgets = "/apis/example.com/v1/namespaces/default/widgets"

const widget = `{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 3}}`

// Planes that begin with an image have what it has, and none sees what another one writes.
func TestImages(t *testing.T) {
	first := New(t, CRDs(crds), Objects([]byte(configMap("a", "color", "red"))))
	c := newClient(t, first)
	c.do(201, "POST", widgets, widget)
	image := first.Snapshot()
	c.do(200, "DELETE", widgets+"/a", "")
	var planes sync.WaitGroup
	for i := range 16 {
		planes.Go(func() {
			c := newClient(t, New(t, From(image)))
			if text := c.do(200, "GET", widgets+"/a", ""); !strings.Contains(text, `"color":"grey"`) { // the default
				t.Errorf("the widget is %s", text)
			}
			c.do(200, "PATCH", configMaps+"/a", fmt.Sprintf(`{"data": {"color": "color %d"}}`, i))
			c.do(422, "PATCH", widgets+"/a", `{"spec": {"size": 30}}`)
			if text := c.do(200, "GET", configMaps+"/a", ""); !strings.Contains(text, fmt.Sprintf("color %d", i)) {
				t.Errorf("plane %d has %s", i, text)
			}
		})
	}
	planes.Wait()
	if text := c.do(200, "GET", configMaps+"/a", ""); !strings.Contains(text, `"color":"red"`) {
		t.Errorf("the first plane has %s", text)
	}
}

// After Reset a plane has the objects of the image. No resourceVersion means two things: a client that goes on with
// its watch has to list again.
func TestReset(t *testing.T) {
	p := New(t, Controllers("*"))
	c := newClient(t, p)
	c.do(201, "POST", configMaps, configMap("a"))
	image := p.Snapshot()
	// A controller makes this ConfigMap at a time of its own.
	next, end := c.watch(configMaps + "?watch=true&fieldSelector=metadata.name!=kube-root-ca.crt")
	defer end()
	c.do(201, "POST", configMaps, configMap("b"))
	last := ""
	for range 2 {
		e, err := next()
		if err != nil {
			t.Fatal(err)
		}
		last = e.Object.Metadata.ResourceVersion
	}
	for range 3 {
		p.Reset(t, image)
		if _, err := next(); err == nil {
			t.Error("the watch goes on")
		}
		c.do(200, "GET", configMaps+"/a", "")
		c.do(404, "GET", configMaps+"/b", "")
		again, end := c.watch(configMaps + "?watch=true&resourceVersion=" + last)
		e, err := again()
		if err != nil || e.Type != "ERROR" {
			t.Errorf("a watch from %s sends %+v, %v", last, e, err)
		}
		end()
		if made := c.do(201, "POST", configMaps, configMap("b")); strings.Contains(made, `"resourceVersion":"`+last+`"`) {
			t.Errorf("the version %s is given out again", last)
		}
	}
	if n := len(p.Requests()); n != 4 {
		t.Errorf("after Reset there are %d requests, want 4:\n%s", n, p.Requests())
	}
}

// Definitions are those in the files that match, each file once.
func TestCRDs(t *testing.T) {
	text, err := crds.ReadFile("testdata/crds/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fsys := fstest.MapFS{"a/widgets.yaml": {Data: text}, "a/other.txt": {Data: []byte("{{")}}
	for _, globs := range [][]string{{}, {"a/*.yaml"}, {"a/*.yaml", "*/widgets.yaml"}} {
		newClient(t, New(t, CRDs(fsys, globs...))).do(200, "GET", widgets, "")
	}
	fsys["a/core.yaml"] = &fstest.MapFile{Data: []byte(configMap("ignored"))}
	c := newClient(t, New(t, CRDs(fsys), CRDs(crds, "testdata/crds/gadgets.yaml")))
	c.do(200, "GET", widgets, "")
	c.do(200, "GET", "/apis/example.com/v1/gadgets", "")
	c.do(404, "GET", configMaps+"/ignored", "")
	for globs, want := range map[string]string{"none/*": "no file matches", "a/core.yaml": "no CustomResourceDefinition",
		"[": "syntax", "a/other.txt": "other.txt"} {
		if _, err := newPlane(t.Context(), []Option{CRDs(fsys, globs)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", globs, err)
		}
	}
}

// In the end nothing is left of a plane, neither goroutines nor memory, whatever its clients have not closed.
func TestNothingIsLeft(t *testing.T) {
	planes := 50
	if testing.Short() {
		planes = 10
	}
	use := func() {
		p, err := newPlane(t.Context(), []Option{CRDs(crds), Controllers("*")})
		if err != nil {
			t.Fatal(err)
		}
		p.t = t
		c := newClient(t, p)
		c.do(201, "POST", widgets, widget)
		next, _ := c.watch(widgets + "?watch=true")
		if _, err := next(); err != nil {
			t.Error(err)
		}
		c.watch(configMaps + "?watch=true") // and never read
		if err := p.close(); err != nil {
			t.Error(err)
		}
		if _, err := next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a watch of a plane that is closed ends with %v", err)
		}
		answer := c.send("GET", configMaps, "", "")
		if answer.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a plane that is closed answers %s", answer.Status)
		}
	}
	use()
	goroutines, bytes := left()
	for range planes {
		use()
	}
	now, more := left()
	for range 100 { // a goroutine that has returned may still be counted for a moment
		if now <= goroutines {
			break
		}
		time.Sleep(10 * time.Millisecond)
		now, more = left()
	}
	if now > goroutines {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines are left:\n%s", now-goroutines, stacks[:runtime.Stack(stacks, true)])
	}
	if each := (more - bytes) / int64(planes); each > 20<<10 {
		t.Errorf("%d bytes of each plane are left", each)
	}
}

func left() (goroutines int, bytes int64) {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int64(m.HeapAlloc)
}

func BenchmarkNew(b *testing.B) {
	benchmark(b)
}

func BenchmarkNewWithCRDs(b *testing.B) { benchmark(b, CRDs(crds)) }

// BenchmarkFork is a plane that begins with an image with definitions, and one request for their objects.
func BenchmarkFork(b *testing.B) {
	p := New(b, CRDs(crds))
	newClient(b, p).do(201, "POST", widgets, widget)
	image := p.Snapshot()
	b.ReportAllocs()
	for b.Loop() {
		forked, err := newPlane(b.Context(), []Option{From(image)})
		if err != nil {
			b.Fatal(err)
		}
		newClient(b, forked).do(200, "GET", widgets+"/a", "")
		if err := forked.close(); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmark(b *testing.B, o ...Option) {
	use := func() {
		p, err := newPlane(b.Context(), o)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.close(); err != nil {
			b.Fatal(err)
		}
	}
	use()
	b.ReportAllocs()
	for b.Loop() {
		use()
	}
}

// BenchmarkMemory reports the memory of a plane that is in use.
func BenchmarkMemory(b *testing.B) {
	const planes = 100
	for b.Loop() {
		_, before := left()
		all := make([]*Plane, planes)
		for i := range all {
			p, err := newPlane(b.Context(), []Option{CRDs(crds)})
			if err != nil {
				b.Fatal(err)
			}
			newClient(b, p).do(201, "POST", widgets, widget)
			all[i] = p
		}
		_, after := left()
		b.ReportMetric(float64(after-before)/planes, "B/plane")
		for _, p := range all {
			if err := p.close(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
