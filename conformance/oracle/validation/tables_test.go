package validation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"plinth/internal/builtin/validation/validationtest"
	"plinth/object"
)

var rewrite = flag.Bool("rewrite", false, "write what upstream says into the tables of package validation")

// The tables that package validation is tested with have upstream's errors.
//
// SPEC: VAL-1, VAL-4
func TestTablesAreUpstreams(t *testing.T) {
	documents, err := validationtest.Documents(testdata)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := validationtest.Read(testdata)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]*kindUnderTest{}
	for _, k := range kindsUnderTest(t) {
		kinds[k.gvk.GroupVersion().String()+" "+k.gvk.Kind] = k
	}
	for _, table := range tables {
		for _, c := range table.Cases {
			k := kinds[documents[c.Object]["apiVersion"].(string)+" "+documents[c.Object]["kind"].(string)]
			if k == nil {
				t.Fatalf("%s:%d: no strategy", table.Name, c.Line)
			}
			got, err := k.upstreamSays(t, c, documents)
			if err != nil {
				t.Fatalf("%s:%d: %v", table.Name, c.Line, err)
			}
			if *rewrite {
				c.Want = got
			} else if !slices.Equal(got, c.Want) {
				t.Errorf("%s:%d: %s\nupstream says %s\nthe table says %s", table.Name, c.Line, c,
					strings.Join(got, "\n     "), strings.Join(c.Want, "\n     "))
			}
		}
		if *rewrite {
			file := filepath.Join(testdata, table.Name+".txt")
			if text := table.Format(); !bytes.Equal(text, read(t, file)) {
				if err := os.WriteFile(file, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// upstreamSays returns the errors that upstream finds in a case.
func (k *kindUnderTest) upstreamSays(t *testing.T, c *validationtest.Case,
	documents map[string]map[string]any) ([]string, error) {
	doc, err := c.Before(documents)
	if err != nil {
		return nil, err
	}
	var old runtime.Object
	if c.Verb != "create" {
		if old, err = k.keptUnder(t, cmp.Or(c.GatesBefore, c.Gates), doc); err != nil {
			return nil, err
		}
	}
	restore, err := setGates(c.Gates)
	if err != nil {
		return nil, err
	}
	defer restore()
	var v verdict
	if c.Verb == "create" {
		if doc, err = c.After(doc); err != nil {
			return nil, err
		}
		v, _, err = k.create(t, doc)
		return validationtest.Lines(v.theirs), err
	}
	var kept map[string]any
	if err := json.Unmarshal(object.AppendJSON(nil, k.value(t, old)), &kept); err != nil {
		return nil, err
	}
	if doc, err = c.After(kept); err != nil {
		return nil, err
	}
	subresource := c.Verb
	if subresource == "update" {
		subresource = ""
	} else if k.upstream.Subresources[subresource] == nil {
		return nil, fmt.Errorf("%s has no %s", k.gvk.Kind, subresource)
	}
	v, _, err = k.update(t, doc, old, subresource)
	return validationtest.Lines(v.theirs), err
}

// keptUnder is kept under feature gates.
func (k *kindUnderTest) keptUnder(t *testing.T, gates string, doc map[string]any) (runtime.Object, error) {
	restore, err := setGates(gates)
	if err != nil {
		return nil, err
	}
	defer restore()
	return k.kept(t, doc)
}

// kept returns the object made from a document, with its status. The deletionTimestamp is set last, after the status.
func (k *kindUnderTest) kept(t *testing.T, doc map[string]any) (runtime.Object, error) {
	living := clone(doc).(map[string]any)
	if metadata, ok := living["metadata"].(map[string]any); ok {
		delete(metadata, "deletionTimestamp")
	}
	_, old, err := k.create(t, living)
	if err != nil {
		return nil, err
	}
	if old, _, err = k.restored(t, living, old); err != nil {
		return nil, err
	}
	is, err := k.decode(doc)
	if err != nil {
		return nil, err
	}
	from, err := meta.Accessor(is)
	if err != nil {
		return nil, err
	}
	to, err := meta.Accessor(old)
	if err != nil {
		return nil, err
	}
	to.SetDeletionTimestamp(from.GetDeletionTimestamp())
	return old, nil
}

// setGates turns upstream's feature gates on and off, as --feature-gates does, until restore.
func setGates(gates string) (restore func(), err error) {
	set := utilfeature.DefaultMutableFeatureGate.Set
	var before []string
	for gate := range strings.SplitSeq(gates, ",") {
		if name, _, ok := strings.Cut(gate, "="); ok {
			on := utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature(name))
			before = append(before, fmt.Sprintf("%s=%t", name, on))
		}
	}
	restore = func() { _ = set(strings.Join(before, ",")) } // the previous values are valid
	if err := set(gates); err != nil {
		restore() // after an error, some gates may be set
		return nil, err
	}
	return restore, nil
}
