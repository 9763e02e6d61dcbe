package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"plinth/internal/configfile"
	"plinth/internal/encryption"
	"plinth/internal/engine"
	"plinth/internal/httpapi"
	"plinth/internal/metrics"
	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/object"
)

// encryptionAtRest is the encryption of the objects in the store: the store.Sealing of --encryption-provider-config.
// The zero pointer is none.
type encryptionAtRest struct {
	all     *encryption.Transformers
	metrics *metrics.Encryption
	// path is the key that a value is bound to. The scope of one that is in etcd is "".
	path func(scope string, k store.Key) string
	// resources has an *encryption.Resource for each resource of the store that was used.
	resources sync.Map
	current   map[string]current // by resource; rotated has it
	reloaded  chan struct{}      // of capacity 1: another configuration is in use
	logger    *slog.Logger
	interval  time.Duration // recoverInterval, but for tests
	end       context.CancelFunc
	work      sync.WaitGroup
}

// open reads the configuration; it is in use until Close. Without one it returns nil.
func (c *Encryption) open(kmsV1 bool, identity string, logger *slog.Logger) (*encryptionAtRest, error) {
	if c.ConfigFile == "" {
		return nil, nil
	}
	ctx, end := context.WithCancel(context.Background())
	e := &encryptionAtRest{path: func(scope string, k store.Key) string {
		if scope != "" { // of another plane than the first one
			scope = "/" + scope
		}
		return scope + encryption.Path(k.Resource, k.Name)
	},
		current: map[string]current{}, metrics: metrics.NewEncryption(identity), reloaded: make(chan struct{}, 1),
		end: end, logger: logger, interval: cmp.Or(c.Interval, recoverInterval)}
	all, err := encryption.Open(ctx, c.ConfigFile, c.Reload, encryption.Options{
		Metrics: e.metrics.Hooks(), Logger: logger, KMSv1: kmsV1, Interval: c.Interval, RetryInterval: c.Interval,
	})
	if err != nil {
		end()
		return nil, err
	}
	e.all = all
	e.metrics.ConfiguredAs(all.Hash())
	e.work.Go(func() {
		all.Run(ctx, cmp.Or(c.Interval, configfile.Interval), func(hash string, err error) {
			e.metrics.Reloaded(err == nil)
			if err == nil {
				e.metrics.ConfiguredAs(hash)
				select {
				case e.reloaded <- struct{}{}:
				default:
				}
			}
		})
	})
	return e, nil
}

// Options are those of the files of an embedded store that are encrypted by a configuration. end is called after their
// last use.
func Options(c Encryption, logger *slog.Logger) (o filelog.Options, end func(), err error) {
	e, err := c.open(true, "", logger)
	if err != nil {
		return o, nil, err
	}
	if e != nil {
		o.Sealing = e
	}
	return o, e.Close, nil
}

// Inspect reads the files of an embedded store that no server has open (filelog.Inspect), decrypts them by a
// configuration, and checks that what it has are objects. end is called after the last use of the result.
func Inspect(dir string, c Encryption, logger *slog.Logger) (in *filelog.Inspection, end func(), o filelog.Options,
	err error) {
	if o, end, err = Options(c, logger); err != nil {
		return nil, nil, o, err
	}
	if in, err = filelog.Inspect(dir, o); err != nil {
		end()
		return nil, nil, o, err
	}
	parses(dir, "", in, in.Versions, map[*store.Version]bool{})
	seen := map[*store.Version]bool{} // planes share most of what they have
	for _, p := range in.Planes {
		parses(dir, p.ID, in, p.Versions(), seen)
	}
	return in, end, o, nil
}

// parses adds a finding for each object of a plane that is no JSON. Claims are not looked at: they have the name of
// their holder.
func parses(dir, plane string, in *filelog.Inspection, versions []*store.Version, seen map[*store.Version]bool) {
	for _, v := range versions {
		if v.Sidecar.Undecrypted || seen[v] || v.Key.Resource == engine.Claims {
			continue
		}
		seen[v] = true
		if _, err := object.ParseJSON(v.Data()); err != nil {
			f := filelog.Finding{File: dir, Offset: -1, Keys: []filelog.PlaneKey{{Plane: plane, Key: v.Key}},
				Reason: fmt.Sprintf("the bytes of an object read back, and are no JSON: %v", err)}
			if plane != "" {
				f.Planes = []string{plane}
			}
			in.Findings = append(in.Findings, f)
		}
	}
}

// Close ends the calls of plugins. The store is closed before.
func (e *encryptionAtRest) Close() {
	if e != nil {
		e.end()
		e.work.Wait()
	}
}

// of returns the transformer of a resource of the store, GROUP/RESOURCE.
func (e *encryptionAtRest) of(resource string) *encryption.Resource {
	if known, ok := e.resources.Load(resource); ok {
		return known.(*encryption.Resource)
	}
	resource = strings.Clone(resource) // the log lends its keys
	group, name, _ := strings.Cut(resource, "/")
	known, _ := e.resources.LoadOrStore(resource, e.all.For(group, name))
	return known.(*encryption.Resource)
}

// Seal implements store.Sealing.
func (e *encryptionAtRest) Seal(ctx context.Context, resource string) (*store.Seal, error) {
	s, err := e.of(resource).Seal(ctx)
	if err != nil || s.ID == 0 {
		return nil, err
	}
	return &store.Seal{ID: s.ID, Append: func(dst []byte, scope string, k store.Key, plain []byte) []byte {
		return s.Append(dst, e.path(scope, k), plain)
	}}, nil
}

// Open implements store.Sealing.
func (e *encryptionAtRest) Open(ctx context.Context, scope string, k store.Key, sealed []byte) ([]byte, uint32, error) {
	o, err := e.of(k.Resource).Open(ctx, e.path(scope, k), sealed)
	return o.Plain, o.By, err
}

// Current implements store.Sealing.
func (e *encryptionAtRest) Current(resource string) (uint32, bool) {
	return e.of(resource).Current()
}

// recoverInterval is how long at most after a plugin was started what it decrypts can be read. A plugin is asked at the
// same interval. recoverSoon is the least time between two attempts while there is something to recover: a plugin that
// was away is often back after seconds.
const (
	recoverInterval = 10 * time.Second
	recoverSoon     = time.Second
)

// recover makes objects readable that could not be decrypted when the server started, or when they came from another
// server, as soon as they can be, and has the stores encrypt all versions again when the current keys are not those of
// the versions.
func (e *encryptionAtRest) recover(ctx context.Context, stores []*store.Store) {
	interval := e.interval
	soon := min(interval, recoverSoon)
	var arrived [2]<-chan struct{} // of which the second one may be nil
	for i, s := range stores {
		arrived[i] = s.Undecrypted()
	}
	e.rotated()
	for _, s := range stores {
		s.Reseal()
	}
	for told, pause := false, soon; ; {
		var recovered, left int
		var err error
		for _, s := range stores {
			more, still, failed := s.Recover(ctx)
			recovered, left, err = recovered+more, left+still, errors.Join(err, failed)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			e.logger.Warn("objects that can be decrypted again could not be written", "number", left, "error", err)
		case recovered > 0:
			e.logger.Info("objects that could not be decrypted are readable again", "number", recovered, "unreadable", left)
		case left > 0 && !told:
			e.logger.Warn("objects cannot be decrypted; the errors of requests for them say why", "number", left)
		}
		more := false
		if told = left > 0; !told {
			pause = interval
		}
		select {
		case <-ctx.Done():
			return
		case <-e.reloaded:
		case <-arrived[0]:
			more = true
		case <-arrived[1]:
			more = true
		case <-time.After(pause):
			pause = min(2*pause, interval)
		}
		if more {
			pause = soon
		}
		if more && left > 0 { // each attempt is for all of them
			select {
			case <-ctx.Done():
				return
			case <-time.After(soon):
			}
		}
		if e.rotated() {
			for _, s := range stores {
				s.Reseal()
			}
		}
	}
}

// current is what Transformers say of the key of a resource.
type current struct {
	id    uint32
	known bool
}

// rotated says whether the key of a resource is another one than at the call before: the configuration was reloaded,
// or a plugin has another key.
func (e *encryptionAtRest) rotated() (changed bool) {
	e.resources.Range(func(resource, of any) bool {
		id, known := of.(*encryption.Resource).Current()
		now := current{id, known}
		if before, seen := e.current[resource.(string)]; seen && before != now {
			changed = true
		}
		e.current[resource.(string)] = now
		return true
	})
	return changed
}

// checks are the health checks of plugins. They are not among those of /livez: a restart does not help.
func (e *encryptionAtRest) checks() (checks []httpapi.Check) {
	if e == nil {
		return nil
	}
	if e.all.Reloads() {
		checks = append(checks, httpapi.Check{Name: "poststarthook/start-encryption-provider-config-automatic-reload",
			Run: func(context.Context) error { return nil }})
	}
	for _, name := range e.all.Checks() {
		checks = append(checks, httpapi.Check{Name: name, NotLive: true, Run: func(ctx context.Context) error {
			return e.all.Check(ctx, name)
		}})
	}
	return checks
}
