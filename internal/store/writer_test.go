package store

import "testing"

// A read through the embedded writer allocates nothing, not even for a key that is made for it.
func TestLiveAllocatesNothing(t *testing.T) {
	s, _ := openGate(t)
	defer s.Close()
	namespace, name := "ns", "a"
	if n := testing.AllocsPerRun(100, func() {
		if _, current, err := s.Live(t.Context(), Key{Resource: "/pods", Name: namespace + "/" + name},
			true); !current || err != nil {
			t.Fatal(current, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a read", n)
	}
}
