package encryption

import (
	"context"
	"crypto/aes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	api "k8s.io/kms/apis/v1beta1" //lint:ignore SA1019 the feature gate KMSv1 turns it on, as in the reference

	"plinth/internal/recent"
)

// kmsV1 is a plugin of the KMS v1 API as a provider, which is deprecated: the plugin is called for each Seal, and knows
// of no key IDs. A value is
//
//	length (2 bytes) and bytes of the encrypted key, nonce and value by AES-GCM
//
// or by AES-CBC, in which Kubernetes wrote until 1.24.
type kmsV1 struct {
	name   string
	plugin callsV1
	Options

	known *recent.Cache[string, keyV1] // keys by their encrypted form; nil: they are not kept
	pace  pace

	mu      sync.Mutex // guards the following
	checked time.Time
	result  error
	ttl     time.Duration
}

// callsV1 is the calls of a plugin.
type callsV1 interface {
	Encrypt(ctx context.Context, plain []byte) ([]byte, error)
	Decrypt(ctx context.Context, encrypted []byte) ([]byte, error)
}

// keyV1 is a key that decrypts.
type keyV1 struct {
	gcm *gcm
	cbc *cbc
}

const kmsV1Prefix = "k8s:enc:kms:v1:"

// pluginV1 makes the provider of a plugin of the API v1.
func (t *Transformers) pluginV1(ctx context.Context, c *KMS, g *generation) (prefixed, error) {
	if !t.KMSv1 {
		return prefixed{}, errNoKMSv1
	}
	t.Logger.Info("KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.")
	connection, err := connect(c, &Metrics{}) // calls of the API v1 are not measured
	if err != nil {
		return prefixed{}, fmt.Errorf("could not configure KMSv1-Plugin's probe %q, error: %w", c.Name, err)
	}
	k := &kmsV1{name: c.Name, Options: t.Options, ttl: unhealthyTTL, pace: pace{timeout: c.Timeout.Duration},
		plugin: &clientV1{api: api.NewKeyManagementServiceClient(connection), timeout: c.Timeout.Duration}}
	if *c.CacheSize > 0 {
		k.known = &recent.Cache[string, keyV1]{Limit: int(*c.CacheSize)}
	}
	g.plugins, g.v1 = append(g.plugins, k.check), true
	g.timeouts += 2 * c.Timeout.Duration // a check is two calls
	t.wait.Go(func() {
		<-ctx.Done()
		connection.Close() //nolint:errcheck // nothing is lost with it
	})
	return prefixed{kmsV1Prefix + c.Name + ":", k}, nil
}

func (k *kmsV1) id() (uint32, bool) { return idOf(kmsV1Prefix, k.name), true }

// seal implements scheme: each Seal has a key of its own.
func (k *kmsV1) seal(ctx context.Context) (*Seal, error) {
	begin := time.Now()
	secret := make([]byte, 32)
	rand.Read(secret)
	if k.Metrics.KeyMade != nil {
		k.Metrics.KeyMade(time.Since(begin))
	}
	encrypted, err := k.plugin.Encrypt(ctx, secret)
	if err != nil {
		return nil, err
	}
	if len(encrypted) > 1<<16-1 {
		return nil, fmt.Errorf("the encrypted key has %d bytes, more than can be stored", len(encrypted))
	}
	key, err := k.remember(encrypted, secret)
	if err != nil {
		return nil, err
	}
	by, _ := k.id()
	return &Seal{ID: by, append: func(dst []byte, path string, plain []byte) []byte {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(encrypted)))
		return key.gcm.append(append(dst, encrypted...), path, plain)
	}}, nil
}

// remember keeps a key, if keys are kept.
func (k *kmsV1) remember(encrypted, secret []byte) (keyV1, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return keyV1{}, err
	}
	g, err := newGCM(secret, 0)
	if err != nil {
		return keyV1{}, err
	}
	key := keyV1{g, &cbc{block, 0}}
	if k.known != nil {
		k.known.Set(string(encrypted), key, 1)
	}
	return key, nil
}

// open implements scheme.
func (k *kmsV1) open(ctx context.Context, path string, data []byte) (Opened, error) {
	if len(data) < 2 || len(data)-2 < int(binary.BigEndian.Uint16(data)) {
		return Opened{}, errors.New("invalid data encountered by envelope transformer: failed to read uint16 length " +
			"prefixed data")
	}
	n := 2 + int(binary.BigEndian.Uint16(data))
	encrypted, data := data[2:n], data[n:]
	key, known := keyV1{}, false
	if k.known != nil {
		if key, known = k.known.Get(string(encrypted)); !known && k.Metrics.CacheMiss != nil {
			k.Metrics.CacheMiss()
		}
	}
	if !known {
		secret, err := k.decrypt(ctx, encrypted)
		if err != nil {
			return Opened{}, err
		}
		if key, err = k.remember(encrypted, secret); err != nil {
			return Opened{}, err
		}
	}
	opened, err := key.gcm.open(ctx, path, data)
	if err != nil {
		older, errOlder := key.cbc.open(ctx, path, data)
		if errOlder != nil {
			return Opened{}, utilerrors.Reduce(utilerrors.NewAggregate([]error{err, errOlder}))
		}
		opened, opened.Stale = older, true
	}
	opened.By, _ = k.id()
	return opened, nil
}

// decrypt calls the plugin. A caller in a hurry waits for the whole time-out of the first call that takes it: here each
// value has a key of its own, and takes a call. Of two servers whose plugin takes a little longer than they would wait,
// each would write again what the other one has recovered, without end.
func (k *kmsV1) decrypt(ctx context.Context, encrypted []byte) (secret []byte, err error) {
	if k.pace.skips(ctx) {
		return nil, errSlow
	}
	secret, err = k.plugin.Decrypt(context.WithoutCancel(ctx), encrypted)
	k.pace.slow.Store(grpcstatus.Code(err) == codes.DeadlineExceeded)
	return secret, err
}

// check encrypts and decrypts a text. A result is reused for a few seconds.
func (k *kmsV1) check(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.checked.IsZero() && k.Now().Sub(k.checked) < k.ttl {
		return k.result
	}
	encrypted, err := k.plugin.Encrypt(ctx, []byte("ping"))
	section := "encrypt"
	if err == nil {
		_, err = k.plugin.Decrypt(ctx, encrypted)
		section = "decrypt"
	}
	k.checked, k.result, k.ttl = k.Now(), err, healthyTTL
	if err != nil {
		k.ttl = unhealthyTTL
		return fmt.Errorf("failed to perform %s section of the healthz check for KMS Provider %s, error: %w",
			section, k.name, err)
	}
	return nil
}

// clientV1 calls a plugin of the API v1.
type clientV1 struct {
	api     api.KeyManagementServiceClient
	timeout time.Duration
	mu      sync.Mutex
	version bool // the plugin has the version that is called
}

const versionV1 = "v1beta1"

// checkVersion checks the version of the plugin before its first call.
func (c *clientV1) checkVersion(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version {
		return nil
	}
	r, err := c.api.Version(ctx, &api.VersionRequest{Version: versionV1})
	if err != nil {
		return fmt.Errorf("failed get version from remote KMS provider: %w", err)
	}
	if r.Version != versionV1 {
		return fmt.Errorf("KMS provider api version %s is not supported, only %s is supported now", r.Version, versionV1)
	}
	c.version = true
	return nil
}

func (c *clientV1) Encrypt(ctx context.Context, plain []byte) ([]byte, error) {
	r, err := call(c, ctx, &api.EncryptRequest{Plain: plain, Version: versionV1}, c.api.Encrypt)
	return r.GetCipher(), err
}

func (c *clientV1) Decrypt(ctx context.Context, encrypted []byte) ([]byte, error) {
	r, err := call(c, ctx, &api.DecryptRequest{Cipher: encrypted, Version: versionV1}, c.api.Decrypt)
	return r.GetPlain(), err
}

// call calls a plugin within the time-out.
func call[Request, Response any](c *clientV1, ctx context.Context, r *Request,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error)) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.checkVersion(ctx); err != nil {
		return nil, err
	}
	return method(ctx, r)
}
