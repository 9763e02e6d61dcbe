package addresses_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/addresses"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/storetest"
	"plinth/object"
)

// services are Services of namespace ns with these specs, named a, b and so on.
func services(t *testing.T, specs ...string) (all []object.Value) {
	for i, spec := range specs {
		all = append(all, parsed(t, `{"metadata":{"name":"%c","namespace":"ns","uid":"%[1]c"},"spec":%s}`, 'a'+i, spec).Value)
	}
	return all
}

func reasons(found []addresses.Finding) (all []string) {
	for _, f := range found {
		all = append(all, f.Object.At("metadata", "name").Str()+" "+f.Reason+": "+f.Note)
	}
	return all
}

// What is reserved becomes what Services have. A port without a Service is released in the third round that finds it,
// unless a Service has it meanwhile, or not all Services are known.
func TestRepairPorts(t *testing.T) {
	a := addresses.New(addresses.Config{FirstPort: 30000, LastPort: 30009})
	all := services(t,
		`{"type":"NodePort","ports":[{"nodePort":30001,"protocol":"TCP"},{"nodePort":30001,"protocol":"UDP"},{"port":1}]}`,
		`{"type":"LoadBalancer","ports":[{"nodePort":30002,"protocol":"TCP"}],"healthCheckNodePort":30003}`,
		`{"type":"NodePort","ports":[{"nodePort":30002,"protocol":"TCP"},{"nodePort":40000,"protocol":"TCP"}]}`,
		`{"type":"NodePort","ports":[{"nodePort":30004,"protocol":"TCP"},{"nodePort":30004,"protocol":"TCP"}]}`)
	r := a.RepairPorts([]int64{30001, 30003, 30004, 30008, 30009, 31000}, all, nil, true)
	if want := []int64{30001, 30002, 30003, 30004, 30008, 30009}; !slices.Equal(r.Reserved, want) {
		t.Errorf("reserved are %v, want %v", r.Reserved, want)
	}
	want := []string{"b PortNotAllocated: Port 30002 is not allocated; repairing",
		"c PortAlreadyAllocated: Port 30002 was assigned to multiple services; please recreate service",
		"c PortOutOfRange: Port 40000 is not within the port range 30000-30009; please recreate service",
		"d PortAlreadyAllocated: Port 30004 was assigned to multiple services; please recreate service"}
	if got := reasons(r.Findings); !slices.Equal(got, want) {
		t.Errorf("found is %q, want %q", got, want)
	}
	if !slices.Equal(r.Flagged, []int64{30008, 30009}) || r.Released != nil {
		t.Errorf("flagged are %v, released %v", r.Flagged, r.Released)
	}

	used := services(t, `{"ports":[{"nodePort":30009}]}`)
	reserved := []int64{30008, 30009}
	for i, c := range []struct {
		services          []object.Value
		complete          bool
		flagged, released []int64
	}{
		{nil, true, []int64{30008, 30009}, nil},
		{used, true, nil, nil},
		{nil, false, nil, nil},
		{nil, true, []int64{30009}, []int64{30008}},
		{nil, true, nil, nil},
		{nil, false, nil, nil},
		{nil, true, nil, []int64{30009}},
	} {
		leaks := addresses.Leaks{}
		if i > 0 {
			leaks = r.Leaks
		}
		r = a.RepairPorts(reserved, c.services, leaks, c.complete)
		if !slices.Equal(r.Flagged, c.flagged) || !slices.Equal(r.Released, c.released) {
			t.Errorf("round %d: flagged are %v, released %v", i, r.Flagged, r.Released)
		}
		reserved = r.Reserved
	}
	if len(reserved) != 0 || len(r.Leaks) != 0 {
		t.Errorf("reserved are %v, leaks %v", reserved, r.Leaks)
	}
}

// address is an IPAddress with labels for a family, created an age ago, that refers to a Service of namespace ns.
func address(t *testing.T, name, family, resource, of string, now time.Time, age time.Duration) object.Value {
	return parsed(t, `{"metadata":{"name":%q,"creationTimestamp":%q,"labels":{"ipaddress.kubernetes.io/ip-family":%q,
		"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}},
		"spec":{"parentRef":{"resource":%q,"namespace":"ns","name":%q}}}`, name,
		now.Add(-age).UTC().Format(time.RFC3339), family, resource, of).Value
}

// What becomes of an address of a Service depends on its IPAddress, and on the Service that this refers to.
func TestRepairAddress(t *testing.T) {
	a := addresses.New(addresses.Config{Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"),
		netip.MustParsePrefix("fd00::/112")}})
	now := time.Now()
	seven := `{"clusterIP":"10.0.0.7","clusterIPs":["10.0.0.7"]}`
	eight := `{"clusterIP":"10.0.0.8","clusterIPs":["10.0.0.8"]}`
	s := services(t, seven, seven, eight)
	of := func(resource, name string) object.Value {
		return address(t, "10.0.0.7", "IPv4", resource, name, now, 0)
	}
	for _, c := range []struct {
		ip          string
		has, holder object.Value
		remedy      addresses.Remedy
		found       string
	}{
		{"10.0.0.7", of("services", "a"), s[0], addresses.Nothing, ""},
		{"10.0.0.7", object.Nil, object.Nil, addresses.Create,
			"a ClusterIPNotAllocated: Cluster IP [IPv4]: 10.0.0.7 is not allocated; repairing"},
		{"10.0.1.7", of("services", "a"), s[0], addresses.Nothing,
			"a ClusterIPOutOfRange: Cluster IP [IPv4]: 10.0.1.7 is not within any configured Service CIDR; please recreate service"},
		{"10.0.0.255", object.Nil, object.Nil, addresses.Nothing,
			"a ClusterIPOutOfRange: Cluster IP [IPv4]: 10.0.0.255 is not within any configured Service CIDR; please recreate service"},
		{"10.0.0.7", of("gateways", "a"), object.Nil, addresses.Recreate,
			"a ClusterIPNotAllocated: the ClusterIP [IPv4]: 10.0.0.7 for Service ns/a has a wrong reference; repairing"},
		{"10.0.0.7", of("services", "z"), object.Nil, addresses.Recreate,
			"a ClusterIPNotAllocated: the ClusterIP [IPv4]: 10.0.0.7 for Service ns/a has a wrong reference; repairing"},
		{"10.0.0.7", of("services", "b"), s[1], addresses.Nothing,
			"a ClusterIPAlreadyAllocated: Cluster IP [IPv4]:10.0.0.7 was assigned to multiple services; please recreate service"},
		{"10.0.0.7", of("services", "c"), s[2], addresses.Nothing, ""},
		{"10.0.0.7", address(t, "10.0.0.7", "IPv6", "services", "a", now, 0), s[0], addresses.Recreate, ""},
		{"fd00::7", object.Nil, object.Nil, addresses.Create,
			"a ClusterIPNotAllocated: Cluster IP [IPv6]: fd00::7 is not allocated; repairing"},
	} {
		remedy, found := a.RepairAddress(s[0], netip.MustParseAddr(c.ip), c.has, c.holder)
		if got := strings.Join(reasons(found), "; "); remedy != c.remedy || got != c.found {
			t.Errorf("%s, %s: %d and %q, want %d and %q", c.ip, object.AppendJSON(nil, c.has.At("spec")), remedy, got,
				c.remedy, c.found)
		}
	}
}

// An IPAddress without its Service is removed after the time in which the Service may still be written.
func TestRepairOrphan(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	service := func(kind string, age time.Duration, ips ...string) object.Value {
		return parsed(t, `{"metadata":{"name":"a","creationTimestamp":%q},"spec":{"type":%q,"clusterIPs":%s}}`,
			now.Add(-age).Format(time.RFC3339), kind, object.AppendJSON(nil, object.Strings(ips...))).Value
	}
	orphan := func(age time.Duration) object.Value { return address(t, "10.0.0.7", "IPv4", "services", "a", now, age) }
	for _, c := range []struct {
		name        string
		ip, service object.Value
		remedy      addresses.Remedy
		again       time.Duration
		reason      string
	}{
		{"all is right", orphan(time.Hour), service("ClusterIP", time.Hour, "10.0.0.7"), addresses.Nothing, 0, ""},
		{"no Service yet", orphan(20 * time.Second), object.Nil, addresses.Nothing, 40 * time.Second, ""},
		{"no Service for just a minute", orphan(time.Minute), object.Nil, addresses.Nothing, time.Second, ""},
		{"no Service", orphan(61 * time.Second), object.Nil, addresses.Remove, 0, "IPAddressNotAllocated"},
		{"is becoming another type", orphan(20 * time.Second), service("ExternalName", time.Hour), addresses.Nothing,
			40 * time.Second, ""},
		{"was another type", orphan(2 * time.Minute), service("ExternalName", time.Hour), addresses.Remove, 0,
			"IPAddressWrongReference"},
		{"is getting a second one", orphan(3 * time.Second), service("ClusterIP", 4*time.Second, "10.0.0.8"),
			addresses.Nothing, 5 * time.Second, ""},
		{"is getting a second one in its first second", orphan(3 * time.Second),
			service("ClusterIP", 3*time.Second, "10.0.0.8"), addresses.Nothing, 5 * time.Second, ""},
		{"did not get a second one", orphan(5 * time.Second), service("ClusterIP", time.Hour, "10.0.0.8"),
			addresses.Remove, 0, "IPAddressWrongReference"},
		{"is older than its Service", orphan(4 * time.Second), service("ClusterIP", time.Second, "10.0.0.8"),
			addresses.Remove, 0, "IPAddressWrongReference"},
		{"of another resource", address(t, "10.0.0.7", "IPv4", "gateways", "a", now, 0), object.Nil, addresses.Remove, 0,
			"IPAddressNotAllocated"},
		{"of others", parsed(t, `{"metadata":{"name":"10.0.0.7"},"spec":{"parentRef":{"resource":"services"}}}`).Value,
			object.Nil, addresses.Nothing, 0, ""},
	} {
		remedy, again, found := addresses.RepairOrphan(c.ip, c.service, now)
		reason := ""
		for _, f := range found {
			reason += f.Reason
		}
		if remedy != c.remedy || again != c.again || reason != c.reason {
			t.Errorf("%s: %d, again %s, %q", c.name, remedy, again, reason)
		}
	}
}

// In a store that others write to, a port is given back whoever is known to hold it, and a port that is missing is left
// to the repair. Other writes of the Service do not suffer.
func TestClaimsOfUnknownHolders(t *testing.T) {
	cluster := storetest.NewCluster(nil)
	c := newClusterOn(t, "10.0.0.0/24", 30000, 30009, func(config store.Config) (*store.Store, error) {
		s, _, err := cluster.Open(config)
		return s, err
	})
	claim := func(port int) store.Key {
		return store.Key{Resource: engine.Claims, Name: fmt.Sprint("nodeports/", port)}
	}
	commit := func(port int, data []byte) {
		t.Helper()
		change := store.Change{Key: claim(port), Data: data}
		if data != nil {
			change.Sidecar = &store.Sidecar{}
		}
		if _, err := c.store.Commit(t.Context(), nil, []store.Change{change}); err != nil {
			t.Fatal(err)
		}
	}
	for name, port := range map[string]int{"unknown": 30001, "missing": 30002, "other": 30003} {
		body := spec("NodePort", fmt.Sprintf(`,"ports":[{"port":80,"nodePort":%d}]`, port))
		if _, err := c.create(name, body); err != nil {
			t.Fatal(err)
		}
	}
	commit(30001, []byte{})
	commit(30002, nil)
	commit(30003, []byte("ns/somebody"))
	for _, name := range []string{"unknown", "missing", "other"} {
		if _, err := c.patch(name, `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
			t.Error(err)
		}
	}
	claimed := func(want ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(c.all(engine.Claims))); !slices.Equal(got, want) {
			t.Errorf("claimed are %q, want %q", got, want)
		}
	}
	claimed("nodeports/30001", "nodeports/30003")
	for _, name := range []string{"unknown", "missing", "other"} {
		if err := c.delete("services", name); err != nil {
			t.Error(err)
		}
	}
	claimed("nodeports/30003")
}
