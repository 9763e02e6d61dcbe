package filelog

import "testing"

// The entry of the manifest that is written after every sync takes no allocation.
func TestNotesAllocateNothing(t *testing.T) {
	l, err := Open(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n := testing.AllocsPerRun(100, func() {
		if err := l.manifest.writeUnsynced(func(e *entry) { e.end = l.manifest.end }); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for an entry", n)
	}
}
