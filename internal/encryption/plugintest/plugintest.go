// Package plugintest has a plugin of a key management service for tests: it serves the KMS APIs v2 and v1 at a Unix
// socket, with keys that are derived from their IDs.
package plugintest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apiv1 "k8s.io/kms/apis/v1beta1" //lint:ignore SA1019 Kubernetes supports it behind a feature gate
	api "k8s.io/kms/apis/v2"
)

// Plugin is a plugin. Its fields may be changed while it is stopped, or by Set.
type Plugin struct {
	api.UnimplementedKeyManagementServiceServer
	// Socket is the path of the socket, Endpoint its URL.
	Socket, Endpoint string

	mu     sync.Mutex
	server *grpc.Server
	state  State
	calls  map[string]int
}

// State is how a plugin behaves.
type State struct {
	KeyID    string // of the key that encrypts, and that Status names
	StatusID string // the key that Status names, if it is another one
	Version  string // "": v2
	Healthz  string // "": ok
	// Lost are the IDs of keys with which it does not decrypt.
	Lost map[string]bool
	// Annotations are those of each answer to Encrypt.
	Annotations map[string][]byte
	// Hang makes calls of this method wait until their time is over; "": none.
	Hang string
}

// New returns a plugin that is not started.
func New(t testing.TB) *Plugin {
	dir, err := os.MkdirTemp("", "kms") // the paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	p := &Plugin{Socket: filepath.Join(dir, "s"), calls: map[string]int{}, state: State{KeyID: "key-1"}}
	p.Endpoint = "unix://" + p.Socket
	t.Cleanup(func() {
		p.Stop()
		os.RemoveAll(dir) //nolint:errcheck // in a temporary directory
	})
	return p
}

// Start starts the plugin.
func (p *Plugin) Start(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("unix", p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterKeyManagementServiceServer(server, p)
	apiv1.RegisterKeyManagementServiceServer(server, v1{plugin: p})
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	go server.Serve(listener) //nolint:errcheck // it ends by Stop
}

// Stop stops the plugin. It can be started again.
func (p *Plugin) Stop() {
	p.mu.Lock()
	server := p.server
	p.server = nil
	p.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Set changes how the plugin behaves.
func (p *Plugin) Set(change func(*State)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.state)
}

// Calls is how often a method was called.
func (p *Plugin) Calls(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

// called counts a call, and waits if it is to hang.
func (p *Plugin) called(ctx context.Context, method string) (State, error) {
	p.mu.Lock()
	p.calls[method]++
	s := p.state
	p.mu.Unlock()
	if s.Hang == method {
		<-ctx.Done()
		return s, ctx.Err()
	}
	return s, nil
}

// Status implements the API.
func (p *Plugin) Status(ctx context.Context, _ *api.StatusRequest) (*api.StatusResponse, error) {
	s, err := p.called(ctx, "Status")
	if err != nil {
		return nil, err
	}
	r := &api.StatusResponse{Version: "v2", Healthz: "ok", KeyId: s.KeyID}
	if s.Version != "" {
		r.Version = s.Version
	}
	if s.Healthz != "" {
		r.Healthz = s.Healthz
	}
	if s.StatusID != "" {
		r.KeyId = s.StatusID
	}
	return r, nil
}

func aead(keyID string) (cipher.AEAD, error) {
	key := sha256.Sum256([]byte(keyID))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Encrypt implements the API.
func (p *Plugin) Encrypt(ctx context.Context, r *api.EncryptRequest) (*api.EncryptResponse, error) {
	s, err := p.called(ctx, "Encrypt")
	if err != nil {
		return nil, err
	}
	if r.Uid == "" {
		return nil, errors.New("no uid")
	}
	a, err := aead(s.KeyID)
	if err != nil {
		return nil, err
	}
	return &api.EncryptResponse{Ciphertext: a.Seal(nil, nil, r.Plaintext, nil), KeyId: s.KeyID,
		Annotations: s.Annotations}, nil
}

// Decrypt implements the API.
func (p *Plugin) Decrypt(ctx context.Context, r *api.DecryptRequest) (*api.DecryptResponse, error) {
	s, err := p.called(ctx, "Decrypt")
	if err != nil {
		return nil, err
	}
	if s.Lost[r.KeyId] {
		return nil, status.Errorf(codes.NotFound, "no key %q", r.KeyId)
	}
	if len(r.Annotations) != len(s.Annotations) {
		return nil, status.Error(codes.InvalidArgument, "other annotations")
	}
	a, err := aead(r.KeyId)
	if err != nil {
		return nil, err
	}
	plain, err := a.Open(nil, nil, r.Ciphertext, nil)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &api.DecryptResponse{Plaintext: plain}, nil
}

// v1 is the plugin's API v1. Its calls are counted with a prefix.
type v1 struct {
	apiv1.UnimplementedKeyManagementServiceServer
	plugin *Plugin
}

func (v v1) Version(ctx context.Context, _ *apiv1.VersionRequest) (*apiv1.VersionResponse, error) {
	s, err := v.plugin.called(ctx, "v1.Version")
	if err != nil {
		return nil, err
	}
	if s.Version == "" {
		s.Version = "v1beta1"
	}
	return &apiv1.VersionResponse{Version: s.Version, RuntimeName: "plugintest", RuntimeVersion: "1"}, nil
}

func (v v1) Encrypt(ctx context.Context, r *apiv1.EncryptRequest) (*apiv1.EncryptResponse, error) {
	s, err := v.plugin.called(ctx, "v1.Encrypt")
	if err != nil {
		return nil, err
	}
	a, err := aead(s.KeyID)
	if err != nil {
		return nil, err
	}
	return &apiv1.EncryptResponse{Cipher: a.Seal(nil, nil, r.Plain, nil)}, nil
}

func (v v1) Decrypt(ctx context.Context, r *apiv1.DecryptRequest) (*apiv1.DecryptResponse, error) {
	s, err := v.plugin.called(ctx, "v1.Decrypt")
	if err != nil {
		return nil, err
	}
	a, err := aead(s.KeyID)
	if err != nil {
		return nil, err
	}
	plain, err := a.Open(nil, nil, r.Cipher, nil)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &apiv1.DecryptResponse{Plain: plain}, nil
}
