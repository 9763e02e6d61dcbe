package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
)

// member is one etcd of a cluster of several.
type member struct {
	*reference.EtcdProcess
	options reference.EtcdOptions
}

// freeURL is a URL at which nothing listens now.
func freeURL(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
}

// startMembers starts a cluster of n members.
func startMembers(t *testing.T, n int) []*member {
	t.Helper()
	var cluster []string
	members := make([]*member, n)
	for i := range members {
		peer, name := freeURL(t), fmt.Sprint("m", i)
		cluster = append(cluster, name+"="+peer)
		members[i] = &member{options: reference.EtcdOptions{Dir: t.TempDir(), URL: freeURL(t), Flags: []string{"--name", name,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster"}}}
	}
	for _, m := range members {
		m.options.Flags = append(m.options.Flags, strings.Join(cluster, ","))
		m.EtcdProcess = startEtcd(t, m.options)
	}
	return members
}

func (m *member) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := m.Command.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func urls(members []*member) (all []string) {
	for _, m := range members {
		all = append(all, m.URL)
	}
	return all
}

// onMembers opens a store on a cluster.
func onMembers(t *testing.T, members []*member) *store.Store {
	t.Helper()
	return openPlain(t, "", func(c *etcd.Config) { c.Endpoints = urls(members) })
}

// A member that is killed, the leader among them, or frozen, holds up writes for some time at most. None that was
// acknowledged is lost, and none is made twice.
//
// SPEC: STORE-1, STORE-2
func TestMembersGone(t *testing.T) {
	members := startMembers(t, 3)
	s := onMembers(t, members)
	increment(t, s, 300, func() {
		for _, m := range members {
			time.Sleep(300 * time.Millisecond)
			m.signal(t, syscall.SIGKILL)
			_ = m.Command.Wait()
			time.Sleep(300 * time.Millisecond)
			m.EtcdProcess = startEtcd(t, m.options)
			awaitHealth(t, m.URL)
			m.signal(t, syscall.SIGSTOP)
			time.Sleep(2 * time.Second)
			m.signal(t, syscall.SIGCONT)
			awaitHealth(t, m.URL)
		}
	})
	same(t, s, members[0].URL)
}

// awaitHealth waits until a member takes part.
func awaitHealth(t *testing.T, url string) {
	t.Helper()
	client := direct(t, url)
	eventually(t, "the member takes part", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Get(ctx, "health")
		return err
	})
}

// While one member is frozen, whichever it is, a read that has to be current sees what was written to the others: it
// waits neither for the frozen member to answer, nor for a watch that is connected to it.
//
// SPEC: STORE-2
func TestStaleMember(t *testing.T) {
	members := startMembers(t, 3)
	s := onMembers(t, members)
	for i, m := range members {
		var others []string
		for _, o := range members {
			if o != m {
				others = append(others, o.URL)
			}
		}
		beside, err := clientv3.New(clientv3.Config{Endpoints: others, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer beside.Close()
		m.signal(t, syscall.SIGSTOP)
		k, want := pod("seen"), fmt.Sprint("value ", i)
		eventually(t, "the others take a write", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			at, _ := plain{}.Path(k)
			value, err := plain{}.Encode(k, []byte(want))
			if err == nil {
				_, err = beside.Put(ctx, "/registry/"+at, string(value))
			}
			return err
		})
		// The connection would be found to be dead after 40 s.
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		began := time.Now()
		if _, err := s.Fresh(ctx, k, true); err != nil {
			t.Errorf("member %d is frozen: %v", i, err)
		} else if v, _ := s.Get(k); v == nil || string(v.Data()) != want {
			t.Errorf("member %d is frozen: the state has %v, etcd %s", i, v, want)
		}
		t.Logf("with member %d frozen, a current read takes %v", i, time.Since(began))
		m.signal(t, syscall.SIGCONT)
		awaitHealth(t, m.URL)
	}
	increment(t, s, 5, func() {})
}

// An etcd that takes 200 ms to answer costs each write that, and all reads that wait at one time share the requests:
// their number does not grow with that of the readers. Other reads do not wait at all.
//
// SPEC: STORE-1
func TestSlowEtcd(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	l := newLine(t, p.URL)
	var gets, writes atomic.Int64
	s := openPlain(t, l.URL(), func(c *etcd.Config) {
		c.Observe.Request = func(operation, _ string, _ time.Duration, _ error) {
			if operation == "get" {
				gets.Add(1)
			} else {
				writes.Add(1)
			}
		}
	})
	putPlain(t, s, pod("before"), "1")
	l.delay.Store(int64(200 * time.Millisecond))
	writes.Store(0)
	began := time.Now()
	putPlain(t, s, pod("slow"), "1")
	if n := writes.Load(); n != 1 {
		t.Errorf("a slow write takes %d requests", n)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("a write took %v: etcd is not slow", took)
	}
	gets.Store(0)
	var wait sync.WaitGroup
	var current atomic.Int64
	release := make(chan struct{})
	for range 500 {
		wait.Go(func() {
			<-release
			if _, err := s.Fresh(t.Context(), store.Key{}, true); err == nil {
				current.Add(1)
			}
		})
	}
	close(release)
	wait.Wait()
	if n := current.Load(); n != 500 {
		t.Errorf("%d of 500 reads are current", n)
	}
	// One for the first, and one for those that came while it was on its way. More only if some come later.
	if n := gets.Load(); n < 1 || n > 20 {
		t.Errorf("500 reads have made %d requests", n)
	}
	increment(t, s, 3, func() {})
	l.delay.Store(0)
	same(t, s, p.URL)
}

// Two clusters of servers that share an etcd, each below a prefix of its own, do not see each other: neither keys nor
// changes. Reads stay current although most revisions of etcd are of the other prefix.
//
// SPEC: STORE-2
func TestForeignPrefix(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	ours := on(t, harness.Plinth, p.URL)
	other := on(t, harness.Plinth, p.URL, "--etcd-prefix=/other")
	// A prefix that begins with that of another one is another one.
	longer := on(t, harness.Plinth, p.URL, "--etcd-prefix=/registry2")
	all := []*server{ours, other, longer}
	for i, s := range all {
		if _, err := s.Resource(configMaps).Namespace("default").Create(t.Context(), object(t,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: of-%d}}`, i), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seen := newFollower(t, ours, configMaps)
	for range 50 {
		if _, err := other.Resource(configMaps).Namespace("default").Patch(t.Context(), "of-1", types.MergePatchType,
			fmt.Appendf(nil, `{"data":{"a":"%d"}}`, time.Now().UnixNano()), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := ours.Resource(configMaps).Namespace("default").Get(t.Context(), "of-0", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range all {
		list, err := s.Resource(configMaps).Namespace("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			if name := item.GetName(); strings.HasPrefix(name, "of-") && name != fmt.Sprint("of-", i) {
				t.Errorf("server %d has %s", i, name)
			}
		}
	}
	if _, err := ours.Resource(configMaps).Namespace("default").Patch(t.Context(), "of-0", types.MergePatchType,
		[]byte(`{"data":{"last":"yes"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last change is seen", func() error {
		if n := len(seen.events()); n != 1 {
			return fmt.Errorf("%d changes", n)
		}
		return nil
	})
}

// A server knows how old its copy of the objects may be, also if nobody asks it: what decides about requests is no
// older than that. While etcd does not answer, the age grows.
//
// SPEC: STORE-2
func TestAgeOfTheCopy(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	l := newLine(t, p.URL)
	var confirmed atomic.Int64
	opened := time.Now()
	s := openPlain(t, l.URL(), func(c *etcd.Config) {
		c.ConfirmEvery = 50 * time.Millisecond
		c.Observe.Confirmed = func(at time.Time) { confirmed.Store(at.UnixNano()) }
	})
	asOf := func() time.Time { return time.Unix(0, confirmed.Load()) }
	after := func(at time.Time) func() error {
		return func() error {
			if !asOf().After(at) {
				return fmt.Errorf("the copy is confirmed as of %v", asOf().Sub(at))
			}
			return nil
		}
	}
	if asOf().Before(opened) {
		t.Error("a copy that was just read is not confirmed")
	}
	eventually(t, "an idle server does not compare its copy", after(time.Now()))

	// A change of another process is in each copy that is confirmed as of a later time.
	beside := openPlain(t, p.URL)
	for n := range 50 {
		k := pod(fmt.Sprint("n", n))
		putPlain(t, beside, k, "x")
		written := time.Now()
		eventually(t, "the copy is not confirmed", after(written))
		if _, ok := s.Get(k); !ok {
			t.Fatal("the copy is confirmed, and lacks what was written before")
		}
	}

	l.Cut(true)
	cut := time.Now()
	time.Sleep(time.Second) // nothing can be confirmed meanwhile
	if asOf().After(cut) {
		t.Error("a copy is confirmed without etcd")
	}
	l.Cut(false)
	eventually(t, "the copy is not confirmed again", after(cut))
}
