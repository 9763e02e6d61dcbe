package reading

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

const maps = "/api/v1/namespaces/reading/configmaps"

func configMap(name, color string) []byte {
	return fmt.Appendf(nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"color":%q}},"data":{"padding":%q}}`, name,
		color, strings.Repeat("x", 1000))
}

func do(t *testing.T, c *load.Client, method, path string, body []byte) []byte {
	t.Helper()
	answer, err := c.Do(t.Context(), load.Request{Method: method, Path: path, Body: body})
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

// event is the part of an event that the tests compare.
type event struct {
	Type   string
	Object struct {
		Code     int
		Reason   string
		Metadata struct {
			Name, ResourceVersion string
			Labels                map[string]string
		}
	}
}

// read reads events from a watch until it breaks or ends, and sends them to events.
func read(body io.Reader, events chan<- event) error {
	decoder := json.NewDecoder(bufio.NewReader(body))
	for {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return err
		}
		events <- e
	}
}

// SPEC: BEY-6, WATCH-7, WATCH-1: the server is killed in the middle of a stream, again and again; a client resumes from
// the last version that it has seen and gets every change once, in order, with and without a selector.
func TestWatchGoesOnAfterKills(t *testing.T) {
	if harness.Target() == harness.Reference {
		return // it restarts on another port, and its watch cache begins anew
	}
	server := harness.RunTarget(t)
	c := load.New(server, 4)
	if err := c.Namespace(t.Context(), "reading"); err != nil {
		t.Fatal(err)
	}
	from := load.ResourceVersion(do(t, c, http.MethodGet, maps, nil))
	for _, selector := range []string{"", "&labelSelector=color%3Dred"} {
		t.Run("selector"+selector, func(t *testing.T) {
			var want []string // versions that were acknowledged
			last, names := from, map[string]bool{}
			got := map[string]bool{}
			stop := make(chan struct{})
			written := make(chan struct{})
			prefix := "all"
			if selector != "" {
				prefix = "red"
			}
			go func() { // a writer that continues through the kills
				defer close(written)
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					name, color := fmt.Sprint(prefix, "-", i), "red"
					if i%3 == 2 {
						color = "blue"
					}
					answer, err := c.Do(t.Context(), load.Request{
						Method: http.MethodPost, Path: maps, Body: configMap(name, color),
					})
					if err == nil && color == "blue" && selector != "" {
						continue // it is not selected
					}
					if err == nil {
						want = append(want, load.ResourceVersion(answer))
					} else {
						time.Sleep(5 * time.Millisecond)
					}
				}
			}()
			kills := scale(3, 10)
			follow := func(ctx context.Context, until func(e event) bool) {
				events := make(chan event, 100)
				response, err := c.Start(ctx, load.Request{Method: http.MethodGet,
					Path: maps + "?watch=1&resourceVersion=" + last + selector})
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				ended := make(chan error, 1)
				go func() { ended <- read(response.Body, events); close(events) }()
				for e := range events {
					if e.Type != "ADDED" || selector != "" && e.Object.Metadata.Labels["color"] != "red" {
						t.Fatalf("%+v behind %s", e, last)
					}
					if number(t, e.Object.Metadata.ResourceVersion) <= number(t, last) || names[e.Object.Metadata.Name] {
						t.Fatalf("%+v comes behind %s", e, last)
					}
					last = e.Object.Metadata.ResourceVersion
					names[e.Object.Metadata.Name], got[last] = true, true
					if until(e) {
						return
					}
				}
				if err := <-ended; errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
			}
			for kill := range kills {
				seen := 0
				follow(t.Context(), func(event) bool {
					if seen++; seen == 20+5*kill {
						server.Kill() // events that were sent already are still read
					}
					return false
				})
				c.Close()
				if err := server.Restart(); err != nil {
					t.Fatal(err)
				}
			}
			close(stop)
			<-written
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if end := want[len(want)-1]; number(t, last) < number(t, end) {
				follow(ctx, func(e event) bool { return number(t, e.Object.Metadata.ResourceVersion) >= number(t, end) })
			}
			for _, version := range want {
				if !got[version] {
					t.Errorf("the change of version %s was missed", version)
				}
			}
			t.Logf("%d changes were acknowledged and %d told, over %d kills", len(want), len(got), kills)
			from = last
		})
	}
}

func number(t *testing.T, version string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// SPEC: LIST-5, LIST-6, WATCH-3, BEY-6: versions that the history has dropped get 410 for pages, exact lists and
// watches, before and after a restart; a page's token continues in the newest state; versions that it still holds
// continue.
func TestForgottenVersions(t *testing.T) {
	if harness.Target() == harness.Reference {
		return // which versions it has dropped depends on etcd, and its cache may still have them
	}
	// With a past, lists of old versions go on beyond the history of watches.
	server := harness.RunTarget(t, "--watch-history-bytes", fmt.Sprint(64<<10), "--history-retention=0")
	c := load.New(server, 2)
	if err := c.Namespace(t.Context(), "reading"); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		do(t, c, http.MethodPost, maps, configMap(fmt.Sprint("m", i), "red"))
	}
	first := do(t, c, http.MethodGet, maps+"?limit=2", nil)
	old := load.ResourceVersion(first)
	token := continueOf(t, first)
	for i := range 200 {
		do(t, c, http.MethodPut, maps+"/m0", configMap("m0", fmt.Sprint(i)))
	}
	do(t, c, http.MethodDelete, maps+"/m2", nil)
	now := load.ResourceVersion(do(t, c, http.MethodPost, maps, configMap("m4", "red")))
	for _, restarted := range []bool{false, true} {
		if restarted {
			c.Close()
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		gone := func(query string) string {
			_, err := c.Do(t.Context(), load.Request{Method: http.MethodGet, Path: maps + "?" + query})
			var status *load.StatusError
			if !errors.As(err, &status) || status.Code != http.StatusGone ||
				!strings.Contains(status.Text, `"reason":"Expired"`) {
				t.Fatalf("restarted %v: %s: %v", restarted, query, err)
			}
			return status.Text
		}
		gone("resourceVersionMatch=Exact&resourceVersion=" + old)
		gone("limit=1&resourceVersion=" + old)
		next := continueOf(t, []byte(gone("limit=2&continue="+token)))
		rest := do(t, c, http.MethodGet, maps+"?limit=2&continue="+next, nil)
		// After a restart the server has written its own objects again.
		if got, at := namesIn(t, rest), number(t, load.ResourceVersion(rest)); got != "m3 m4" || at < number(t, now) ||
			at != number(t, now) && !restarted {
			t.Errorf("restarted %v: the rest is %s at %s", restarted, got, load.ResourceVersion(rest))
		}
		for version, want := range map[string]string{old: "ERROR 410", fmt.Sprint(number(t, now) - 2): "DELETED 0 ADDED 0"} {
			if got := told(t, c, maps+"?watch=1&timeoutSeconds=1&resourceVersion="+version); got != want {
				t.Errorf("restarted %v: behind %s: %s, should be %s", restarted, version, got, want)
			}
		}
	}
}

// told returns the types and codes of all events of a watch until it ends.
func told(t *testing.T, c *load.Client, path string) string {
	t.Helper()
	var types []string
	decoder := json.NewDecoder(strings.NewReader(string(do(t, c, http.MethodGet, path, nil))))
	for {
		var e event
		if err := decoder.Decode(&e); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return strings.Join(types, " ")
		}
		types = append(types, fmt.Sprint(e.Type, " ", e.Object.Code))
	}
}

type collection struct {
	Metadata struct{ Continue string }
	Items    []struct {
		Metadata struct{ Name string }
	}
}

func continueOf(t *testing.T, text []byte) string {
	t.Helper()
	var list collection
	if err := json.Unmarshal(text, &list); err != nil || list.Metadata.Continue == "" {
		t.Fatalf("no token in %s: %v", text, err)
	}
	return list.Metadata.Continue
}

func namesIn(t *testing.T, text []byte) string {
	t.Helper()
	var list collection
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Metadata.Name)
	}
	return strings.Join(names, " ")
}
