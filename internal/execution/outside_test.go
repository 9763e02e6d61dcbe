//go:build invariants || race

package execution

import (
	"context"
	"sync"
	"testing"
)

// SPEC: AUTH-8
// A goroutine that holds a place is found inside, also with a context that is not the request's, and one that works for
// it by the context. Outside, and while the request has no place, nobody is.
func TestInside(t *testing.T) {
	var p Place
	ctx := With(t.Context(), &p)
	check := func(when string, want bool) {
		t.Helper()
		if have := inside(context.Background()); have != want {
			t.Errorf("%s, the goroutine is inside: %t", when, have)
		}
		if have := inside(ctx); have != want {
			t.Errorf("%s, the request is inside: %t", when, have)
		}
		var wait sync.WaitGroup
		wait.Go(func() {
			if have := inside(ctx); have != want {
				t.Errorf("%s, a goroutine of the request is inside: %t", when, have)
			}
			if inside(context.Background()) {
				t.Errorf("%s, another goroutine is inside", when)
			}
		})
		wait.Wait()
	}
	check("before it has a place", false)
	if err := p.Enter(ctx, New(1, 1).Share(1).Band(), 1); err != nil {
		t.Fatal(err)
	}
	check("with a place", true)
	Outside(ctx, func() { check("outside", false) })
	check("back", true)
	if !p.BeginSend() {
		t.Fatal("it does not send")
	}
	check("while it sends", false)
	if err := p.EndSend(ctx); err != nil {
		t.Fatal(err)
	}
	p.Exit()
	check("at its end", false)
}
