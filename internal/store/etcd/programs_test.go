package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"plinth/internal/store"
)

// The keys that the processes write. The value of an owner is its UID, which no other object has.
var (
	counter = store.Key{Resource: "r", Name: "counter"}
	shared  = store.Key{Resource: "r", Name: "shared"}
	token   = store.Key{Resource: "r", Name: "token"}
	owner   = store.Key{Resource: "r", Name: "owner"}
	child   = store.Key{Resource: "r", Name: "child"}
	left    = store.Key{Resource: "r", Name: "left"}
	right   = store.Key{Resource: "r", Name: "right"}
	onOff   = store.Key{Resource: "r", Name: "on-off"}
	brief   = store.Key{Resource: "r", Name: "brief"}
)

var simulated = []store.Key{counter, shared, token, owner, child, left, right, onOff, brief, bitmap}

// sidecarOf describes a value.
func sidecarOf(k store.Key, data []byte) *store.Sidecar {
	if k == owner {
		return &store.Sidecar{UID: string(data)}
	}
	return &store.Sidecar{}
}

// counters adds to a counter and writes the name of the process, as the other one does; and it makes and removes an
// object that is the same whoever has made it.
func (p *process) counters(client int) {
	p.count(client)
	p.toggle()
	p.write(shared, func(*store.Version) []byte { return []byte{'a' + byte(p.number)} })
	p.count(client)
	p.toggle()
}

// count adds to a counter. Each client has a precondition of its own, so that no two have one and the same request.
func (p *process) count(client int) {
	p.change([]store.Key{counter}, func(live []*store.Version) ([]store.Precondition, [][]byte) {
		n := 0
		if live[0] != nil {
			n, _ = strconv.Atoi(string(live[0].Data()))
		}
		own := store.Key{Resource: "r", Name: fmt.Sprintf("client %d.%d", p.number, client)}
		return []store.Precondition{store.Absent(own)}, [][]byte{[]byte(strconv.Itoa(n + 1))}
	})
}

// toggle makes an object, or removes it if it is there. Whoever makes it makes the same.
func (p *process) toggle() {
	p.write(token, func(live *store.Version) []byte {
		if live != nil {
			return nil
		}
		return []byte("x")
	})
}

// toggles makes and removes an object that is the same whoever has made it, as the other process does: what a lost
// answer was about may have been made by both, one after the other.
func (p *process) toggles(int) {
	p.toggle()
	p.toggle()
}

// flags changes a flag to one value and to another one, in another order than the other process: both write the same
// values in the place of different revisions.
func (p *process) flags(int) {
	for i := range 2 {
		value := []string{"on", "off"}[(p.number+i)%2]
		p.write(onOff, func(*store.Version) []byte { return []byte(value) })
	}
}

// owners is another program: objects with a UID are made and removed; others are made on the condition that they are
// there; and two objects change together.
func (p *process) owners(int) {
	p.write(owner, func(live *store.Version) []byte {
		p.uids++
		return fmt.Appendf(nil, "%d.%d", p.number, p.uids)
	})
	p.pair()
	p.change([]store.Key{child}, func(live []*store.Version) ([]store.Precondition, [][]byte) {
		of, ok := p.other.store.Get(owner) // as of a client that has read it there
		if !ok {
			return nil, nil
		}
		return []store.Precondition{store.Fence(of)}, [][]byte{of.Data()}
	})
	p.write(owner, func(live *store.Version) []byte { return nil })
	p.write(owner, func(live *store.Version) []byte {
		if live != nil {
			return nil
		}
		p.uids++
		return fmt.Appendf(nil, "%d.%d", p.number, p.uids)
	})
	p.pair()
}

// pair adds to two counters in one transaction.
func (p *process) pair() {
	p.change([]store.Key{left, right}, func(live []*store.Version) ([]store.Precondition, [][]byte) {
		n := 0
		if live[0] != nil {
			n, _ = strconv.Atoi(string(live[0].Data()))
		}
		next := []byte(strconv.Itoa(n + 1))
		return nil, [][]byte{next, next}
	})
}

// expires makes an object that expires, replaces it by others that do so later or sooner, and writes each once more as
// it is, as is done to have it encrypted by another key. It is gone once its lease has ended, or is removed.
func (p *process) expires(int) {
	for _, ttl := range []time.Duration{10 * time.Minute, time.Hour, time.Hour, 10 * time.Minute} {
		p.write(brief, func(*store.Version) []byte {
			return fmt.Appendf(nil, "%d %d %d", time.Now().Add(ttl).UnixNano(), ttl, p.number)
		})
		p.write(brief, func(live *store.Version) []byte {
			if live == nil {
				return nil
			}
			return live.Data()
		})
	}
	p.write(brief, func(*store.Version) []byte { return nil })
}

// expiryOf is when an object expires that expires makes, and how long after it was made.
func expiryOf(data []byte) (at time.Time, ttl time.Duration) {
	fields := strings.Fields(string(data))
	nanos, _ := strconv.ParseInt(fields[0], 10, 64)
	lasts, _ := strconv.ParseInt(fields[1], 10, 64)
	return time.Unix(0, nanos), time.Duration(lasts)
}

// changeOf is the change of an object to some data.
func changeOf(k store.Key, live *store.Version, data []byte) store.Change {
	ch := store.Change{Key: k, Data: data, Sidecar: sidecarOf(k, data)}
	switch {
	case k != brief || data == nil:
	case live != nil && bytes.Equal(live.Data(), data):
		ch.Again = true
	default:
		ch.Sidecar.Expire, _ = expiryOf(data)
	}
	return ch
}

// resumes is a program: one process adds to a counter, and then a server is started whose watch, of all objects or of a
// type, goes on where those of the processes began, as those do whose server was started again. Meanwhile the other one
// makes changes.
func (p *process) resumes(of string) {
	p.count(0)
	p.toggle()
	if p.number == 1 {
		p.count(0)
		p.toggle()
		return
	}
	again, err := p.start(2)
	if err != nil {
		return // it would be started once more; a run in which nothing goes wrong has one (run)
	}
	p.further = append(p.further, again)
	last, _ := p.lastChange(again.store.Revision())
	// Another client has seen more. What is read ahead for its watch is not all that the next one needs.
	if other, err := again.store.WatchAll(context.Background(), p.began+1); err == nil {
		_, _ = other.Next(context.Background()) // it may have ended, or be compacted
		other.Close()
	}
	for tries := 0; again.seenTo < last; {
		var records []*store.Record
		if again.cursor == nil {
			if of == "" {
				again.cursor, err = again.store.WatchAll(context.Background(), p.began)
			} else {
				again.cursor, err = again.store.Watch(context.Background(), of, "", p.began)
			}
		} else {
			records, err = again.cursor.Next(context.Background())
		}
		if again.see(records); err == nil {
			continue
		}
		// A client whose watch has ended has it go on.
		_, compacted := p.lastChange(0)
		if tries++; errors.Is(err, store.ErrCompacted) && compacted > p.began {
			again.cursor = nil
			return
		} else if !isTransient(err) && !errors.Is(err, store.ErrClosed) || tries > 5 {
			p.fail("a watch of a server that was started again: %w, and etcd has all since %d", err, compacted)
			return
		}
	}
}

// lastChange is the last revision up to one that changes an object, and the one up to which the model is compacted.
func (s *simulation) lastChange(until int64) (last, compacted int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.history {
		if c.revision <= until && c.commits() {
			last = c.revision
		}
	}
	return last, s.compacted
}

// write changes an object to what next makes of it, nil being no object.
func (p *process) write(k store.Key, next func(live *store.Version) []byte) {
	p.change([]store.Key{k}, func(live []*store.Version) ([]store.Precondition, [][]byte) {
		data := next(live[0])
		if data == nil && live[0] == nil {
			return nil, nil
		}
		return nil, [][]byte{data}
	})
}

// change changes objects to what decide makes of them, on the condition that they have not changed since they were
// read, and on the conditions that it adds; as often as it takes, unless one of these does not hold. decide returns no
// data if there is nothing to do.
func (p *process) change(keys []store.Key, decide func(live []*store.Version) ([]store.Precondition, [][]byte)) {
	for range 50 {
		live := make([]*store.Version, len(keys))
		for i, k := range keys {
			live[i], _ = p.store.Get(k)
		}
		pre, data := decide(live)
		if data == nil {
			return
		}
		changes := make([]store.Change, len(keys))
		for i, k := range keys {
			if pre = append(pre, store.Absent(k)); live[i] != nil {
				pre[len(pre)-1] = store.At(live[i])
			}
			changes[i] = changeOf(k, live[i], data[i])
		}
		began := p.revisionNow()
		given, err := p.store.Commit(context.Background(), pre, changes)
		if !p.hear(err, given.First, pre, changes, began) {
			return
		}
	}
	p.fail("it does not get on")
}

// hear notes what has become of a commit, and looks for what the client must not be told. It says whether the commit
// has to be made again, from what is there now.
func (p *process) hear(err error, given int64, pre []store.Precondition, changes []store.Change, began int64) bool {
	var conflict *store.ConflictError
	switch {
	case err == nil:
		if p.commit(given); p.store.Revision() < given {
			p.fail("it has made revision %d, and does not have it", given)
		}
		for i := range pre {
			if !p.heldAt(&pre[i], given-1) {
				p.fail("it has made revision %d, and this did not hold then: %+v", given, pre[i])
			}
		}
	case errors.As(err, &conflict):
		i := slices.IndexFunc(pre, func(c store.Precondition) bool { return c.Key == conflict.Key })
		if i < 0 || !p.everBroken(&pre[i], began) && (conflict.Key.Resource != "bit" || p.compacted <= p.began) {
			p.fail("%w, and it has held since revision %d", err, began)
		}
		return slices.ContainsFunc(changes, func(ch store.Change) bool { return ch.Key == conflict.Key })
	case errors.Is(err, store.ErrUnknown):
		p.doubt()
		switch why := err.Error(); {
		case p.compacted > p.began || p.replacement != nil:
		case strings.Contains(why, errMissed.Error()):
			p.fail("%w, and nothing was compacted", err)
		case strings.Contains(why, errEqual.Error()) && !p.madeEqual(pre, changes):
			p.fail("%w, and no change is equal to %v", err, changes)
		case strings.Contains(why, errEqual.Error()) && p.sealed && changes[0].Data != nil:
			p.fail("%w, and nobody else has encrypted the same", err)
		}
	case errors.Is(err, store.ErrClosed) && p.gone():
	case errors.Is(err, errDamaged) && p.damages == 0: // its bits cannot be changed
	case errors.Is(err, errDamaged) || errors.Is(err, errSet):
		p.fail("%w", err)
	case isTransient(err): // it was not sent, as etcd could not be read; judge counts it among those not carried out
	default:
		p.fail("%w", err)
	}
	return false
}

// revisionNow is the revision of the model.
func (s *simulation) revisionNow() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// everBroken says whether a precondition did not hold at a revision of the model, or at one after it.
func (s *simulation) everBroken(c *store.Precondition, since int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.followed() {
		for revision := since; revision <= m.revision; revision++ {
			if c.Holds(m.versionAt(c.Key, revision)) != nil {
				return true
			}
		}
	}
	return false
}

// heldAt says whether a precondition held at a revision of the model. A bit that was missed in between may have a later
// revision in the state than in the model, but not an earlier one.
func (s *simulation) heldAt(c *store.Precondition, revision int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.followed(), func(m *model) bool {
		v := m.versionAt(c.Key, revision)
		if c.Key.Resource == "bit" && c.Revision > 0 {
			return v != nil && v.Revision <= c.Revision
		}
		return c.Holds(v) == nil
	})
}

// versionAt is what a process should have of a key at a revision; nil: nothing.
func (m *model) versionAt(k store.Key, revision int64) *store.Version {
	if k.Resource == "bit" {
		return m.bitAt(k, revision)
	}
	if kvs := m.at("/r/r/"+k.Name, "", revision); len(kvs) == 1 {
		data := []byte(plainOf(kvs[0].Value))
		return store.NewVersion(k, kvs[0].ModRevision, data, sidecarOf(k, data))
	}
	return nil
}

// madeEqual says whether somebody has written what a commit changes: the same value in the place of the same revision.
func (s *simulation) madeEqual(pre []store.Precondition, changes []store.Change) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range changes {
		if ch.Key.Resource == "bit" {
			continue
		}
		i := slices.IndexFunc(pre, func(c store.Precondition) bool { return c.Key == ch.Key && c.Type == store.ThisRevision })
		live := int64(0)
		for _, c := range s.history {
			for _, e := range c.events {
				if string(e.Kv.Key) != "/r/r/"+ch.Key.Name {
					continue
				}
				deleted := e.Type == mvccpb.Event_DELETE
				if live == pre[i].Revision && deleted == (ch.Data == nil) && (deleted || plainOf(e.Kv.Value) == string(ch.Data)) {
					return true
				}
				if live = c.revision; deleted {
					live = 0
				}
			}
		}
	}
	return false
}
