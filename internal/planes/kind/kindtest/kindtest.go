// Package kindtest makes servers in memory that serve the type Plane without any planes, for tests.
package kindtest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"log/slog"
	"testing"

	"plinth/internal/addresses"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/authz"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/initial"
	"plinth/internal/plane"
	"plinth/internal/planes/kind"
	"plinth/internal/storage"
)

// New makes a plane that serves the type; with a nil config, one that does not. It ends with the test. auth.As says who
// sends a request. With Begin, the objects stand for planes in its store.
func New(t testing.TB, planes *kind.Config) *plane.Plane {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	authority, err := authz.New(authz.FromModes([]authz.Mode{authz.RBAC}, nil), authz.Options{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	services, err := new(addresses.Flags).Config()
	if err != nil {
		t.Fatal(err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := serviceaccount.NewStaticKeys([]crypto.PublicKey{private.Public()}, private)
	if err != nil {
		t.Fatal(err)
	}
	var stand []string // for planes in the store
	if planes != nil && planes.Begin != nil {
		stand = []string{kind.Path}
	}
	p, err := plane.New(t.Context(), plane.Config{
		Releases: features.Current, Logger: logger, Addresses: services, Authority: authority, Address: "localhost:443",
		Accounts: plane.Accounts{Keys: keys, Static: keys, Issuers: []string{serviceaccount.DefaultIssuer}},
		Self:     initial.Self{Trusted: func() (clients, proxies []byte) { return nil, nil }},
		Planes:   planes,
		Storage: func(ctx context.Context, types *engine.Registry, define engine.Define) (*storage.Storage, error) {
			return storage.Open(ctx, storage.Config{HistoryBytes: 1 << 20, Registry: types, Define: define, Logger: logger,
				PlaneResources: stand})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}
