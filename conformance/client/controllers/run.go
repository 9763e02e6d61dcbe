package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// runner runs scenarios on one server.
type runner struct {
	client *load.Client
	// quiet is how long nothing may change until the controllers have done their work.
	quiet time.Duration
}

func newRunner(server *harness.Server, quiet time.Duration) *runner {
	return &runner{client: load.New(server, 4), quiet: quiet}
}

// running is a scenario while it runs.
type running struct {
	*runner
	*scenario
	uids map[string]string // "UID 1" and so on, in the order in which they were seen
	got  []string          // what was left, at each look
}

// run runs a scenario, and returns what was left at each look. wanted is what is expected; a look goes on until that is
// seen, or until patience has passed. If wanted is "", it is unknown what will be seen.
func (r *runner) run(ctx context.Context, s *scenario, wanted string, patience time.Duration) (string, error) {
	c := &running{runner: r, scenario: s, uids: map[string]string{}}
	expected := strings.Split(wanted, lookMark)[1:]
	for i := 0; i < len(s.steps); {
		if !s.steps[i].looks() {
			do := c.request
			if s.steps[i].verb == "await" {
				do = c.await
			}
			if err := do(ctx, s.steps[i]); err != nil {
				return "", fmt.Errorf("%s: %s %s: %w", s.title, s.steps[i].verb, s.steps[i].path, err)
			}
			i++
			continue
		}
		from := i
		for i < len(s.steps) && s.steps[i].looks() {
			i++
		}
		want := ""
		if n := len(c.got); n < len(expected) {
			want = strings.TrimSpace(expected[n])
		}
		text, err := c.look(ctx, s.steps[from:i], want, patience)
		if err != nil {
			return "", err
		}
		c.got = append(c.got, lookMark+text)
	}
	return strings.TrimSpace(strings.Join(c.got, "\n")), nil
}

// lookMark is the line before what is seen at a look.
const lookMark = "--- look\n"

// request sends a request.
func (c *running) request(ctx context.Context, s step) error {
	body, err := yaml.YAMLToJSON([]byte(s.body))
	if err != nil {
		return err
	}
	rq := load.Request{Method: s.verb, Path: s.path}
	if s.body != "" {
		rq.Body = []byte(c.withUIDs(string(body)))
	}
	if s.verb == http.MethodPatch {
		rq.ContentType = "application/merge-patch+json"
	}
	// The namespace of an earlier request may not be known everywhere yet.
	for end := time.Now().Add(time.Minute); ; time.Sleep(pollEvery) {
		_, err = c.client.Discard(ctx, rq)
		status := (*load.StatusError)(nil)
		again := s.verb == http.MethodPost && errors.As(err, &status) && status.Code == http.StatusNotFound
		if !again || time.Now().After(end) {
			return err
		}
	}
}

// await waits until an object has a text.
func (c *running) await(ctx context.Context, s step) error {
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(pollEvery) {
		body, err := c.client.Do(ctx, load.Request{Method: http.MethodGet, Path: s.path})
		if err != nil || bytes.Contains(body, []byte(s.members[0])) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("it never has %q: %s", s.members[0], body)
		}
	}
}

// withUIDs replaces the names of UIDs by the UIDs.
func (c *running) withUIDs(text string) string {
	for uid, name := range c.uids {
		text = strings.ReplaceAll(text, `"`+name+`"`, `"`+uid+`"`)
	}
	return text
}

// pollEvery is the time between two views of the same objects.
const pollEvery = 100 * time.Millisecond

// look returns what is seen when the controllers have done their work: when what is wanted has been seen and stays, or
// when nothing has changed for a while.
func (c *running) look(ctx context.Context, steps []step, want string, patience time.Duration) (string, error) {
	before, since, began := "", time.Now(), time.Now()
	for ; ; time.Sleep(pollEvery) {
		text, err := c.view(ctx, steps)
		if err != nil {
			return "", err
		}
		if text != before {
			before, since = text, time.Now()
		}
		switch lasted := time.Since(since); {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case want != "" && text == want && lasted >= staysFor:
			return text, nil
		case want == "" && lasted >= c.quiet, want != "" && time.Since(began) > patience:
			return text, nil
		}
	}
}

// staysFor is how long what is wanted has to stay: long enough for a controller to do at once what it should not.
const staysFor = 300 * time.Millisecond

// view shows the objects of a look.
func (c *running) view(ctx context.Context, steps []step) (string, error) {
	var out strings.Builder
	for _, s := range steps {
		show := c.see
		if s.verb == "events" {
			show = c.events
		}
		text, err := show(ctx, s)
		if err != nil {
			return "", fmt.Errorf("%s: %s %s: %w", c.title, s.verb, s.path, err)
		}
		fmt.Fprintf(&out, "%s %s\n%s", s.verb, s.path, text)
	}
	return strings.TrimSpace(out.String()), nil
}

// see shows an object.
func (c *running) see(ctx context.Context, s step) (string, error) {
	obj, err := c.get(ctx, s.path)
	if obj == nil {
		return "  gone\n", err
	}
	shown := map[string]any{}
	for _, name := range append([]string{"metadata", "status"}, s.members...) {
		if value, ok := obj[name]; ok {
			shown[name] = value
		}
	}
	return c.show(shown)
}

// get reads an object; nil if there is none.
func (c *running) get(ctx context.Context, at string) (obj map[string]any, err error) {
	body, err := c.client.Do(ctx, load.Request{Method: http.MethodGet, Path: at})
	if status := (*load.StatusError)(nil); errors.As(err, &status) && status.Code == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return obj, json.Unmarshal(body, &obj)
}

// events shows the Events about an object, which may be gone.
func (c *running) events(ctx context.Context, s step) (string, error) {
	_, below, _ := strings.Cut(s.path, "/namespaces/")
	namespace, _, _ := strings.Cut(below, "/")
	if namespace == "" {
		namespace = "default"
	}
	body, err := c.client.Do(ctx, load.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/" + namespace +
		"/events?fieldSelector=" + url.QueryEscape("involvedObject.name="+path.Base(s.path))})
	if err != nil {
		return "", err
	}
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal(body, &list); err != nil {
		return "", err
	}
	var texts []string
	for _, event := range list.Items {
		if meta, ok := event["metadata"].(map[string]any); ok {
			name, _ := meta["name"].(string)
			meta["name"] = inEventName.ReplaceAllString(name, ".TIME")
		}
		text, err := c.show(event)
		if err != nil {
			return "", err
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	if len(texts) == 0 {
		return "  none\n", nil
	}
	return strings.Join(texts, ""), nil
}

var (
	inEventName = regexp.MustCompile(`\.[0-9a-f]{16}$`)
	inTimes     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	inVersions  = regexp.MustCompile(`resourceVersion: "\d+"`)
	inUIDs      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// scenarios is the manager of the fields that scenarios set.
const scenarios = "load"

// show prints an object without what differs in each run.
func (c *running) show(obj map[string]any) (string, error) {
	if meta, ok := obj["metadata"].(map[string]any); ok {
		delete(meta, "resourceVersion")
		var managed []any
		entries, _ := meta["managedFields"].([]any)
		for _, entry := range entries {
			if e, ok := entry.(map[string]any); ok && e["manager"] != scenarios {
				managed = append(managed, oneLine(e))
			}
		}
		if delete(meta, "managedFields"); managed != nil {
			slices.SortFunc(managed, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			meta["managedFields"] = managed
		}
	}
	text, err := yaml.Marshal(obj)
	if err != nil {
		return "", err
	}
	text = inTimes.ReplaceAll(text, []byte("TIME"))
	text = inVersions.ReplaceAll(text, []byte("resourceVersion: RV"))
	text = inUIDs.ReplaceAllFunc(text, func(uid []byte) []byte {
		name, ok := c.uids[string(uid)]
		if !ok {
			name = fmt.Sprintf("UID %d", len(c.uids)+1)
			c.uids[string(uid)] = name
		}
		return []byte(name)
	})
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		out.WriteString("  ")
		out.Write(line)
	}
	return out.String(), nil
}

// oneLine prints an entry of managedFields.
func oneLine(entry map[string]any) string {
	fields, _ := json.Marshal(entry["fieldsV1"]) // it was parsed from JSON
	text := fmt.Sprintf("%v %v %v", entry["manager"], entry["operation"], entry["apiVersion"])
	if sub, ok := entry["subresource"]; ok {
		text += fmt.Sprintf(" /%v", sub)
	}
	return text + " " + string(fields)
}
