package etcd

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
)

// gauge is the value of a metric of an etcd.
func gauge(t *testing.T, url, name string) float64 {
	t.Helper()
	answer, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("%s has no metric %s", url, name)
	return 0
}

// etcd adds the value before a change when it sends the change, and not when it reads it. If the history is compacted
// in between, the changes come without these values. Then the history is gone: a list and a watch of an old revision
// get 410, and never a list that lacks objects, or an object that seems to be created.
//
// SPEC: WATCH-3, LIST-6
func TestCompactedDuringReplay(t *testing.T) {
	// etcd reads a thousand revisions at a time. Of these answers the first two are on their way before the line is full.
	const objects = 6000
	p := startEtcd(t, reference.EtcdOptions{})
	d := direct(t, p.URL)
	filling := strings.Repeat("x", 4<<10)
	put := func(i int, value string) clientv3.Op {
		return clientv3.OpPut(fmt.Sprintf("/registry/configmaps/default/c%05d", i), fmt.Sprintf(`{"apiVersion":"v1",`+
			`"kind":"ConfigMap","metadata":{"name":"c%05d","namespace":"default","uid":"u%05d","creationTimestamp":`+
			`"2026-01-01T00:00:00Z"},"data":{"value":"%s","filling":"%s"}}`, i, i, value, filling))
	}
	old := int64(0)
	for i := 0; i < objects; i += 100 {
		var ops []clientv3.Op
		for j := range 100 {
			ops = append(ops, put(i+j, "old"))
		}
		answer, err := d.Txn(t.Context()).Then(ops...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		old = answer.Header.Revision
	}
	for i := range objects {
		if _, err := d.Do(t.Context(), put(i, "new")); err != nil {
			t.Fatal(err)
		}
	}
	l := newLine(t, p.URL)
	s := on(t, harness.Plinth, l.URL())

	l.held.Lock()
	listed, watched := make(chan error, 1), make(chan error, 1)
	go func() {
		list, err := s.Resource(configMaps).Namespace("default").List(t.Context(), metav1.ListOptions{
			ResourceVersion: strconv.FormatInt(old, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		if err == nil {
			err = fmt.Errorf("a list of %d of %d objects", len(list.Items), objects)
		}
		listed <- err
	}()
	go func() { watched <- watchUntilError(t.Context(), s, old, objects) }()
	eventually(t, "etcd has read all changes", func() error {
		// One watch of etcd reads for both. Two of its answers may have left the queue.
		queued := gauge(t, p.URL, "etcd_debugging_mvcc_pending_events_total")
		behind := gauge(t, p.URL, "etcd_debugging_mvcc_slow_watcher_total")
		if queued < objects-2000 || behind > 0 {
			return fmt.Errorf("%v changes are in its queues, %v watches are behind", queued, behind)
		}
		return nil
	})
	now, err := d.Get(t.Context(), "any")
	if err == nil {
		_, err = d.Compact(t.Context(), now.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.held.Unlock()
	if err := <-listed; !apierrors.IsResourceExpired(err) {
		t.Errorf("the list: %v, should be 410 Expired", err)
	}
	if err := <-watched; !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("the watch: %v, should be 410", err)
	}
}

// watchUntilError watches ConfigMaps from a revision on, after which each of them was changed once, and returns the
// error by which the watch ends, or what is wrong with an event.
func watchUntilError(ctx context.Context, s *server, after int64, changes int) error {
	w, err := s.Resource(configMaps).Namespace("default").Watch(ctx, metav1.ListOptions{
		ResourceVersion: strconv.FormatInt(after, 10)})
	if err != nil {
		return err
	}
	defer w.Stop()
	n := 0
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		if e.Type != watch.Modified {
			return fmt.Errorf("event %d is %s", n, e.Type)
		}
		if n++; n == changes {
			return fmt.Errorf("all %d changes have come", n)
		}
	}
	return fmt.Errorf("the watch has ended after %d events", n)
}

// watchesOpened is a counter of etcd: each watch of a store has a stream of its own.
const watchesOpened = `grpc_server_started_total{grpc_method="Watch",grpc_service="etcdserverpb.Watch",` +
	`grpc_type="bidi_stream"}`

// eventsSent is a counter of etcd: of changes that were sent to a watch.
const eventsSent = "etcd_debugging_mvcc_events_total"

// putInTurn writes to a number of objects in turn, past any store, the numbers of the writes, and returns their
// revisions.
func putInTurn(t *testing.T, url string, keys, writes int) (revisions []int64) {
	t.Helper()
	d := direct(t, url)
	for i := range writes {
		at, _ := plain{}.Path(pod(fmt.Sprintf("p%03d", i%keys)))
		value, err := plain{}.Encode(store.Key{}, fmt.Append(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := d.Put(t.Context(), "/registry/"+at, string(value))
		if err != nil {
			t.Fatal(err)
		}
		revisions = append(revisions, answer.Header.Revision)
	}
	return revisions
}

// A watch that resumes long before what memory holds reads the changes from etcd, about as many at a time as etcd
// sends, although it gets them in small batches: etcd takes a tenth of a second to begin a watch in the past.
//
// SPEC: WATCH-1
func TestCatchUp(t *testing.T) {
	const changes, keys = 6000, 100
	p := startEtcd(t, reference.EtcdOptions{})
	old := putInTurn(t, p.URL, keys, keys+changes)[keys-1]
	s := openPlain(t, p.URL)
	before, began := gauge(t, p.URL, watchesOpened), time.Now()
	c, err := s.Watch(t.Context(), "/pods", "", old)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := keys; i < keys+changes; {
		records, err := c.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r.Old == nil || string(r.Old.Data()) != fmt.Sprint(i-keys) || string(r.New.Data()) != fmt.Sprint(i) {
				t.Fatalf("change %d is %s at %d, from %v to %v", i, r.Key, r.Revision, r.Old, r.New)
			}
			i++
		}
	}
	took, opened := time.Since(began), gauge(t, p.URL, watchesOpened)-before
	t.Logf("%d changes in %v by %v watches of etcd: %.0f changes/s", changes, took, opened, changes/took.Seconds())
	if opened < 1 || opened > 2*changes/1000 {
		t.Errorf("%v watches of etcd were opened", opened)
	}
}

// Watches that all resume before what memory holds, as those of a server that was started again, share what is read of
// etcd: each of them gets all changes after its revision, and few watches of etcd are opened for a hundred.
//
// SPEC: WATCH-1
func TestCatchUpTogether(t *testing.T) {
	const changes, keys, watches = 3000, 100, 100
	p := startEtcd(t, reference.EtcdOptions{})
	revisions := putInTurn(t, p.URL, keys, changes)
	s := openPlain(t, p.URL)
	before, began := gauge(t, p.URL, watchesOpened), time.Now()
	var wait sync.WaitGroup
	for n := range watches {
		wait.Go(func() {
			first := (n*7919 + 1) % changes // in no order
			c, err := s.Watch(t.Context(), "/pods", "", revisions[first])
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for i := first + 1; i < changes; {
				records, err := c.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range records {
					if r.Revision != revisions[i] || string(r.New.Data()) != fmt.Sprint(i) {
						t.Errorf("change %d is %s at %d: %v", i, r.Key, r.Revision, r.New)
						return
					}
					i++
				}
			}
		})
	}
	wait.Wait()
	opened := gauge(t, p.URL, watchesOpened) - before
	t.Logf("%d watches have caught up in %v, by %v watches of etcd", watches, time.Since(began), opened)
	if opened < 1 || opened > watches/4 {
		t.Errorf("%v watches of etcd were opened", opened)
	}
}

// counting is a layout that counts the values that it decodes, by type.
type counting struct {
	plain
	mu      sync.Mutex
	decoded map[string]int
}

func (c *counting) Decode(k store.Key, value []byte) ([]byte, *store.Sidecar, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decoded[k.Resource]++
	return c.plain.Decode(k, value)
}

// A watch that resumes long before what memory holds has etcd send what has changed of its own type, and of no other
// one: most watches of a server that was started again are of types that change seldom. It gets the same as any other.
//
// SPEC: WATCH-1
func TestCatchUpOfOneType(t *testing.T) {
	const changes = 1000
	p := startEtcd(t, reference.EtcdOptions{})
	rare := store.Key{Resource: "/secrets", Name: "s"}
	at, _ := plain{}.Path(rare)
	d := direct(t, p.URL)
	put := func(data string) int64 {
		value, err := plain{}.Encode(rare, []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := d.Put(t.Context(), "/registry/"+at, string(value))
		if err != nil {
			t.Fatal(err)
		}
		return answer.Header.Revision
	}
	old := put("old")
	putInTurn(t, p.URL, 100, changes)
	now := put("new")
	layout := &counting{decoded: map[string]int{}}
	s := openPlain(t, p.URL, func(c *etcd.Config) { c.Layout = layout })
	layout.mu.Lock()
	clear(layout.decoded)
	layout.mu.Unlock()
	sent := gauge(t, p.URL, eventsSent)
	c, err := s.Watch(t.Context(), rare.Resource, "", old)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	records, err := c.Next(ctx)
	if err != nil || len(records) != 1 || records[0].Revision != now || string(records[0].Old.Data()) != "old" ||
		string(records[0].New.Data()) != "new" {
		t.Fatalf("the watch has %v, %v", records, err)
	}
	if sent = gauge(t, p.URL, eventsSent) - sent; sent < 1 || sent > changes/100 {
		t.Errorf("etcd has sent %v changes", sent)
	}
	layout.mu.Lock()
	defer layout.mu.Unlock()
	// Whoever follows etcd begins with a change that is known.
	if n := layout.decoded[rare.Resource]; n < 2 || n > 4 || layout.decoded["/pods"] > changes/100 {
		t.Errorf("for a change of %s were decoded %v values", rare, layout.decoded)
	}
}
