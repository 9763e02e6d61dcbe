//go:build go1.25

//go:debug asynctimerchan=0

package outside

import (
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// fatal is a testing.TB that records why a test has failed.
type fatal struct {
	testing.TB
	why string
}

func (f *fatal) Helper() {}
func (f *fatal) Fatal(a ...any) {
	f.why, _ = a[0].(string)
	runtime.Goexit()
}

// In a bubble New says that there is no virtual time, and does not hang.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fatal{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			New(f)
		}()
		<-done
		if !strings.Contains(f.why, "no virtual time") {
			t.Errorf("New says %q", f.why)
		}
	})
}
