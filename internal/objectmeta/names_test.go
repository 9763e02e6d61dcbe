package objectmeta

import (
	"testing"
	"time"
)

// The name of an Event is valid, whatever the name of the object.
func TestEventName(t *testing.T) {
	at := time.Unix(0, 0x1234)
	if got := EventName("a.b", at); got != "a.b.1234" {
		t.Errorf("an Event about a.b is called %q", got)
	}
	if got := EventName("system:a", at); len(got) != 36 {
		t.Errorf("an Event about system:a is called %q", got)
	}
}
