package etcd

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
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
// SPEC: WATCH-3
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
	eventually(t, "etcd has read all changes for a watch", func() error {
		// Two answers of each of the two watches may have left the queue.
		queued := gauge(t, p.URL, "etcd_debugging_mvcc_pending_events_total")
		behind := gauge(t, p.URL, "etcd_debugging_mvcc_slow_watcher_total")
		if queued < 2*(objects-2000) || behind > 0 {
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
