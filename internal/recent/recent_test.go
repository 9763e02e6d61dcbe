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
}

// What the cache returns is what was set last for the key, whatever else happens at the same time.
//
// SPEC: AUTH-1
func TestConcurrentUse(t *testing.T) {
	c := Cache[int, int]{Limit: 50}
	var work sync.WaitGroup
	for seed := range 4 {
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		work.Go(func() {
			for range 5000 {
				key, weight := random.IntN(100), 1+random.IntN(60)
				if random.IntN(2) == 0 {
					c.Set(key, key*1000+weight, weight)
				} else if v, ok := c.Get(key); ok && v/1000 != key {
					t.Errorf("key %d has the value %d", key, v)
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
