package tokencache

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What is in use stays, what is not goes, and there are never more values than two generations hold.
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
			t.Fatalf("after %d others: %d, %v", i+1, v, ok)
		}
		if n := len(c.young) + len(c.old); n > 20 {
			t.Fatalf("%d values are kept", n)
		}
	}
	if _, ok := c.Get(KeyOf("1", nil), now); ok {
		t.Error("one that nobody used is still there")
	}
	if v, ok := c.Get(KeyOf("999", nil), now.Add(10*time.Second-1)); !ok || v != 999 {
		t.Errorf("at the end of its life: %d, %v", v, ok)
	}
	if _, ok := c.Get(used, now.Add(10*time.Second)); ok {
		t.Error("one is kept beyond its life")
	}
	var none Cache[int]
	none.Set(used, 1, now)
	if _, ok := none.Get(used, now); ok {
		t.Error("a cache without room has kept something")
	}
}

// Different questions have different keys, also where their texts run together to the same.
//
// SPEC: AUTH-1
func TestKeyOf(t *testing.T) {
	seen := map[Key]string{}
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		token     string
		audiences []string
	}{
		{"", nil}, {"a", nil}, {"ab", nil}, {"a", []string{"b"}}, {"a", []string{"", "b"}}, {"a", []string{"b", ""}},
		{"a", []string{"b", "c"}},
		{"a", []string{"bc"}}, {"ab", []string{"c"}}, {"a", []string{""}}, {long, nil}, {long + "x", nil},
		{long, []string{"x"}},
	} {
		key := KeyOf(c.token, c.audiences)
		text := fmt.Sprintf("%.10q (%d) %q", c.token, len(c.token), c.audiences)
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have one key", text, other)
		}
		seen[key] = text
		if KeyOf(c.token, c.audiences) != key {
			t.Errorf("%s has two keys", text)
		}
	}
	if n := testing.AllocsPerRun(100, func() { KeyOf("some token", nil) }); n > 0 {
		t.Errorf("hashing a token allocates %v times", n)
	}
}
