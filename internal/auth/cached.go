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
	// cachedTokens is how many tokens are remembered, and as many that are nobody's.
	cachedTokens = 4096
	// lookupTimeout is how long finding out about a token may take, whoever waits for it.
	lookupTimeout = 30 * time.Second
)

// Cached remembers whose tokens are, for a time, and which are nobody's, for another; 0: not at all. Errors are not
// remembered. Many requests with one token ask once.
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
	// Whoever asks first may go away, and others wait for the answer: so it does not end with their request.
	answer := c.underWay.DoChan(string(key[:]), func() (found any, err error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		defer func() {
			if r := recover(); r != nil { // it would end the process: no handler is below
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

// own is an identity that its request may add to.
func own(id *access.Identity) *access.Identity {
	mine := *id
	return &mine
}
