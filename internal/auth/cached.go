package auth

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"

	"plinth/internal/access"
	"plinth/internal/auth/tokencache"
)

const (
	// cachedTokens is how many valid tokens are cached, and how many invalid ones.
	cachedTokens = 4096
	// lookupTimeout limits the time to authenticate a token.
	lookupTimeout = 30 * time.Second
)

// Cached caches the results of other Tokens: valid tokens for the duration somebody, invalid ones for nobody; 0 turns
// caching off. Errors are not cached. Concurrent requests with the same token cause one call.
func Cached(of Tokens, somebody, nobody time.Duration, now func() time.Time) Tokens {
	c := &cached{of: of, now: now}
	if somebody > 0 {
		c.somebody.Size, c.somebody.Life = cachedTokens, somebody
	}
	if nobody > 0 {
		c.nobody.Size, c.nobody.Life = cachedTokens, nobody
	}
	return c
}

type cached struct {
	of       Tokens
	now      func() time.Time
	somebody tokencache.Cache[*access.Identity]
	nobody   tokencache.Cache[struct{}]
	underWay singleflight.Group
}

// Token implements Tokens.
func (c *cached) Token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	key := tokencache.KeyOf(token, audiences)
	now := c.now()
	if id, ok := c.somebody.Get(key, now); ok {
		return own(id), nil
	}
	if _, ok := c.nobody.Get(key, now); ok {
		return nil, nil
	}
	// Other requests wait for the answer, so it must not end when the first of them is cancelled.
	answer := c.underWay.DoChan(string(key[:]), func() (found any, err error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
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
			c.somebody.Set(key, id, c.now())
		default:
			c.nobody.Set(key, struct{}{}, c.now())
		}
		return id, err
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case a := <-answer:
		id, _ := a.Val.(*access.Identity)
		if a.Err != nil || id == nil {
			return nil, a.Err
		}
		return own(id), nil
	}
}

// own returns a copy of an identity, which its request may modify.
func own(id *access.Identity) *access.Identity {
	mine := *id
	return &mine
}
