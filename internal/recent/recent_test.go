package recent

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// Values in use stay, others are evicted, and no generation weighs more than the limit.
//
// SPEC: AUTH-1
func TestCache(t *testing.T) {
	c := Cache[string, int]{Limit: 10}
	c.Set("used", -1, 1)
	for i := range 1000 {
		c.Set(fmt.Sprint(i), i, 1)
		if v, ok := c.Get("used"); !ok || v != -1 {
			t.Fatalf("a value in use, after %d others: have %d, %v, want -1", i+1, v, ok)
		}
		if n := c.Len(); n > 20 {
			t.Fatalf("%d values are kept, want at most 20", n)
		}
	}
	if _, ok := c.Get("1"); ok {
		t.Error("an unused value is still cached after 998 others")
	}
	if v, ok := c.Get("999"); !ok || v != 999 {
		t.Errorf("the last value: %d, %v", v, ok)
	}
	c.Set("heavy", 1, 11)
	if _, ok := c.Get("heavy"); ok {
		t.Error("a value above the limit is kept")
	}
	if _, ok := c.Get("used"); !ok {
		t.Error("a value above the limit evicted another one")
	}
	c.Set("half", 1, 6)
	c.Set("half", 2, 4) // the weight of a replaced value does not count
	c.Set("other", 3, 6)
	if v, _ := c.Get("half"); v != 2 {
		t.Errorf("a replaced value: %d, want 2", v)
	}
	c.Set("half", 3, 11)
	if v, ok := c.Get("half"); ok {
		t.Errorf("a value that was replaced by one above the limit: %d", v)
	}
}

// What the cache returns is what was set last for the key, whatever else happens at the same time. Each goroutine has
// keys of its own, which it sets to rising values, and reads those of the others, which evict its own.
//
// SPEC: AUTH-1
func TestConcurrentUse(t *testing.T) {
	const keys = 25
	c := Cache[int, int]{Limit: 50}
	var work sync.WaitGroup
	for mine := range 4 {
		random := rand.New(rand.NewPCG(uint64(mine), 1))
		work.Go(func() {
			var last [keys]int
			for i := range 20_000 {
				n := random.IntN(keys)
				switch random.IntN(3) {
				case 0:
					last[n] = i
					c.Set(mine*keys+n, i, 1+random.IntN(60))
				case 1:
					if v, ok := c.Get(mine*keys + n); ok && v != last[n] {
						t.Errorf("the value %d is returned after %d was set", v, last[n])
					}
				case 2:
					c.Get(random.IntN(4 * keys))
				}
			}
		})
	}
	work.Wait()
}

// The cost of a look-up in the young generation.
func BenchmarkGet(b *testing.B) {
	c := Cache[[32]byte, int]{}
	for i := range DefaultLimit {
		c.Set([32]byte{byte(i), byte(i >> 8)}, i, 1)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Get([32]byte{byte(i), byte(i>>8) & 7})
	}
}
