package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"plinth/conformance/internal/reference"
	"plinth/internal/scenario"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
	"plinth/internal/store/storetest"
)

// What a writer says of a transaction whose answer is lost. Of two servers that make the same change, one is told that
// it has, whichever answer is lost: an equal change in etcd says nothing of who has made it, unless it can be nobody
// else's.
//
// SPEC: STORE-1, STORE-2, WATCH-3
func TestUnknownOutcomes(t *testing.T) {
	scenario.Run(t, "testdata/unknown.txt", func(t *testing.T, steps []string) string {
		p := &player{T: t, etcd: startEtcd(t, reference.EtcdOptions{}), stores: map[string]*store.Store{}}
		p.relay, p.direct = newRelay(t, strings.TrimPrefix(p.etcd.URL, "http://")), direct(t, p.etcd.URL)
		for _, line := range steps {
			p.step(line)
		}
		if p.begun != nil {
			t.Error("a commit that was begun is not finished")
		}
		return p.printed.String()
	})
}

// player plays a scenario with stores on an etcd of its own.
type player struct {
	*testing.T
	etcd    *reference.EtcdProcess
	direct  *clientv3.Client // past the relay
	relay   *relay
	stores  map[string]*store.Store
	printed strings.Builder
	begun   <-chan error // the commit that was begun
}

// step plays one step. STORE is "a", which reaches etcd by a relay that loses messages, "sealed", which does, too, and
// encrypts values, or "b", which reaches it without. A store is opened when it is named for the first time.
//
//	put STORE KEY VALUE             a commit without a condition, whose answer arrives; all others receive it
//	begin STORE KEY VALUE|delete [uid=UID]
//	                                a commit on the condition that the key has the newest version, or none if there is
//	                                none; it ends at finish
//	commit STORE KEY VALUE|delete   begin and finish
//	finish                          wait for the commit that was begun, and print how it ends
//	lose                            what etcd answers by the relay is lost, from now on
//	hold                            what is sent by the relay does not arrive, from now on
//	arrive KEY VALUE|delete         wait until etcd has that
//	mend                            what was on its way by the relay fails, and what is sent later arrives
//	compact                         have etcd forget its history
//	history KEY                     print what etcd got for a key, oldest first
//	read STORE KEY                  print the newest value, as the store reads it
func (p *player) step(line string) {
	p.Helper()
	s := scenario.Parse(line)
	switch s.Word(0) {
	case "put":
		revision := putPlain(p.T, p.store(s.Word(1)), pod(s.Word(2)), s.Word(3))
		for _, other := range p.stores {
			if f, _ := p.relay.state(); f == loseAnswers {
				continue // a store behind the relay cannot receive it
			}
			if err := other.WaitFor(p.Context(), revision); err != nil {
				p.Fatal(err)
			}
		}
	case "begin":
		p.begin(s)
	case "commit":
		p.ended(strings.Join(s.Words, " "), p.commit(s))
	case "finish":
		if p.begun == nil {
			p.Fatal("no commit was begun")
		}
		p.ended("finish", p.begun)
		p.begun = nil
	case "lose":
		p.relay.begin(loseAnswers)
	case "hold":
		p.relay.begin(loseRequests)
	case "mend":
		p.relay.mend()
	case "arrive":
		eventually(p.T, line, func() error {
			if value := p.stored(s.Word(1)); value != s.Word(2) {
				return fmt.Errorf("etcd has %s", value)
			}
			return nil
		})
	case "compact":
		now, err := p.direct.Get(p.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err == nil {
			_, err = p.direct.Compact(p.Context(), now.Header.Revision, clientv3.WithCompactPhysical())
		}
		if err != nil {
			p.Fatal(err)
		}
	case "history":
		p.history(s.Word(1))
	case "read":
		v, _, err := p.store(s.Word(1)).Live(p.Context(), pod(s.Word(2)), true)
		if err != nil {
			p.Fatal(err)
		}
		value := "nothing"
		if v != nil {
			value = string(v.Data())
		}
		fmt.Fprintf(&p.printed, "%s: %s\n", line, value)
	default:
		p.Fatalf("%s: there is no such step", line)
	}
	if err := s.Unused(); err != nil {
		p.Fatalf("%s: %v", line, err)
	}
}

// store is the store of a name.
func (p *player) store(name string) *store.Store {
	p.Helper()
	if p.stores[name] == nil {
		switch name {
		case "a":
			p.stores[name] = openPlain(p.T, p.relay.url)
		case "sealed":
			p.stores[name] = openPlain(p.T, p.relay.url, func(c *etcd.Config) { c.Sealing = salted{} })
		case "b":
			p.stores[name] = openPlain(p.T, p.etcd.URL)
		default:
			p.Fatalf("there is no store %q", name)
		}
	}
	return p.stores[name]
}

// begin begins a commit. If requests are lost, it returns when the commit's transaction was.
func (p *player) begin(s *scenario.Step) {
	p.Helper()
	if p.begun != nil {
		p.Fatal("another commit has not been finished")
	}
	p.begun = p.commit(s)
	if f, _ := p.relay.state(); f == loseRequests && s.Word(1) != "b" {
		<-p.relay.held
	}
}

// commit makes a commit in the background.
func (p *player) commit(s *scenario.Step) <-chan error {
	p.Helper()
	from, k := p.store(s.Word(1)), pod(s.Word(2))
	change, pre := store.Change{Key: k, Data: []byte(s.Word(3))}, store.Absent(k)
	f, _ := p.relay.state()
	disturbed := f != 0 && s.Word(1) != "b"
	if v, _, err := from.Live(p.Context(), k, !disturbed); err != nil {
		p.Fatal(err)
	} else if v != nil {
		pre = store.At(v)
	}
	if s.Word(3) == "delete" {
		change.Data = nil
	}
	if uid, ok := s.Option("uid"); ok {
		change.Sidecar = storetest.Describe(k, change.Data)
		change.Sidecar.UID = uid
	}
	return outcome(func() error {
		_, err := from.Commit(context.Background(), []store.Precondition{pre}, []store.Change{change})
		return err
	})
}

// ended prints how a commit ends.
func (p *player) ended(step string, done <-chan error) {
	p.Helper()
	err := ends(p.T, "the commit", done)
	text := "committed"
	switch {
	case errors.As(err, new(*store.ConflictError)):
		text = "conflict"
	case errors.Is(err, store.ErrUnknown):
		text = "unknown"
	case err != nil:
		text = err.Error()
	}
	fmt.Fprintf(&p.printed, "%s: %s\n", step, text)
}

// path is the key in etcd.
func (p *player) path(name string) string {
	path, _ := plain{}.Path(pod(name))
	return "/registry/" + path
}

// stored is what etcd has for a key, past the relay.
func (p *player) stored(name string) string {
	p.Helper()
	now, err := p.direct.Get(p.Context(), p.path(name))
	if err != nil {
		p.Fatal(err)
	}
	if len(now.Kvs) == 0 {
		return "delete"
	}
	return decoded(now.Kvs[0].Value)
}

// history prints the changes of a key. A read of the key, first, says which is the last one.
func (p *player) history(name string) {
	p.Helper()
	now, err := p.direct.Get(p.Context(), p.path(name))
	if err != nil {
		p.Fatal(err)
	}
	var values []string
	for r := int64(1); r <= now.Header.Revision; r++ {
		at, err := p.direct.Get(p.Context(), p.path(name), clientv3.WithRev(r))
		if err != nil {
			p.Fatal(err)
		}
		switch {
		case len(at.Kvs) > 0 && at.Kvs[0].ModRevision == r:
			values = append(values, decoded(at.Kvs[0].Value))
		case len(at.Kvs) == 0 && len(values) > 0 && values[len(values)-1] != "delete":
			values = append(values, "delete")
		}
	}
	fmt.Fprintf(&p.printed, "history %s: %s\n", name, strings.Join(values, ", "))
}

// decoded is the value that a test has written.
func decoded(value []byte) string {
	data, _, err := plain{}.Decode(store.Key{}, value)
	if err != nil {
		return err.Error()
	}
	if plain, _, err := (salted{}).Open(context.Background(), "", store.Key{}, data); err == nil {
		return string(plain)
	}
	return string(data)
}

// salted is a Sealing that adds something of its own to each value.
type salted struct{}

func (salted) Seal(context.Context, string) (*store.Seal, error) {
	return &store.Seal{ID: 1, Append: func(dst []byte, _ string, _ store.Key, plain []byte) []byte {
		return append(fmt.Appendf(dst, "%032x", ^uint(0)), plain...)
	}}, nil
}

func (salted) Open(_ context.Context, _ string, _ store.Key, sealed []byte) ([]byte, uint32, error) {
	if len(sealed) > 32 && sealed[0] == '0' {
		return sealed[32:], 1, nil
	}
	return sealed, 0, nil
}

func (salted) Current(string) (uint32, bool) { return 1, true }
