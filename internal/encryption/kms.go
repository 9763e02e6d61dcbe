package encryption

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"
	"google.golang.org/protobuf/encoding/protowire"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"plinth/internal/execution"
	"plinth/internal/recent"
)

// kms is a plugin of the KMS v2 API as a provider.
//
// A call of the plugin takes milliseconds, and may fail for minutes. So it is called only for keys: the server makes a
// seed, has it encrypted by the plugin, and derives a key from the seed for every value that it writes. With each value
// it stores the encrypted seed; a value whose seed it does not know takes one call, for all values of that seed.
//
// The plugin says by Status which key it encrypts with (its key ID). check asks for it every minute, and makes a new
// seed when the ID has changed. A plugin that does not answer leaves the seed in use for three minutes from the last
// success; from then on writes fail, so that whoever has changed the key knows that the old one is not used any more.
// Reads do not depend on that.
//
//	a value is written with a seed  ⇒  Status named the seed's key ID less than writeTTL ago
type kms struct {
	name   string
	plugin plugin
	Options

	current atomic.Pointer[source]
	known   recent.Cache[sourceHash, opener] // what decrypts the values of a seed
	failed  recent.Cache[sourceHash, failure]
	calls   singleflight.Group // of Decrypt, by the hash of what is decrypted
	pace    pace

	mu      sync.Mutex // guards the following
	checked time.Time
	result  error
	ttl     time.Duration // of result
	version string        // that the plugin has named first
}

// plugin is the calls of a plugin.
type plugin interface {
	Status(ctx context.Context) (status, error)
	Encrypt(ctx context.Context, uid string, plain []byte) (*envelope, error)
	Decrypt(ctx context.Context, uid string, e *envelope) (plain []byte, err error)
}

// status is the answer of a plugin to Status.
type status struct{ version, healthz, keyID string }

// source is a seed with which values are written.
type source struct {
	envelope        // without data
	head     []byte // its fields after data, encoded
	seed     seed
	hash     sourceHash
	by       uint32
	expires  time.Time
}

// opener decrypts the values of a DEK or of a seed.
type opener interface {
	open(ctx context.Context, key string, data []byte) (Opened, error)
}

// failure is a call of Decrypt that failed.
type failure struct {
	err error
	at  time.Time
}

// The times of the reference, and the bound on known seeds, of which it has none.
const (
	healthyInterval   = time.Minute      // between two checks
	unhealthyInterval = 10 * time.Second // … after one that failed
	writeTTL          = 3 * time.Minute  // how long a seed is used after the last success
	healthyTTL        = 20 * time.Second // how long a result of a check is reused
	unhealthyTTL      = 3 * time.Second
	maxKnown          = 4096
	// failedTTL is how long a failed call of Decrypt is not repeated. All values of a seed need the same call, and each
	// would otherwise wait for its time-out, one after another, when many values are read.
	failedTTL = time.Second
)

func newKMS(name string, p plugin, timeout time.Duration, o Options) *kms {
	return &kms{name: name, plugin: p, Options: o, ttl: unhealthyTTL, pace: pace{timeout: timeout},
		known: recent.Cache[sourceHash, opener]{Limit: maxKnown}}
}

// run checks the plugin until ctx ends. It closes begun after the first check.
func (k *kms) run(ctx context.Context, begun chan<- struct{}) {
	for first := true; ; first = false {
		interval := k.Interval
		if err := k.check(ctx); err != nil && ctx.Err() == nil {
			k.Logger.Warn("kms plugin failed health check probe", "name", k.name, "error", err)
			interval = k.RetryInterval
		}
		if first {
			close(begun)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}

// check asks the plugin whether it is healthy and which key it uses, and makes a new seed if the key has changed. A
// result is reused for a few seconds.
func (k *kms) check(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.checked.IsZero() && k.Now().Sub(k.checked) < k.ttl {
		return k.result
	}
	err := k.ask(ctx)
	result := err
	if failed := (*statusError)(nil); errors.As(err, &failed) {
		result = failed.err // without its introduction, as in the reference
	}
	k.checked, k.result, k.ttl = k.Now(), result, healthyTTL
	if err != nil {
		k.ttl = unhealthyTTL
	}
	return err
}

// statusError is the error of a call of Status.
type statusError struct {
	name string
	err  error
}

func (e *statusError) Error() string {
	return fmt.Sprintf("failed to perform status section of the healthz check for KMS Provider %s, error: %v", e.name, e.err)
}

func (e *statusError) Unwrap() error { return e.err }

// ask is check without the reuse of results. The caller holds mu.
func (k *kms) ask(ctx context.Context) error {
	s, err := k.plugin.Status(ctx)
	if err != nil {
		return &statusError{k.name, err}
	}
	var errs []error
	if s.healthz != "ok" {
		errs = append(errs, fmt.Errorf("got unexpected healthz status: %s", s.healthz))
	}
	if s.version != "v2" && s.version != "v2beta1" {
		errs = append(errs, fmt.Errorf("expected KMSv2 API version v2, got %s", s.version))
	} else {
		if k.version == "" {
			k.version = s.version
		}
		if k.version != s.version {
			errs = append(errs, fmt.Errorf("KMSv2 API version should not change after the initial status response "+
				"version %s, got %s", k.version, s.version))
		}
	}
	if code, err := validateKeyID(s.keyID); err != nil {
		if k.Metrics.BadStatusKey != nil {
			k.Metrics.BadStatusKey(k.name, code)
		}
		errs = append(errs, fmt.Errorf("got invalid KMSv2 KeyID hash %q: %w", hashOf(s.keyID), err))
	} else {
		if k.Metrics.StatusKey != nil {
			k.Metrics.StatusKey(k.name, s.keyID)
		}
		errs = append(errs, k.use(ctx, s.keyID))
	}
	if err := utilerrors.Reduce(utilerrors.NewAggregate(errs)); err != nil {
		return fmt.Errorf("kmsv2 Provider %s is not healthy, error: %w", k.name, err)
	}
	return nil
}

// use makes a new seed if the plugin uses another key than that of the current seed, and otherwise extends the time
// for which that is used. After an error the current one stays as it is.
func (k *kms) use(ctx context.Context, keyID string) error {
	// Before the call: writeTTL is an upper bound.
	expires := k.Now().Add(writeTTL)
	now := k.current.Load()
	if now != nil && now.keyID == keyID {
		extended := *now
		extended.expires = expires
		k.current.Store(&extended)
		return nil
	}
	uid := uuid.NewString()
	made, err := k.newSource(ctx, uid)
	if err == nil && made.keyID == keyID {
		made.expires = expires
		k.current.Store(made)
		k.Logger.Debug("a new key encrypts", "provider", k.name, "uid", uid, "keyIDHash", hashOf(keyID))
		return nil
	}
	var madeID, nowID string
	if made != nil {
		madeID = made.keyID
	}
	var errState error
	var nowExpires time.Time
	if now == nil {
		errState = errNoSeed
	} else {
		nowID, nowExpires = now.keyID, now.expires
	}
	return fmt.Errorf("failed to rotate DEK uid=%q, useSeed=true, errState=%v, errGen=%v, statusKeyIDHash=%q, "+
		"encryptKeyIDHash=%q, stateKeyIDHash=%q, expirationTimestamp=%s", uid, errState, err, hashOf(keyID),
		hashOf(madeID), hashOf(nowID), nowExpires.Format(time.RFC3339))
}

// errNoSeed is the error until a check has succeeded for the first time.
var errNoSeed = errors.New("got unexpected nil transformer")

// newSource makes a seed and has it encrypted by the plugin.
func (k *kms) newSource(ctx context.Context, uid string) (*source, error) {
	s := newSeed(k.Metrics)
	e, err := k.plugin.Encrypt(ctx, uid, s)
	if err != nil {
		return nil, fmt.Errorf("failed to encrypt DEK, error: %w", err)
	}
	e.kind = sourceSeed
	if err := e.validateHead(); err != nil {
		return nil, err
	}
	return &source{envelope: *e, head: e.appendHead(nil), seed: s, hash: e.hash(), by: k.idOf(e)}, nil
}

// idOf is the ID of the Seals of an envelope. As in the reference, another seed of the same key does not make a value
// stale.
func (k *kms) idOf(e *envelope) uint32 {
	return idOf(kmsPrefix, k.name, e.keyID, string(rune('0'+e.kind)))
}

func (k *kms) id() (uint32, bool) {
	s := k.current.Load()
	if s == nil {
		return 0, false
	}
	return s.by, true
}

// seal implements scheme.
func (k *kms) seal(context.Context) (*Seal, error) {
	s := k.current.Load()
	if s == nil {
		return nil, errNoSeed
	}
	if now := k.Now(); now.After(s.expires) {
		return nil, fmt.Errorf("encryptedDEKSource with keyID hash %q expired at %s (current time is %s)",
			hashOf(s.keyID), s.expires.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	k.remember(s.hash, s.seed)
	return &Seal{ID: s.by, append: func(dst []byte, key string, plain []byte) []byte {
		k.used(toStorage, s.keyID)
		dst = protowire.AppendTag(dst, 1, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(seedOverhead+len(plain)))
		return append(s.seed.append(dst, key, plain), s.head...)
	}}, nil
}

func (k *kms) used(direction, keyID string) {
	if k.Metrics.KeyUsed != nil {
		k.Metrics.KeyUsed(direction, k.name, keyID)
	}
}

// remember keeps what decrypts the values of an envelope, so that no call of the plugin is needed.
func (k *kms) remember(hash sourceHash, o opener) {
	if _, known := k.known.Get(hash); known {
		return
	}
	k.known.Set(hash, o, 1)
	if k.Metrics.KeysCached != nil {
		k.Metrics.KeysCached(k.name, k.known.Len())
	}
}

// open implements scheme.
func (k *kms) open(ctx context.Context, key string, data []byte) (Opened, error) {
	e, err := parseEnvelope(data)
	if err != nil {
		return Opened{}, err
	}
	now := k.current.Load()
	if now == nil {
		return Opened{}, errNoSeed
	}
	hash := e.hash()
	o, known := k.known.Get(hash)
	if !known {
		if o, err = k.decrypt(ctx, e, hash); err != nil {
			return Opened{}, err
		}
	}
	k.used(fromStorage, e.keyID)
	opened, err := o.open(ctx, key, e.data)
	if err != nil {
		return Opened{}, err
	}
	opened.By = k.idOf(e)
	opened.Stale = e.keyID != now.keyID || e.kind != now.kind
	return opened, nil
}

// decrypt has the plugin decrypt the DEK or the seed of an envelope. All that need the same call share it. It goes on
// without those that do not wait for its end, so that what it finds out is known to those that come later.
func (k *kms) decrypt(ctx context.Context, e *envelope, hash sourceHash) (o opener, err error) {
	if f, ok := k.failed.Get(hash); ok && k.Now().Sub(f.at) < failedTTL {
		return nil, f.err
	}
	e = e.cloneHead() // the caller may go on before the call ends
	call := k.calls.DoChan(string(hash[:]), func() (any, error) { return k.call(e, hash) })
	if k.pace.skips(ctx) {
		return nil, errSlow
	}
	execution.Outside(ctx, func() {
		select {
		case r := <-call:
			o, _ = r.Val.(opener)
			err = r.Err
		case <-ctx.Done():
			if err = ctx.Err(); k.pace.hurried(ctx) {
				k.pace.slow.Store(true)
				err = errSlow
			}
		}
	})
	return o, err
}

// call is a call of decrypt.
func (k *kms) call(e *envelope, hash sourceHash) (o opener, err error) {
	defer func() {
		if r := recover(); r != nil { // this goroutine has no handler that would recover
			err = fmt.Errorf("decryption failed unexpectedly: %v", r)
		}
	}()
	if k.Metrics.CacheMiss != nil {
		k.Metrics.CacheMiss()
	}
	plain, err := k.plugin.Decrypt(context.Background(), uuid.NewString(), e) // within its time-out
	if err != nil {
		err = fmt.Errorf("failed to decrypt DEK, error: %w", err)
		k.failed.Set(hash, failure{err, k.Now()}, 1)
		return nil, err
	}
	k.pace.slow.Store(false)
	if e.kind == sourceSeed {
		if len(plain) < seedBytes {
			return nil, fmt.Errorf("invalid seed length %d used for key generation", len(plain))
		}
		o = seed(plain)
	} else if o, err = newGCM(plain, 0); err != nil {
		return nil, err
	}
	k.remember(hash, o)
	return o, nil
}

// seed is a secret from which the key of each value is derived:
//
//	stored = info + AES-GCM(HKDF-Expand(SHA-256, seed, info), value),  info = 32 random bytes
type seed []byte

const (
	seedBytes    = 32
	infoBytes    = 32
	seedOverhead = infoBytes + 12 + 16
)

// newSeed makes a seed.
func newSeed(told *Metrics) seed {
	begin := time.Now()
	s := make(seed, seedBytes)
	rand.Read(s)
	if told.KeyMade != nil {
		told.KeyMade(time.Since(begin))
	}
	return s
}

// derived is the cipher of the key derived with info.
func (s seed) derived(info []byte) (*gcm, error) {
	key, err := hkdf.Expand(sha256.New, s, string(info), 32)
	if err != nil {
		return nil, err
	}
	return newGCM(key, 0)
}

func (s seed) append(dst []byte, key string, plain []byte) []byte {
	var info [infoBytes]byte
	rand.Read(info[:])
	g, err := s.derived(info[:])
	if err != nil {
		panic(err) // of fixed lengths, which are valid
	}
	return g.append(append(dst, info[:]...), key, plain)
}

func (s seed) open(ctx context.Context, key string, data []byte) (Opened, error) {
	if len(data) < infoBytes {
		return Opened{}, errShort
	}
	g, err := s.derived(data[:infoBytes])
	if err != nil {
		return Opened{}, fmt.Errorf("failed to derive read key from KDF: %w", err)
	}
	return g.open(ctx, key, data[infoBytes:])
}

// Options are what the Transformers of a configuration need. The zero value has defaults.
type Options struct {
	Metrics *Metrics
	Logger  *slog.Logger
	Now     func() time.Time
	// Interval is the time between two checks of a plugin, RetryInterval that after one that failed. They are a minute and
	// ten seconds, as in the reference.
	Interval, RetryInterval time.Duration
	// Patience is at least how long the plugins of a new configuration may take to become healthy: ten seconds.
	Patience time.Duration
	// KMSv1 is the feature gate of that name.
	KMSv1 bool
}

func (o Options) withDefaults() Options {
	if o.Metrics == nil {
		o.Metrics = &Metrics{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Interval == 0 {
		o.Interval = healthyInterval
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	if o.RetryInterval == 0 {
		o.RetryInterval = unhealthyInterval
	}
	return o
}
