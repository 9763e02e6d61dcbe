package patch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"plinth/object"
)

// Copies may add at most maxCopied, wherever they are added.
//
// SPEC: WRITE-6
func TestCopiesAreBounded(t *testing.T) {
	const size = 3 << 20
	doc := parse(t, `{"big":"`+strings.Repeat("x", size-2)+`","list":[],"small":["a"]}`)
	patch := func(operations ...string) string { return "[" + strings.Join(operations, ",") + "]" }
	many := func(n int, op string) string { return strings.TrimSuffix(strings.Repeat(op+",", n), ",") }
	toList := `{"op":"copy","from":"/big","path":"/list/-"}`
	over := &jsonpatch.AccumulatedCopySizeError{}
	for _, c := range []struct {
		name, patch string
		fails       error
	}{
		{"just below the limit", patch(toList), nil},
		{"above the limit", patch(many(2, toList)), over},
		{"removed after each copy",
			patch(many(2, `{"op":"copy","from":"/big","path":"/list/0"},{"op":"remove","path":"/list/0"}`)), over},
		{"from a moved value", patch(`{"op":"move","from":"/big","path":"/small/-"}`,
			many(2, `{"op":"copy","from":"/small/-1","path":"/list/-"}`)), over},
		{"removals between small copies",
			patch(many(20, `{"op":"copy","from":"/small","path":"/list/-"},{"op":"remove","path":"/list/0"}`)), nil},
		{"many small copies in a large document", patch(many(4000, `{"op":"copy","from":"/small/0","path":"/list/-"}`)),
			nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := JSON(doc, []byte(c.patch), nil)
			switch c.fails {
			case over:
				if got := new(jsonpatch.AccumulatedCopySizeError); !errors.As(err, &got) || !errors.Is(err, ErrUnprocessable) {
					t.Errorf("got %v", err)
				}
			default:
				if !errors.Is(err, c.fails) {
					t.Errorf("got %v, want %v", err, c.fails)
				}
			}
		})
	}
}

// Random patches have the same result as with the library, and the same error, unless the library panics.
//
// SPEC: WRITE-2
func TestOperationsAreThoseOfTheLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	places := []string{"/a", "/a/b", "/a/-", "/a/0", "/a/-1", "/c", "/c/d~1e", "/c/d~0e", "/c/x/y", "", "/zzz", "/l/1",
		"/l/-", "/l/-2", "/l/-4", "/l/3", "/l/4", "/l/9", "/l/x", "/n", "/n/m", "/c/d~1e/n", "zzz", "/s", "/s/t", "/a/1/r"}
	values := []string{`1`, `1.0`, `1e3`, `"a<b"`, `"a\u003cb"`, `{"b":1}`, `{ "b" : 1 }`, `["x",{"y":2.50}]`, `[]`,
		`{}`, `null`, `[1,2,3]`, `[null]`, `{"r":1e3}`, `{"n":null}`, `true`}
	odd := []string{
		`{"op":"add","path":"/a/0"}`, `{"op":"test","path":"/n"}`, `{"op":"test","path":""}`, `{"op":"replace","path":""}`,
		`{"op":"frobnicate","path":"/a"}`, `{"path":"/a"}`, `{"op":1,"path":"/a"}`, `{"op":"add","value":1}`,
		`{"op":"move","path":"/a"}`, `{"op":"copy","from":"/a"}`, `{"op":"remove","path":7}`, `{"op":"move","from":"/a"}`,
		`{"op":"replace","value":1}`, `{"op":"test","value":1}`, `{"op":null,"path":"/a"}`,
	}
	// Tests that hold, as long as no operation before them has changed the place.
	held := []string{`{"op":"test","path":"/n","value":null}`, `{"op":"test","path":"/l/1","value":2}`,
		`{"op":"test","path":"/s","value":"t"}`, `{"op":"test","path":"/a/0","value":"q"}`}
	pick := func(list []string) string { return list[random.IntN(len(list))] }
	done := map[string]int{}
	failed, panicked := 0, 0
	for range 60_000 {
		var kinds, operations []string
		for range 1 + random.IntN(6) {
			kind := pick([]string{"add", "add", "replace", "test", "remove", "move", "copy", "copy"})
			kinds = append(kinds, kind)
			if kind == "test" && random.IntN(3) > 0 {
				operations = append(operations, pick(held))
				continue
			}
			switch kind {
			case "add", "replace", "test":
				operations = append(operations, fmt.Sprintf(`{"op":%q,"path":%q,"value":%s}`, kind, pick(places), pick(values)))
			case "remove":
				operations = append(operations, fmt.Sprintf(`{"op":%q,"path":%q}`, kind, pick(places)))
			default:
				operations = append(operations, fmt.Sprintf(`{"op":%q,"from":%q,"path":%q}`, kind, pick(places), pick(places)))
			}
		}
		if random.IntN(20) == 0 {
			operations = slices.Insert(operations, random.IntN(len(operations)+1), pick(odd))
		}
		body := "[" + strings.Join(operations, ",") + "]"
		doc := parse(t, `{"a":["q",{"r":1e3}],"c":{"d/e":{"n":null},"d~e":"é<","x":{"y":[1]}},"l":[1,2,3],"n":null,"s":"t"}`)
		want, wantErr, crashed := byLibrary(t, doc, body)
		got, err := JSON(doc, []byte(body), nil)
		switch {
		case crashed:
			panicked++
			if !errors.Is(err, ErrUnprocessable) {
				t.Fatalf("%s: the library panics, here: %s, %v", body, object.AppendJSON(nil, got), err)
			}
		case wantErr != nil:
			failed++
			if text := fmt.Sprintf("%v: %v", ErrUnprocessable, wantErr); err == nil || err.Error() != text {
				t.Fatalf("%s: %v, want %s", body, err, text)
			}
		case err != nil || !object.Equal(got, want):
			t.Fatalf("%s: %s, %v; want %s", body, object.AppendJSON(nil, got), err, object.AppendJSON(nil, want))
		default:
			for _, kind := range kinds {
				done[kind]++
			}
		}
	}
	for _, kind := range []string{"add", "replace", "test", "remove", "move", "copy"} {
		if done[kind] < 500 {
			t.Errorf("only %d operations %s were applied", done[kind], kind)
		}
	}
	if failed < 1000 || panicked < 100 {
		t.Errorf("only %d patches failed, and %d crashed", failed, panicked)
	}
}

// byLibrary applies a patch by the library of the reference.
func byLibrary(t *testing.T, doc object.Value, body string) (made object.Value, err error, crashed bool) {
	operations, err := jsonpatch.DecodePatch([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { crashed = recover() != nil }()
	text, err := operations.Apply(object.AppendJSON(nil, doc))
	if err != nil {
		return object.Nil, err, false
	}
	return parse(t, string(text)), nil, false
}

// A patch ends at the operation before which stop says so.
//
// SPEC: WRITE-7
func TestOperationsStop(t *testing.T) {
	late := errors.New("too late")
	body := "[" + strings.Repeat(`{"op":"add","path":"/a/0","value":1},`, 99) + `{"op":"test","path":"/a","value":0}]`
	asked := 0
	_, err := JSON(parse(t, `{"a":[]}`), []byte(body), func() error {
		if asked++; asked > 50 {
			return late
		}
		return nil
	})
	if err != late || asked != 51 {
		t.Errorf("ended with %v when stop was asked %d times, want %v at 51", err, asked, late)
	}
}

// Insertions and removals do not copy their list.
//
// SPEC: WRITE-6
func TestInsertionsDoNotCopy(t *testing.T) {
	const items, operations = 20_000, 1000
	doc := parse(t, `{"a":[`+strings.TrimSuffix(strings.Repeat("0,", items), ",")+`]}`)
	body := "[" + strings.TrimSuffix(strings.Repeat(
		`{"op":"add","path":"/a/0","value":1},{"op":"remove","path":"/a/7"},`, operations), ",") + "]"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := JSON(doc, []byte(body), nil); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	// A copy of the list takes 8 bytes for each item: 320 MB for all operations.
	if took := after.TotalAlloc - before.TotalAlloc; took > 4*items*operations {
		t.Errorf("took %d bytes", took)
	}
}
