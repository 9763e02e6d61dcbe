package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/reference"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
	"plinth/internal/store/storetest"
)

// plain is a layout for any bytes. The stamp is in the value, as tests choose it freely.
type plain struct{}

func (plain) Path(k store.Key) (string, bool) {
	return strings.ReplaceAll(k.Resource, "/", "|") + "/" + k.Name, true
}

func (plain) Key(path string) (store.Key, bool) {
	resource, name, ok := strings.Cut(path, "/")
	return store.Key{Resource: strings.ReplaceAll(resource, "|", "/"), Name: name}, ok
}

func (plain) Encode(_ store.Key, data []byte) ([]byte, error) {
	return append(binary.BigEndian.AppendUint64(nil, 0), data...), nil
}

func (plain) Decode(_ store.Key, value []byte) (data []byte, current *store.Sidecar, err error) {
	if len(value) < 8 {
		return nil, nil, errors.New("too short")
	}
	return value[8:], &store.Sidecar{Form: binary.BigEndian.Uint64(value)}, nil
}

// startEtcd starts an etcd that ends with the test.
func startEtcd(t testing.TB, o reference.EtcdOptions) *reference.EtcdProcess {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	p, err := reference.StartEtcd(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Command.Process.Kill(); p.Command.Wait() })
	return p
}

// connect connects to an etcd with the plain layout.
func connect(t testing.TB, url string, configure ...func(*etcd.Config)) *etcd.Cluster {
	t.Helper()
	c := etcd.Config{Endpoints: []string{url}, Prefix: "/registry", Layout: plain{}}
	for _, f := range configure {
		f(&c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cluster, err := etcd.Connect(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.Close() })
	return cluster
}

// The suite of all stores, each with an etcd of its own.
//
// SPEC: STORE-1, STORE-2, WATCH-1
func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Implementation{OneRevision: true, Durable: true, Shared: true,
		New: func(t testing.TB) func(store.Config) (*store.Store, error) {
			p := startEtcd(t, reference.EtcdOptions{Flags: []string{"--max-txn-ops", "1024"}})
			cluster := connect(t, p.URL)
			return func(c store.Config) (*store.Store, error) { return cluster.Open(context.Background(), c, nil) }
		}})
}
