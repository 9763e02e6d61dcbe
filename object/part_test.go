package object

import (
	"strings"
	"testing"
)

// A part has what the whole object has at its paths, and nothing else, wherever a path ends. SPEC: DEL-7
func TestParsePart(t *testing.T) {
	const text = `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"a":"}\"]"},"labels":{"app":"web","z":""},` +
		`"managedFields":[{"fieldsV1":{"f:spec":{"f:nodeName":{}}}}],"name":"x","uid":"u"},` +
		`"data":{"a":[1,{"metadata":2},[]],"b":{},"c":null},"spec":{"nodeName":"n","list":[{"nodeName":"m"}]}}`
	for paths, want := range map[string]string{
		"metadata.absent a.b":               `{"metadata":{}}`,
		"apiVersion metadata.absent":        `{"apiVersion":"v1","metadata":{}}`,
		"metadata.uid metadata.labels":      `{"metadata":{"labels":{"app":"web","z":""},"uid":"u"}}`,
		"metadata.labels.z":                 `{"metadata":{"labels":{"z":""}}}`,
		"metadata.uid.below kind":           `{"kind":"Pod","metadata":{"uid":"u"}}`,
		"spec.nodeName data metadata.name":  `{"data":{"a":[1,{"metadata":2},[]],"b":{},"c":null},"metadata":{"name":"x"},"spec":{"nodeName":"n"}}`,
		"data.a.b data.a data.c metadata.a": `{"data":{"a":[1,{"metadata":2},[]],"c":null},"metadata":{}}`,
		"data data.a metadata.a":            `{"data":{"a":[1,{"metadata":2},[]],"b":{},"c":null},"metadata":{}}`,
	} {
		v, at, ok := ParsePart([]byte(text), partOf(paths))
		if located, _ := Locate([]byte(text)); at != located {
			t.Errorf("%s: the places are %+v, want %+v", paths, at, located)
		}
		if have := string(AppendJSON(nil, v)); !ok || have != want {
			t.Errorf("%s: %s, %t; want %s", paths, have, ok, want)
		}
	}
}

func partOf(paths string) *Part {
	var list [][]string
	for path := range strings.FieldsSeq(paths) {
		list = append(list, strings.Split(path, "."))
	}
	return NewPart(list...)
}

// broken is an object with all that JSON has.
const broken = `{"apiVersion":"v1","metadata":{"labels":{"app":"w\u00e9b\n"},"managedFields":[{},-1.5e+7],"name":"x","uid":"u"},` +
	`"spec":{"a":["\"}",{},0,-12,1E3,[[]],true,false,null],"nodeName":"n"},"status":{}}`

// Text that is not JSON is refused, whatever is wrong with it and wherever; JSON is accepted, with the same values.
//
// SPEC: DEL-7
func TestParsePartChecksTheRest(t *testing.T) {
	part := partOf("metadata.labels metadata.uid spec.nodeName")
	wrong := 0
	check := func(text string) {
		v, _, ok := ParsePart([]byte(text), part)
		whole, err := ParseJSON([]byte(text))
		if ok && err != nil {
			t.Fatalf("%s is accepted: %v", text, err)
		}
		if !ok {
			wrong++
			return
		}
		for _, path := range [][]string{{"metadata", "labels"}, {"metadata", "uid"}, {"spec", "nodeName"}} {
			if have, want := v.At(path...), whole.Value.At(path...); !Equal(have, want) {
				t.Fatalf("%s: %v is %s, want %s", text, path, AppendJSON(nil, have), AppendJSON(nil, want))
			}
		}
	}
	if check(broken); wrong > 0 {
		t.Fatal("JSON is refused")
	}
	for i := range broken {
		check(broken[:i])
		check(broken + broken[i:])
		for c := range 128 {
			check(broken[:i] + string(rune(c)) + broken[i:])
			check(broken[:i] + string(rune(c)) + broken[i+1:])
		}
	}
	for _, text := range []string{"", "[]", "1", `{"a":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + "}",
		`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + "}"} {
		check(text)
	}
	if wrong < 1000 {
		t.Errorf("only %d texts were refused", wrong)
	}
}

// FuzzParsePart compares with ParseJSON.
func FuzzParsePart(f *testing.F) {
	f.Add([]byte(broken))
	part := partOf("metadata.labels metadata.uid spec.a")
	f.Fuzz(func(t *testing.T, text []byte) {
		v, _, ok := ParsePart(text, part)
		whole, err := ParseJSON(text)
		if ok && (err != nil || !Equal(v.At("spec", "a"), whole.Value.At("spec", "a"))) {
			t.Errorf("%q: %s, %v", text, AppendJSON(nil, v), err)
		}
	})
}

// BenchmarkParsePart reads what a restart needs of an object of 3 kB.
func BenchmarkParsePart(b *testing.B) {
	text := []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"app":"web"},"managedFields":[` +
		strings.Repeat(`{"f:image":{},"f:name":{},"f:resources":{".":{},"f:limits":{}}},`, 25) + `{}],"name":"x","uid":"u"},"spec":{` +
		strings.Repeat(`"image":"registry.example.com/team/web:v1.25.3","n":80,`, 25) + `"nodeName":"n"}}`)
	part := partOf("metadata.labels metadata.uid spec.nodeName")
	b.SetBytes(int64(len(text)))
	b.Run("part", func(b *testing.B) {
		for b.Loop() {
			ParsePart(text, part)
		}
	})
	b.Run("whole", func(b *testing.B) {
		for b.Loop() {
			ParseJSON(text) //nolint:errcheck // it is valid
		}
	})
	b.Run("locate", func(b *testing.B) {
		for b.Loop() {
			Locate(text)
		}
	})
}
