package hooks

import (
	"context"
	"time"

	"plinth/internal/engine"
	"plinth/internal/execution"
)

// How long a request waits for what configures a plugin, and how often it looks: as in the reference.
const (
	patience  = 10 * time.Second
	lookEvery = 100 * time.Millisecond
)

// Await reads what configures a plugin again, after an error: one of the objects cannot be read. A plugin of the
// encryption may just be starting, so the request waits for a while. Then it is refused, as what cannot be read may be
// what forbids it. The reference does the same where an informer has not synced, which it never does with such an
// object.
func Await[T any](ctx context.Context, a *engine.Attributes, read func() (T, error)) (all T, err error) {
	execution.Outside(ctx, func() {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		look := time.NewTicker(lookEvery)
		defer look.Stop()
		for all, err = read(); err != nil && limited.Err() == nil; {
			select {
			case <-look.C:
				all, err = read()
			case <-limited.Done():
			}
		}
	})
	if ctx.Err() != nil {
		return all, ctx.Err()
	}
	if err != nil {
		return all, Forbidden(a, "not yet ready to handle request: "+err.Error())
	}
	return all, nil
}
