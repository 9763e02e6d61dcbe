package plinthtest

import (
	"io"
	"testing"
)

// A watch that its client closes ends for it without an error: client-go would hand an error on to a goroutine that
// waits forever for somebody to take it.
//
// SPEC: BEY-7
func TestClosedWatchIsAtItsEnd(t *testing.T) {
	Bubble(t, func(t *testing.T, p *Plane) {
		answer := newClient(t, p).send("GET", configMaps+"?watch=true", "", "")
		ended := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, answer.Body)
			ended <- err
		}()
		if err := p.Settle(t.Context()); err != nil {
			t.Error(err)
		}
		if err := answer.Body.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("it ends with %v", err)
		}
	})
}
