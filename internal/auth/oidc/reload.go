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
	// cacheTTL is how long the user of a token is cached, as in the reference.
	cacheTTL = 10 * time.Second
	// reloadTimeout is how long the discovery of the issuers of a new configuration may take.
	reloadTimeout = time.Minute
	// healthInterval is the interval at which it is checked.
	healthInterval = 100 * time.Millisecond
	// drainTime is how long the old authenticators are kept for the requests that use them.
	drainTime = time.Minute
)

// Reloader authenticates with the newest valid configuration. Token and Healthy may be called concurrently with Run.
//
// Problem: the discovery of a new configuration takes time, and may fail. If it replaced the old one at once, valid
// tokens would be refused meanwhile. So new authenticators are started beside the old ones, replace them when the
// discovery of all issuers has succeeded, and the old ones are closed after drainTime.
type Reloader struct {
	config  Config
	parse   func(text []byte) (*Configuration, error)
	told    Reloads
	current atomic.Pointer[generation]
	text    []byte // of the configuration that is in use; for Run alone
	// anonymous is that of the first configuration, which cannot change.
	anonymous *Anonymous
	draining  sync.WaitGroup // the old authenticators that are not closed yet
}

// Reloads are functions that report reloads. Each may be nil.
type Reloads struct {
	Reloaded func(text []byte, err error)
	// Removed reports the issuers that are not configured any more.
	Removed func(issuers []string)
}

// generation is the authenticators of one configuration, with a cache of their results.
type generation struct {
	*Authenticators
	cached auth.Tokens
}

// NewReloader creates a Reloader with a first configuration. parse makes a configuration of the text of the file, and
// text is what the first one was made of. Errors are those of New.
func NewReloader(c *Configuration, text []byte, parse func(text []byte) (*Configuration, error), config Config,
	told Reloads) (*Reloader, error) {
	r := &Reloader{config: config, parse: parse, told: told, text: text, anonymous: c.Anonymous}
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
	return &generation{all, auth.Cached(all, cacheTTL, 0, r.config.Now)}, nil
}

// Token implements auth.Tokens, with the current authenticators.
func (r *Reloader) Token(ctx context.Context, token string, audiences []string) (*access.Identity, error) {
	g := r.current.Load()
	if len(g.all) == 0 {
		return nil, nil
	}
	return g.cached.Token(ctx, token, audiences)
}

// Healthy waits until the discovery of all issuers has succeeded, for up to a minute, and returns an error if it has
// not.
func (r *Reloader) Healthy(ctx context.Context) error { return r.current.Load().wait(ctx) }

// Run starts the authenticators, reloads the configuration when its file changes, and closes the authenticators when
// ctx ends. Without a file ("") nothing is reloaded.
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

// reload replaces the authenticators by those of a new text. If the discovery of an issuer fails, it tries again, with
// the text that is in the file then.
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
		r.config.Logger.Error("the authentication configuration was not reloaded; the previous one is in use",
			"file", file, "error", err)
	} else {
		r.config.Logger.Info("the authentication configuration was reloaded", "file", file)
	}
	if r.told.Reloaded != nil {
		r.told.Reloaded(text, err)
	}
}

// replace creates the authenticators of a new configuration, and replaces the old ones when the discovery of all
// issuers has succeeded. again says whether the error may be temporary.
func (r *Reloader) replace(ctx context.Context, text []byte) (again bool, err error) {
	c, err := r.parse(text)
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

// drain closes old authenticators after drainTime, when requests that use them have most likely ended.
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

// wait waits until the discovery of all issuers has succeeded, for up to reloadTimeout.
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
