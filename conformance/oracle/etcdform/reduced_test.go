package etcdform

import (
	"bytes"
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/object"
)

var reductions = flag.Int("reductions", 60, "how many parts of each example are left out")

// Examples with one part left out, in JSON and in protobuf, are read with the defaults of their version, and written as
// the reference writes them. SPEC: STORE-3, VAL-4
func TestReducedVectors(t *testing.T) {
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}.Every()))
	form := etcdform.New(registry, runtime.ContentTypeProtobuf)
	rows := kinds(t, registry, runtime.ContentTypeProtobuf)
	compared := 0
	for _, v := range vectors(t) {
		row := rows[v.kind.GroupKind()]
		name := v.kind.GroupVersion().String() + " " + v.kind.Kind
		if row == nil || v.release != "HEAD" || !bytes.HasPrefix(v.value, []byte("{")) || slices.Contains(unread, name) {
			continue
		}
		parsed, err := object.ParseJSON(v.value)
		if err != nil {
			t.Fatal(err)
		}
		h := fnv.New64a()
		h.Write([]byte(v.name))
		random := rand.New(rand.NewPCG(h.Sum64(), 1))
		obj := withoutRaw(parsed.Value)
		all := reducible(obj, nil)
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for i, path := range all[:min(len(all), *reductions)] {
			reduced := without(obj, path)
			if more := all[random.IntN(len(all))]; i%7 == 6 && !isIdentity(more) {
				reduced = without(reduced, more)
			}
			value := object.AppendObject(nil, reduced)
			want, err := stored(row.codec, value)
			back, data, _, ourErr := restored(form, row.resource, value)
			if err != nil || ourErr != nil {
				if (err == nil) != (ourErr == nil) && !isIdentity(path) {
					t.Errorf("%s without %q: %v; the reference: %v", v.name, path, ourErr, err)
				}
				continue
			}
			compared++
			// An empty map is not an absent one there, until it has been stored: this default is not set.
			if v.kind.Kind == "Node" && slices.Equal(path, []string{"status", "allocatable", "allocatableKey"}) {
				continue
			}
			if !bytes.Equal(back, want) {
				t.Errorf("%s without %q: %s\n%s", v.name, path, difference(row, want, back), data)
				break
			}
		}
	}
	if compared < 3000 {
		t.Errorf("only %d values were compared", compared)
	}
}

// isIdentity says whether an object without this part is not that of its key.
func isIdentity(path []string) bool {
	return len(path) > 0 && len(path) <= 2 && path[0] == "metadata"
}

// withoutRaw is an object without the text of untyped content, which is an expected difference.
func withoutRaw(v object.Value) object.Value {
	switch v.Kind() {
	case object.Map:
		for _, m := range v.Members() {
			switch {
			case m.Key == "parameters" && m.Value.Kind() == object.Map, m.Key == "data" && m.Value.Kind() == object.Map &&
				!m.Value.At("apiVersion").IsNull():
				v = v.With(m.Key, object.Fields("a", object.IntOf(1)))
			default:
				v = v.With(m.Key, withoutRaw(m.Value))
			}
		}
	case object.List:
		for i, item := range v.Items() {
			v = v.WithItem(i, withoutRaw(item))
		}
	}
	return v
}

// reducible are the paths of all members, with "#" for the first item of a list.
func reducible(v object.Value, at []string) [][]string {
	var all [][]string
	for _, m := range v.Members() {
		if len(at) == 0 && (m.Key == "apiVersion" || m.Key == "kind") {
			continue
		}
		path := append(slices.Clone(at), m.Key)
		all = append(append(all, path), reducible(m.Value, path)...)
	}
	if items := v.Items(); len(items) > 0 {
		all = append(all, reducible(items[0], append(slices.Clone(at), "#"))...)
	}
	return all
}

// without is a value without the part at a path.
func without(v object.Value, path []string) object.Value {
	switch {
	case v.Kind() == object.List && v.Len() > 0 && path[0] == "#":
		return v.WithItem(0, without(v.Items()[0], path[1:]))
	case len(path) == 1:
		return v.Without(path[0])
	}
	if below, ok := v.Get(path[0]); ok {
		return v.With(path[0], without(below, path[1:]))
	}
	return v
}
