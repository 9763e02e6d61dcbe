package server

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"plinth/internal/addresses"
	"plinth/internal/admission/quota"
	"plinth/internal/controller"
	"plinth/internal/crd"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/internal/metrics"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
)

// etcdLayout is the layout of Kubernetes, and the keys that this program has beside it: those of guards, under
// "plinth/", where no resource of Kubernetes is. The claims of node ports have no keys there: they are bits of one that
// Kubernetes has (portRange).
type etcdLayout struct{ *etcdform.Form }

// own is the first segment of the keys of this program.
const own = "plinth/"

// portRange is the key of the bitmap of node ports. Its bytes are the value of etcd. The resource is the one that the
// reference's metrics of requests to etcd name.
var portRange = store.Key{Resource: "/servicenodeportallocations", Name: "servicenodeports"}

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
	return &etcd.Bits{Resource: engine.Claims, Whole: portRange,
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
	case k == portRange:
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
		return portRange, true
	}
	if rest, ok := strings.CutPrefix(path, own); ok {
		resource, name, ok := strings.Cut(rest, "/")
		k := store.Key{Resource: own + resource, Name: name}
		return k, ok && k.Resource != engine.Claims
	}
	return l.Form.Key(path)
}

// isOwn says whether the bytes of a key are the value of etcd.
func isOwn(k store.Key) bool { return k == portRange || strings.HasPrefix(k.Resource, own) }

// Encode implements etcd.Layout.
func (l etcdLayout) Encode(k store.Key, data []byte) ([]byte, error) {
	if isOwn(k) {
		return data, nil
	}
	return l.Form.Encode(k, data)
}

// Decode implements etcd.Layout.
func (l etcdLayout) Decode(k store.Key, value []byte) (data []byte, form uint64, err error) {
	if isOwn(k) {
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
	first, last, err := ParsePorts(c.ServiceNodePortRange)
	if err != nil {
		return nil, fmt.Errorf("--service-node-port-range: %w", err)
	}
	s.nodePorts = etcdform.NewNodePorts(first, last, c.StorageMediaType)
	ctx, cancel := context.WithTimeout(ctx, c.StorageTimeout)
	defer cancel()
	counts := metrics.NewEtcd()
	s.shown = append(s.shown, counts.Collectors()...)
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
	is := etcd.Config{
		Endpoints: c.EtcdServers, TLS: tls, Prefix: c.EtcdPrefix, Logger: c.Logger,
		Layout: layout, Bits: portBits(s.nodePorts), Sealing: sealing, Observe: counts.Observe(),
		// A kube-apiserver repairs a Service whose IPAddress it has not seen yet.
		Apart:      []string{addresses.IPAddresses},
		LeaseReuse: time.Duration(c.LeaseReuseSeconds) * time.Second, CompactionInterval: c.EtcdCompactionInterval,
	}
	if len(c.EtcdServersOverrides) > 0 {
		is.Layout = splitLayout{layout, false}
	}
	if s.etcd, err = etcd.Connect(ctx, is); err != nil {
		return nil, fmt.Errorf("--etcd-servers: %w", err)
	}
	config := store.Config{
		Describe: engine.Describe(s.registry), HistoryBytes: c.WatchHistoryBytes, Logger: c.Logger,
		Now: c.Now, Charge: (&quota.Charges{}).Of, Rules: quota.Quotas,
	}
	if s.elsewhere, err = s.openElsewhere(ctx, is, config); err != nil {
		return nil, err
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

// servicePorts configures the repair of node ports.
func (s *Server) servicePorts() *controller.ServicePorts {
	return &controller.ServicePorts{Engine: s.engine, Registry: s.registry, Store: s.store, Logger: s.config.Logger,
		Now: s.config.Now, Allocator: s.allocator, Bitmap: s.nodePorts, Key: portRange}
}

// serviceAddresses configures the repair of IPAddresses.
func (s *Server) serviceAddresses() *controller.ServiceAddresses {
	return &controller.ServiceAddresses{Engine: s.engine, Registry: s.registry, Store: s.store, Logger: s.config.Logger,
		Now: s.config.Now, Allocator: s.allocator}
}

// repairClaims compares what Services have with what is reserved for them, before the server gives them anything. As in
// the reference every server does that when it starts; the first one on an etcd makes the bitmap of node ports.
func (s *Server) repairClaims(ctx context.Context) error {
	if s.etcd == nil {
		return nil
	}
	s.allocator.PortsReady = func() error {
		var value []byte
		if v, ok := s.store.Get(portRange); ok {
			value = v.Data()
		}
		return s.nodePorts.Check(value)
	}
	return errors.Join(s.servicePorts().Repair(ctx), s.serviceAddresses().Repair(ctx))
}
