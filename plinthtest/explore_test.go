package plinthtest

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
)

// operator is a controller of widgets: each gets a ConfigMap with its size, and a status; a finalizer lets it remove
// the ConfigMap. bug is what is wrong with it.
type operator struct {
	host string
	http.RoundTripper
	bug string
}

type widgetObject struct {
	Metadata struct {
		Name              string   `json:"name"`
		Namespace         string   `json:"namespace"`
		ResourceVersion   string   `json:"resourceVersion,omitempty"`
		DeletionTimestamp string   `json:"deletionTimestamp,omitempty"`
		Finalizers        []string `json:"finalizers,omitempty"`
	} `json:"metadata"`
	Spec   struct{ Size int } `json:"spec"`
	Status struct {
		Ready bool `json:"ready"`
	} `json:"status"`
}

var errRefused = errors.New("refused")

// ask sends a request, and returns the status and the body of the answer.
func (o *operator) ask(ctx context.Context, method, path, contentType string, body any) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, o.host+path, strings.NewReader(string(text)))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("User-Agent", "operator/1")
	answer, err := o.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	return answer.StatusCode, all, err
}

func (o *operator) want(ctx context.Context, method, path string, body any, codes ...int) error {
	contentType := "application/json"
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	code, text, err := o.ask(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	for _, ok := range codes {
		if code == ok {
			return nil
		}
	}
	return fmt.Errorf("%s %s: %d %s: %w", method, path, code, text, errRefused)
}

// run lists and watches widgets until ctx ends. Whatever fails is done again a second later.
func (o *operator) run(ctx context.Context, _ *Plane) {
	for ctx.Err() == nil {
		if err := o.follow(ctx); err != nil && o.bug == "gives up" && errors.Is(err, errRefused) {
			return
		}
		_ = wait(ctx, time.Second)
	}
}

func (o *operator) follow(ctx context.Context) error {
	code, text, err := o.ask(ctx, "GET", widgets, "", nil)
	if err != nil || code != 200 {
		return errors.Join(err, fmt.Errorf("list: %d: %w", code, errRefused))
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []*widgetObject
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, w := range list.Items {
		if err := o.reconcile(ctx, w); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, "GET", o.host+widgets+"?watch=true&resourceVersion="+
		list.Metadata.ResourceVersion, nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "operator/1")
	answer, err := o.RoundTrip(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for lines := bufio.NewReader(answer.Body); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		var event struct {
			Type   string
			Object *widgetObject
		}
		if err := json.Unmarshal(line, &event); err != nil || event.Type == "ERROR" {
			return errors.Join(err, errors.New("the watch ends"))
		}
		if event.Type == "DELETED" {
			continue
		}
		if err := o.reconcile(ctx, event.Object); err != nil && o.bug != "no retry" {
			return err
		}
	}
}

const finalizer = "example.com/operator"

func (o *operator) reconcile(ctx context.Context, w *widgetObject) error {
	at, child := widgets+"/"+w.Metadata.Name, configMaps+"/"+w.Metadata.Name
	switch {
	case w.Metadata.DeletionTimestamp != "":
		if len(w.Metadata.Finalizers) == 0 {
			return nil
		}
		codes := []int{200, 404}
		switch o.bug {
		case "leaked finalizer":
			codes = []int{200} // it does not expect that the ConfigMap is gone already
		case "not idempotent":
			child = configMaps + "?labelSelector=widget%3D" + w.Metadata.Name
		}
		if err := o.want(ctx, "DELETE", child, nil, codes...); err != nil {
			return err
		}
		return o.want(ctx, "PATCH", at, map[string]any{"metadata": map[string]any{"finalizers": nil}}, 200, 404)
	case len(w.Metadata.Finalizers) == 0:
		w.Metadata.Finalizers = []string{finalizer}
		body := map[string]any{"metadata": map[string]any{"finalizers": w.Metadata.Finalizers,
			"resourceVersion": w.Metadata.ResourceVersion}}
		return o.want(ctx, "PATCH", at, body, 200) // the next event goes on
	case w.Status.Ready:
		return o.note(ctx, at, w.Metadata.ResourceVersion)
	}
	named := map[string]any{"name": w.Metadata.Name}
	if o.bug == "not idempotent" {
		named = map[string]any{"generateName": w.Metadata.Name + "-", "labels": map[string]any{"widget": w.Metadata.Name}}
	}
	body := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": named,
		"data": map[string]any{"size": fmt.Sprint(w.Spec.Size)}}
	if err := o.want(ctx, "POST", configMaps, body, 201, 409); err != nil {
		return err
	}
	return o.want(ctx, "PATCH", at+"/status", map[string]any{"status": map[string]any{"ready": true}}, 200)
}

// note keeps the size that it has seen in an annotation. It reads the widget and writes it back.
func (o *operator) note(ctx context.Context, at, seen string) error {
	code, text, err := o.ask(ctx, "GET", at, "", nil)
	if err != nil || code != 200 {
		return errors.Join(err, fmt.Errorf("GET %s: %d: %w", at, code, errRefused))
	}
	var w map[string]any
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	meta, _ := w["metadata"].(map[string]any)
	spec, _ := w["spec"].(map[string]any)
	size := fmt.Sprint(spec["size"])
	if read, _ := strconv.Atoi(fmt.Sprint(meta["resourceVersion"])); o.bug != "lost update" {
		if last, _ := strconv.Atoi(seen); read < last {
			return errors.New("what was read is older than the event")
		}
	}
	if notes, _ := meta["annotations"].(map[string]any); notes["size"] == size {
		return nil
	}
	meta["annotations"] = map[string]any{"size": size}
	if o.bug == "lost update" { // what somebody else has written since the GET is lost
		patch := map[string]any{"metadata": map[string]any{"annotations": meta["annotations"]}, "spec": spec}
		return o.want(ctx, "PATCH", at, patch, 200)
	}
	return o.want(ctx, "PUT", at, w, 200)
}

// working checks that the widget was deleted, and nothing is left of it but, if kept, the one that stays.
func working(p *Plane) error {
	s := p.current().Store
	sn, err := s.Snapshot(0)
	if err != nil {
		return err
	}
	if n := sn.Count("example.com/widgets", ""); n != 1 {
		return fmt.Errorf("there are %d widgets, want 1", n)
	}
	if n := sn.Count("/configmaps", "default/"); n != 1 {
		return fmt.Errorf("there are %d ConfigMaps, want 1", n)
	}
	w := parse(p.live(Ref{"example.com", "v1", "widgets", "default", "stays"}))
	if !w.At("status", "ready").Bool() {
		return errors.New("the widget is not ready")
	}
	size, noted := w.At("spec", "size").Int(), w.At("metadata", "annotations", "size").Str()
	if size != 5 || noted != "5" {
		return fmt.Errorf("the widget has the size %d, noted as %s; want 5", size, noted)
	}
	return nil
}

func explored(t *testing.T, bug string) []Finding {
	goes := strings.Replace(widget, `"a"`, `"goes"`, 1)
	return Find(t, func(ctx context.Context, p *Plane) {
		(&operator{host: p.Host(), RoundTripper: p.Transport(), bug: bug}).run(ctx, p)
	}, working, CRDs(crds), Objects([]byte(strings.Replace(widget, `"a"`, `"stays"`, 1))),
		Step(func(ctx context.Context, p *Plane) error {
			c := &operator{host: p.Host(), RoundTripper: p.Driver()}
			return c.want(ctx, "POST", widgets, json.RawMessage(goes), 201)
		}),
		Step(func(ctx context.Context, p *Plane) error {
			c := &operator{host: p.Host(), RoundTripper: p.Driver()}
			return c.want(ctx, "PATCH", widgets+"/stays", map[string]any{"spec": map[string]any{"size": 5}}, 200)
		}),
		Step(func(ctx context.Context, p *Plane) error {
			c := &operator{host: p.Host(), RoundTripper: p.Driver()}
			return c.want(ctx, "DELETE", widgets+"/goes", nil, 200)
		}))
}

// Explore finds the faults after which a wrong controller does not do its work, and none in a right one.
//
// SPEC: BEY-7
func TestExplore(t *testing.T) {
	if found := explored(t, ""); len(found) > 0 {
		t.Errorf("a controller without a bug: %s: %v\n%s", found[0].Fault, found[0].Err, found[0].trace())
	}
	for bug, want := range map[string]string{
		"no retry": "refused with 503", "gives up": "refused with", "leaked finalizer": "delete configmaps",
		"not idempotent": "create configmaps", "lost update": "a stale answer",
	} {
		found := explored(t, bug)
		if len(found) == 0 {
			t.Errorf("%s: nothing was found", bug)
			continue
		}
		if !strings.Contains(found[0].Fault, want) && !strings.Contains(fmt.Sprint(found), want) {
			t.Errorf("%s: found %s: %v", bug, found[0].Fault, found[0].Err)
		}
		for i := range found[1:] {
			if len(found[i].Requests) > len(found[i+1].Requests) {
				t.Errorf("%s: the shortest is not the first", bug)
			}
		}
		if text := found[0].trace(); strings.Count(text, "-> ") != 1 {
			t.Errorf("%s: the trace is\n%s", bug, text)
		}
		// The fault alone, by its name.
		t.Setenv("PLINTHTEST_FAULT", found[0].Fault)
		if again := explored(t, bug); len(again) != 1 || again[0].Fault != found[0].Fault ||
			again[0].Err.Error() != found[0].Err.Error() {
			t.Errorf("%s: again %v", bug, again)
		}
		t.Setenv("PLINTHTEST_FAULT", "")
	}
}
