package server

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"plinth/internal/admission/quota"
	"plinth/internal/crd"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
)

// etcdLayout is the layout of Kubernetes, and the keys that this program has beside it: those of guards, under "plinth/",
// where no resource of Kubernetes is.
type etcdLayout struct{ *etcdform.Form }

// own is the first segment of the keys of this program.
const own = "plinth/"

// Path implements etcd.Layout.
func (l etcdLayout) Path(k store.Key) (string, bool) {
	if strings.HasPrefix(k.Resource, own) {
		return k.Resource + "/" + k.Name, true
	}
	return l.Form.Path(k)
}

// Key implements etcd.Layout.
func (l etcdLayout) Key(path string) (store.Key, bool) {
	if rest, ok := strings.CutPrefix(path, own); ok {
		resource, name, ok := strings.Cut(rest, "/")
		return store.Key{Resource: own + resource, Name: name}, ok
	}
	return l.Form.Key(path)
}

// Encode implements etcd.Layout.
func (l etcdLayout) Encode(k store.Key, data []byte) ([]byte, error) {
	if strings.HasPrefix(k.Resource, own) {
		return data, nil
	}
	return l.Form.Encode(k, data)
}

// Decode implements etcd.Layout.
func (l etcdLayout) Decode(k store.Key, value []byte) (data []byte, form uint64, err error) {
	if strings.HasPrefix(k.Resource, own) {
		return value, 0, nil
	}
	data, form, _, err = l.Form.Decode(k, value)
	return data, form, err
}

// openEtcd opens the store on the etcd of --etcd-servers. The definitions are read first, since the objects of custom
// types cannot be described without them.
func (s *Server) openEtcd(ctx context.Context, define engine.Define) (_ *store.Store, err error) {
	c := &s.config
	tls, err := c.etcdTLS()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.StorageTimeout)
	defer cancel()
	s.etcdMetrics = newEtcdMetrics()
	s.form = etcdform.New(s.registry, c.StorageMediaType)
	layout := etcdLayout{s.form}
	var sealing store.Sealing
	if s.encryption != nil {
		prefix := path.Join("/", c.EtcdPrefix) + "/"
		s.encryption.path = func(k store.Key) string {
			at, _ := layout.Path(k)
			return prefix + at
		}
		sealing = s.encryption
	}
	if s.etcd, err = etcd.Connect(ctx, etcd.Config{
		Endpoints: c.EtcdServers, TLS: tls, Prefix: c.EtcdPrefix, Logger: c.Logger,
		Layout: layout, Sealing: sealing, Observe: s.etcdMetrics.observe(),
		LeaseReuse: time.Duration(c.LeaseReuseSeconds) * time.Second, CompactionInterval: c.EtcdCompactionInterval,
	}); err != nil {
		return nil, fmt.Errorf("--etcd-servers: %w", err)
	}
	config := store.Config{
		Describe: engine.Describe(s.registry), HistoryBytes: c.WatchHistoryBytes, Logger: c.Logger,
		Now: c.Now, Charge: (&quota.Charges{Registry: s.registry}).Of, Rules: quota.Quotas,
	}
	defined, err := s.etcd.Peek(ctx, config, crd.Path)
	if err != nil {
		return nil, err
	}
	s.registry.Define(defined.Collection(crd.Path), define)
	opened, err := s.etcd.Open(ctx, config, func(loaded *store.State) {
		s.registry.Define(loaded.Collection(crd.Path), define)
	})
	defined.End()
	return opened, err
}
