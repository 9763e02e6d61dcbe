package delta

import (
	"bytes"
	"fmt"
	"math/rand"
	"strings"
	"testing"
)

// check packs a text and unpacks it whole and in parts.
func check(t *testing.T, base, text []byte, limit int) (packed int) {
	t.Helper()
	delta, ok := Append([]byte("before"), base, text, limit)
	if !bytes.HasPrefix(delta, []byte("before")) {
		t.Fatalf("what was there before is %q", delta)
	}
	delta = delta[len("before"):]
	if !ok {
		if len(delta) > 0 {
			t.Fatalf("no delta, but %q", delta)
		}
		return -1
	}
	if len(delta) > limit {
		t.Fatalf("the delta of %q from %q has %d bytes, more than %d", text, base, len(delta), limit)
	}
	if Len(delta) != len(text) {
		t.Fatalf("the text of %d bytes has %d in its delta", len(text), Len(delta))
	}
	for from := 0; from <= len(text); from += 1 + len(text)/9 {
		for to := from; to <= len(text); to += 1 + len(text)/11 {
			if part := AppendRange([]byte("x"), base, delta, from, to); string(part) != "x"+string(text[from:to]) {
				t.Fatalf("from %d to %d of %q by %q is %q", from, to, text, base, part)
			}
		}
	}
	if whole := AppendRange(nil, base, delta, 0, len(text)); !bytes.Equal(whole, text) {
		t.Fatalf("%q by %q is %q", text, base, whole)
	}
	if !Equal(base, delta, text) {
		t.Fatalf("%q by %q is not equal to its text", text, base)
	}
	for at := 0; at < len(text); at++ {
		other := bytes.Clone(text)
		other[at]++
		if Equal(base, delta, other) || Equal(base, delta, text[:at]) {
			t.Fatalf("%q by %q is equal to a text that differs at %d", text, base, at)
		}
		if len(text) > 100 {
			at += rand.Intn(len(text) / 50)
		}
	}
	if Equal(base, delta, append(bytes.Clone(text), 'x')) {
		t.Fatalf("%q by %q is equal to a longer text", text, base)
	}
	return len(delta)
}

// A delta has what is new, and little more.
func TestLength(t *testing.T) {
	long := make([]byte, 3000)
	rand.New(rand.NewSource(1)).Read(long)
	other := make([]byte, 3000)
	rand.New(rand.NewSource(2)).Read(other)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, c := range []struct {
		name       string
		base, text []byte
		most       int
	}{
		{"equal", long, long, 10},
		{"nothing", long, nil, 10},
		{"a byte changed", long, join(long[:999], []byte("?"), long[1000:]), 15},
		{"a longer name", long, join(long[:999], []byte("a longer name"), long[1003:]), 30},
		{"a shorter name", long, join(long[:999], []byte("name"), long[1012:]), 20},
		{"a part is missing", long, join(long[:500], long[1500:]), 20},
		{"parts in another order", long, join(long[2000:], long[:1000], long[1000:2000]), 30},
		{"more at the end", long[:1500], long, 1520},
		{"nothing in common", long, other, len(other) + 10},
		{"no base", nil, long, len(long) + 10},
		{"a piece of 15 bytes", long, join(other[:100], long[501:516], other[100:200]), 215},
	} {
		if n := check(t, c.base, c.text, 1<<20); n < 0 || n > c.most {
			t.Errorf("%s: %d bytes, want at most %d", c.name, n, c.most)
		}
		if n := check(t, c.base, c.text, 5); n > 5 {
			t.Errorf("%s: %d bytes, want none or 5", c.name, n)
		}
	}
	if _, ok := Append(nil, make([]byte, MaxLength+1), long, 1<<20); ok {
		t.Error("a base that is too long was taken")
	}
	if _, ok := Append(nil, long, make([]byte, MaxLength+1), 1<<20); ok {
		t.Error("a text that is too long was taken")
	}
	repeated := []byte(strings.Repeat("a text that is repeated. ", MaxLength/25))
	if n := check(t, repeated, repeated[7:], 1<<20); n < 0 || n > 50 {
		t.Errorf("repeated: %d bytes", n)
	}
}

// TestCommonEnds compares the fast functions with obvious ones.
func TestCommonEnds(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	text := func() []byte {
		b := bytes.Repeat([]byte("a"), rng.Intn(40))
		for range rng.Intn(3) {
			if len(b) > 0 {
				b[rng.Intn(len(b))] = 'b'
			}
		}
		return b
	}
	for range 20000 {
		a, b := text(), text()
		n := 0
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		if got := CommonPrefix(a, b); got != n {
			t.Fatalf("%q and %q begin with the same %d bytes, not %d", a, b, n, got)
		}
		n = 0
		for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
			n++
		}
		if got := CommonSuffix(a, b); got != n {
			t.Fatalf("%q and %q end with the same %d bytes, not %d", a, b, n, got)
		}
	}
}

func FuzzAppend(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"web-1"}}`), []byte(`{"metadata":{"name":"web-25"}}`), 100)
	f.Add([]byte(strings.Repeat("0123456789abcdef", 9)), []byte("0123456789abcdef!0123456789abcdef"), 20)
	f.Fuzz(func(t *testing.T, base, text []byte, limit int) { check(t, base, text, limit) })
}

// pods are two objects of one template.
func pods() (base, text []byte) {
	pod := func(name, uid, time string) []byte {
		var b strings.Builder
		fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"Pod","metadata":{"creationTimestamp":%q,"managedFields":[`, time)
		for i := range 60 {
			fmt.Fprintf(&b, `{"f:container%d":{"f:image":{}}},`, i)
		}
		fmt.Fprintf(&b, `],"name":%q,"uid":%q},"spec":{`, name, uid)
		for i := range 40 {
			fmt.Fprintf(&b, `"field%d":"value of %d",`, i, i)
		}
		fmt.Fprintf(&b, `"hostname":%q}}`, name)
		return []byte(b.String())
	}
	return pod("web-5d59d67564-x2x7k", "6f3f583e-5b14-4bf4-8c29-ad72bc57e44f", "2026-11-25T06:32:34Z"),
		pod("web-5d59d67564-k9", "0a3f583e-5b14-4bf4-8c29-ad72bc57e4aa", "2026-11-25T06:32:59Z")
}

func BenchmarkAppend(b *testing.B) {
	base, text := pods()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var delta []byte
	for b.Loop() {
		delta, _ = Append(delta[:0], base, text, len(text)/2)
	}
	b.ReportMetric(float64(len(delta)), "bytes")
}

func BenchmarkAppendRange(b *testing.B) {
	base, text := pods()
	delta, _ := Append(nil, base, text, len(text)/2)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	var whole []byte
	for b.Loop() {
		whole = AppendRange(whole[:0], base, delta, 0, len(text))
	}
}

func BenchmarkCopy(b *testing.B) {
	_, text := pods()
	b.SetBytes(int64(len(text)))
	var whole []byte
	for b.Loop() {
		whole = append(whole[:0], text...)
	}
}
