package etcd

import (
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// spanOf is a span with one change at each revision.
func spanOf(after int64, bytes int, revisions ...int64) *span {
	s := &span{scope: "/r/", after: after, to: after}
	for _, r := range revisions {
		s.events = append(s.events, &clientv3.Event{Kv: &mvccpb.KeyValue{ModRevision: r, Value: make([]byte, bytes)}})
		s.to = r
	}
	return s
}

// kept is how many spans are kept, and their bytes, which are counted rightly.
func kept(t *testing.T, a *readAhead) (spans, bytes int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.spans {
		bytes += spanBytes
		for _, e := range s.events {
			bytes += eventBytes(e)
		}
	}
	if bytes != a.bytes {
		t.Errorf("%d bytes are counted as %d", bytes, a.bytes)
	}
	return len(a.spans), bytes
}

// What is read ahead is found from each revision within it on, and from no other one.
//
// SPEC: WATCH-1
func TestReadAheadFinds(t *testing.T) {
	var a readAhead
	a.keep(spanOf(10, 1, 12, 12, 15))
	a.keep(spanOf(20, 1, 21))
	for after, want := range map[int64]int{9: 0, 10: 3, 11: 3, 12: 1, 14: 1, 15: 0, 19: 0, 20: 1, 21: 0} {
		s, got := a.find("/r/", after), 0
		if s != nil {
			got = len(s.from(after).events)
		}
		if got != want {
			t.Errorf("after %d there are %d changes, want %d", after, got, want)
		}
	}
	a.keep(spanOf(11, 1, 12, 12))
	a.keep(spanOf(30, 1))
	if spans, _ := kept(t, &a); spans != 2 {
		t.Errorf("%d spans: what is there is kept again, or nothing is", spans)
	}
	if got := spanOf(10, 1, 12).from(5); got.after != 10 {
		t.Errorf("a span after 10 begins after %d", got.after)
	}
	// What is of all types is of each; what is of one is of no other one. That nothing has changed is kept, too.
	a.keep(&span{scope: "/r/pods/", after: 40, to: 50})
	for scope, want := range map[string]bool{"/r/pods/": true, "/r/secrets/": false, "/r/": false} {
		if a.find(scope, 49) != nil != want || a.find(scope, 11) == nil || a.find(scope, 50) != nil {
			t.Errorf("of %s is found: %v %v %v", scope, a.find(scope, 49), a.find(scope, 11), a.find(scope, 50))
		}
	}
}

// However much is received, little of it is kept, by whole revisions, and what was used last stays. All of it is
// forgotten once it is not used.
//
// SPEC: WATCH-1
func TestReadAheadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a readAhead
		const many = 400
		value := aheadSpanBytes / many
		revisions := make([]int64, 2*many)
		for i := range revisions {
			revisions[i] = int64(i/2*2 + 2)
		}
		a.keep(spanOf(1, value, revisions...))
		first := a.find("/r/", 1)
		if n := len(first.events); n == 0 || n > many || n%2 != 0 || cap(first.events) > 2*many-n {
			t.Errorf("%d of %d changes are kept, in an array of %d", n, 2*many, cap(first.events))
		}
		for i := range int64(20) {
			a.keep(spanOf(10_000*(i+1), aheadSpanBytes-1000, 10_000*(i+1)+1))
			if _, bytes := kept(t, &a); bytes > aheadBytes {
				t.Fatalf("%d bytes are kept", bytes)
			}
			if a.find("/r/", 1) == nil {
				t.Fatalf("what is used all the time is not kept after %d more", i+1)
			}
		}
		a.keep(spanOf(900_000, aheadBytes, 900_001))
		if a.find("/r/", 900_000) != nil {
			t.Error("more than the bound is kept")
		}
		time.Sleep(aheadFor - time.Second)
		if a.find("/r/", 1) == nil {
			t.Error("what was used is not kept")
		}
		time.Sleep(aheadFor - time.Second)
		synctest.Wait()
		if spans, _ := kept(t, &a); spans == 0 {
			t.Error("a use does not lengthen the time")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if spans, bytes := kept(t, &a); spans != 0 || bytes != 0 {
			t.Errorf("%d spans of %d bytes are kept for ever", spans, bytes)
		}
	})
}
