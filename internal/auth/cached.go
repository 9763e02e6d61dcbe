package auth

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"plinth/internal/access"
	"plinth/internal/auth/tokencache"
	"plinth/internal/execution"
)

const (
	// lookupTimeout limits the time to authenticate a token.
	lookupTimeout = 30 * time.Second
	// maxLookups limits how many tokens are authenticated at the same time.
	maxLookups = 1024
)

var errManyLookups = errors.New("too many tokens are being authenticated at the moment")

// Cached caches the results of other Tokens, which ask another server: valid tokens for validFor, unrecognized tokens
// for invalidFor; 0 turns caching off. Errors are not cached. Concurrent requests with the same token cause one lookup.
//
// Problem: any client can send new tokens as fast as the network allows, and each lookup may take as long as the other
// server needs. A lookup cannot simply end with its request: other requests with the token may wait for it, and a
// client that cancels early would never fill the cache. So lookups outlive their requests, and a stranger could collect
// any number of them. Therefore:
//
//	lookups that are running ≤ maxLookups, each ≤ lookupTimeout
//
// A request beyond that fails at once. Requests with a cached token are not affected, nor those that wait for a lookup
// that is running. The reference has no such limit.
func Cached(of Tokens, validFor, invalidFor time.Duration, now func() time.Time) Tokens {
	c := &cached{of: of, now: now}
	if validFor > 0 {
		c.valid = &tokencache.Cache[*access.Identity]{Life: validFor}
	}
	if invalidFor > 0 {
		c.invalid = &tokencache.Cache[struct{}]{Life: invalidFor}
	}
	return c
}

type cached struct {
	of      Tokens
	now     func() time.Time
	valid   *tokencache.Cache[*access.Identity] // nil: not cached
	invalid *tokencache.Cache[struct{}]         // nil: not cached
	lookups singleflight.Group                  // by key
	running atomic.Int64                        // how many lookups
}

// Token implements Tokens.
func (c *cached) Token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	key := tokencache.KeyOf(token, audiences)
	now := c.now()
	if id, ok := c.valid.Get(key, now); ok {
		return copyOf(id), nil
	}
	if _, ok := c.invalid.Get(key, now); ok {
		return nil, nil
	}
	result := c.lookups.DoChan(string(key[:]), func() (found any, err error) {
		defer c.running.Add(-1)
		if c.running.Add(1) > maxLookups {
			return nil, errManyLookups
		}
		// The look-up is for others, too, and may outlive the request that has begun it.
		ctx, cancel := context.WithTimeout(execution.With(context.WithoutCancel(ctx), nil), lookupTimeout)
		defer cancel()
		defer func() {
			if r := recover(); r != nil { // this goroutine has no handler that would recover
				err = fmt.Errorf("authentication failed unexpectedly: %v", r)
			}
		}()
		id, err := c.of.Token(ctx, token, audiences)
		switch {
		case err != nil:
		case id != nil:
			c.valid.Set(key, id, c.now())
		default:
			c.invalid.Set(key, struct{}{}, c.now())
		}
		return id, err
	})
	execution.AssertOutside(ctx, "a look-up that others may have begun")
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-result:
		id, _ := r.Val.(*access.Identity)
		if r.Err != nil || id == nil {
			return nil, r.Err
		}
		return copyOf(id), nil
	}
}

// copyOf returns a copy of an identity, whose fields the request may set. Its lists and maps are still shared.
func copyOf(id *access.Identity) *access.Identity {
	c := *id
	return &c
}
