// Package externaljwt has the tokens of service accounts signed by another program of the same machine, which alone
// has the private keys (--service-account-signing-endpoint). It calls that program by the gRPC service of
// k8s.io/externaljwt, at a Unix socket.
//
// A [Signer] is the keys (serviceaccount.Keys) of that program. Tokens are signed by calls. They are verified by this
// server, with public keys that it fetches: at the start, when the program has asked for it, and when a token names a
// key that is not known. While the program is away no tokens are issued, and those of known keys go on being valid.
package externaljwt

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	api "k8s.io/externaljwt/apis/v1"

	"plinth/internal/auth/serviceaccount"
	"plinth/internal/execution"
	"plinth/internal/grpcsocket"
	"plinth/object"
)

// The times of the reference.
const (
	fetchTimeout    = 60 * time.Second // of a call for the keys, and so how long the start waits for the program
	metadataTimeout = 10 * time.Second
	retryInterval   = 10 * time.Second // after a call for the keys that failed
)

// The bounds of what the program may say. The lifetime of a token is at most what a TokenRequest can ask for, and the
// time to the next call for the keys is bounded so that it is no overflow.
const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
	maxHintSeconds  = 1 << 32
	maxKeyID        = 1024
)

// Metrics are told what happens. Nil functions are not called.
type Metrics struct {
	// Called is told of each call.
	Called grpcsocket.Called
	// Fetched is told of each attempt to fetch the keys. timestamp is when they were read at their source.
	Fetched func(timestamp time.Time, err error)
	// Signed is told of each attempt to have a token signed.
	Signed func(err error)
}

// Signer is the keys of the program at a socket.
type Signer struct {
	// MaxTokenLife is the longest lifetime of a token that the program signs.
	MaxTokenLife time.Duration

	program    api.ExternalJWTSignerClient
	connection io.Closer
	metrics    Metrics
	logger     *slog.Logger
	keys       atomic.Pointer[serviceaccount.KeySet]
	fetches    singleflight.Group
	life       context.Context // ends with Close
	end        context.CancelFunc
}

// Open connects to the program at a socket, and fetches its keys. It waits for a program that does not answer yet. The
// caller has to call Close, and to run Run.
func Open(ctx context.Context, socket string, metrics Metrics, logger *slog.Logger) (*Signer, error) {
	connection, err := grpcsocket.Dial(socket, "the external signer", metrics.Called)
	if err != nil {
		return nil, fmt.Errorf("while dialing grpc socket at %q: %w", socket, err)
	}
	s := newSigner(ctx, api.NewExternalJWTSignerClient(connection), connection, metrics, logger)
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func newSigner(ctx context.Context, program api.ExternalJWTSignerClient, connection io.Closer, metrics Metrics,
	logger *slog.Logger) *Signer {
	s := &Signer{program: program, connection: connection, metrics: metrics, logger: logger}
	s.keys.Store(&serviceaccount.KeySet{})
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// begin asks for what has to be known before the first request.
func (s *Signer) begin(ctx context.Context) error {
	if err := s.Refresh(ctx); err != nil {
		return fmt.Errorf("while initially filling key cache: while performing initial cache fill: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	said, err := s.program.Metadata(ctx, &api.MetadataRequest{})
	switch {
	case err != nil:
		return err
	case said.MaxTokenExpirationSeconds < minTokenSeconds:
		return fmt.Errorf("max token life supported by external-jwt-signer (%ds) is less than acceptable (min %ds)",
			said.MaxTokenExpirationSeconds, minTokenSeconds)
	}
	s.MaxTokenLife = time.Duration(min(said.MaxTokenExpirationSeconds, maxTokenSeconds)) * time.Second
	return nil
}

// Close ends all calls.
func (s *Signer) Close() error {
	s.end()
	return s.connection.Close()
}

// Run fetches the keys when the program has asked for it, until ctx ends. If a call fails, the known keys stay in use.
func (s *Signer) Run(ctx context.Context) {
	for wait := time.Until(s.Current().Next); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err := s.Refresh(ctx)
		if wait = time.Until(s.Current().Next); err != nil {
			wait = retryInterval
			if ctx.Err() == nil {
				s.logger.Warn("the keys of the external signer could not be fetched; those that are known stay in use",
					"error", err)
			}
		}
	}
}

// Current implements serviceaccount.Keys.
func (s *Signer) Current() *serviceaccount.KeySet { return s.keys.Load() }

// Refresh implements serviceaccount.Keys. All who need it at the same time share one call, which goes on without those
// that do not wait for its end. So strangers with tokens of unknown keys cause one call at a time.
func (s *Signer) Refresh(ctx context.Context) (err error) {
	call := s.fetches.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(s.life, fetchTimeout)
		defer cancel()
		keys, timestamp, err := s.fetch(ctx)
		if err == nil {
			s.keys.Store(keys)
		}
		if s.metrics.Fetched != nil {
			s.metrics.Fetched(timestamp, err)
		}
		return nil, err
	})
	execution.Outside(ctx, func() {
		execution.AssertOutside(ctx, "the keys of the external signer")
		select {
		case r := <-call:
			err = r.Err
		case <-ctx.Done():
			err = ctx.Err()
		}
	})
	if err != nil {
		return fmt.Errorf("while fetching token verification keys: %w", err)
	}
	return nil
}

// fetch calls for the keys.
func (s *Signer) fetch(ctx context.Context) (_ *serviceaccount.KeySet, timestamp time.Time, err error) {
	r, err := s.program.FetchKeys(ctx, &api.FetchKeysRequest{})
	if err != nil {
		return nil, timestamp, fmt.Errorf("while getting externally supported jwt signing keys: %w", err)
	}
	switch err := r.DataTimestamp.CheckValid(); {
	case r.RefreshHintSeconds <= 0:
		return nil, timestamp, fmt.Errorf("found invalid refresh hint (%ds)", r.RefreshHintSeconds)
	case len(r.Keys) == 0:
		return nil, timestamp, errors.New("found no keys")
	case err != nil:
		return nil, timestamp, fmt.Errorf("invalid data timestamp: %w", err)
	}
	var keys []serviceaccount.PublicKey
	for _, k := range r.Keys {
		switch {
		case k == nil:
			return nil, timestamp, errors.New("found nil public key")
		case len(k.KeyId) == 0 || len(k.KeyId) > maxKeyID:
			return nil, timestamp, fmt.Errorf("found invalid public key id %q", k.KeyId)
		case len(k.Key) == 0:
			return nil, timestamp, errors.New("found empty public key")
		}
		key, err := x509.ParsePKIXPublicKey(k.Key)
		if err != nil {
			return nil, timestamp, fmt.Errorf("while parsing external public keys: %w", err)
		}
		keys = append(keys, serviceaccount.PublicKey{Key: key, ID: k.KeyId, Unpublished: k.ExcludeFromOidcDiscovery})
	}
	next := time.Now().Add(time.Duration(min(r.RefreshHintSeconds, maxHintSeconds)) * time.Second)
	return serviceaccount.NewKeySet(keys, next, s.Current()), r.DataTimestamp.AsTime(), nil
}

// Sign implements serviceaccount.Keys.
func (s *Signer) Sign(ctx context.Context, claims object.Value) (token string, err error) {
	token, err = s.sign(ctx, claims)
	if s.metrics.Signed != nil {
		s.metrics.Signed(err)
	}
	return token, err
}

func (s *Signer) sign(ctx context.Context, claims object.Value) (string, error) {
	payload := base64.RawURLEncoding.EncodeToString(object.AppendJSON(nil, claims))
	r, err := s.program.Sign(ctx, &api.SignJWTRequest{Claims: payload})
	if err != nil {
		return "", fmt.Errorf("while signing jwt: %w", err)
	}
	if err := s.validateHeader(ctx, r.Header); err != nil {
		return "", fmt.Errorf("while validating header: %w", err)
	}
	if r.Signature == "" {
		return "", errors.New("empty signature returned")
	}
	return r.Header + "." + payload + "." + r.Signature, nil
}

// validateHeader refuses the headers of tokens that others could not verify: each names a key that is published, and
// says nothing more than a program which verifies it knows.
func (s *Signer) validateHeader(ctx context.Context, encoded string) error {
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("while unwrapping header: %w", err)
	}
	var header struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
		Type      string `json:"typ"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&header); err != nil {
		return fmt.Errorf("while parsing header JSON: %w", err)
	}
	switch {
	case header.Type != "JWT":
		return errors.New("bad type")
	case header.KeyID == "":
		return errors.New("key id missing")
	case len(header.KeyID) > maxKeyID:
		return errors.New("key id longer than 1 kb")
	}
	switch header.Algorithm {
	case "RS256", "ES256", "ES384", "ES512":
	default:
		return fmt.Errorf("bad signing algorithm %q", header.Algorithm)
	}
	// An unknown key is no error: the program may publish it soon.
	keys, _ := serviceaccount.Find(ctx, s, header.KeyID)
	for _, k := range keys {
		if k.Unpublished {
			return fmt.Errorf("key used for signing JWT (kid: %s) is excluded from OIDC discovery docs", header.KeyID)
		}
	}
	return nil
}
