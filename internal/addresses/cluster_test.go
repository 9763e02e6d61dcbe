package addresses_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"plinth/internal/addresses"
	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// cluster is an engine with the built-in types over a store in memory.
type cluster struct {
	testing.TB
	*engine.Engine
	store *store.Store
	types *engine.Types
}

// newCluster is a cluster with these ranges of addresses, separated by commas, and of ports.
func newCluster(t testing.TB, ranges string, first, last int64) *cluster {
	t.Helper()
	return newClusterOn(t, ranges, first, last, func(c store.Config) (*store.Store, error) {
		c.Log = memlog.New()
		return store.Open(c)
	})
}

// newClusterOn is a cluster on a store of any kind.
func newClusterOn(t testing.TB, ranges string, first, last int64,
	open func(store.Config) (*store.Store, error)) *cluster {
	t.Helper()
	c := addresses.Config{FirstPort: first, LastPort: last}
	for text := range strings.SplitSeq(ranges, ",") {
		c.Ranges = append(c.Ranges, netip.MustParsePrefix(text))
	}
	allocator := addresses.New(c)
	registry := engine.NewRegistry(builtin.New(builtin.Config{}).For(builtin.Parts{Addresses: allocator}))
	s, err := open(store.Config{Describe: engine.Describe(registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	allocator.Open(s.Collection(addresses.CIDRs))
	return &cluster{
		TB: t, store: s, types: registry.Builtin(),
		Engine: engine.New(engine.Config{Store: s, Registry: registry}),
	}
}

// to returns a request for a type, in namespace ns if it is namespaced.
func (c *cluster) to(resource, name string) *engine.Request {
	rq := &engine.Request{Name: name, FieldManager: "test"}
	switch resource {
	case "ipaddresses", "servicecidrs":
		rq.Resource = c.types.Find("networking.k8s.io", "v1", resource)
	default:
		rq.Resource, rq.Namespace = c.types.Find("", "v1", resource), "ns"
	}
	return rq
}

func parsed(t testing.TB, text string, args ...any) object.Parsed {
	t.Helper()
	p, err := object.ParseJSON(fmt.Appendf(nil, text, args...))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return p
}

// create creates a Service with this spec.
func (c *cluster) create(name, spec string) (object.Value, error) {
	return c.value(c.Create(c.Context(), c.to("services", ""),
		parsed(c, `{"metadata":{"name":%q},"spec":%s}`, name, spec)))
}

func (c *cluster) patch(name, patch string) (object.Value, error) {
	return c.value(c.Patch(c.Context(), c.to("services", name),
		engine.Patch{Type: engine.MergePatch, Body: []byte(patch)}))
}

func (c *cluster) delete(resource, name string) error {
	_, err := c.Delete(c.Context(), c.to(resource, name), engine.DeleteOptions{})
	return err
}

func (c *cluster) get(resource, name string) (object.Value, error) {
	return c.value(c.Get(c.Context(), c.to(resource, name), ""))
}

func (c *cluster) value(result *engine.Result, err error) (object.Value, error) {
	if err != nil {
		return object.Nil, err
	}
	obj, err := engine.ObjectOf(result.Object)
	if err != nil {
		c.Fatal(err)
	}
	return obj, nil
}

// all are the objects of a collection of the store, by name.
func (c *cluster) all(resource string) map[string]*store.Version {
	sn, err := c.store.Snapshot(0)
	if err != nil {
		c.Fatal(err)
	}
	found := map[string]*store.Version{}
	sn.Ascend(resource, "", "", func(v *store.Version) bool {
		found[v.Key.Name] = v
		return true
	})
	return found
}

// wants demands an error with this code and text.
func wants(t testing.TB, err error, code int, words string) {
	t.Helper()
	wrong, ok := err.(*apierr.Error)
	if !ok || wrong.Code != code || !strings.Contains(wrong.Message, words) {
		t.Errorf("%v, want %d with %q", err, code, words)
	}
}

// spec is a spec with a type, a port and other fields.
func spec(kind, more string) string {
	return fmt.Sprintf(`{"type":%q,"ports":[{"port":80}]%s}`, kind, more)
}

// consistent demands that Services have exactly what is claimed, and that no two have the same address or port: the
// addresses of Services are the IPAddresses that refer to Services, and their ports on nodes the claims of ports.
func (c *cluster) consistent() {
	c.Helper()
	ips, ports := map[string]string{}, map[string]string{}
	have := func(all map[string]string, what, name string) {
		if other, taken := all[what]; taken && other != name {
			c.Errorf("%s is of %s and of %s", what, other, name)
		}
		all[what] = name
	}
	for name, v := range c.all("/services") {
		obj, err := engine.ObjectOf(v)
		if err != nil {
			c.Fatal(err)
		}
		spec := obj.At("spec")
		kind := spec.At("type").Str()
		for _, ip := range spec.At("clusterIPs").Items() {
			if ip.Str() != "None" {
				have(ips, ip.Str(), name)
			}
		}
		if first := spec.At("clusterIPs").Items(); len(first) > 0 && first[0].Str() != spec.At("clusterIP").Str() {
			c.Errorf("%s has %s first, and %s alone", name, first[0].Str(), spec.At("clusterIP").Str())
		}
		if spec.At("clusterIPs").Len() != spec.At("ipFamilies").Len() && spec.At("clusterIP").Str() != "None" {
			c.Errorf("%s has %d addresses and %d families", name, spec.At("clusterIPs").Len(), spec.At("ipFamilies").Len())
		}
		if kind == "NodePort" || kind == "LoadBalancer" {
			for _, p := range spec.At("ports").Items() {
				if n := p.At("nodePort").Int(); n != 0 {
					have(ports, fmt.Sprint("nodeports/", n), name)
				} else if kind == "NodePort" {
					c.Errorf("%s has no port on nodes", name)
				}
			}
		}
		if n := spec.At("healthCheckNodePort").Int(); n != 0 {
			have(ports, fmt.Sprint("nodeports/", n), name)
		}
	}
	claimed := map[string]string{}
	for name, v := range c.all("plinth/claims") {
		claimed[name] = string(v.Data())
	}
	if !maps.Equal(ports, claimed) {
		c.Errorf("Services have ports %v, and claimed are %v", ports, claimed)
	}
	named := map[string]string{}
	for name, v := range c.all("networking.k8s.io/ipaddresses") {
		obj, err := engine.ObjectOf(v)
		if err != nil {
			c.Fatal(err)
		}
		ref := obj.At("spec", "parentRef")
		if ref.At("resource").Str() == "services" {
			named[name] = ref.At("namespace").Str() + "/" + ref.At("name").Str()
		}
		family := "IPv4"
		if strings.Contains(name, ":") {
			family = "IPv6"
		}
		if got := obj.At("metadata", "labels", "ipaddress.kubernetes.io/ip-family").Str(); ref.At(
			"resource").Str() == "services" && got != family {
			c.Errorf("IPAddress %s is of family %s", name, got)
		}
	}
	if !maps.Equal(ips, named) {
		c.Errorf("Services have addresses %v, and there are IPAddresses %v", ips, named)
	}
	if c.Failed() {
		c.Fatalf("of %v", slices.Sorted(maps.Keys(c.all("/services"))))
	}
}
