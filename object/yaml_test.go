package object

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// SPEC: MED-2.
func TestParseYAML(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: [x, 'y', null, ~, 1.0, 1.5, true, yes, 0x10, 9223372036854775807]": `{"a":1,"b":["x","y",null,null,1,1.5,true,true,16,9223372036854775807]}`,
		`{"a": {"b": 1}}`: `{"a":{"b":1}}`,
		"a: |\n  two\n  lines\nb: >\n  folded\n  lines\n": `{"a":"two\nlines\n","b":"folded lines\n"}`,
		"base: &b {x: 1}\nderived:\n  <<: *b\n  z: 2\n":   `{"base":{"x":1},"derived":{"x":1,"z":2}}`,
		"1: a\ntrue: b\n": `{"1":"a","true":"b"}`,
		"":                `null`,
		"# nothing\n":     `null`,
		"a: 2001-01-01\nb: 2001-01-01T00:00:00Z\nc: !!str 1": `{"a":"2001-01-01","b":"2001-01-01T00:00:00Z","c":"1"}`,
	} {
		p, err := ParseYAML([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := printed(p.Value); got != want || len(p.Duplicates) > 0 {
			t.Errorf("%s: %s, duplicates %q", text, got, p.Duplicates)
		}
	}
	for _, text := range []string{"a: b: c", "\t- x", "a: [1", "a: *nobody", "? {a: 1}\n: 2", "- a\nb"} {
		if p, err := ParseYAML([]byte(text)); err == nil {
			t.Errorf("%q is parsed as %s", text, printed(p.Value))
		}
	}
}

func TestYAMLDuplicates(t *testing.T) {
	p, err := ParseYAML([]byte("a: 1\nspec:\n  replicas: 1\n  replicas: 2\na: 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := printed(p.Value); got != `{"a":3,"spec":{"replicas":2}}` {
		t.Error(got)
	}
	// The library's order of the lines is random: that of a Go map.
	lines := strings.Join(p.Duplicates, "\n")
	for _, want := range []string{`line 4: key "replicas" already set in map`, `line 5: key "a" already set in map`} {
		if !strings.Contains(lines, want) {
			t.Errorf("%q is missing in %q", want, lines)
		}
	}
}

// A body of a few hundred bytes must neither hold the server up nor fill its memory.
//
// SPEC: WRITE-6.
func TestYAMLBombs(t *testing.T) {
	laughs := "a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n"
	for c := 'b'; c <= 'k'; c++ {
		laughs += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), ", "))
	}
	merges := "a: &a {x: 1, y: 2}\n"
	for c := 'b'; c <= 'z'; c++ {
		merges += fmt.Sprintf("%c: &%c {l: *%c, r: *%c}\n", c, c, c-1, c-1)
	}
	for name, text := range map[string]string{
		"billion laughs": laughs,
		"doubling maps":  merges,
		"self-reference": "a: &a [*a]",
		"deep flow":      strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"deep blocks":    strings.Repeat("- ", 100_000) + "x",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			if p, err := ParseYAML([]byte(text)); err == nil {
				t.Errorf("accepted, and %d bytes long as JSON", len(AppendJSON(nil, p.Value)))
			}
			runtime.ReadMemStats(&after)
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 512<<20 {
				t.Errorf("allocated %d MiB", spent>>20)
			}
		})
	}
}

// SPEC: WRITE-6: the length of the expansion of aliases counts, however few nodes it has.
func TestYAMLExpansion(t *testing.T) {
	scalar := strings.Repeat("x", 100_000)
	for name, text := range map[string]string{
		"a long scalar": "a: &a " + scalar + "\nb: [" + strings.Repeat("*a,", 25_000) + "]",
		"a long key":    "a: &a " + scalar + "\nb: [" + strings.Repeat("{*a : 1},", 10_000) + "]",
		"a binary scalar": "a: &a !!binary " + strings.Repeat("eHh4", 25_000) + "\nb: [" + strings.Repeat("*a,",
			25_000) + "]",
		"a long number":      "a: &a 1" + strings.Repeat("_1", 50_000) + "\nb: [" + strings.Repeat("*a,", 25_000) + "]",
		"aliases of aliases": "a: &a " + scalar + "\nb: &b [" + strings.Repeat("*a,", 20) + "]\nc: [*b,*b]",
		"merged maps":        "a: &a {k: " + scalar + "}\nb: [" + strings.Repeat("{<<: *a},", 10_000) + "]",
		"at the end":         "a: &a [" + strings.Repeat(scalar+",", 20) + "]\nb: *a\nc: *a",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := ParseYAML([]byte(text))
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrExpansion) {
				t.Errorf("error %v, want ErrExpansion", err)
			}
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 64<<20 {
				t.Errorf("allocated %d MiB for %d kB", spent>>20, len(text)>>10)
			}
		})
	}
	for name, text := range map[string]string{
		"just below the limit":  "a: &a " + scalar + "\nb: [" + strings.Repeat("*a,", 30) + "]",
		"long without an alias": "a: &a " + strings.Repeat("*", MaxExpansion+1),
		"an alias in long text": "a: &a b\nc: *a\nd: " + strings.Repeat("x", MaxExpansion),
		"many short aliases":    "a: &a b\nc: [" + strings.Repeat("*a,", 30_000) + "]",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseYAML([]byte(text)); errors.Is(err, ErrExpansion) {
				t.Error(err)
			}
		})
	}
}

func FuzzParseYAML(f *testing.F) {
	for _, text := range []string{"a: 1", "a: [1, {b: c}]\n", "a: &x {b: 1}\nc: *x\n<<: *x",
		"- 1.0\n- 0o7\n- .inf\n- .nan", "a: 1\na: 2", "? a\n: b", "%YAML 1.1\n---\na\n...\n",
		"a: &a [1]\nb: &b {c: *a, <<: {d: *a}}\ne: [*b, *a]", "a: &a [*a]", "a: &a b\na: &a c\n? *a\n: *a",
		"a: &a !!binary eHh4\nb: *a # *c &d\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseYAML(text)
		if err != nil {
			return
		}
		// The longest escape of a byte in JSON has six bytes. An empty text is null.
		if json := len(AppendJSON(nil, p.Value)); json > 6*(MaxExpansion+len(text)) {
			t.Fatalf("%q expands to %d bytes", text, json)
		}
		asYAML, err := YAML(AppendJSON(nil, p.Value))
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseYAML(asYAML)
		if err != nil {
			t.Fatalf("%q is printed as %q: %v", text, asYAML, err)
		}
		if got, want := printed(again.Value), printed(p.Value); got != want {
			t.Fatalf("%q is printed as %q: %s, not %s", text, asYAML, got, want)
		}
	})
}
