package patch

import (
	"errors"
	"fmt"
	"math/rand/v2"
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
		{"just below the limit", patch(many(3, toList)), nil},
		{"above the limit", patch(many(4, toList)), over},
		{"removed after each copy",
			patch(many(4, `{"op":"copy","from":"/big","path":"/list/0"},{"op":"remove","path":"/list/0"}`)), over},
		{"from a moved value", patch(`{"op":"move","from":"/big","path":"/small/-"}`,
			many(4, `{"op":"copy","from":"/small/-1","path":"/list/-"}`)), over},
		{"removals between small copies",
			patch(many(20, `{"op":"copy","from":"/small","path":"/list/-"},{"op":"remove","path":"/list/0"}`)), nil},
		{"many small copies in a large document", patch(many(40, `{"op":"copy","from":"/small/0","path":"/list/-"}`)),
			errTooManyCopies},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := JSON(doc, []byte(c.patch))
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

// Operations that are applied in groups, one per copy, have the same result as all at once.
//
// SPEC: WRITE-2
func TestCountedCopiesChangeNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	places := []string{"/a", "/a/b", "/a/-", "/a/0", "/a/-1", "/c", "/c/d~1e", "/c/d~0e", "/c/x/y", "", "/zzz", "/l/1",
		"/l/-", "/l/-2", "/l/9"}
	values := []string{`1`, `"a<b"`, `{"b":1}`, `["x",{"y":2.50}]`, `[]`}
	pick := func(list []string) string { return list[random.IntN(len(list))] }
	done, copies := 0, 0
	for range 20_000 {
		var operations []string
		for range 1 + random.IntN(6) {
			switch random.IntN(6) {
			case 0:
				operations = append(operations, fmt.Sprintf(`{"op":"add","path":%q,"value":%s}`, pick(places), pick(values)))
			case 1:
				operations = append(operations, fmt.Sprintf(`{"op":"remove","path":%q}`, pick(places)))
			case 2:
				operations = append(operations, fmt.Sprintf(`{"op":"move","from":%q,"path":%q}`, pick(places), pick(places)))
			default:
				operations = append(operations, fmt.Sprintf(`{"op":"copy","from":%q,"path":%q}`, pick(places), pick(places)))
			}
		}
		body := "[" + strings.Join(operations, ",") + "]"
		decoded, err := jsonpatch.DecodePatch([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		doc := `{"a":["q",{"r":1e3}],"c":{"d/e":{"n":null},"d~e":"é<","x":{"y":[1]}},"l":[1,2,3]}`
		run := func(apply func(jsonpatch.Patch, []byte) ([]byte, error)) (text string, failed bool) {
			defer func() { failed = failed || recover() != nil }()
			patched, err := apply(decoded, []byte(doc))
			if err != nil {
				return "", true
			}
			return string(object.AppendJSON(nil, parse(t, string(patched)))), false
		}
		want, wantFailed := run(jsonpatch.Patch.Apply)
		got, gotFailed := run(applyCounted)
		if got != want || gotFailed != wantFailed {
			t.Fatalf("%s:\n%s (failed: %v)\nat once:\n%s (failed: %v)", body, got, gotFailed, want, wantFailed)
		}
		if !gotFailed {
			done++
			copies += strings.Count(body, `"copy"`)
		}
	}
	if done < 1000 || copies < 1000 {
		t.Errorf("only %d patches with %d copies were applied", done, copies)
	}
}

// at finds the values that the library copies.
//
// SPEC: WRITE-6
func TestCopiesAreCountedAsTheLibraryCounts(t *testing.T) {
	doc := `{"a":["q",{"r":1000}],"c":{"d/e":{"n":null},"d~e":"e"},"l":[1,2,3]}`
	value := parse(t, doc)
	for from, want := range map[string]string{
		"/a": `["q",{"r":1000}]`, "/a/0": `"q"`, "/a/-1/r": `1000`, "/c/d~1e": `{"n":null}`, "/c/d~0e": `"e"`,
		"/c/d~1e/n": `null`,
		"/l/-3":     `1`, "/l/-4": ``, "/l/3": ``, "/l/x": ``, "/c/none": ``,
	} {
		got, ok := at(value, from)
		if text := string(object.AppendJSON(nil, got)); ok != (want != "") || ok && text != want {
			t.Errorf("%s: got %s, found %v, want %s", from, text, ok, want)
		}
	}
}
