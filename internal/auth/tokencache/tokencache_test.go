package tokencache

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"plinth/internal/recent"
)

// Values live as long as they should, and their number is bounded; a nil cache keeps nothing.
//
// SPEC: AUTH-1
func TestCache(t *testing.T) {
	now := time.Unix(1000, 0)
	c := Cache[int]{Life: 10 * time.Second}
	key := KeyOf("a", nil)
	c.Set(key, 1, now)
	if v, ok := c.Get(key, now.Add(10*time.Second-1)); !ok || v != 1 {
		t.Errorf("just before the end of its life: have %d, %v, want 1", v, ok)
	}
	if _, ok := c.Get(key, now.Add(10*time.Second)); ok {
		t.Error("a value is kept beyond its life")
	}
	var none *Cache[int]
	none.Set(key, 1, now)
	if _, ok := none.Get(key, now); ok {
		t.Error("a nil cache keeps a value")
	}
	forever := Cache[int]{}
	for i := range 3 * recent.DefaultLimit {
		forever.Set(KeyOf(fmt.Sprint(i), nil), i, now)
	}
	if n := forever.values.Len(); n > 2*recent.DefaultLimit {
		t.Errorf("%d values are kept, want at most %d", n, 2*recent.DefaultLimit)
	}
	if v, ok := forever.Get(KeyOf(fmt.Sprint(3*recent.DefaultLimit-1), nil), now.Add(1000*time.Hour)); !ok ||
		v != 3*recent.DefaultLimit-1 {
		t.Errorf("without a life: %d, %v", v, ok)
	}
}

// Different tokens or audiences have different keys, also if their texts are the same when they are joined.
//
// SPEC: AUTH-1
func TestKeyOf(t *testing.T) {
	seen := map[Key]string{}
	long := strings.Repeat("x", 5000)
	count := func(n byte) string { return "\x00\x00\x00\x00\x00\x00\x00" + string(n) }
	for _, c := range []struct {
		token     string
		audiences []string
	}{
		{"", nil}, {"a", nil}, {"ab", nil}, {"a", []string{"b"}}, {"a", []string{"", "b"}}, {"a", []string{"b", ""}},
		{"a", []string{"b", "c"}},
		{"a", []string{"bc"}}, {"ab", []string{"c"}}, {"a", []string{""}}, {long, nil}, {long + "x", nil},
		{long, []string{"x"}},
		// Tokens that contain the hashed text of {"a", ["b"]} and of {"a", nil}.
		{"ab" + count(1) + count(1), nil}, {"a" + count(0), nil}, {"ab" + count(1) + count(1) + count(0), nil},
	} {
		key := KeyOf(c.token, c.audiences)
		text := fmt.Sprintf("%.10q (%d) %q", c.token, len(c.token), c.audiences)
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have the same key", text, other)
		}
		seen[key] = text
		if KeyOf(c.token, c.audiences) != key {
			t.Errorf("%s has another key the second time", text)
		}
	}
	if n := testing.AllocsPerRun(100, func() { KeyOf("some token", nil) }); n > 0 {
		t.Errorf("KeyOf of a short token: have %v allocations, want 0", n)
	}
}
