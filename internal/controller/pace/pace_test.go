package pace

import (
	"testing"
	"time"
)

// A controller is patient with what fails again and again.
// SPEC: DEL-5
func TestRetry(t *testing.T) {
	for failed, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second,
		7: time.Minute, 1000: time.Minute} {
		if got := Retry(failed); got != want {
			t.Errorf("after %d failures it waits %s", failed, got)
		}
	}
}
