package addresses_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"plinth/internal/store"
	"plinth/internal/store/storetest"
)

// replicas are two servers, here and there, on one store. The server here reads the writes of the other one only when
// it has to: after a conflict, or for a consistent read.
type replicas struct {
	here, there *cluster
	replica     *storetest.Replica
}

func newReplicas(t *testing.T, ranges string, first, last int64) *replicas {
	t.Helper()
	shared := storetest.NewCluster(nil)
	r := &replicas{}
	open := func(c store.Config) (s *store.Store, err error) {
		s, r.replica, err = shared.Open(c)
		return s, err
	}
	r.there = newClusterOn(t, ranges, first, last, open)
	r.here = newClusterOn(t, ranges, first, last, open)
	r.replica.Hold(true)
	return r
}

// consistent checks the store once here has read all of it.
func (r *replicas) consistent() {
	r.here.Helper()
	r.replica.Hold(false)
	r.here.consistent()
	r.replica.Hold(true)
}

func (r *replicas) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A server that has not read the allocations and releases of another one allocates no address or port twice, and
// refuses no free one.
//
// SPEC: DEL-1, STORE-2
func TestClaimsThatAreNotKnownYet(t *testing.T) {
	const taken = "provided IP is already allocated"
	for name, scenario := range map[string]func(*testing.T, *replicas){
		"an address that another server has given away": func(t *testing.T, r *replicas) {
			_, err := r.there.create("a", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`))
			r.must(t, err)
			_, err = r.here.create("b", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`))
			wants(t, err, 422, taken)
		},
		"an address that another server has got back": func(t *testing.T, r *replicas) {
			_, err := r.here.create("a", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`))
			r.must(t, err)
			r.must(t, r.there.delete("services", "a"))
			_, err = r.here.create("b", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`))
			r.must(t, err)
		},
		"two addresses, the second of which is given away": func(t *testing.T, r *replicas) {
			_, err := r.there.create("a", spec("ClusterIP", `,"ipFamilies":["IPv6"],"clusterIP":"fd00::9"`))
			r.must(t, err)
			const both = `,"ipFamilyPolicy":"RequireDualStack","clusterIP":"10.0.0.9","clusterIPs":["10.0.0.9","fd00::9"]`
			_, err = r.here.create("b", spec("ClusterIP", both))
			wants(t, err, 422, taken)
			// The failed request has not allocated anything.
			_, err = r.here.create("c", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`))
			r.must(t, err)
		},
		"a second address that is given away": func(t *testing.T, r *replicas) {
			_, err := r.here.create("a", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`))
			r.must(t, err)
			_, err = r.there.create("b", spec("ClusterIP", `,"ipFamilies":["IPv6"],"clusterIP":"fd00::9"`))
			r.must(t, err)
			_, err = r.here.patch("a", `{"spec":{"ipFamilyPolicy":"RequireDualStack","clusterIPs":["10.0.0.9","fd00::9"]}}`)
			wants(t, err, 422, taken)
			_, err = r.here.patch("a", `{"spec":{"ipFamilyPolicy":"RequireDualStack"}}`)
			r.must(t, err)
		},
		"the last addresses": func(t *testing.T, r *replicas) {
			for i := range 13 { // of 14
				_, err := r.there.create(fmt.Sprint("s", i), spec("ClusterIP", ""))
				r.must(t, err)
			}
			_, err := r.here.create("last", spec("ClusterIP", ""))
			r.must(t, err)
			_, err = r.here.create("more", spec("ClusterIP", ""))
			wants(t, err, 500, "range is full")
			r.must(t, r.there.delete("services", "s7"))
			_, err = r.here.create("more", spec("ClusterIP", ""))
			r.must(t, err)
		},
		"a port on nodes that another server has given away": func(t *testing.T, r *replicas) {
			_, err := r.there.create("a", `{"type":"NodePort","ports":[{"port":80,"nodePort":30003}]}`)
			r.must(t, err)
			_, err = r.here.create("b", `{"type":"NodePort","ports":[{"port":80,"nodePort":30003}]}`)
			wants(t, err, 422, "provided port is already allocated")
			_, err = r.here.create("c", spec("ClusterIP", ""))
			r.must(t, err)
			_, err = r.here.patch("c", `{"spec":{"type":"NodePort"}}`)
			r.must(t, err)
		},
		"an IPAddress of a Service that another server has deleted": func(t *testing.T, r *replicas) {
			_, err := r.here.create("a", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`))
			r.must(t, err)
			r.must(t, r.there.delete("services", "a"))
			err = r.here.delete("ipaddresses", "10.0.0.9")
			wants(t, err, 404, "not found")
		},
		"an IPAddress of a Service that another server has made": func(t *testing.T, r *replicas) {
			_, err := r.there.create("a", spec("ClusterIP", `,"clusterIP":"10.0.0.9"`))
			r.must(t, err)
			r.must(t, r.here.delete("ipaddresses", "10.0.0.9")) // it is created again at once
		},
		"a range that another server is deleting": func(t *testing.T, r *replicas) {
			cidr := `{"metadata":{"name":"more","finalizers":["a.b/c"]},"spec":{"cidrs":["10.9.0.0/24"]}}`
			_, err := r.here.Create(t.Context(), r.here.to("servicecidrs", ""), parsed(t, "%s", cidr))
			r.must(t, err)
			r.must(t, r.there.delete("servicecidrs", "more"))
			_, err = r.here.create("a", spec("ClusterIP", `,"clusterIP":"10.9.0.9"`))
			wants(t, err, 422, "the provided network does not match the current range")
		},
		"an update of a Service that another server has changed": func(t *testing.T, r *replicas) {
			_, err := r.here.create("a", spec("NodePort", ""))
			r.must(t, err)
			_, err = r.there.patch("a", `{"spec":{"type":"ExternalName","externalName":"a.b"}}`)
			r.must(t, err)
			_, err = r.there.create("b", spec("NodePort", ""))
			r.must(t, err)
			_, err = r.here.patch("a", `{"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local"}}`)
			r.must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplicas(t, "10.0.0.0/28,fd00::/124", 30000, 30011)
			scenario(t, r)
			r.consistent()
		})
	}
}

// Two servers that seldom read each other's writes allocate each of a few addresses and ports to one Service only.
//
// SPEC: DEL-1, STORE-2
func TestServersAllocateAtOnce(t *testing.T) {
	r := newReplicas(t, "10.0.0.0/27", 30000, 30039)
	var all sync.WaitGroup
	var mu sync.Mutex
	made, full := 0, 0
	for i := range 40 { // of 30 addresses
		server := []*cluster{r.here, r.there}[i%2]
		all.Go(func() {
			_, err := server.create(fmt.Sprint("s", i), spec("NodePort", ""))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case strings.Contains(err.Error(), "range is full"):
				full++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	r.consistent()
	if made != 30 || full != 10 {
		t.Errorf("%d have an address, %d are told that there is none", made, full)
	}
}
