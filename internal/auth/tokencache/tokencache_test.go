package tokencache

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Values in use stay, others are evicted, and there are never more values than two generations hold.
//
// SPEC: AUTH-1
func TestCache(t *testing.T) {
	now := time.Unix(1000, 0)
	c := Cache[int]{Size: 10, Life: 10 * time.Second}
	used := KeyOf("used", nil)
	c.Set(used, -1, now)
	for i := range 1000 {
		c.Set(KeyOf(fmt.Sprint(i), nil), i, now)
		if v, ok := c.Get(used, now); !ok || v != -1 {
			t.Fatalf("a value in use, after %d others: have %d, %v, want -1", i+1, v, ok)
		}
		if n := len(c.young) + len(c.old); n > 20 {
			t.Fatalf("%d values are kept, want at most 20", n)
		}
	}
	if _, ok := c.Get(KeyOf("1", nil), now); ok {
		t.Error("an unused value is still cached after 998 others")
	}
	if v, ok := c.Get(KeyOf("999", nil), now.Add(10*time.Second-1)); !ok || v != 999 {
		t.Errorf("just before the end of its life: have %d, %v, want 999", v, ok)
	}
	if _, ok := c.Get(used, now.Add(10*time.Second)); ok {
		t.Error("a value is kept beyond its life")
	}
	var none *Cache[int]
	none.Set(used, 1, now)
	if _, ok := none.Get(used, now); ok {
		t.Error("a nil cache keeps a value")
	}
	unset := Cache[int]{}
	for i := range 3 * DefaultSize {
		unset.Set(KeyOf(fmt.Sprint(i), nil), i, now)
	}
	if len(unset.young) > DefaultSize || len(unset.old) != DefaultSize {
		t.Errorf("without a size: generations of %d and %d values, want at most %d", len(unset.young), len(unset.old),
			DefaultSize)
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
