package etcd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"plinth/internal/store"
)

// commits says whether a revision changes an object.
func (c change) commits() bool {
	return slices.ContainsFunc(c.events, func(e *mvccpb.Event) bool { return strings.HasPrefix(string(e.Kv.Key), "/r/") })
}

// makers are by whom the changes of objects were made, by revision.
func makers(history []change, began int64) map[int64]int {
	made := map[int64]int{}
	for _, c := range history {
		if c.revision > began && c.by != nobody && c.commits() {
			made[c.revision] = c.by
		}
	}
	return made
}

// judge compares what the processes were told with what the model has.
//
// If another etcd has taken the place of the first one, and the processes are to notice it, nothing that it has carried
// out was acknowledged. If they go on with it, what the first one has carried out may have been acknowledged, and is
// gone.
func (s *simulation) judge(all []*process, began int64, fail func(string, ...any)) {
	made, also := makers(s.history[s.inherited:], began), map[int64]int{}
	if s.replacement != nil {
		made, also = makers(s.before.history, began), made
	}
	for _, p := range all {
		n := 0
		for _, of := range []map[int64]int{made, also} {
			if s.replacement != nil && !s.gone() {
				n = 0 // of the last one: what was made in the first one can have been lost, and be made again
			}
			for _, by := range of {
				if by == p.number {
					n++
				}
			}
		}
		for _, r := range p.acked {
			by, ok := made[r]
			if !ok && !s.gone() {
				by, ok = also[r]
			}
			if !ok || by != p.number {
				fail("process %d was told that it has made revision %d, and has not", p.number, r)
			}
		}
		if slices.Sort(p.acked); len(slices.Compact(slices.Clone(p.acked))) != len(p.acked) {
			fail("process %d was told of one revision twice: %v", p.number, p.acked)
		}
		if n > len(p.acked)+p.unknown {
			fail("process %d has made %d revisions, and was told of %d, and of %d that they are unknown", p.number, n,
				len(p.acked), p.unknown)
		}
		if len(p.failed) > 0 {
			fail("process %d: %v", p.number, p.failed)
		}
		s.judgeState(p, began, fail)
	}
	for _, m := range s.followed() {
		m.judgeHistory(fail)
	}
}

// judgeHistory looks for what must not happen whoever does it: that two objects which change together differ, that an
// object is made without its owner, and that one with a UID is made twice.
func (m *model) judgeHistory(fail func(string, ...any)) {
	live, made := map[string]string{}, map[string]int64{}
	for _, c := range m.history {
		for _, e := range c.events {
			key := strings.TrimPrefix(string(e.Kv.Key), "/r/r/")
			if live[key] = plainOf(e.Kv.Value); e.Type == mvccpb.Event_DELETE {
				delete(live, key)
			}
			switch {
			case e.Type != mvccpb.Event_PUT:
			case key == brief.Name:
				m.judgeLease(e.Kv, fail)
			case key == owner.Name:
				if before, ok := made[live[key]]; ok {
					fail("the owner %s is made at %d, and again at %d", live[key], before, c.revision)
				}
				made[live[key]] = c.revision
			case key == child.Name && live[owner.Name] != live[key]:
				fail("at %d a child of %s is made, and the owner is %q", c.revision, live[key], live[owner.Name])
			}
		}
		judgeBits(live, c.revision, fail)
		if live[left.Name] != live[right.Name] {
			fail("at %d one half is %q and the other %q", c.revision, live[left.Name], live[right.Name])
		}
	}
}

// judgeState compares the state of a process, and what a watch of it has got, with what the model has.
func (s *simulation) judgeState(p *process, began int64, fail func(string, ...any)) {
	follows := s.followed()[len(s.followed())-1]
	revision := follows.revision
	if s.gone() {
		revision = p.store.Revision() // it may have stopped before it had all
	}
	var have, want []string
	for _, k := range simulated {
		if v, _ := p.store.Get(k); v != nil {
			if have = append(have, fmt.Sprintf("%s=%s at %d", k.Name, v.Data(), v.Revision)); string(v.Data()) == damage !=
				(v.Sidecar.Unreadable != nil) {
				fail("process %d has %q, which cannot be read: %v", p.number, v.Data(), v.Sidecar.Unreadable)
			}
		}
		for _, kv := range follows.at("/r/r/"+k.Name, "", revision) {
			want = append(want, fmt.Sprintf("%s=%s at %d", k.Name, plainOf(kv.Value), kv.ModRevision))
		}
	}
	for name := "1"; len(name) < 5; name += "1" {
		if v, _ := p.store.Get(bit(name)); v != nil {
			have = append(have, name)
		}
		if follows.bitAt(bit(name), revision) != nil {
			want = append(want, name)
		}
	}
	if !slices.Equal(have, want) {
		fail("process %d has %q, and etcd has %q", p.number, have, want)
	}
	if p.cursor == nil {
		return // it has to begin again, or has ended
	}
	var happened []string
	for _, c := range follows.history {
		for _, e := range c.events {
			name, ok := strings.CutPrefix(string(e.Kv.Key), "/r/r/")
			if !ok || c.revision <= began || c.revision > revision {
				continue
			}
			text := fmt.Sprintf("%s at %d", name, c.revision)
			if before := follows.at(string(e.Kv.Key), "", c.revision-1); len(before) > 0 {
				text += fmt.Sprintf(", was %s at %d,", plainOf(before[0].Value), before[0].ModRevision)
			}
			if e.Type == mvccpb.PUT {
				text += fmt.Sprintf("=%s", plainOf(e.Kv.Value))
			}
			happened = append(happened, text)
		}
	}
	if !slices.Equal(p.seen, happened) {
		fail("a watch of process %d was told %q, and %q has happened", p.number, p.seen, happened)
	}
}

// catchUp has the watch of the process tell all that is left. One that has to begin again, or has ended, is nil then.
func (p *process) catchUp() {
	for p.cursor != nil {
		records, err := p.cursor.Poll()
		if p.see(records); errors.Is(err, store.ErrCompacted) || p.gone() && errors.Is(err, store.ErrClosed) {
			p.cursor = nil
		}
		if err != nil || len(records) == 0 {
			return
		}
	}
}

// see notes what a watch of the process has told.
func (p *process) see(records []*store.Record) {
	for _, r := range records {
		if r.Key.Resource == "bit" {
			continue
		}
		text := fmt.Sprintf("%s at %d", r.Key.Name, r.Revision)
		if r.Old != nil {
			text += fmt.Sprintf(", was %s at %d,", r.Old.Data(), r.Old.Revision)
		}
		if r.New != nil {
			text += fmt.Sprintf("=%s", r.New.Data())
		}
		p.seen, p.seenTo = append(p.seen, text), r.Revision
	}
}

// judgeLease compares the end of an object's lease with when the object is to expire: it is not before that, and not
// long after. 20 seconds are for the time that passes between the decision of the writer and the grant of the lease.
func (m *model) judgeLease(kv *mvccpb.KeyValue, fail func(string, ...any)) {
	at, ttl := expiryOf([]byte(plainOf(kv.Value)))
	if kv.Lease == 0 {
		fail("at %d there is an object that expires, without a lease", kv.ModRevision)
		return
	}
	longer := m.granted[kv.Lease-1].Sub(at)
	if longer < 0 || longer > min(ttl/20, time.Minute)+20*time.Second {
		fail("at %d an object that expires after %v gets a lease that ends %v after that", kv.ModRevision, ttl, longer)
	}
}
