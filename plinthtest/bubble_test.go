package plinthtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/invariants"
)

// In a bubble time is virtual: an hour with its bookmarks and expiries takes no time, and the clock begins in 2000.
func TestBubble(t *testing.T) {
	Bubble(t, func(t *testing.T, p *Plane) {
		c := newClient(t, p)
		const events = "/api/v1/namespaces/default/events"
		next, end := c.watch(events + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=7200")
		defer end()
		made := c.do(201, "POST", events, `{"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}`)
		if !strings.Contains(made, `"creationTimestamp":"2000-01-01T00:00:00Z"`) {
			t.Errorf("the Event is %s", made)
		}
		bookmarks := 0
		for {
			e, err := next()
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == "DELETED" {
				break
			}
			if e.Type == "BOOKMARK" {
				bookmarks++
			}
		}
		if took := time.Since(bubbleStart); took < 50*time.Minute || took > 70*time.Minute || bookmarks < 5 {
			t.Errorf("the Event expires after %s and %d bookmarks", took, bookmarks)
		}
	})
}

// A reconciler that is woken by a watch, writes, and rests for hours. The record of its requests is the same each
// time.
func TestDeterministic(t *testing.T) {
	run := func() (log string) {
		Bubble(t, func(t *testing.T, p *Plane) {
			ctx, cancel := context.WithCancel(t.Context())
			var work sync.WaitGroup
			for _, name := range []string{"a", "b", "c"} {
				work.Go(func() { reconcile(ctx, t, p, name) })
			}
			time.Sleep(30*24*time.Hour + 12*time.Hour) // when none of them is about to write
			cancel()
			work.Wait()
			log = p.Requests().Writes().String()
		}, CRDs(crds))
		return log
	}
	first := run()
	if lines := strings.Count(first, "\n"); lines < 3*30 {
		t.Errorf("%d writes in a month:\n%s", lines, first)
	}
	for range 5 {
		if again := run(); again != first {
			t.Fatalf("first\n%s\nthen\n%s", first, again)
		}
	}
}

// reconcile creates a widget, and writes its status once a day.
func reconcile(ctx context.Context, t *testing.T, p *Plane, name string) {
	c := newClient(t, p)
	c.agent = "reconciler-" + name
	c.do(201, "POST", widgets, fmt.Sprintf(`{"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": {"name": %q}, "spec": {"size": 3}}`, name))
	for run := 1; ; run++ {
		c.do(200, "PATCH", widgets+"/"+name+"/status", fmt.Sprintf(`{"status": {"runs": %d}}`, run))
		if wait(ctx, 24*time.Hour) != nil {
			return
		}
	}
}

// Settle returns when clients have read all events, and not before.
func TestSettle(t *testing.T) {
	test := func(t *testing.T, p *Plane) {
		c := newClient(t, p)
		next, end := c.watch(configMaps + "?watch=true")
		var work sync.WaitGroup
		seen := 0
		work.Go(func() {
			for {
				if _, err := next(); err != nil {
					return
				}
				seen++
			}
		})
		for i := range 100 {
			c.do(201, "POST", configMaps, configMap(fmt.Sprint("c", i)))
		}
		if err := p.Settle(t.Context()); err != nil {
			t.Error(err)
		}
		end()
		work.Wait()
		if seen < 100 {
			t.Errorf("%d events were seen", seen)
		}
		_, end = c.watch(configMaps + "?watch=true") // nobody reads its initial events
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := p.Settle(short)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "watch") {
			t.Errorf("with a watch that nobody reads: %v", err)
		}
		end()
		if err := p.Settle(t.Context()); err != nil {
			t.Error(err)
		}
	}
	t.Run("real", func(t *testing.T) { test(t, New(t)) })
	t.Run("bubble", func(t *testing.T) { Bubble(t, test) })
}

// Settle waits for the controllers of Plinth: after it, what they do is done.
func TestSettleControllers(t *testing.T) {
	test := func(t *testing.T, p *Plane) {
		c := newClient(t, p)
		c.do(201, "POST", "/api/v1/namespaces", `{"metadata": {"name": "n"}}`)
		owner := c.do(201, "POST", configMaps, configMap("owner"))
		uid := between(owner, `"uid":"`, `"`)
		for i := range 30 {
			c.do(201, "POST", configMaps, fmt.Sprintf(`{"metadata": {"name": "d%d", "ownerReferences": [
				{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": %q}]}}`, i, uid))
			c.do(201, "POST", "/api/v1/namespaces/n/configmaps", configMap(fmt.Sprint("c", i)))
		}
		c.do(200, "DELETE", configMaps+"/owner", "")
		c.do(200, "DELETE", "/api/v1/namespaces/n", "")
		if err := p.Settle(t.Context()); err != nil {
			t.Error(err)
		}
		c.do(404, "GET", configMaps+"/d7", "")
		c.do(404, "GET", "/api/v1/namespaces/n", "")
	}
	t.Run("real", func(t *testing.T) { test(t, New(t, Controllers("*"))) })
	t.Run("bubble", func(t *testing.T) { Bubble(t, test, Controllers("*")) })
}

func between(text, before, after string) string {
	_, text, _ = strings.Cut(text, before)
	text, _, _ = strings.Cut(text, after)
	return text
}

// Other processes reach a plane by its kubeconfig, and go on to do so after Reset; in a bubble there is none.
func TestKubeconfig(t *testing.T) {
	p := New(t)
	file := p.Kubeconfig()
	if again := p.Kubeconfig(); again != file {
		t.Errorf("two kubeconfigs: %s, %s", file, again)
	}
	image := p.Snapshot()
	run := []string{"run"}
	if invariants.Enabled { // with the tags of this test, so that no package is compiled twice
		run = append(run, "-tags", "invariants")
	}
	run = append(run, "../cmd/plinth", "owners", "--kubeconfig", file, "namespaces/default")
	for range 2 {
		out, err := exec.CommandContext(t.Context(), "go", run...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "kubernetes.io/metadata.name: default") {
			t.Errorf("%v: %s", err, out)
		}
		p.Reset(t, image)
	}
	if log := p.Requests(); len(log) != 0 {
		t.Errorf("after Reset: %s", log)
	}
	Bubble(t, func(t *testing.T, p *Plane) {
		if _, err := p.listen(); err == nil || !strings.Contains(err.Error(), "bubble") {
			t.Errorf("in a bubble: %v", err)
		}
	})
}

// A token lives as long as it says, by the clock of the bubble, and a certificate is valid in it.
func TestTokenLifetime(t *testing.T) {
	Bubble(t, func(t *testing.T, p *Plane) {
		c := newClient(t, p)
		c.do(201, "POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata": {"name": "robot"}}`)
		text := c.do(201, "POST", "/api/v1/namespaces/default/serviceaccounts/robot/token",
			`{"spec": {"expirationSeconds": 3600}}`)
		token := between(text, `"token":"`, `"`)
		status := func() int {
			r, err := http.NewRequestWithContext(t.Context(), "GET", p.Host()+configMaps, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			answer, err := p.Transport().RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			return answer.StatusCode
		}
		for _, step := range []struct {
			after time.Duration
			want  int // it may do nothing: 403, as long as it is valid
		}{{0, 403}, {59 * time.Minute, 403}, {5 * time.Minute, 401}} {
			time.Sleep(step.after)
			if got := status(); got != step.want {
				t.Errorf("%s later: %d, want %d", step.after, got, step.want)
			}
		}
	})
}

// A client that closes a watch, or whose context ends, ends it; nothing is left of it.
func TestEndOfWatch(t *testing.T) {
	Bubble(t, func(t *testing.T, p *Plane) {
		c := newClient(t, p)
		next, end := c.watch(configMaps + "?watch=true")
		go func() {
			time.Sleep(time.Second)
			end()
		}()
		for {
			if _, err := next(); err != nil {
				break
			}
		}
		synctest.Wait()
		// The history's, those of the cleanup of definitions, and those of APIServices.
		if n := p.current().Store.Stats().Cursors; n > 7 {
			t.Errorf("%d cursors are left", n)
		}
		next, end = c.watch(configMaps + "?watch=true&timeoutSeconds=5")
		began, err := time.Now(), error(nil)
		for err == nil {
			_, err = next()
		}
		if took := time.Since(began); err != io.EOF || took != 5*time.Second {
			t.Errorf("a watch of five seconds ends after %s with %v", took, err)
		}
		end()
	})
}
