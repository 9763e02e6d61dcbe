package addresses_test

import (
	"context"
	"fmt"
	"math/rand"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/store/storetest"
	"plinth/object"
)

// After any sequence of writes, the addresses and ports of Services are exactly those that are claimed.
//
// SPEC: DRY-1, DEL-1
func TestRandomHistories(t *testing.T) {
	for seed := range int64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewSource(seed))
			ranges := []string{"10.0.0.0/28", "10.0.0.0/28,fd00::/124", "fd00::/124"}[seed%3]
			c := newCluster(t, ranges, 30000, 30011)
			done := 0
			for range 400 {
				if step(c, random) == nil {
					done++
				}
				c.consistent()
			}
			if done < 50 {
				t.Errorf("%d of 400 writes were taken", done)
			}
			for name := range c.all("/services") {
				_, name, _ = strings.Cut(name, "/")
				if _, err := c.patch(name, `{"metadata":{"finalizers":null}}`); err != nil && !apierr.Is(err, apierr.NotFound) {
					t.Fatal(err)
				}
				if err := c.delete("services", name); err != nil && !apierr.Is(err, apierr.NotFound) {
					t.Fatal(err)
				}
			}
			if left := len(c.all("plinth/claims")) + len(c.all("networking.k8s.io/ipaddresses")); left > 0 {
				t.Errorf("%d claims are left of no Service", left)
			}
		})
	}
}

// step is one random write to one of a few Services.
func step(c *cluster, random *rand.Rand) error {
	one := func(of ...string) string { return of[random.Intn(len(of))] }
	name := one("a", "b", "c", "d", "e", "f", "g")
	kind := one("ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
	port := func() string {
		fields := fmt.Sprintf(`"name":%q,"port":%d,"protocol":%q`, one("x", "y", "z"), 80+random.Intn(3), one("TCP", "UDP"))
		if random.Intn(3) == 0 && (kind == "NodePort" || kind == "LoadBalancer") {
			fields += fmt.Sprintf(`,"nodePort":%d`, 29999+random.Intn(14))
		}
		return "{" + fields + "}"
	}
	ports := port()
	for random.Intn(2) == 0 {
		ports += "," + port()
	}
	more := one("", "", "", `,"ipFamilyPolicy":"PreferDualStack"`, `,"ipFamilyPolicy":"RequireDualStack"`,
		`,"ipFamilyPolicy":"SingleStack"`) +
		one("", "", "", "", `,"clusterIP":"None"`, fmt.Sprintf(`,"clusterIP":"10.0.0.%d"`, random.Intn(17)),
			fmt.Sprintf(`,"clusterIP":"fd00::%d"`, random.Intn(17))) +
		one("", "", `,"ipFamilies":["IPv6"]`, `,"ipFamilies":["IPv6","IPv4"]`, `,"selector":{"a":"b"}`)
	switch kind {
	case "LoadBalancer":
		more += one("", `,"externalTrafficPolicy":"Local"`, `,"externalTrafficPolicy":"Cluster"`,
			`,"allocateLoadBalancerNodePorts":false`,
			fmt.Sprintf(`,"externalTrafficPolicy":"Local","healthCheckNodePort":%d`, 30000+random.Intn(12)))
	case "ExternalName":
		more += `,"externalName":"a.b"`
	}
	spec := fmt.Sprintf(`{"type":%q,"ports":[%s]%s}`, kind, ports, more)
	body := fmt.Sprintf(`{"metadata":{"name":%q%s},"spec":%s}`, name, one("", "", "", `,"finalizers":["a.b/c"]`), spec)
	rq := c.to("services", name)
	rq.DryRun = random.Intn(8) == 0
	before := c.store.Revision()
	err := func() error {
		switch random.Intn(10) {
		case 0, 1, 2:
			rq.Name = ""
			_, err := c.Create(c.Context(), rq, parsed(c, "%s", body))
			return err
		case 3:
			_, err := c.Update(c.Context(), rq, parsed(c, "%s", body))
			return err
		case 4, 5:
			_, err := c.Patch(c.Context(), rq, engine.Patch{Type: engine.MergePatch,
				Body: fmt.Appendf(nil, `{"spec":%s}`, spec)})
			return err
		case 6:
			fields := one(`{"type":"ClusterIP"}`, `{"type":"NodePort"}`, `{"type":"LoadBalancer"}`,
				`{"type":"ExternalName","externalName":"a.b"}`,
				`{"ipFamilyPolicy":"SingleStack"}`, `{"ipFamilyPolicy":"PreferDualStack"}`, `{"externalTrafficPolicy":"Local"}`,
				`{"clusterIP":null,"clusterIPs":null}`)
			_, err := c.Patch(c.Context(), rq, engine.Patch{Type: engine.MergePatch,
				Body: fmt.Appendf(nil, `{"spec":%s}`, fields)})
			return err
		case 7:
			rq.Force = true
			_, err := c.Apply(c.Context(), rq, parsed(c, `{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":%s}`,
				name, spec))
			return err
		case 8:
			_, err := c.Patch(c.Context(), rq, engine.Patch{Type: engine.MergePatch,
				Body: []byte(`{"metadata":{"finalizers":null}}`)})
			return err
		}
		_, err := c.Delete(c.Context(), rq, engine.DeleteOptions{})
		return err
	}()
	if rq.DryRun && c.store.Revision() != before {
		c.Errorf("a dry run has written")
	}
	return err
}

// Two hundred Services that are created at once get an address and a port each, of the 254 and 300 that exist.
func TestManyAtOnce(t *testing.T) {
	c := newCluster(t, "10.0.0.0/24", 30000, 30299)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if _, err := c.create(fmt.Sprint("s", i), spec("NodePort", "")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	c.consistent()
	if n := len(c.all("networking.k8s.io/ipaddresses")); n != 200 {
		t.Errorf("%d addresses", n)
	}
	for i := range 200 {
		all.Go(func() {
			name := fmt.Sprint("s", i)
			if i%2 == 0 {
				if err := c.delete("services", name); err != nil {
					t.Error(err)
				}
			} else if _, err := c.patch(name, `{"spec":{"type":"ExternalName","externalName":"a.b"}}`); err != nil {
				t.Error(err)
			} else if _, err := c.patch(name, `{"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local"}}`); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	c.consistent()
	if n, m := len(c.all("networking.k8s.io/ipaddresses")), len(c.all("plinth/claims")); n != 100 || m != 200 {
		t.Errorf("%d addresses and %d ports", n, m)
	}
}

// If many clients request the same address, or the last free one, exactly one gets it.
func TestOneWins(t *testing.T) {
	for name, more := range map[string]string{"address": `,"clusterIP":"10.0.0.3"`, "port": ""} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, "10.0.0.0/24", 30000, 30000)
			var all sync.WaitGroup
			errs := make([]error, 20)
			for i := range errs {
				all.Go(func() { _, errs[i] = c.create(fmt.Sprint("s", i), spec("NodePort", more)) })
			}
			all.Wait()
			won := 0
			for _, err := range errs {
				if err == nil {
					won++
				}
			}
			if won != 1 {
				t.Errorf("%d have it: %v", won, errs)
			}
			c.consistent()
		})
	}
}

// Addresses are taken from the upper band first, and from the lower one when that is used up; then allocation fails.
func TestBands(t *testing.T) {
	c := newCluster(t, "10.0.0.0/26", 30000, 30039)
	for i := range 62 {
		kind := "ClusterIP"
		if i < 40 {
			kind = "NodePort"
		}
		obj, err := c.create(fmt.Sprint("s", i), spec(kind, ""))
		if err != nil {
			t.Fatal(err)
		}
		ip := netip.MustParseAddr(obj.At("spec", "clusterIP").Str()).As4()[3]
		if lower := ip <= 16; lower != (i >= 46) {
			t.Errorf("Service %d has address %d", i, ip)
		}
		if i >= 40 {
			continue
		}
		port := obj.At("spec", "ports").Items()[0].At("nodePort").Int()
		if lower := port < 30016; lower != (i >= 24) {
			t.Errorf("Service %d has port %d", i, port)
		}
	}
	_, err := c.create("one-more", spec("ClusterIP", ""))
	wants(t, err, 500, `Internal error occurred: failed to allocate a serviceIP for Service "one-more": range is full`)
	_, err = c.create("one-more", spec("NodePort", `,"clusterIP":"None"`))
	wants(t, err, 500, "failed to allocate a nodePort: range is full")
	if err := c.delete("services", "s7"); err != nil {
		t.Fatal(err)
	}
	if _, err = c.create("one-more", spec("NodePort", "")); err != nil {
		t.Error(err)
	}
	c.consistent()
}

// The address of a Service cannot be freed by deleting its IPAddress, which is created again at once. An IPAddress
// without a Service can be deleted.
func TestIPAddressInUse(t *testing.T) {
	c := newCluster(t, "10.0.0.0/24", 0, 0)
	if _, err := c.create("s", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`)); err != nil {
		t.Fatal(err)
	}
	was, err := c.get("ipaddresses", "10.0.0.9")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(object.AppendJSON(nil,
		was.At("spec"))); got != `{"parentRef":{"name":"s","namespace":"ns","resource":"services"}}` {
		t.Errorf("spec is %s", got)
	}
	before := c.store.Revision()
	if err := c.delete("ipaddresses", "10.0.0.9"); err != nil {
		t.Fatal(err)
	}
	is, err := c.get("ipaddresses", "10.0.0.9")
	if err != nil {
		t.Fatal(err)
	}
	if is.At("metadata", "uid").Str() == was.At("metadata", "uid").Str() || c.store.Revision() != before+1 {
		t.Errorf("it is still %s, %d revisions later", is.At("metadata", "uid").Str(), c.store.Revision()-before)
	}
	c.consistent()
	if _, err := c.patch("s", `{"spec":{"type":"ExternalName","externalName":"a.b"}}`); err != nil {
		t.Fatal(err)
	}
	c.consistent()

	byHand := `{"metadata":{"name":"10.0.0.9"},"spec":{"parentRef":{"group":"a.b","resource":"gateways","name":"g"}}}`
	if _, err := c.Create(t.Context(), c.to("ipaddresses", ""), parsed(t, "%s", byHand)); err != nil {
		t.Fatal(err)
	}
	_, err = c.create("t", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`))
	wants(t, err, 422,
		`spec.clusterIPs: Invalid value: ["10.0.0.9"]: failed to allocate IP 10.0.0.9: provided IP is already allocated`)
	if err := c.delete("ipaddresses", "10.0.0.9"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.create("t", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`)); err != nil {
		t.Error(err)
	}
	c.consistent()
}

// An IPAddress with a finalizer of another controller is marked as deleted when its Service is deleted, and the address
// is not free until the IPAddress is gone.
func TestIPAddressHeld(t *testing.T) {
	c := newCluster(t, "10.0.0.0/24", 0, 0)
	if _, err := c.create("s", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`)); err != nil {
		t.Fatal(err)
	}
	patch := func(text string) {
		t.Helper()
		if _, err := c.Patch(t.Context(), c.to("ipaddresses", "10.0.0.9"),
			engine.Patch{Type: engine.MergePatch, Body: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"metadata":{"finalizers":["a.b/c"]}}`)
	if err := c.delete("services", "s"); err != nil {
		t.Fatal(err)
	}
	_, err := c.create("t", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`))
	wants(t, err, 422, "provided IP is already allocated")
	patch(`{"metadata":{"finalizers":null}}`)
	if _, err := c.create("t", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`)); err != nil {
		t.Fatal(err)
	}
	c.consistent()
}

// Addresses are taken from all ServiceCIDRs that are ready, and never from one that is being deleted, even if its
// deletion began just before the commit.
func TestServiceCIDRs(t *testing.T) {
	c := newCluster(t, "10.0.0.0/29", 0, 0)
	cidr := `{"metadata":{"name":"more","finalizers":["a.b/c"]},"spec":{"cidrs":["10.9.0.0/24","fd00::/64"]}}`
	if _, err := c.Create(t.Context(), c.to("servicecidrs", ""), parsed(t, "%s", cidr)); err != nil {
		t.Fatal(err)
	}
	more := 0
	for i := range 10 {
		obj, err := c.create(fmt.Sprint("s", i), spec("ClusterIP", ""))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(obj.At("spec", "clusterIP").Str(), "10.9.0.") {
			more++
		}
	}
	if more != 4 {
		t.Errorf("%d addresses are from the further range", more)
	}
	_, err := c.create("six", spec("ClusterIP", `,"ipFamilies":["IPv6"]`))
	wants(t, err, 422, "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster")
	if err := c.delete("servicecidrs", "more"); err != nil {
		t.Fatal(err)
	}
	_, err = c.create("late", spec("ClusterIP", ""))
	wants(t, err, 500, "range is full")
	_, err = c.create("late", spec("ClusterIP", `,"clusterIP":"10.9.0.77"`))
	wants(t, err, 422, "the provided network does not match the current range")
	c.consistent()
}

// A Service that waits for its finalizers keeps its addresses and ports, and frees them when it is removed, in
// whichever way.
func TestFinalizers(t *testing.T) {
	c := newCluster(t, "10.0.0.0/24", 30000, 30003)
	for _, path := range []string{"", "status"} {
		if _, err := c.create("s", spec("NodePort", `,"clusterIP":"10.0.0.9"`)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.patch("s", `{"metadata":{"finalizers":["a.b/c"]}}`); err != nil {
			t.Fatal(err)
		}
		if err := c.delete("services", "s"); err != nil {
			t.Fatal(err)
		}
		_, err := c.create("t", spec("NodePort", `,"clusterIP":"10.0.0.9"`))
		wants(t, err, 422, "provided IP is already allocated")
		rq := c.to("services", "s")
		rq.Subresource = rq.Resource.Subresource(path)
		if _, err := c.Patch(context.Background(), rq, engine.Patch{Type: engine.MergePatch,
			Body: []byte(`{"metadata":{"finalizers":null}}`)}); err != nil {
			t.Fatal(err)
		}
		if n := len(c.all("networking.k8s.io/ipaddresses")) + len(c.all("plinth/claims")); n != 0 {
			t.Errorf("%d claims are left", n)
		}
	}
}

// A request with thousands of ports takes little time, whether the Service is accepted or refused. The test measures
// processor time, which does not depend on the load of the machine.
func TestManyPorts(t *testing.T) {
	for name, test := range map[string]struct {
		port    string
		refused map[string]bool // by type; a type that is not listed may be either
	}{
		"no port on nodes": {`{"name":"x%d","port":%[1]d}`, map[string]bool{"NodePort": false, "ClusterIP": false}},
		"ports on nodes":   {`{"name":"x%d","port":%[1]d,"nodePort":%[1]d}`, map[string]bool{"ClusterIP": true}},
		"ports of one name": {`{"name":"","port":%d}`,
			map[string]bool{"NodePort": true, "LoadBalancer": true, "ClusterIP": true}},
		"ports of one number": {`{"name":"x%d","port":80}`,
			map[string]bool{"NodePort": true, "LoadBalancer": true, "ClusterIP": true}},
	} {
		t.Run(name, func(t *testing.T) {
			var body strings.Builder
			for i := range manyPorts {
				fmt.Fprintf(&body, ","+test.port, i+1)
			}
			for _, kind := range []string{"NodePort", "LoadBalancer", "ClusterIP"} {
				c := newCluster(t, "10.0.0.0/24", 1, 65535)
				if _, err := c.create("s", spec("NodePort", "")); err != nil {
					t.Fatal(err)
				}
				spec := fmt.Sprintf(`{"type":%q,"ports":[%s]}`, kind, body.String()[1:])
				began := storetest.ProcessorTime()
				_, made := c.create("t", spec)
				_, changed := c.patch("s", `{"spec":`+spec+`}`)
				if took := storetest.ProcessorTime() - began; took > 40*time.Second {
					t.Errorf("%s: %s, until %.100v and %.100v", kind, took, made, changed)
				}
				if refused, known := test.refused[kind]; known && (refused != (made != nil) || refused != (changed != nil)) {
					t.Errorf("%s: refused should be %t, and is %.100v and %.100v", kind, refused, made, changed)
				}
				c.consistent()
			}
		})
	}
}

// A requested port has to be free, also within the Service, and in the range; a dry run does not check the range.
func TestPortsThatAreAskedFor(t *testing.T) {
	c := newCluster(t, "10.0.0.0/24", 30000, 30009)
	port := func(n int) string { return fmt.Sprintf(`{"type":"NodePort","ports":[{"port":80,"nodePort":%d}]}`, n) }
	if _, err := c.create("a", port(30001)); err != nil {
		t.Fatal(err)
	}
	_, err := c.create("b", port(30001))
	wants(t, err, 422, "provided port is already allocated")
	for _, n := range []int{29999, 30010} {
		_, err := c.create("b", port(n))
		wants(t, err, 422, "provided port is not in the valid range. The range of valid ports is 30000-30009")
		rq := c.to("services", "")
		rq.DryRun = true
		if _, err := c.Create(t.Context(), rq, parsed(c, `{"metadata":{"name":"b"},"spec":%s}`, port(n))); err != nil {
			t.Errorf("a dry run with port %d: %v", n, err)
		}
	}
	_, err = c.create("b", `{"type":"LoadBalancer","externalTrafficPolicy":"Local","healthCheckNodePort":30002,`+
		`"ports":[{"port":80,"nodePort":30002}]}`)
	wants(t, err, 500, "failed to allocate requested HealthCheck NodePort 30002: provided port is already allocated")
	c.consistent()
}

// Fields that an update omits are kept, but a node port is assigned to the port that requests it by number.
func TestUpdateKeepsPorts(t *testing.T) {
	c := newCluster(t, "10.0.0.0/24", 30000, 30009)
	put := func(ports string) (numbers []int64) {
		t.Helper()
		obj, err := c.value(c.Update(t.Context(), c.to("services", "a"),
			parsed(c, `{"metadata":{"name":"a"},"spec":{"type":"NodePort","ports":[%s]}}`, ports)))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range obj.At("spec", "ports").Items() {
			numbers = append(numbers, p.At("nodePort").Int())
		}
		return numbers
	}
	const x, y = `{"name":"x","port":80`, `{"name":"y","port":81`
	const both = x + `,"nodePort":30001},` + y + `,"nodePort":30002}`
	if _, err := c.create("a", `{"type":"NodePort","ports":[`+both+`]}`); err != nil {
		t.Fatal(err)
	}
	if got := put(y + "}," + x + "}"); got[0] != 30002 || got[1] != 30001 {
		t.Errorf("the ports are %v", got)
	}
	if got := put(x + `,"nodePort":30002},` + y + "}"); got[0] != 30002 || got[1] == 30002 || got[1] == 0 {
		t.Errorf("the ports are %v", got)
	}
	c.consistent()
}
