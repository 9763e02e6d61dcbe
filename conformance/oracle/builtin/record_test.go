//go:build mutants

package builtin

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"plinth/conformance/internal/recorder"
	"plinth/conformance/internal/scheme"
	"plinth/conformance/internal/strategies"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/mutants"
	"plinth/object"
)

var tries = flag.Int("tries", 1000, "how many random objects of each kind are tried in search of cases to record")

// served holds our types. They are made anew whenever mutants in the values of variables are turned on or off.
var served map[schema.GroupVersionKind]*engine.Resource

func init() { mutants.Again(1<<30, serve) }

func serve() {
	served = map[schema.GroupVersionKind]*engine.Resource{}
	for _, r := range builtin.Resources(builtin.Config{}.Every()) {
		served[schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}] = r
		if s := r.Subresource("scale"); s != nil {
			served[schema.GroupVersionKind{Group: s.Group, Version: s.Version, Kind: s.Kind}] = &engine.Resource{
				Naming:  engine.Naming{Group: s.Group, Version: s.Version, Kind: s.Kind, Namespaced: r.Namespaced},
				Reading: engine.Reading{Cells: s.Cells}, Schema: s.Schema,
			}
		}
	}
}

// TestRecordCells searches for objects for which our columns give the same cells as upstream and a mutant of them does
// not, and writes them into the table of package builtin:
//
//	go run ./mutants/overlay internal/builtin/columns DIR
//	go test -tags mutants -overlay DIR/overlay.json -vet=off ./oracle/builtin -run TestRecordCells
func TestRecordCells(t *testing.T) {
	serve()
	now := time.Now().UTC().Truncate(time.Second)
	var questions []*recorder.Question
	for _, gvk := range slices.SortedFunc(maps.Keys(served), func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.String(), b.String())
	}) {
		if q := cellsOf(t, gvk, served[gvk], now); q != nil {
			questions = append(questions, q)
		}
	}
	out := bytes.NewBufferString("# What upstream shows of objects in a Table: the type, the object, the cells, a line " +
		"each. Each object notices a mutant\n# of the columns; found by TestRecordCells of conformance/oracle/builtin. " +
		"Ages are as of this moment:\n")
	fmt.Fprintln(out, now.Format(time.RFC3339))
	for _, c := range recorder.Record(t, *tries, questions...) {
		fmt.Fprintf(out, "%s\n%s\n%s\n", c.Question.Name, c.In, c.Answer)
	}
	if err := os.WriteFile("../../../internal/builtin/testdata/cells.txt", out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// cellsOf returns the question for the row of an object of a kind; nil for kinds with the common columns.
func cellsOf(t *testing.T, gvk schema.GroupVersionKind, r *engine.Resource, now time.Time) *recorder.Question {
	vector := vectorsByKind(t)[gvk]
	if vector == nil || r.Cells == nil {
		return nil
	}
	k := kindUnderTest{gvk: gvk, vector: vector, resource: r}
	return &recorder.Question{
		Name:  r.APIVersion() + " " + r.Kind,
		First: first(r, shown[gvk.Kind]),
		Input: func(i int) []byte {
			m := k.mutator(i)
			p, ok := k.make(t, m.favour(favoured[gvk.Kind], m.variant(vector)).(document))
			if !ok {
				return nil
			}
			_, value, ok := stored(t, gvk, p.theirs)
			in := object.AppendObject(nil, value)
			if !ok || bytes.Contains(in, []byte(now.Format(time.DateOnly))) { // a default that is the time
				return nil
			}
			return in
		},
		Ours: func(in []byte) (string, error) {
			parsed, err := object.ParseJSON(in)
			if err != nil {
				return "", err
			}
			cells := served[gvk].Cells(parsed.Value)
			for i, cell := range cells {
				if age, is := cell.(engine.Age); is {
					cells[i] = age.Text(now)
				}
			}
			row, err := json.Marshal(cells)
			return string(row), err
		},
		Theirs: func(in []byte) (string, bool) {
			typed, err := scheme.Decode(gvk, in)
			if err != nil {
				return "", false
			}
			internal, err := scheme.Scheme.ConvertToVersion(typed, runtime.InternalGroupVersioner)
			if err != nil {
				return "", false
			}
			table := convert(tables(gvk), internal)
			if table == nil {
				return "", false
			}
			return strings.TrimSpace(cells(t, table.Rows)), true
		},
		Smaller: func(in []byte, n int) []byte {
			return recorder.SmallerJSON(in, n, "apiVersion", "kind")
		},
	}
}

// favoured are the values at which the columns and the warnings of a kind branch, by the name of the field.
var favoured = map[string]map[string][]any{
	"CertificateSigningRequest": {"expirationSeconds": {1261439999.0}}, // a second short of 40 years
	"ComponentStatus":           {"type": {"Healthy"}},
	"HorizontalPodAutoscaler": {"type": {"Resource", "Pods", "Object", "External", "ContainerResource"},
		"averageValue": {"0", "1k"}, "value": {"0", "5"}},
	"Job": {"type": {"Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"}},
	"Pod": {"type": {"Ready", "Initialized", "PodScheduled"},
		"reason": {"Completed", "Error", "SchedulingGated", "", "PodInitializing"}, "conditionType": {"Ready"}},
}

// TestRecordWarnings searches for objects for which our rules give the same warnings as upstream and a mutant of them
// does not, and writes them into the table of package warnings:
//
//	go run ./mutants/overlay internal/builtin/warnings DIR
//	go test -tags mutants -overlay DIR/overlay.json -vet=off ./oracle/builtin -run TestRecordWarnings
func TestRecordWarnings(t *testing.T) {
	klog.LogToStderr(false) // invalid addresses
	klog.SetOutput(io.Discard)
	serve()
	vectors := vectorsByKind(t)
	var questions []*recorder.Question
	for _, gvk := range slices.SortedFunc(maps.Keys(served), func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.String(), b.String())
	}) {
		upstream, known := strategies.Of[gvk.GroupKind()]
		if r := served[gvk]; known && r.Has("update") {
			k := kindUnderTest{gvk, vectors[gvk], upstream, r}
			for _, verb := range k.warnedVerbs() {
				if k.warns(verb) {
					questions = append(questions, k.warningsOf(t, verb))
				}
			}
		}
	}
	out := bytes.NewBufferString("# What upstream warns the writers of objects of: the type and the verb, the object, or " +
		"the new and the old one,\n# and the warnings, a line each. Each case notices a mutant of the warnings; found by " +
		"TestRecordWarnings of\n# conformance/oracle/builtin.\n")
	for _, c := range recorder.Record(t, *tries, questions...) {
		fmt.Fprintf(out, "%s\n%s\n%s\n", c.Question.Name, c.In, c.Answer)
	}
	if err := os.WriteFile("../../../internal/builtin/warnings/testdata/recorded.txt", out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// warns says whether there are rules for a verb.
func (k kindUnderTest) warns(verb string) bool {
	switch verb {
	case "create":
		return k.resource.WarnCreate != nil
	case "update":
		return k.resource.WarnUpdate != nil
	}
	return k.resource.Subresource(verb).Warn != nil
}

// warningsOf returns the question for the warnings of a write.
func (k kindUnderTest) warningsOf(t *testing.T, verb string) *recorder.Question {
	return &recorder.Question{
		Name:  k.resource.APIVersion() + " " + k.gvk.Kind + " " + verb,
		First: byHand(k.resource, verb),
		Input: func(i int) []byte { return k.warned(t, verb, i) },
		Ours: func(in []byte) (string, error) {
			have, err := weWarn(served[k.gvk], verb, in)
			return printed(have), err
		},
		Theirs: func(in []byte) (string, bool) {
			var first []string
			for i := range 6 { // upstream iterates over maps
				again, ok := k.upstreamWarns(verb, in)
				if !ok || i > 0 && !slices.Equal(again, first) {
					return "", false
				}
				first = again
			}
			return printed(first), true
		},
		Smaller: func(in []byte, n int) []byte {
			return recorder.SmallerJSON(in, n, "apiVersion", "kind")
		},
	}
}

func printed(warnings []string) string {
	text, err := json.Marshal(append([]string{}, warnings...))
	if err != nil {
		panic(err) // strings can always be printed
	}
	return string(text)
}

// shown are objects that random ones rarely resemble, without apiVersion and kind.
var shown = map[string][]string{
	"HorizontalPodAutoscaler": {`"spec":{}`},
	"Job": {
		`"status":{"conditions":[{"type":"FailureTarget","status":"True"}]}`,
		`"status":{"conditions":[{"type":"SuccessCriteriaMet","status":"True"}]}`,
		`"status":{"conditions":[{"type":"Suspended","status":"True"}]}`,
	},
	"Pod": {
		`"status":{"phase":"Failed","reason":"Evicted"}`,
		`"status":{"conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[` + completed + `,` + running + `]}`,
		`"status":{"conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[` + completed + `,` + running + `]}`,
		`"status":{"conditions":[{"type":"x","status":"True"}],"containerStatuses":[` + completed + `,` + running + `]}`,
		`"status":{"conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[` + completed + `]}`,
		`"status":{"containerStatuses":[` + completed + `,` + failed + `,` + completed + `]}`,
		`"status":{"containerStatuses":[` + completed + `,` + failed + `,` + running + `]}`,
		`"status":{"phase":"Pending","conditions":[{"type":"x","status":"False","reason":"SchedulingGated"}]}`,
		`"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"x"}]}`,
		`"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}`,
		`"spec":{"initContainers":[{"name":"i"}]},"status":{"initContainerStatuses":[{"name":"i","state":{"waiting":{"reason":"PodInitializing"}}}]}`,
	},
	"StorageVersionMigration": {
		`"status":{"conditions":[{"type":"Failed","status":"True"}]}`,
		`"status":{"conditions":[{"type":"Succeeded","status":"True"}]}`,
		`"status":{"conditions":[{"type":"x","status":"True"}]}`,
	},
}

const (
	completed = `{"state":{"terminated":{"exitCode":0,"reason":"Completed"}}}`
	failed    = `{"state":{"terminated":{"exitCode":3,"reason":"Error"}}}`
	running   = `{"ready":true,"state":{"running":{}}}`
)

// first returns an empty object, and these.
func first(r *engine.Resource, bodies []string) [][]byte {
	var all [][]byte
	for _, body := range append([]string{`"metadata":{"name":"a"}`}, bodies...) {
		all = append(all, fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,%s}`, r.APIVersion(), r.Kind, body))
	}
	return all
}
