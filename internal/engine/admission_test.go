package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"plinth/internal/store"
	"plinth/object"
)

// chain is an admission that records what it sees: "CREATE widgets/a obj=1 old=0", where obj and old are the values of
// spec.n in Object and Old, "-" where they are null. It then calls change, if there is one.
type chain struct {
	admitted, validated []string
	change              func(a *Attributes) error
	refuse              error
}

func seen(a *Attributes) string {
	n := func(v object.Value) string {
		if v.IsNull() {
			return "-"
		}
		return fmt.Sprint(v.At("spec", "n").Int())
	}
	return fmt.Sprintf("%s %s/%s obj=%s old=%s", a.Operation, a.Request.Resource.Name, a.Name, n(a.Object), n(a.Old))
}

func (c *chain) admission() Admission {
	return Admission{
		Admit: func(_ context.Context, a *Attributes) error {
			c.admitted = append(c.admitted, seen(a))
			if c.change != nil {
				return c.change(a)
			}
			return nil
		},
		Validate: func(_ context.Context, a *Attributes) error {
			c.validated = append(c.validated, seen(a))
			return c.refuse
		},
	}
}

// saw returns what was seen since the last call.
func (c *chain) saw() (admitted, validated string) {
	admitted, validated = strings.Join(c.admitted, "; "), strings.Join(c.validated, "; ")
	c.admitted, c.validated = nil, nil
	return admitted, validated
}

// Each verb enters admission with the operation, the name, the object and the old object of the reference: once to
// change it, and once to validate what would be stored.
//
// SPEC: AUTH-3, DRY-2
func TestWhatAdmissionSees(t *testing.T) {
	b, c := newBench(t), &chain{}
	b.Engine.admission = c.admission()
	rq := func(name string, dry bool) *Request {
		r := *b.request(name)
		r.DryRun = dry
		return &r
	}
	object := func(n int) string { return fmt.Sprintf(`{"metadata":{"name":"a"},"spec":{"n":%d}}`, n) }
	for _, step := range []struct {
		what                string
		do                  func() error
		admitted, validated string
	}{
		{"create", func() error { _, err := b.Create(b.Context(), rq("", false), b.parse(object(1))); return err },
			"CREATE widgets/a obj=1 old=-", "CREATE widgets/a obj=1 old=-"},
		{"dry run", func() error { _, err := b.Update(b.Context(), rq("a", true), b.parse(object(9))); return err },
			"UPDATE widgets/a obj=9 old=1", "UPDATE widgets/a obj=9 old=1"},
		{"update", func() error { _, err := b.Update(b.Context(), rq("a", false), b.parse(object(2))); return err },
			"UPDATE widgets/a obj=2 old=1", "UPDATE widgets/a obj=2 old=1"},
		{"patch", func() error {
			_, err := b.Patch(b.Context(), rq("a", false), Patch{Type: MergePatch, Body: []byte(`{"spec":{"n":3}}`)})
			return err
		}, "UPDATE widgets/a obj=3 old=2", "UPDATE widgets/a obj=3 old=2"},
		{"an apply that creates", func() error {
			r := rq("b", false)
			r.FieldManager = "m"
			_, err := b.Apply(b.Context(), r, b.parse(
				`{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"name":"b"},"spec":{"n":7}}`))
			return err
		}, "CREATE widgets/b obj=7 old=-", "CREATE widgets/b obj=7 old=-"},
		{"delete", func() error { _, err := b.Delete(b.Context(), rq("a", false), DeleteOptions{}); return err },
			"DELETE widgets/a obj=- old=3", "DELETE widgets/a obj=- old=3"},
		{"deletecollection", func() error {
			_, err := b.DeleteCollection(b.Context(), rq("", false), ListOptions{}, DeleteOptions{})
			return err
		}, "DELETE widgets/ obj=- old=7", "DELETE widgets/ obj=- old=7"},
		{"connect", func() error { _, err := b.Connect(b.Context(), rq("b", false), b.parse(object(5)).Value); return err },
			"CONNECT widgets/b obj=5 old=-", "CONNECT widgets/b obj=5 old=-"},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if admitted, validated := c.saw(); admitted != step.admitted || validated != step.validated {
			t.Errorf("%s: admitted %q, validated %q; should be %q and %q", step.what, admitted, validated, step.admitted,
				step.validated)
		}
	}
}

// A refusal of either half ends the request, and nothing is stored.
//
// SPEC: AUTH-3
func TestRefusedByAdmission(t *testing.T) {
	for _, mutating := range []bool{true, false} {
		b, c := newBench(t), &chain{}
		b.create(`{"metadata":{"name":"a"},"spec":{"n":1}}`)
		no := errors.New("no")
		if c.refuse = no; mutating {
			c.change = func(*Attributes) error { return no }
		}
		b.Engine.admission = c.admission()
		_, created := b.Create(b.Context(), b.request(""), b.parse(`{"metadata":{"name":"b"}}`))
		_, updated := b.put("a", `},"spec":{"n":2}`)
		_, patched := b.patch("a", `{"spec":{"n":2}}`)
		_, deleted := b.Delete(b.Context(), b.request("a"), DeleteOptions{})
		_, all := b.DeleteCollection(b.Context(), b.request(""), ListOptions{}, DeleteOptions{})
		_, connected := b.Connect(b.Context(), b.request("a"), object.Nil)
		for i, err := range []error{created, updated, patched, deleted, all, connected} {
			if !errors.Is(err, no) {
				t.Errorf("mutating %v, request %d: %v", mutating, i, err)
			}
		}
		if got := b.spec("a"); got != `{"n":1}` {
			t.Errorf("mutating %v: spec is %s", mutating, got)
		}
	}
}

// What admission changes is brought into the form on which the server relies: managedFields that cannot be read are put
// back with a warning, valid edits of them stay, duplicate owner references go, and defaults are filled in again.
// Nobody owns what admission has added.
//
// SPEC: SSA-19, AUTH-3
func TestWhatAdmissionChanges(t *testing.T) {
	b, c := newBench(t), &chain{}
	b.widgets.Default = func(obj object.Value) object.Value {
		if obj.At("spec", "sidecar").IsNull() || !obj.At("spec", "port").IsNull() {
			return obj
		}
		return obj.WithAt(object.IntOf(80), "spec", "port")
	}
	b.Engine.admission = c.admission()
	owner := b.parse(`{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}`).Value
	c.change = func(a *Attributes) error {
		a.Object = a.Object.WithAt(object.StringOf("on"), "spec", "sidecar").
			WithAt(object.ListOf(owner, owner), "metadata", "ownerReferences").
			WithAt(object.ListOf(object.Fields("manager", object.StringOf("broken"), "fieldsType", object.StringOf("Other"))),
				"metadata", "managedFields")
		return nil
	}
	rq := *b.request("")
	rq.FieldManager = "writer"
	result := b.must(b.Create(b.Context(), &rq, b.parse(`{"metadata":{"name":"a"},"spec":{"n":1}}`)))
	obj := b.value(result)
	if spec := string(object.AppendJSON(nil, obj.At("spec"))); spec != `{"n":1,"port":80,"sidecar":"on"}` {
		t.Errorf("spec is %s", spec)
	}
	if n := obj.At("metadata", "ownerReferences").Len(); n != 1 {
		t.Errorf("%d owner references", n)
	}
	managed := obj.At("metadata", "managedFields")
	if managed.Len() != 1 || managed.Items()[0].At("manager").Str() != "writer" {
		t.Errorf("managedFields are %s", object.AppendJSON(nil, managed))
	}
	if owned := managed.Items()[0].At("fieldsV1", "f:spec"); owned.At("f:n").IsNull() || !owned.At("f:sidecar").IsNull() {
		t.Errorf("writer owns %s", object.AppendJSON(nil, owned))
	}
	for _, text := range []string{"managedFields was in an invalid state after admission", "duplicate entries"} {
		if !slices.ContainsFunc(result.Warnings, func(w string) bool { return strings.Contains(w, text) }) {
			t.Errorf("no warning with %q in %q", text, result.Warnings)
		}
	}
	// What only the server sets, it sets again.
	forged := object.Fields("uid", object.StringOf("forged"), "generation", object.IntOf(99), "resourceVersion",
		object.StringOf("1"), "creationTimestamp", object.StringOf("2001-01-01T00:00:00Z"), "deletionTimestamp",
		object.StringOf("2001-01-01T00:00:00Z"), "deletionGracePeriodSeconds", object.IntOf(5))
	forge := func(set object.Value) func(a *Attributes) error {
		return func(a *Attributes) error {
			a.Object = a.Object.With("metadata", a.Object.At("metadata").Edit(set.Members()))
			return nil
		}
	}
	genuine := func(obj, want object.Value) {
		t.Helper()
		for _, m := range forged.Members() {
			got := obj.At("metadata", m.Key)
			if object.Equal(got, m.Value) || !want.IsNull() && !object.Equal(got, want.At("metadata", m.Key)) {
				t.Errorf("admission has set %s to %s", m.Key, object.AppendJSON(nil, got))
			}
		}
	}
	c.change = forge(forged)
	made := b.value(b.create(`{"metadata":{"name":"forged"},"spec":{"n":1}}`))
	genuine(made, object.Nil)
	// An update with another UID or deletion time is refused, from admission as from a client.
	c.change = forge(object.Fields("generation", object.IntOf(99), "resourceVersion", object.StringOf("1"),
		"creationTimestamp", object.StringOf("2001-01-01T00:00:00Z")))
	changed, err := b.patch("forged", `{"metadata":{"labels":{"a":"b"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	genuine(b.value(changed), made)
	c.change = func(a *Attributes) error {
		a.Object = a.Object.WithAt(object.StringOf("elsewhere"), "metadata", "namespace")
		return nil
	}
	_, err = b.Create(b.Context(), b.request(""), b.parse(`{"metadata":{"name":"moved"}}`))
	b.wants(err, 400, "the namespace of the provided object does not match")
	// A valid edit stays.
	c.change = func(a *Attributes) error {
		a.Object = a.Object.WithAt(object.ListOf(), "metadata", "managedFields")
		return nil
	}
	if result, err := b.patch("a", `{"spec":{"n":2}}`); err != nil ||
		b.value(result).At("metadata", "managedFields").Len() != 0 {
		t.Errorf("managedFields after a valid edit: %v, %v", result, err)
	}
}

// Mutating admission runs once for a create, whatever names are taken, and validating admission once for each name.
// After a lost race of an update both run again. A request that was decided on a version which a fresh read finds to be
// the newest is not decided again.
//
// SPEC: AUTH-3, STORE-2
func TestHowOftenAdmissionRuns(t *testing.T) {
	t.Run("lost race", func(t *testing.T) {
		b, c := newBench(t), &chain{}
		b.create(`{"metadata":{"name":"a"},"spec":{"n":1}}`)
		b.meanwhile(func() { b.must(b.patch("a", `{"spec":{"m":1}}`)) })
		b.Engine.admission = c.admission()
		b.must(b.patch("a", `{"spec":{"n":2}}`))
		// The patch that came between has been admitted, too.
		if admitted, validated := len(c.admitted), len(c.validated); admitted != 3 || validated != 3 {
			t.Errorf("admitted %d times, validated %d times: %q", admitted, validated, c.admitted)
		}
	})
	both(t, func(t *testing.T, s servers) {
		s.there.create(`{"metadata":{"name":"a"},"spec":{"n":1}}`)
		s.here.must(s.here.Get(s.here.Context(), s.here.request("a"), ""))
		c := &chain{refuse: errors.New("no")}
		s.here.Engine.admission = c.admission()
		if _, err := s.here.patch("a", `{"spec":{"n":2}}`); err == nil {
			t.Fatal("the patch is not refused")
		}
		if admitted, validated := c.saw(); strings.Count(admitted, ";") != 0 || strings.Count(validated, ";") != 0 {
			t.Errorf("a refusal on the newest version was decided again: %q, %q", admitted, validated)
		}
		// The version at hand is outdated: the request is decided again.
		c.refuse = nil // the embedded case has one engine for both
		s.there.must(s.there.patch("a", `{"spec":{"n":3}}`))
		c.refuse = errors.New("no")
		if _, err := s.here.patch("a", `{"spec":{"n":4}}`); err == nil {
			t.Fatal("the patch is not refused")
		}
		_, validated := c.saw()
		if last := "UPDATE widgets/a obj=4 old=3"; !strings.HasSuffix(validated, last) {
			t.Errorf("the last decision was on %q, not on %q", validated, last)
		}
	})
}

// The options are those of the request, as an AdmissionReview has them.
//
// SPEC: AUTH-3
func TestOptionsOfAdmission(t *testing.T) {
	b := newBench(t)
	var got []string
	b.Engine.admission = Admission{Admit: func(_ context.Context, a *Attributes) error {
		got = append(got, string(object.AppendJSON(nil, a.Options())))
		return nil
	}}
	rq := *b.request("a")
	rq.FieldManager, rq.Validation, rq.DryRun = "m", Strict, true
	seconds, orphan := int64(3), true
	calls := []func(){
		func() { b.Create(b.Context(), &rq, b.parse(`{"metadata":{"name":"a"}}`)) },
		func() { b.create(`{"metadata":{"name":"a"}}`) },
		func() { b.Update(b.Context(), &rq, b.parse(`{"metadata":{"name":"a"}}`)) },
		func() {
			b.Delete(b.Context(), b.request("a"), DeleteOptions{DryRun: true, GracePeriodSeconds: &seconds,
				OrphanDependents: &orphan, PropagationPolicy: "Orphan", PreconditionUID: b.uid("a")})
		},
	}
	for _, call := range calls {
		call()
	}
	want := []string{
		`{"apiVersion":"meta.k8s.io/v1","dryRun":["All"],"fieldManager":"m","fieldValidation":"Strict","kind":"CreateOptions"}`,
		`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`,
		`{"apiVersion":"meta.k8s.io/v1","dryRun":["All"],"fieldManager":"m","fieldValidation":"Strict","kind":"UpdateOptions"}`,
		`{"apiVersion":"meta.k8s.io/v1","dryRun":["All"],"gracePeriodSeconds":3,"kind":"DeleteOptions","orphanDependents":true,` +
			`"preconditions":{"uid":"` + b.uid("a") + `"},"propagationPolicy":"Orphan"}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// uid is the UID of a widget.
func (b *bench) uid(name string) string {
	b.Helper()
	return b.value(b.must(b.Get(b.Context(), b.request(name), ""))).At("metadata", "uid").Str()
}

// annotations records the annotations of admission.
type annotations map[string]string

func (a annotations) Annotate(key, value string)        { a[key] = value }
func (a annotations) AnnotateRequest(key, value string) { a[key] = value }

// Warnings of admission reach the client, with a refusal, too; its annotations reach the audit log.
//
// SPEC: AUTH-3, AUTH-4
func TestSinksOfAdmission(t *testing.T) {
	b, c := newBench(t), &chain{refuse: errors.New("no")}
	c.change = func(a *Attributes) error {
		a.Warn("mind the gap")
		a.Annotate("key", "value")
		return nil
	}
	b.Engine.admission = c.admission()
	rq, sink := *b.request(""), annotations{}
	rq.Annotations = sink
	result, err := b.Create(b.Context(), &rq, b.parse(`{"metadata":{"name":"a"}}`))
	if err == nil || !slices.Equal(result.GetWarnings(), []string{"mind the gap"}) || sink["key"] != "value" {
		t.Errorf("%v, warnings %q, annotations %v", err, result.GetWarnings(), sink)
	}
	if _, found := b.store.Get(store.Key{Resource: "test.example/widgets", Name: "ns/a"}); found {
		t.Error("a refused object is stored")
	}
}
