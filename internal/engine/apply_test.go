package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/apierr"
	"plinth/object"
)

// apply applies an intent to a Widget as a manager.
func (b *bench) apply(manager, name, rest string, force bool) (*Result, error) {
	b.Helper()
	rq := b.request(name)
	rq.FieldManager, rq.Force = manager, force
	return b.Apply(b.Context(), rq, b.parse(`{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"name":"`+name+
		`"}`+rest+`}`))
}

// owners lists the managers of an object with their fields, one entry per line.
func (b *bench) owners(r *Result) string {
	var lines []string
	for _, e := range b.value(r).At("metadata", "managedFields").Items() {
		lines = append(lines, e.At("manager").Str()+" "+e.At("operation").Str()+" "+
			string(object.AppendJSON(nil, e.At("fieldsV1"))))
	}
	return strings.Join(lines, "\n")
}

// The error of a conflict shows no values of a confidential type, neither live ones nor those of the intent.
//
// SPEC: BEY-2
func TestConflictsOfConfidentialTypes(t *testing.T) {
	b := newBench(t)
	b.must(b.apply("a", "w", `,"spec":{"n":1}`, false))
	b.request("w").Resource.Confidential = true
	_, err := b.apply("b", "w", `,"spec":{"n":2}`, false)
	b.wants(err, 409, `.spec.n is (not shown), owned by "a" (Apply, 2026-01-02T03:04:05Z); this apply wants (not shown)`+
		"\n")
}

// SPEC: SSA-2, SSA-4, SSA-5, SSA-16
func TestApply(t *testing.T) {
	b := newBench(t)
	made := b.must(b.apply("a", "w", `,"spec":{"n":1}`, false))
	if !made.Created {
		t.Error("an apply that creates is not marked as Created")
	}
	if got := b.owners(made); got != `a Apply {"f:spec":{".":{},"f:n":{}}}` {
		t.Errorf("owners %s", got)
	}
	b.now = b.now.Add(time.Minute)
	if again := b.must(b.apply("a", "w", `,"spec":{"n":1}`, false)); again.Created ||
		again.Object.Revision != made.Object.Revision {
		t.Errorf("an apply that changes nothing made revision %d of %d", again.Object.Revision, made.Object.Revision)
	}
	_, err := b.apply("b", "w", `,"spec":{"n":2}`, false)
	b.wants(err, 409, "Apply failed with 1 conflict: conflict with \"a\": .spec.n\n\n"+
		"widgets.test.example \"w\" in namespace \"ns\":\n"+
		"  .spec.n is 1, owned by \"a\" (Apply, 2026-01-02T03:04:05Z); this apply wants 2\n")
	var wire *apierr.Error
	if errors.As(err, &wire) {
		want := apierr.Cause{Reason: "FieldManagerConflict", Message: `conflict with "a"`, Field: ".spec.n"}
		if len(wire.Details.Causes) != 1 || wire.Details.Causes[0] != want {
			t.Errorf("the conflict has the causes %v", wire.Details.Causes)
		}
	}
	if got := b.owners(b.must(b.apply("b", "w", `,"spec":{"n":2}`, true))); got != `a Apply {"f:spec":{}}`+"\n"+
		`b Apply {"f:spec":{".":{},"f:n":{}}}` {
		t.Errorf("owners after force: %s", got)
	}
}

// SPEC: SSA-6, SSA-7
func TestOwnershipOfOtherWrites(t *testing.T) {
	b := newBench(t)
	rq := b.request("")
	rq.UserAgent = "cli/v1 (linux)"
	b.must(b.Create(b.Context(), rq, b.parse(`{"metadata":{"name":"w"},"spec":{"n":1,"m":1}}`)))
	rq = b.request("w")
	rq.FieldManager = "other"
	patched := b.must(b.Patch(b.Context(), rq, Patch{Type: MergePatch, Body: []byte(`{"spec":{"n":2}}`)}))
	if got := b.owners(patched); got != `cli Update {"f:spec":{".":{},"f:m":{}}}`+"\n"+
		`other Update {"f:spec":{"f:n":{}}}` {
		t.Errorf("owners %s", got)
	}
	cleared := b.must(b.Patch(b.Context(), rq, Patch{Type: MergePatch,
		Body: []byte(`{"metadata":{"managedFields":[]},"spec":{"n":3}}`)}))
	if got := b.owners(cleared); got != "" {
		t.Errorf("owners after clearing: %s", got)
	}
}

// SPEC: SSA-2
func TestBadIntents(t *testing.T) {
	b := newBench(t)
	b.create(`{"metadata":{"name":"w"},"spec":{"n":1}}`)
	for body, want := range map[string]string{
		`[]`: "error decoding patch",

		`{"apiVersion":"test.example/v2","kind":"Widget"}`: "invalid object type: test.example/v2, Kind=Widget",

		`{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"managedFields":[]}}`:               "metadata.managedFields must be nil",
		`{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"name":"x"}}`:                       "the name of the object (x) does not match the name on the URL (w)",
		`{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"namespace":"x"}}`:                  "does not match the namespace",
		`{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"name":"w","resourceVersion":"1"}}`: "the object has been modified",
	} {
		rq := b.request("w")
		rq.FieldManager = "m"
		_, err := b.Apply(b.Context(), rq, b.parse(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// SPEC: WRITE-2
func TestAppliesRace(t *testing.T) {
	b := newBench(t)
	var all sync.WaitGroup
	for _, manager := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			for range 20 {
				if _, err := b.apply(manager, "w", `,"spec":{"`+manager+`":1}`, false); err != nil {
					t.Errorf("%s: %v", manager, err)
				}
			}
		})
	}
	all.Wait()
	result := b.must(b.Get(b.Context(), b.request("w"), ""))
	if got := string(object.AppendJSON(nil, b.value(result).At("spec"))); got != `{"a":1,"b":1,"c":1,"d":1}` {
		t.Errorf("spec %s", got)
	}
}

// The lines are the object's YAML, and their owners those that the document has for the same paths. Lines of the
// server's and of maps without owners say so.
//
// SPEC: BEY-1
func TestOwnershipByLine(t *testing.T) {
	b := newBench(t)
	b.must(b.apply("a", "w", `,"data":{"k":"v"},"spec":{"n":1}`, false))
	b.must(b.apply("b", "w", `,"spec":{"n":1,"m":"x\ny"}`, false))
	rq := b.request("w")
	b.must(b.Patch(b.Context(), rq, Patch{Type: MergePatch, Body: []byte(
		`{"metadata":{"managedFields":[` +
			`{"manager":"a","operation":"Apply","apiVersion":"test.example/v1","fieldsType":"FieldsV1",` +
			`"fieldsV1":{"f:spec":{"f:n":{}}}},` +
			`{"manager":"b","operation":"Apply","apiVersion":"test.example/v1","fieldsType":"FieldsV1",` +
			`"fieldsV1":{"f:spec":{"f:n":{},"f:m":{}}}}]}}`)}))
	owned, err := b.Ownership(b.Context(), b.request("w"), "")
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]object.Value{}
	for _, f := range owned.Document().At("fields").Items() {
		byPath[f.At("path").Str()] = f.At("owners")
	}
	var text strings.Builder
	kinds := map[string]int{}
	for _, l := range owned.LinesDocument().At("lines").Items() {
		text.WriteString(l.At("text").Str() + "\n")
		owners, documented := byPath[l.At("path").Str()]
		switch {
		case l.At("owners").Len() > 0:
			kinds["owned"]++
			if !object.Equal(owners, l.At("owners")) {
				t.Errorf("%s: owners %v, in the document %v", l.At("text").Str(), l.At("owners"), owners)
			}
		case l.At("system").Bool():
			kinds["system"]++
		case l.At("structural").Bool():
			kinds["structural"]++
		default:
			kinds["nobody"]++
			if !documented || owners.Len() > 0 {
				t.Errorf("%s: nobody's, in the document %v", l.At("text").Str(), owners)
			}
		}
	}
	if kinds["owned"] != 2 || kinds["nobody"] != 1 || kinds["system"] == 0 || kinds["structural"] == 0 {
		t.Errorf("lines: %v\n%s", kinds, text.String())
	}
	parsed, err := object.ParseYAML([]byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	if live := b.value(b.must(b.Get(b.Context(), b.request("w"), ""))); !object.Equal(
		parsed.Value.At("spec"), live.At("spec")) || !object.Equal(parsed.Value.At("data"), live.At("data")) {
		t.Errorf("the lines are\n%s", text.String())
	}
}

// goesWithIt is computed for the first hundred managers that apply, however many a client has written.
//
// SPEC: BEY-1, WRITE-6
func TestOwnershipOfManyManagers(t *testing.T) {
	for _, n := range []int{1, maxGoesWith, maxGoesWith + 50} {
		b := newBench(t)
		var entries []string
		for i := range n {
			entries = append(entries, fmt.Sprintf(`{"manager":"m%03d","operation":"Apply","apiVersion":"test.example/v1",`+
				`"fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k%03[1]d":{}}}}`, i))
		}
		var data []string
		for i := range n {
			data = append(data, fmt.Sprintf(`"k%03d":"v"`, i))
		}
		b.must(b.Create(b.Context(), b.request(""), b.parse(fmt.Sprintf(
			`{"metadata":{"name":"w"},"data":{%s}}`, strings.Join(data, ",")))))
		b.must(b.Patch(b.Context(), b.request("w"), Patch{Type: MergePatch, Body: fmt.Appendf(nil,
			`{"metadata":{"managedFields":[%s]}}`, strings.Join(entries, ","))}))
		owned, err := b.Ownership(b.Context(), b.request("w"), "")
		if err != nil {
			t.Fatal(err)
		}
		document := owned.Document()
		removed := 0
		for _, m := range document.At("managers").Items() {
			removed += m.At("goesWithIt").Len()
		}
		if removed != min(n, maxGoesWith) || document.At("incomplete").IsNull() != (n <= maxGoesWith) {
			t.Errorf("%d managers: goesWithIt has %d fields of %d; incomplete: %q", n, removed,
				document.At("managers").Len(), document.At("incomplete").Str())
		}
	}
}
