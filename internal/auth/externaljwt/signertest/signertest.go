// Package signertest has an external signer of tokens for tests: it serves k8s.io/externaljwt at a Unix socket, with
// ECDSA keys that it makes.
package signertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	api "k8s.io/externaljwt/apis/v1"
)

// Signer is a signer. How it behaves is changed by Set.
type Signer struct {
	api.UnimplementedExternalJWTSignerServer
	// Socket is the path of the socket.
	Socket string

	mu     sync.Mutex // guards the following
	server *grpc.Server
	state  State
	calls  map[string]int
	keys   map[string]*ecdsa.PrivateKey
}

// State is how a signer behaves.
type State struct {
	// KeyID is the ID of the key that signs. A key is made when its ID is used first.
	KeyID string
	// Keys are the IDs of the keys that FetchKeys returns; nil: that of KeyID alone.
	Keys []string
	// Unpublished are the keys that are excluded from OpenID Connect discovery.
	Unpublished map[string]bool
	// DER are keys by their IDs, in the place of those that are made.
	DER map[string][]byte
	// MaxSeconds is the longest lifetime of a token, RefreshSeconds the time until the next FetchKeys.
	MaxSeconds, RefreshSeconds int64
	// NoTimestamp leaves out the timestamp of the keys.
	NoTimestamp bool
	// Header is the header of tokens as JSON; "": one that is valid, with the algorithm ES256. RawHeader is not encoded.
	Header, RawHeader string
	// NoSignature leaves the signature out.
	NoSignature bool
	// Fail has an error for each method that fails.
	Fail map[string]error
	// Hang makes calls of this method wait until their time is over; "": none.
	Hang string
}

// New returns a signer that is not started.
func New(t testing.TB) *Signer {
	dir, err := os.MkdirTemp("", "jwt") // the paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	s := &Signer{Socket: filepath.Join(dir, "s"), calls: map[string]int{}, keys: map[string]*ecdsa.PrivateKey{},
		state: State{KeyID: "key-1", MaxSeconds: 24 * 60 * 60, RefreshSeconds: 60 * 60}}
	t.Cleanup(func() {
		s.Stop()
		os.RemoveAll(dir) //nolint:errcheck // in a temporary directory
	})
	return s
}

// Start starts the signer.
func (s *Signer) Start(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterExternalJWTSignerServer(server, s)
	s.mu.Lock()
	s.server = server
	s.mu.Unlock()
	go server.Serve(listener) //nolint:errcheck // it ends by Stop
}

// Stop stops the signer. It can be started again.
func (s *Signer) Stop() {
	s.mu.Lock()
	server := s.server
	s.server = nil
	s.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Set changes how the signer behaves.
func (s *Signer) Set(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.DER, s.state.Unpublished = maps.Clone(s.state.DER), maps.Clone(s.state.Unpublished)
	s.state.Fail, s.state.Keys = maps.Clone(s.state.Fail), slices.Clone(s.state.Keys)
	change(&s.state)
}

// State is how the signer behaves.
func (s *Signer) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Calls is how often a method was called.
func (s *Signer) Calls(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[method]
}

// Key is the key with an ID.
func (s *Signer) Key(id string) (*ecdsa.PrivateKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[id] == nil {
		made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		s.keys[id] = made
	}
	return s.keys[id], nil
}

// called counts a call, and waits if it is to hang.
func (s *Signer) called(ctx context.Context, method string) (State, error) {
	s.mu.Lock()
	s.calls[method]++
	state := s.state
	s.mu.Unlock()
	if state.Hang == method {
		<-ctx.Done()
		return state, ctx.Err()
	}
	return state, state.Fail[method]
}

// Metadata implements the API.
func (s *Signer) Metadata(ctx context.Context, _ *api.MetadataRequest) (*api.MetadataResponse, error) {
	state, err := s.called(ctx, "Metadata")
	if err != nil {
		return nil, err
	}
	return &api.MetadataResponse{MaxTokenExpirationSeconds: state.MaxSeconds}, nil
}

// FetchKeys implements the API.
func (s *Signer) FetchKeys(ctx context.Context, _ *api.FetchKeysRequest) (*api.FetchKeysResponse, error) {
	state, err := s.called(ctx, "FetchKeys")
	if err != nil {
		return nil, err
	}
	r := &api.FetchKeysResponse{RefreshHintSeconds: state.RefreshSeconds}
	if !state.NoTimestamp {
		r.DataTimestamp = timestamppb.New(time.Now())
	}
	ids := state.Keys
	if ids == nil {
		ids = []string{state.KeyID}
	}
	for _, id := range ids {
		der, known := state.DER[id]
		if !known {
			key, err := s.Key(id)
			if err != nil {
				return nil, err
			}
			if der, err = x509.MarshalPKIXPublicKey(key.Public()); err != nil {
				return nil, err
			}
		}
		r.Keys = append(r.Keys, &api.Key{KeyId: id, Key: der, ExcludeFromOidcDiscovery: state.Unpublished[id]})
	}
	return r, nil
}

// Sign implements the API.
func (s *Signer) Sign(ctx context.Context, r *api.SignJWTRequest) (*api.SignJWTResponse, error) {
	state, err := s.called(ctx, "Sign")
	if err != nil {
		return nil, err
	}
	key, err := s.Key(state.KeyID)
	if err != nil {
		return nil, err
	}
	text := state.Header
	if text == "" {
		text = fmt.Sprintf(`{"alg":"ES256","kid":%q,"typ":"JWT"}`, state.KeyID)
	}
	header := base64.RawURLEncoding.EncodeToString([]byte(text))
	if state.RawHeader != "" {
		header = state.RawHeader
	}
	if state.NoSignature {
		return &api.SignJWTResponse{Header: header}, nil
	}
	hash := sha256.Sum256([]byte(header + "." + r.Claims))
	x, y, err := ecdsa.Sign(rand.Reader, key, hash[:])
	if err != nil {
		return nil, err
	}
	signature := slices.Concat(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32)))
	return &api.SignJWTResponse{Header: header, Signature: base64.RawURLEncoding.EncodeToString(signature)}, nil
}
