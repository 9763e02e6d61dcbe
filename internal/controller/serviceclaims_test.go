package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/addresses"
	"plinth/internal/builtin"
	"plinth/internal/controller/controllertest"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// claimBench is an engine with an allocator, and a store in which tests change what other servers would have changed.
type claimBench struct {
	*testing.T
	*engine.Engine
	store     *store.Store
	registry  *engine.Registry
	allocator *addresses.Allocator
}

func newClaimBench(t *testing.T) *claimBench {
	t.Helper()
	b := &claimBench{T: t, allocator: addresses.New(addresses.Config{FirstPort: 30000, LastPort: 30009,
		Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/112")}})}
	types := builtin.New(builtin.Config{EventTTL: time.Hour})
	b.registry = engine.NewRegistry(types.For(builtin.Parts{Addresses: b.allocator}))
	var err error
	b.store, err = store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(b.registry)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.store.Close() })
	b.allocator.Open(b.store.Collection(addresses.CIDRs))
	b.Engine = engine.New(engine.Config{Store: b.store, Registry: b.registry})
	return b
}

func (b *claimBench) service(name, spec string) {
	b.Helper()
	p, err := object.ParseJSON(fmt.Appendf(nil, `{"metadata":{"name":%q},"spec":%s}`, name, spec))
	if err == nil {
		of := b.registry.Now().Find("", "v1", "services")
		_, err = b.Create(b.Context(), &engine.Request{Resource: of, Namespace: "ns"}, p)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// put changes a key as another process would; nil removes it.
func (b *claimBench) put(k store.Key, data []byte) {
	b.Helper()
	if _, err := b.store.Commit(b.Context(), nil, []store.Change{{Key: k, Data: data}}); err != nil {
		b.Fatal(err)
	}
}

// names are the keys of a resource.
func (b *claimBench) names(resource string) []string {
	b.Helper()
	sn, err := b.store.Snapshot(0)
	if err != nil {
		b.Fatal(err)
	}
	names := []string{}
	sn.Ascend(resource, "", "", func(v *store.Version) bool {
		names = append(names, v.Key.Name)
		return true
	})
	return names
}

// events are the reasons of the Events, and the objects that they are about, sorted.
func (b *claimBench) events() []string {
	b.Helper()
	sn, err := b.store.Snapshot(0)
	if err != nil {
		b.Fatal(err)
	}
	all := []string{}
	sn.Ascend("/events", "", "", func(v *store.Version) bool {
		obj, err := engine.ObjectOf(v)
		if err != nil {
			b.Fatal(err)
		}
		of := obj.At("involvedObject")
		all = append(all, fmt.Sprintf("%s %s %s %s", obj.At("metadata", "namespace").Str(), of.At("kind").Str(),
			of.At("name").Str(), obj.At("reason").Str()))
		return true
	})
	slices.Sort(all)
	return all
}

func ip(text string) store.Key { return store.Key{Resource: addresses.IPAddresses, Name: text} }

// textBitmap has the ports as text.
type textBitmap struct{}

func (textBitmap) Ports(value []byte) (ports []int64, err error) {
	for text := range strings.FieldsSeq(string(value)) {
		port, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func (textBitmap) Rebuild(_ []byte, ports []int64) ([]byte, error) {
	return []byte(strings.Trim(fmt.Sprint(ports), "[]")), nil
}

// The bitmap of node ports is made, and then kept as Services are; what was changed meanwhile is not lost.
//
// SPEC: STORE-2
func TestServicePorts(t *testing.T) {
	b := newClaimBench(t)
	key := store.Key{Resource: "/servicenodeportallocations", Name: "b"}
	c := &ServicePorts{Engine: b.Engine, Registry: b.registry, Store: b.store, Logger: slog.New(slog.DiscardHandler),
		Allocator: b.allocator, Bitmap: textBitmap{}, Key: key}
	round := func(want string) {
		t.Helper()
		if err := c.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v, ok := b.store.Get(key); !ok || string(v.Data()) != want {
			t.Errorf("the bitmap is %v, want %q", v, want)
		}
	}
	round("")
	b.service("a", `{"type":"NodePort","ports":[{"port":80,"nodePort":30001}]}`)
	round("30001")
	before := b.store.Revision()
	if round("30001"); b.store.Revision() != before {
		t.Error("a round without a finding writes")
	}
	b.put(key, []byte("30001 30005"))
	round("30001 30005")
	round("30001 30005")
	round("30001")
	if want := []string{"ns Service a PortNotAllocated"}; !slices.Equal(b.events(), want) {
		t.Errorf("events are %q, want %q", b.events(), want)
	}
	b.put(key, []byte("nonsense"))
	if err := c.Repair(t.Context()); err == nil {
		t.Error("nonsense is repaired")
	}
	b.put(key, nil)
	round("30001")

	// A round is made again if the bitmap changes under it.
	b.put(key, []byte("30001"))
	writer := &meddling{Writer: b.store.Writer, meddle: func() { b.put(key, []byte("30001 30007")) }}
	c.Store = &store.Store{State: b.store.State, Writer: writer}
	b.service("c", `{"type":"NodePort","ports":[{"port":80,"nodePort":30003}]}`)
	round("30001 30003 30007")
}

// meddling is a writer before whose first commit another one commits.
type meddling struct {
	store.Writer
	meddle func()
}

func (m *meddling) Commit(ctx context.Context, pre []store.Precondition, changes []store.Change) (store.Revisions,
	error) {
	if f := m.meddle; f != nil {
		m.meddle = nil
		f()
	}
	return m.Writer.Commit(ctx, pre, changes)
}

// IPAddresses that are missing are created, wrong ones are replaced, and those without a Service are removed after a
// minute, at once where that is seen.
//
// SPEC: STORE-2
func TestServiceAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newClaimBench(t)
		const spec = `{"ipFamilyPolicy":"RequireDualStack","clusterIPs":["10.0.0.%d","fd00::%[1]d"],
			"clusterIP":"10.0.0.%[1]d","ports":[{"port":80}]}`
		for i, name := range []string{"complete", "lost", "relabelled"} {
			b.service(name, fmt.Sprintf(spec, i+1))
		}
		b.put(ip("10.0.0.2"), nil)
		relabelled, _ := b.store.Get(ip("10.0.0.3"))
		b.put(ip("10.0.0.3"), []byte(strings.ReplaceAll(string(relabelled.Data()), `"IPv4"`, `"IPv6"`)))
		orphan := func(name string) {
			b.put(ip(name), fmt.Appendf(nil, `{"apiVersion":"networking.k8s.io/v1","kind":"IPAddress",`+
				`"metadata":{"creationTimestamp":%q,"labels":{"ipaddress.kubernetes.io/ip-family":"IPv4",`+
				`"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"},"name":%q,"uid":"u%[2]s"},`+
				`"spec":{"parentRef":{"name":"gone","namespace":"ns","resource":"services"}}}`,
				time.Now().UTC().Format(time.RFC3339), name))
		}
		orphan("10.0.0.77")
		c := &ServiceAddresses{Engine: b.Engine, Registry: b.registry, Store: b.store,
			Logger: slog.New(slog.DiscardHandler), Allocator: b.allocator}
		if err := c.Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "fd00::3"}
		has := func(what string, more ...string) {
			t.Helper()
			want := slices.Sorted(slices.Values(append(more, all...)))
			if got := b.names(addresses.IPAddresses); !slices.Equal(got, want) {
				t.Errorf("%s there are %q, want %q", what, got, want)
			}
		}
		has("after a pass", "10.0.0.77")
		if again, _ := b.store.Get(ip("10.0.0.3")); !strings.Contains(string(again.Data()), `"IPv4"`) {
			t.Errorf("the wrong label stays: %s", again.Data())
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); controllertest.Run(ctx, c.Start) }()
		defer func() { cancel(); <-done }()
		synctest.Wait()
		b.put(ip("fd00::1"), nil)
		synctest.Wait()
		has("after one was removed", "10.0.0.77")
		time.Sleep(59 * time.Second)
		synctest.Wait()
		has("within a minute", "10.0.0.77")
		orphan("10.0.0.78")
		time.Sleep(4 * time.Second)
		synctest.Wait()
		has("after a minute", "10.0.0.78")
		// Of a Service that is removed by itself nobody is told but the pass that comes every three minutes.
		b.put(store.Key{Resource: "/services", Name: "ns/complete"}, nil)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		all = slices.DeleteFunc(all, func(name string) bool { return strings.HasSuffix(name, "1") })
		has("after three minutes")
		want := []string{"default IPAddress 10.0.0.1 IPAddressNotAllocated",
			"default IPAddress 10.0.0.77 IPAddressNotAllocated", "default IPAddress 10.0.0.78 IPAddressNotAllocated",
			"default IPAddress fd00::1 IPAddressNotAllocated", "ns Service complete ClusterIPNotAllocated",
			"ns Service lost ClusterIPNotAllocated"}
		if got := b.events(); !slices.Equal(got, want) {
			t.Errorf("events are %q, want %q", got, want)
		}
	})
}
