package storage

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"plinth/internal/addresses"
	"plinth/internal/crd"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/internal/metrics"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
)

// confirmEvery bounds how long a server that nobody asks does not know whether its copy of the objects is up to date.
const confirmEvery = 5 * time.Second

// etcdLayout is the layout of Kubernetes, and the keys that this program has beside it: those of guards, under
// "plinth/", where no resource of Kubernetes is. The claims of node ports have no keys there: they are bits of one that
// Kubernetes has (PortRange).
type etcdLayout struct{ *etcdform.Form }

// own is the first segment of the keys of this program.
const own = "plinth/"

// PortRange is the key of the bitmap of node ports. Its bytes are the value of etcd. The resource is the one that the
// reference's metrics of requests to etcd name.
var PortRange = store.Key{Resource: "/servicenodeportallocations", Name: "servicenodeports"}

// portBits says that the claims of node ports are the bits of that bitmap.
func portBits(ports *etcdform.NodePorts) *etcd.Bits {
	numbers := func(names []string) (all []int64, err error) {
		for _, name := range names {
			port, err := addresses.PortOf(name)
			if err != nil {
				return nil, err
			}
			all = append(all, port)
		}
		return all, nil
	}
	return &etcd.Bits{Resource: engine.Claims, Whole: PortRange,
		Names: func(value []byte) ([]string, error) {
			held, err := ports.Ports(value)
			names := make([]string, 0, len(held))
			for _, port := range held {
				names = append(names, addresses.PortName(port))
			}
			slices.Sort(names) // those of ports below 10000 are shorter
			return names, err
		},
		Change: func(value []byte, set, cleared []string) ([]byte, error) {
			taken, err := numbers(set)
			if err != nil {
				return nil, err
			}
			free, err := numbers(cleared)
			if err != nil {
				return nil, err
			}
			return ports.Change(value, taken, free)
		},
	}
}

// Path implements etcd.Layout.
func (l etcdLayout) Path(k store.Key) (string, bool) {
	switch {
	case k == PortRange:
		return etcdform.NodePortsPath, true
	case k.Resource == engine.Claims:
		return "", false
	case strings.HasPrefix(k.Resource, own):
		return k.Resource + "/" + k.Name, true
	}
	return l.Form.Path(k)
}

// Key implements etcd.Layout.
func (l etcdLayout) Key(path string) (store.Key, bool) {
	if path == etcdform.NodePortsPath {
		return PortRange, true
	}
	if rest, ok := strings.CutPrefix(path, own); ok {
		resource, name, ok := strings.Cut(rest, "/")
		k := store.Key{Resource: own + resource, Name: name}
		return k, ok && k.Resource != engine.Claims
	}
	return l.Form.Key(path)
}

// isOwn says whether the bytes of a key are the value of etcd.
func isOwn(k store.Key) bool { return k == PortRange || strings.HasPrefix(k.Resource, own) }

// Encode implements etcd.Layout.
func (l etcdLayout) Encode(k store.Key, data []byte) ([]byte, error) {
	if isOwn(k) {
		return data, nil
	}
	return l.Form.Encode(k, data)
}

// Decode implements etcd.Layout.
func (l etcdLayout) Decode(k store.Key, value []byte) (data []byte, current *store.Sidecar, err error) {
	if isOwn(k) {
		return value, &store.Sidecar{}, nil
	}
	data, current, _, err = l.Form.Decode(k, value)
	return data, current, err
}

// openEtcd opens the store on the etcd of --etcd-servers. The definitions are read first, since the objects of custom
// types cannot be described without them.
func (s *Storage) openEtcd(ctx context.Context, c *Config) error {
	ctx, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
	defer cancel()
	current, err := s.connect(ctx, c)
	if err != nil {
		return err
	}
	switch note, err := s.Cluster.Unfinished(ctx); {
	case err != nil:
		return fmt.Errorf("--etcd-servers: %w", err)
	case note != nil:
		return fmt.Errorf("--etcd-servers: a copy into this etcd has begun and not ended, so objects are missing there; "+
			"let plinth copy end it: %s", note)
	}
	config := c.store()
	if s.elsewhere, err = openElsewhere(ctx, &c.Etcd, current, config); err != nil {
		return err
	}
	defined, err := s.define(ctx, c)
	if err != nil {
		return err
	}
	s.Store, err = s.Cluster.Open(ctx, config, func(loaded *store.State) {
		c.Registry.Define(loaded.Collection(crd.Path), c.Define)
	})
	defined.End()
	return err
}

// Connect connects to the etcd of a configuration, for a program that reads or writes all of it. There is no store. The
// types are those of the registry; with define, also those of the definitions that are in etcd. Close is called also
// after an error.
func Connect(ctx context.Context, c Config, define bool) (s *Storage, err error) {
	s = &Storage{config: c}
	if s.encryption, err = c.Encryption.open(c.KMSv1, c.Identity, c.Logger); err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
	defer cancel()
	if _, err = s.connect(ctx, &c); err == nil && define {
		_, err = s.define(ctx, &c)
	}
	return s, err
}

// define makes the types of the definitions that are in etcd now. The state that it returns has them.
func (s *Storage) define(ctx context.Context, c *Config) (*store.State, error) {
	defined, err := s.Cluster.Peek(ctx, c.store(), crd.Path)
	if err != nil {
		return nil, err
	}
	c.Registry.Define(defined.Collection(crd.Path), c.Define)
	return defined, nil
}

// connect connects to etcd, and returns how.
func (s *Storage) connect(ctx context.Context, c *Config) (current etcd.Config, err error) {
	e := &c.Etcd
	tls, err := e.TLS(c.Files)
	if err != nil {
		return current, err
	}
	s.NodePorts = etcdform.NewNodePorts(c.FirstNodePort, c.LastNodePort, e.MediaType)
	counts := metrics.NewEtcd()
	s.collectors = append(s.collectors, counts.Collectors()...)
	s.Form = etcdform.New(c.Registry, e.MediaType)
	layout := etcdLayout{s.Form}
	if s.encryption != nil {
		prefix := path.Join("/", e.Prefix) + "/"
		s.encryption.path = func(_ string, k store.Key) string {
			at, _ := layout.Path(k)
			return prefix + at
		}
	}
	current = etcd.Config{
		Endpoints: e.Servers, TLS: tls, Prefix: e.Prefix, Logger: c.Logger,
		Layout: layout, Bits: portBits(s.NodePorts), Sealing: s.sealing(), Observe: counts.Observe(),
		// A kube-apiserver repairs a Service whose IPAddress it has not seen yet.
		Apart:      []string{addresses.IPAddresses},
		LeaseReuse: time.Duration(e.LeaseReuseSeconds) * time.Second, CompactionInterval: e.CompactionInterval,
		ConfirmEvery: confirmEvery,
	}
	if len(e.Overrides) > 0 {
		current.Layout = splitLayout{layout, false}
	}
	if s.Cluster, err = etcd.Connect(ctx, current); err != nil {
		return current, fmt.Errorf("--etcd-servers: %w", err)
	}
	return current, nil
}
