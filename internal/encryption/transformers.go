package encryption

import (
	"cmp"
	"context"
	"crypto/aes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Transformers are those of the newest valid configuration, by resource. They may be used concurrently.
type Transformers struct {
	file    string
	reloads bool
	Options

	current atomic.Pointer[generation]
	wait    sync.WaitGroup // the generations that are still in use
}

// generation is the transformers of one configuration.
type generation struct {
	text  []byte // of the configuration
	lists map[groupResource]*list
	// plugins are in the order of the configuration, each with its health check. v1 says whether one has the API v1.
	plugins []check
	v1      bool
	// timeouts is the sum of the times that the checks of all plugins may take.
	timeouts time.Duration
	close    context.CancelFunc
}

// check is the health check of a plugin.
type check func(ctx context.Context) error

// Open returns the Transformers of the configuration in a file. reloads says whether Run will replace them when the
// file changes. Plugins are called once, and their failure is no error. ctx ends the checks of plugins.
func Open(ctx context.Context, file string, reloads bool, o Options) (*Transformers, error) {
	t := &Transformers{file: file, reloads: reloads, Options: o.withDefaults()}
	text, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("error while parsing file: error while loading file: %w", err)
	}
	g, err := t.generation(ctx, text)
	if err != nil {
		return nil, err
	}
	t.current.Store(g)
	return t, nil
}

// Reloads says whether Run replaces the transformers.
func (t *Transformers) Reloads() bool { return t.reloads }

// Hash is that of the configuration in use.
func (t *Transformers) Hash() string { return Hash(t.current.Load().text) }

// generation makes the transformers of a configuration and starts the checks of its plugins.
func (t *Transformers) generation(ctx context.Context, text []byte) (_ *generation, err error) {
	c, err := parse(t.file, text, t.reloads)
	if err != nil {
		return nil, fmt.Errorf("error while parsing file: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	g := &generation{text: text, lists: map[groupResource]*list{}, close: cancel}
	for _, group := range c.Resources {
		providers, err := t.providers(ctx, group.Providers, g)
		if err != nil {
			return nil, fmt.Errorf("error while building transformers: %w", err)
		}
		for _, name := range group.Resources {
			r := parseResource(name)
			for _, earlier := range []groupResource{{r.group, "*"}, everything} {
				if g.lists[earlier] != nil {
					return nil, fmt.Errorf("error while building transformers: resource %q is masked by earlier rule %q",
						r.inFile(), earlier.inFile())
				}
			}
			l := g.lists[r]
			if l == nil {
				l = &list{unknown: errors.New("no matching prefix found")}
				g.lists[r] = l
			}
			l.all = append(l.all, providers...)
		}
	}
	return g, nil
}

// inFile is the resource as a configuration has it: all of the core group with a dot.
func (r groupResource) inFile() string {
	if r == (groupResource{"", "*"}) {
		return "*."
	}
	return r.String()
}

// providers makes the providers of one group of resources.
func (t *Transformers) providers(ctx context.Context, configured []Provider, g *generation) (all []prefixed,
	err error) {
	for _, c := range configured {
		var p prefixed
		switch {
		case c.AESGCM != nil:
			p, err = newKeys(c.AESGCM, gcmPrefix, errNoAESKey, func(secret []byte, by uint32) (scheme, error) {
				return newGCM(secret, by)
			})
		case c.AESCBC != nil:
			p, err = newKeys(c.AESCBC, cbcPrefix, errNoAESKey, func(secret []byte, by uint32) (scheme, error) {
				block, err := aes.NewCipher(secret)
				return &cbc{block, by}, err
			})
		case c.Secretbox != nil:
			p, err = newKeys(c.Secretbox, boxPrefix, errNoBoxKey, func(secret []byte, by uint32) (scheme, error) {
				return &box{[32]byte(secret), by}, nil
			})
		case c.KMS != nil:
			p, err = t.plugin(ctx, c.KMS, g)
		case c.Identity != nil:
			p = prefixed{"", identity{}}
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

const kmsPrefix = "k8s:enc:kms:v2:"

// errNoKMSv1 is the reference's.
//
//lint:ignore ST1005 the reference's words
var errNoKMSv1 = errors.New("KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 " +
	"instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.")

// plugin makes the provider of a plugin and starts its checks.
func (t *Transformers) plugin(ctx context.Context, c *KMS, g *generation) (prefixed, error) {
	if c.APIVersion == "v1" {
		return t.pluginV1(ctx, c, g)
	}
	client, err := dial(c, t.Metrics)
	if err != nil {
		return prefixed{}, fmt.Errorf("could not configure KMSv2-Plugin's probe %q, error: %w", c.Name, err)
	}
	k := newKMS(c.Name, client, c.Timeout.Duration, t.Options)
	g.plugins = append(g.plugins, k.check)
	g.timeouts += c.Timeout.Duration
	// The first check is done here, so that a plugin that is running is in use from the beginning. One that is not may be
	// started later.
	begun := make(chan struct{})
	t.wait.Go(func() {
		defer client.connection.Close() //nolint:errcheck // nothing is lost with it
		k.run(ctx, begun)
	})
	<-begun
	return prefixed{kmsPrefix + c.Name + ":", k}, nil
}

// of returns the list of a resource; nil: it is not encrypted.
func (t *Transformers) of(r groupResource) *list {
	lists := t.current.Load().lists
	if l := lists[r]; l != nil {
		return l
	}
	return cmp.Or(lists[groupResource{r.group, "*"}], lists[everything])
}

// Resource is the Transformer of one resource, with the newest configuration.
type Resource struct {
	all  *Transformers
	name groupResource
	told *observer
}

// For returns the Transformer of a resource.
func (t *Transformers) For(group, resource string) *Resource {
	r := groupResource{group, resource}
	return &Resource{t, r, &observer{r.String(), t.Metrics}}
}

// Seal returns how values of the resource are encrypted now.
func (r *Resource) Seal(ctx context.Context) (*Seal, error) {
	l := r.all.of(r.name)
	if l == nil {
		return clear, nil
	}
	return l.seal(observing(ctx, r.told))
}

// Current returns the ID of the Seal that Seal returns, or would return if it did not fail; ok is false if that is not
// known.
func (r *Resource) Current() (id uint32, ok bool) {
	l := r.all.of(r.name)
	if l == nil {
		return 0, true
	}
	return l.id()
}

// Open decrypts a stored value.
func (r *Resource) Open(ctx context.Context, key string, stored []byte) (Opened, error) {
	l := r.all.of(r.name)
	if l == nil {
		return identity{}.open(ctx, key, stored)
	}
	return l.open(observing(ctx, r.told), key, stored)
}

// To implements Transformer.
func (r *Resource) To(ctx context.Context, key string, plain []byte) ([]byte, error) {
	s, err := r.Seal(ctx)
	if err != nil {
		return nil, err
	}
	if s == clear {
		return plain, nil
	}
	return s.Append(nil, key, plain), nil
}

// From implements Transformer.
func (r *Resource) From(ctx context.Context, key string, stored []byte) (plain []byte, stale bool, err error) {
	o, err := r.Open(ctx, key, stored)
	return o.Plain, o.Stale, err
}

// Checks returns the names of the health checks. With reloading, or with plugins of which none has the API v1, a single
// one is for all plugins.
func (t *Transformers) Checks() (names []string) {
	g := t.current.Load()
	if t.reloads || len(g.plugins) > 0 && !g.v1 {
		return []string{allChecks}
	}
	for i := range g.plugins {
		names = append(names, checkName(i))
	}
	return names
}

const allChecks = "kms-providers"

func checkName(i int) string { return fmt.Sprintf("kms-provider-%d", i) }

// Check runs a health check.
func (t *Transformers) Check(ctx context.Context, name string) error {
	g := t.current.Load()
	if name == allChecks {
		return g.check(ctx)
	}
	for i, check := range g.plugins {
		if checkName(i) == name {
			return check(ctx)
		}
	}
	return fmt.Errorf("there is no check %s", name)
}

// check checks all plugins, one after another.
func (g *generation) check(ctx context.Context) error {
	var errs []error
	for i, check := range g.plugins {
		if err := check(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", checkName(i), err))
		}
	}
	return utilerrors.Reduce(utilerrors.NewAggregate(errs))
}

// Path is the key of an object as a path, to which its stored value is bound: /registry/GROUP/RESOURCE/NAME, without a
// group for the core group. resource is GROUP/RESOURCE, name is NAMESPACE/NAME or NAME.
func Path(resource, name string) string {
	return "/registry/" + strings.TrimPrefix(resource, "/") + "/" + name
}
