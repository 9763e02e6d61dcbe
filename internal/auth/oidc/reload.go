package oidc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/internal/configfile"
)

const (
	// rememberedFor is how long it is remembered whose a token is.
	rememberedFor = 10 * time.Second
	// reloadTimeout is how long the issuers of a new configuration may take to say where their keys are.
	reloadTimeout = time.Minute
	// healthInterval is how often they are looked at meanwhile.
	healthInterval = 100 * time.Millisecond
	// drainTime is how long those of the old one are kept for requests under way.
	drainTime = time.Minute
)

// Reloader knows the tokens of the issuers of a configuration that may be replaced: those of the newest good one.
type Reloader struct {
	config  Config
	told    Reloads
	current atomic.Pointer[generation]
	// The configuration that is in use, and what the first one said of anonymous requests, which cannot change.
	text      []byte
	anonymous *Anonymous
	// draining are the old ones that are still there for requests under way.
	draining sync.WaitGroup
}

// Reloads is told how reloading goes. Nil functions are not called.
type Reloads struct {
	Reloaded func(text []byte, err error)
	// Removed is told of issuers of which nothing is known any more.
	Removed func(issuers []string)
}

// generation is the authenticators of one configuration, and what is remembered of them.
type generation struct {
	*Authenticators
	cached auth.Tokens
}

// NewReloader makes authenticators of a configuration that may be replaced. Text is what it was read from.
func NewReloader(c *Configuration, text []byte, config Config, told Reloads) (*Reloader, error) {
	r := &Reloader{config: config, told: told, text: text, anonymous: c.Anonymous}
	g, err := r.generation(c)
	if err != nil {
		return nil, err
	}
	r.current.Store(g)
	return r, nil
}

func (r *Reloader) generation(c *Configuration) (*generation, error) {
	all, err := New(c, r.config)
	if err != nil {
		return nil, err
	}
	return &generation{all, auth.Cached(all, rememberedFor, 0, r.config.Now)}, nil
}

// Token implements auth.Tokens: of tokens that are for nobody in particular.
func (r *Reloader) Token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	g := r.current.Load()
	if len(g.all) == 0 {
		return nil, nil
	}
	return g.cached.Token(ctx, token, audiences)
}

// Healthy waits until all issuers are known, and says why one is not.
func (r *Reloader) Healthy(ctx context.Context) error { return r.current.Load().wait(ctx) }

// Run asks the issuers for their keys and follows the file of the configuration until ctx ends, and then closes the
// authenticators. Without a file it waits for the end.
func (r *Reloader) Run(ctx context.Context, file string) {
	r.current.Load().Start()
	if file == "" {
		<-ctx.Done()
	} else {
		configfile.Watch(ctx, file, r.text, configfile.Interval,
			func(text []byte, err error) { r.reload(ctx, file, text, err) })
	}
	r.draining.Wait()
	r.current.Load().Close()
}

// reload replaces the authenticators by those of another text. As long as an issuer does not answer that the new ones
// need, they are tried again, with what is in the file by then.
func (r *Reloader) reload(ctx context.Context, file string, text []byte, err error) {
	for ctx.Err() == nil {
		again := false
		if err == nil {
			if bytes.Equal(text, r.text) {
				return
			}
			again, err = r.replace(ctx, text)
		}
		if ctx.Err() != nil {
			return
		}
		r.tell(file, text, err)
		if !again {
			if err == nil {
				r.text = text
			}
			return
		}
		text, err = os.ReadFile(file)
	}
}

func (r *Reloader) tell(file string, text []byte, err error) {
	if err != nil {
		r.config.Logger.Error("the authentication configuration was not reloaded; the one before is in use", "file", file,
			"error", err)
	} else {
		r.config.Logger.Info("the authentication configuration was reloaded", "file", file)
	}
	if r.told.Reloaded != nil {
		r.told.Reloaded(text, err)
	}
}

// replace makes authenticators of a new configuration, and puts them in the place of the old ones when their issuers
// are known. Again says of an error that it may pass.
func (r *Reloader) replace(ctx context.Context, text []byte) (again bool, err error) {
	c, err := Parse(text)
	if err != nil {
		return false, err
	}
	if !reflect.DeepEqual(r.anonymous, c.Anonymous) {
		return false, field.Forbidden(field.NewPath("anonymous"), "changed from initial configuration file")
	}
	next, err := r.generation(c)
	if err != nil {
		return false, err
	}
	next.Start()
	if err := next.wait(ctx); err != nil {
		next.Close()
		return true, err
	}
	old := r.current.Swap(next)
	r.draining.Go(func() { r.drain(ctx, old) })
	return false, nil
}

// drain closes authenticators when no request is likely to ask them any more.
func (r *Reloader) drain(ctx context.Context, old *generation) {
	select {
	case <-ctx.Done():
	case <-time.After(drainTime):
	}
	old.Close()
	now := r.current.Load().issuers()
	gone := slices.DeleteFunc(old.issuers(), func(url string) bool { return slices.Contains(now, url) })
	if len(gone) > 0 && r.told.Removed != nil {
		r.told.Removed(gone)
	}
}

// wait waits until all issuers are known.
func (a *Authenticators) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	for {
		err := a.Healthy()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(healthInterval):
		}
	}
}
