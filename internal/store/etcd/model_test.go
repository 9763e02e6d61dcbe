package etcd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// This file is a model of etcd: what it stores, and what its clients may be told when. simulation_test.go decides in
// which order that happens.

// model is the content of an etcd with all of its history. Only one goroutine at a time uses it.
type model struct {
	cluster   uint64
	revision  int64
	compacted int64
	live      map[string]*mvccpb.KeyValue
	history   []change       // ascending
	leases    map[int64]bool // those that have not ended
	granted   []time.Time    // when the leases 1, 2, … end
	before    *model         // the etcd in whose place this one is, as it was then; nil: none
	inherited int            // how many changes of the history are from a backup
}

// change is a revision.
type change struct {
	revision int64
	events   []*mvccpb.Event
	by       int // whose transaction it was
}

func newModel() *model {
	return &model{cluster: 1, revision: 1, live: map[string]*mvccpb.KeyValue{}, leases: map[int64]bool{}}
}

func (m *model) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: m.cluster, MemberId: 1, Revision: m.revision, RaftTerm: 1}
}

// at is the content of the keys from one key to another as of a revision, in order.
func (m *model) at(from, end string, revision int64) (all []*mvccpb.KeyValue) {
	content := map[string]*mvccpb.KeyValue{}
	for _, c := range m.history {
		if c.revision > revision {
			break
		}
		for _, e := range c.events {
			if content[string(e.Kv.Key)] = e.Kv; e.Type == mvccpb.Event_DELETE {
				delete(content, string(e.Kv.Key))
			}
		}
	}
	for key, kv := range content {
		if within(key, from, end) {
			all = append(all, kv)
		}
	}
	slices.SortFunc(all, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return all
}

// within says whether a key is in a range as etcd's requests name them.
func within(key, from, end string) bool {
	return key == from || end != "" && key >= from && (key < end || end == "\x00")
}

func (m *model) read(r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	revision := cmp.Or(r.Revision, m.revision)
	switch {
	case revision > m.revision:
		return nil, rpctypes.ErrGRPCFutureRev
	case revision < m.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	}
	all := m.at(string(r.Key), string(r.RangeEnd), revision)
	answer := &etcdserverpb.RangeResponse{Header: m.header(), Count: int64(len(all))}
	if r.Limit > 0 && int64(len(all)) > r.Limit {
		all, answer.More = all[:r.Limit], true
	}
	answer.Kvs = all
	return answer, nil
}

// transact carries out a transaction.
func (m *model) transact(r *etcdserverpb.TxnRequest, by int) (*etcdserverpb.TxnResponse, error) {
	holds := true
	for _, c := range r.Compare {
		var revision int64
		if kv := m.live[string(c.Key)]; kv != nil {
			revision = kv.ModRevision
		}
		if c.Target != etcdserverpb.Compare_MOD || c.Result != etcdserverpb.Compare_EQUAL {
			return nil, errors.New("the model has no such comparison")
		}
		holds = holds && revision == c.GetModRevision()
	}
	answer := &etcdserverpb.TxnResponse{Succeeded: holds}
	ops := r.Success
	if !holds {
		ops = r.Failure
	}
	for _, op := range ops { // before anything is written
		switch put := op.GetRequestPut(); {
		case put == nil:
		case put.Lease != 0 && !m.leases[put.Lease]:
			return nil, rpctypes.ErrGRPCLeaseNotFound
		case put.IgnoreLease && m.live[string(put.Key)] == nil:
			return nil, rpctypes.ErrGRPCKeyNotFound
		}
	}
	c := change{revision: m.revision + 1, by: by}
	for _, op := range ops {
		switch {
		case op.GetRequestPut() != nil:
			put := op.GetRequestPut()
			kv := &mvccpb.KeyValue{Key: put.Key, Value: put.Value, Lease: put.Lease, CreateRevision: c.revision,
				ModRevision: c.revision, Version: 1}
			if old := m.live[string(put.Key)]; old != nil {
				if kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1; put.IgnoreLease {
					kv.Lease = old.Lease
				}
			}
			c.events = append(c.events, &mvccpb.Event{Kv: kv})
		case op.GetRequestDeleteRange() != nil:
			if key := op.GetRequestDeleteRange().Key; m.live[string(key)] != nil {
				c.events = append(c.events, &mvccpb.Event{Type: mvccpb.Event_DELETE,
					Kv: &mvccpb.KeyValue{Key: key, ModRevision: c.revision}})
			}
		default:
			return nil, errors.New("the model has no such operation")
		}
	}
	m.commit(c)
	answer.Header = m.header()
	return answer, nil
}

func (m *model) commit(c change) {
	if len(c.events) == 0 {
		return
	}
	for _, e := range c.events {
		if m.live[string(e.Kv.Key)] = e.Kv; e.Type == mvccpb.Event_DELETE {
			delete(m.live, string(e.Kv.Key))
		}
	}
	m.revision, m.history = c.revision, append(m.history, c)
}

// grant makes a lease.
func (m *model) grant(ttl int64) int64 {
	m.granted = append(m.granted, time.Now().Add(time.Duration(ttl)*time.Second))
	id := int64(len(m.granted))
	m.leases[id] = true
	return id
}

// expire ends all leases, and removes their keys.
func (m *model) expire() {
	c := change{revision: m.revision + 1, by: nobody}
	for key, kv := range m.live {
		if kv.Lease != 0 {
			c.events = append(c.events, &mvccpb.Event{Type: mvccpb.Event_DELETE,
				Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: c.revision}})
		}
	}
	slices.SortFunc(c.events, func(a, b *mvccpb.Event) int { return bytes.Compare(a.Kv.Key, b.Kv.Key) })
	m.commit(c)
	clear(m.leases)
}

// replacement is another etcd, which takes the place of one: it has been restored from a backup of it.
type replacement struct {
	name    string
	cluster bool // it has another name than the one before
	old     bool // the backup is from before the programs began, and is not of now
	ahead   bool // its revision is above all that the one before has had (etcdutl snapshot restore --bump-revision)
	compact bool // and what was before that is compacted (--mark-compacted)
}

// noticed says that the writers are to break off. They go on with an etcd of the same name that says that it has
// compacted what they do not have.
func (r *replacement) noticed() bool { return r.cluster || !r.ahead }

var replacements = []replacement{
	{name: "restored", old: true},
	{name: "restored ahead", old: true, ahead: true, compact: true},
	{name: "another etcd", cluster: true},
	{name: "another etcd ahead", cluster: true, old: true, ahead: true},
	{name: "another etcd ahead, compacted", cluster: true, old: true, ahead: true, compact: true},
}

// replace puts a replacement in the place of an etcd. The backup is of a revision.
func (m *model) replace(by *replacement, backup int64) {
	before := *m
	m.before, m.live, m.leases = &before, map[string]*mvccpb.KeyValue{}, maps.Clone(m.leases)
	if by.cluster {
		m.cluster++
	}
	if by.old {
		m.inherited = len(m.history)
		if n := slices.IndexFunc(m.history, func(c change) bool { return c.revision > backup }); n >= 0 {
			m.inherited = n
		}
		m.history, m.revision = slices.Clone(m.history[:m.inherited]), backup
		m.compacted = min(m.compacted, backup)
	} else {
		m.inherited, m.history = len(m.history), slices.Clone(m.history)
	}
	for _, kv := range m.at("\x00", "\x00", m.revision) {
		m.live[string(kv.Key)] = kv
	}
	if by.ahead {
		m.revision = before.revision + 100
	}
	if by.compact {
		m.compacted = m.revision
	}
}

// nobody is by whom etcd's own changes are.
const nobody = -1

// stream is a watch of a process, which is the only one of its stream (Cluster.ownStream).
type stream struct {
	by        int
	ctx       context.Context
	id        string // of the stream
	from, end string
	next      int64 // the first revision that was not sent
	created   bool  // it was begun, and nobody was told
	progress  bool  // a request for it was not answered
	cut       bool  // it goes on in another etcd
	past      bool  // it is a Replay's, which is told what was before each change
	to        chan clientv3.WatchResponse
}

// due says whether there is something to be sent.
func (w *stream) due(m *model) bool {
	// A watch from a later revision than there is says nothing.
	return w.created || w.progress && w.next <= m.revision+1 || w.cut && w.next < m.compacted || w.waits(m)
}

// waits says whether there are changes that were not sent.
func (w *stream) waits(m *model) bool {
	return slices.ContainsFunc(m.history, func(c change) bool { return c.revision >= w.next && len(w.of(c)) > 0 })
}

// of are the events of a revision that the watch is told of.
func (w *stream) of(c change) (all []*clientv3.Event) {
	for _, e := range c.events {
		if within(string(e.Kv.Key), w.from, w.end) {
			all = append(all, (*clientv3.Event)(e))
		}
	}
	return all
}

// withBefore are events with what their keys had before each, as etcd reads it when it sends them: without, if that is
// compacted by then.
func (m *model) withBefore(events []*clientv3.Event) []*clientv3.Event {
	all := make([]*clientv3.Event, len(events))
	for i, e := range events {
		with := &clientv3.Event{Type: e.Type, Kv: e.Kv}
		if r := e.Kv.ModRevision - 1; r >= m.compacted {
			if kvs := m.at(string(e.Kv.Key), "", r); len(kvs) > 0 {
				with.PrevKv = kvs[0]
			}
		}
		all[i] = with
	}
	return all
}

// send sends what is due: that the watch was created; the changes of the next revision, or of all with all; then the
// answer to a progress request.
func (s *simulation) send(w *stream, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := clientv3.WatchResponse{Header: s.header()}
	switch {
	case w.next < s.compacted:
		answer.Canceled, answer.CompactRevision = true, s.compacted
	case w.created:
		w.created, answer.Created = false, true
	default:
		for _, c := range s.history {
			if c.revision < w.next {
				continue
			}
			w.next = c.revision + 1
			if answer.Events = append(answer.Events, w.of(c)...); !all && len(answer.Events) > 0 {
				break
			}
		}
		if w.past {
			answer.Events = s.withBefore(answer.Events)
		}
		if w.progress && len(answer.Events) == 0 {
			w.progress, w.next = false, max(w.next, s.revision+1)
		}
	}
	w.to <- answer
	if answer.Canceled {
		w.close(s)
	}
}
