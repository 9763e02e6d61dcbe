//go:build mutants

package validation

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"plinth/conformance/internal/scheme"
	"plinth/internal/builtin/validation/validationtest"
)

// call is a line of the file that command harvest writes: the arguments with which a test of Kubernetes calls a
// validation function.
type call struct {
	Call      string
	Arguments []struct {
		Type  string
		Value json.RawMessage
	}
}

func readCalls(t *testing.T, name string) []call {
	if name == "" {
		return nil
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // only read
	var calls []call
	for d := json.NewDecoder(bufio.NewReader(file)); ; {
		var c call
		if err := d.Decode(&c); errors.Is(err, io.EOF) {
			return calls
		} else if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
}

// harvest turns the calls into cases for one kind: an object becomes a create, or an update if the call has an old one,
// too; a part of an object is put into the documents wherever a value of its Go type stands.
type harvest struct {
	*recorder
	kind  *kindUnderTest
	bases []string
	typ   reflect.Type // of the internal object
	// cases are the cases found, by verb; docs are the objects of the calls, converted to the kind's version.
	cases map[string][]*validationtest.Case
	docs  []map[string]any
}

func (r *recorder) harvest(t *testing.T, k *kindUnderTest, bases []string, calls []call) *harvest {
	h := &harvest{recorder: r, kind: k, bases: bases, cases: map[string][]*validationtest.Case{}}
	internal, err := scheme.Scheme.New(k.gvk.GroupKind().WithVersion(runtime.APIVersionInternal))
	if err != nil {
		t.Fatal(err)
	}
	h.typ = reflect.TypeOf(internal).Elem()
	for _, c := range calls {
		var objects []map[string]any
		for _, a := range c.Arguments {
			if a.Type != typeText(h.typ) {
				h.part(c.Call, a.Type, a.Value)
			} else if obj, err := decodeAs(h.typ, a.Value); err == nil {
				if doc := h.document(obj.Interface().(runtime.Object)); doc != nil {
					objects = append(objects, doc)
				}
			}
		}
		h.objects(c.Call, objects)
	}
	return h
}

func decodeAs(t reflect.Type, text []byte) (reflect.Value, error) {
	v := reflect.New(t)
	err := json.Unmarshal(text, v.Interface())
	return v, err
}

// typeText formats a type as command harvest does.
func typeText(t reflect.Type) string {
	switch {
	case t.Name() != "":
		return t.PkgPath() + "." + t.Name()
	case t.Kind() == reflect.Slice:
		return "[]" + typeText(t.Elem())
	case t.Kind() == reflect.Pointer:
		return typeText(t.Elem())
	case t.Kind() == reflect.Map:
		return "map[" + typeText(t.Key()) + "]" + typeText(t.Elem())
	}
	return t.String()
}

// document converts an internal object to the version of the kind; nil if that fails.
func (h *harvest) document(internal runtime.Object) (doc map[string]any) {
	defer func() {
		if recover() != nil { // some conversions expect fields that are not set
			doc = nil
		}
	}()
	typed, err := scheme.Scheme.ConvertToVersion(internal, h.kind.gvk.GroupVersion())
	if err != nil {
		return nil
	}
	text, err := json.Marshal(typed)
	if err != nil || json.Unmarshal(text, &doc) != nil {
		return nil
	}
	doc["apiVersion"], doc["kind"] = h.kind.gvk.GroupVersion().String(), h.kind.gvk.Kind
	if metadata, ok := doc["metadata"].(map[string]any); ok {
		for _, key := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"} {
			delete(metadata, key)
		}
	}
	return doc
}

// verb returns the verb for which a function is called.
func (h *harvest) verb(function string) string {
	for verb := range h.kind.upstream.Subresources {
		if strings.Contains(strings.ToLower(function), verb) {
			return verb
		}
	}
	return "update"
}

func (h *harvest) objects(function string, objects []map[string]any) {
	verb := h.verb(function)
	for _, doc := range objects {
		h.docs = append(h.docs, doc)
		created := maps.Clone(doc)
		delete(created, "status")
		c := h.nearest("create", created, false)
		h.cases["create"] = append(h.cases["create"], c)
		if status, ok := doc["status"]; ok && h.kind.upstream.Subresources["status"] != nil {
			c := &validationtest.Case{Verb: "status", Object: c.Object}
			changes([]string{"status"}, h.documents[c.Object]["status"], status,
				func(path, value string) { c.Change(false, path, value) })
			h.cases["status"] = append(h.cases["status"], c)
		}
	}
	if len(objects) != 2 {
		return
	}
	now, old := objects[0], objects[1]
	if strings.Contains(function, "ClusterIPsRelated") {
		now, old = old, now // only this function has the old object first
	}
	whole := h.nearest(verb, old, true)
	alone := &validationtest.Case{Verb: verb, Object: whole.Object}
	changes(nil, old, now, func(path, value string) {
		whole.Change(false, path, value)
		alone.Change(false, path, value)
	})
	h.cases[verb] = append(h.cases[verb], whole, alone)
}

// nearest returns the case that makes a document from the base most similar to it.
func (h *harvest) nearest(verb string, doc map[string]any, before bool) *validationtest.Case {
	var best *validationtest.Case
	for _, base := range h.bases {
		c := &validationtest.Case{Verb: verb, Object: base}
		changes(nil, h.documents[base], doc, func(path, value string) { c.Change(before, path, value) })
		if best == nil || c.Changes() < best.Changes() {
			best = c
		}
	}
	return best
}

// part puts a part of an object into the documents.
func (h *harvest) part(function, typ string, text []byte) {
	for _, base := range h.bases {
		obj, err := h.kind.decode(h.documents[base])
		if err != nil {
			continue
		}
		old := h.document(obj.DeepCopyObject())
		if doc := h.documents[base]["status"]; doc != nil && old != nil {
			old["status"] = doc
		}
		places := 0
		eachPlace(reflect.ValueOf(obj).Elem(), typ, func(put func(reflect.Value), t reflect.Type) {
			part, err := decodeAs(t, text)
			if places++; err != nil || places > 8 {
				return
			}
			put(part.Elem())
			doc := h.document(obj.DeepCopyObject())
			if old == nil || doc == nil {
				return
			}
			verb := h.verb(function)
			for _, v := range []string{"create", verb} {
				c := &validationtest.Case{Verb: v, Object: base}
				changes(nil, old, doc, func(path, value string) { c.Change(false, path, value) })
				h.cases[v] = append(h.cases[v], c)
			}
		})
	}
}

// eachPlace calls found for each place below v whose type is typ or a list of it, and restores the place afterwards.
func eachPlace(v reflect.Value, typ string, found func(put func(reflect.Value), t reflect.Type)) {
	if typeText(v.Type()) == typ && v.CanSet() {
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		if v.Kind() == reflect.Pointer {
			found(func(x reflect.Value) { v.Set(x.Addr()) }, v.Type().Elem())
		} else {
			found(func(x reflect.Value) { v.Set(x) }, v.Type())
		}
		v.Set(was)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			eachPlace(v.Elem(), typ, found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			// the template of a workload is like a Pod, and Pods are covered already
			if f := v.Type().Field(i); f.IsExported() && !strings.HasSuffix(typeText(f.Type), "core.PodTemplateSpec") {
				eachPlace(v.Field(i), typ, found)
			}
		}
	case reflect.Slice:
		if v.Len() == 0 && typeText(v.Type().Elem()) == typ && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			eachPlace(v.Index(0), typ, found)
			v.Set(reflect.Zero(v.Type()))
			return
		}
		for i := range min(v.Len(), 2) {
			eachPlace(v.Index(i), typ, found)
		}
	}
}

// verbs returns the verbs that are tested for a kind.
func verbs(k *kindUnderTest) []string {
	return append([]string{"create", "update"}, slices.Sorted(maps.Keys(k.upstream.Subresources))...)
}
