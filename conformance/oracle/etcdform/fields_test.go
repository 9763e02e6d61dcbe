package etcdform

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"plinth/merge"
	"plinth/object"
)

// Sets of managedFields are written as the reference writes them, and read from what it writes. SPEC: STORE-3, SSA-1
func TestFieldsText(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	reordered, copied := 0, 0
	for range 30_000 {
		set := randomSet(random, 0)
		want, err := set.ToJSON()
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := object.ParseJSON(bytes.Clone(want))
		if err != nil {
			t.Fatal(err)
		}
		canonical := object.AppendJSON(nil, parsed.Value)
		if have := merge.AppendFieldsText(nil, canonical); !bytes.Equal(have, want) {
			t.Fatalf("%s is written as\n%s, want\n%s", canonical, have, want)
		}
		if have, ok := merge.CanonicalFieldsText(nil, want); ok && !bytes.Equal(have, canonical) {
			t.Fatalf("%s is read as\n%s, want\n%s", want, have, canonical)
		} else if ok && !bytes.Equal(want, canonical) {
			reordered++
		}
		if merge.IsFieldsText(want) {
			if copied++; !bytes.Equal(want, canonical) {
				t.Fatalf("%s is taken for canonical; that is %s", want, canonical)
			}
		}
	}
	if reordered < 3000 || copied < 3000 {
		t.Errorf("only %d texts were copied, and %d were reordered", copied, reordered)
	}
}

var fieldNames = []string{"a", "b", "a b", "a!", "a\"", "a\\", "<", "é", "\u2028", "", "ab", "a.b/c", "x\ty", "\x7f",
	"\b"}

// randomSet is a set of few elements, most of which are hard to order.
func randomSet(random *rand.Rand, depth int) *fieldpath.Set {
	set := fieldpath.NewSet()
	usual := random.IntN(2) == 0
	for range 1 + random.IntN(4) {
		element := randomElement(random, usual)
		if depth == 3 || random.IntN(2) == 0 {
			set.Insert(fieldpath.Path{element})
			continue
		}
		below := randomSet(random, depth+1)
		below.Iterate(func(p fieldpath.Path) { set.Insert(append(fieldpath.Path{element}, p...)) })
	}
	return set
}

func randomElement(random *rand.Rand, usual bool) fieldpath.PathElement {
	name := fieldNames[random.IntN(len(fieldNames))]
	if usual {
		name = fieldNames[random.IntN(2)]
	}
	scalar := func() any {
		switch random.IntN(5) {
		case 0, 1:
			return int64(random.IntN(200))
		case 2:
			if usual {
				return name
			}
			return []any{1.5, -1.0, int64(-3), true, false, nil, 1e30}[random.IntN(7)]
		}
		return name
	}
	switch random.IntN(8) {
	case 0, 1, 2:
		return fieldpath.PathElement{FieldName: &name}
	case 3, 4, 5:
		keys := value.FieldList{{Name: "name", Value: value.NewValueInterface(scalar())}}
		if random.IntN(2) == 0 {
			keys = append(keys, value.Field{Name: "port", Value: value.NewValueInterface(scalar())})
		}
		return fieldpath.PathElement{Key: &keys}
	case 6:
		v := value.NewValueInterface(scalar())
		return fieldpath.PathElement{Value: &v}
	}
	if usual {
		return fieldpath.PathElement{FieldName: &name}
	}
	index := random.IntN(20)
	return fieldpath.PathElement{Index: &index}
}
