package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"plinth/internal/store"
)

// definition is the object that says how a plane shows its Pods: by the mark that is its data, or not at all.
var definition = store.Key{Resource: "/definitions", Name: "pods"}

// marked is a store.Presenter that puts a mark before the data. Some objects are not shown with the mark "few".
type marked string

// Present implements store.Presenter.
func (m marked) Present(k store.Key, v *store.Version, _ string) ([]byte, *store.Sidecar, error) {
	if m == "few" && strings.HasSuffix(v.Key.Name, "1") {
		return nil, nil, nil
	}
	data := []byte(string(m) + " " + string(v.Data()))
	return data, Describe(k, data), nil
}

func presenterOf(d *store.Version) store.Presenter {
	switch {
	case d == nil || string(d.Data()) == "none":
		return nil
	case string(d.Data()) == "same as a":
		return marked("a")
	}
	return marked(d.Data())
}

// acrossClient is a client that watches all planes: what it knows, and where it is.
type acrossClient struct {
	knows map[string]string // by the name in the key: the revision and the data
	place int64             // what the last record shows: from here it resumes
	whole bool              // and that is the revision up to which it knows everything
}

// get applies a record as a client does that has been cut off and may get something again.
func (f *acrossClient) get(r *store.Record) {
	if r.New == nil {
		delete(f.knows, r.Key.Name)
		f.place = r.Revision
		if r.Unfinished {
			f.place--
		}
	} else {
		f.knows[r.Key.Name] = text(r.New)
		f.place = r.New.Revision
	}
	f.whole = false
}

func text(v *store.Version) string { return fmt.Sprintf("%d %s", v.Revision, v.Data()) }

// followed is planes with an Across, a client that is never cut off, and what it was on its way.
type followed struct {
	*planes
	across  *store.Across
	client  acrossClient
	watch   *store.Cursor
	was     []acrossClient
	resumed map[string]int // how often a client has gone on, or could not
	since   int64          // the revision with which the Across was made
	told    int64          // the revision of the last change that is not in the log as a whole: an end, or a definition
	defines bool
}

func (f *followed) open() {
	f.t.Helper()
	c := store.AcrossConfig{Resource: "/pods", Planes: "planes",
		Presenter: func(*store.Version) store.Presenter { return marked("x") }}
	if f.defines {
		c.Definition, c.Presenter = definition, presenterOf
	}
	var err error
	if f.across, err = f.Store.Across(c); err != nil {
		f.t.Fatal(err)
	}
	f.since = f.across.Revision()
	f.list()
}

// list makes the client know what there is.
func (f *followed) list() {
	f.t.Helper()
	sn, err := f.across.Snapshot(0)
	if err != nil {
		f.t.Fatal(err)
	}
	f.client = acrossClient{knows: contentOf(sn), place: sn.Revision(), whole: true}
	if f.watch, err = f.across.Watch(context.Background(), "/pods", "", sn.Revision()); err != nil {
		f.t.Fatal(err)
	}
	f.keep()
}

func contentOf(sn *store.Snapshot) map[string]string {
	all := map[string]string{}
	sn.Ascend("/pods", "", "", func(v *store.Version) bool {
		all[v.Key.Name] = text(v)
		return true
	})
	return all
}

func (f *followed) keep() {
	is := f.client
	is.knows = maps.Clone(is.knows)
	f.was = append(f.was, is)
}

// truth is what all planes have.
func (f *followed) truth() map[string]string {
	all := map[string]string{}
	for id, m := range f.models {
		if id == "" {
			continue
		}
		var presenter store.Presenter = marked("x")
		if f.defines {
			d, _ := f.of(id).Get(definition)
			presenter = presenterOf(d)
		}
		for k := range m.content(f.newest) {
			data, since, _ := m.get(k, f.newest)
			if k.Resource != "/pods" || presenter == nil {
				continue
			}
			shown, _, _ := presenter.Present(k, store.NewVersion(k, since, []byte(data), nil), "")
			if shown != nil {
				all[k.Name+"\x00"+m.object.Name] = fmt.Sprintf("%d %s", since, shown)
			}
		}
	}
	return all
}

// follow has the client get what there is. Each change comes once, and none is of what it knows already.
func (f *followed) follow() {
	f.t.Helper()
	if err := f.across.WaitFor(context.Background(), f.newest); err != nil {
		f.t.Fatal(err)
	}
	for {
		records, err := f.watch.Poll()
		if errors.Is(err, store.ErrCompacted) { // it was too slow, and its plane has ended
			f.resumed["slow"]++
			f.watch.Close()
			f.list()
			break
		}
		if err != nil {
			f.t.Fatal(err)
		}
		if len(records) == 0 {
			break
		}
		for _, r := range records {
			before, knew := f.client.knows[r.Key.Name]
			if knew != (r.Old != nil) || r.Old != nil && text(r.Old) != before ||
				r.New != nil && text(r.New) == before || r.New != nil && r.New.Revision > r.Revision {
				f.t.Fatalf("at %d %q was %v → %v, and the client knew %q, %t", r.Revision, r.Key.Name, r.Old, r.New, before, knew)
			}
			f.client.get(r)
			if r.Unfinished && f.client.place >= r.Revision {
				f.t.Fatalf("at %d there are more records, and %q shows %d", r.Revision, r.Key.Name, f.client.place)
			}
			f.keep()
		}
	}
	f.client.place, f.client.whole = f.watch.Revision(), true
	f.keep()
	if f.client.place < f.newest {
		f.t.Fatalf("the client is at %d of %d", f.client.place, f.newest)
	}
	if want := f.truth(); !maps.Equal(f.client.knows, want) {
		f.t.Fatalf("at %d the client knows\n%q, and there is\n%q", f.newest, f.client.knows, want)
	}
}

// resume cuts clients off at random moments, and lets them go on.
func (f *followed) resume() {
	f.t.Helper()
	f.follow()
	want := f.truth()
	for range min(30, len(f.was)) {
		was := f.was[f.rng.IntN(len(f.was))]
		then := maps.Clone(was.knows)
		is := acrossClient{knows: maps.Clone(was.knows)}
		c, err := f.across.Watch(context.Background(), "/pods", "", was.place)
		for err == nil {
			var records []*store.Record
			if records, err = c.Poll(); len(records) == 0 {
				break
			}
			for _, r := range records {
				is.get(r)
			}
		}
		kind := map[bool]string{true: "before", false: "since"}[was.place < f.since]
		switch {
		case errors.Is(err, store.ErrCompacted) && f.b.Durable && was.place >= f.told:
			f.t.Fatalf("a client cannot go on from %d of %d, and no plane has ended since", was.place, f.newest)
		case errors.Is(err, store.ErrCompacted):
			f.resumed[kind+" lists"]++
		case err != nil:
			f.t.Fatal(err)
		case !maps.Equal(is.knows, want):
			f.t.Fatalf("a client that has gone on from %d of %d, the Across is of %d, knew\n%q, knows\n%q, and there is\n%q",
				was.place, f.newest, f.since, then, is.knows, want)
		default:
			f.resumed[kind]++
		}
		if c != nil {
			c.Close()
		}
		if !was.whole {
			continue
		}
		// A list that is continued reads the state of its first page.
		switch sn, err := f.across.Snapshot(was.place, "/pods"); {
		case errors.Is(err, store.ErrCompacted):
			f.resumed["page lists"]++
		case err != nil:
			f.t.Fatal(err)
		case !maps.Equal(contentOf(sn), was.knows):
			f.t.Fatalf("as of %d of %d there is\n%q, and there was\n%q", was.place, f.newest, contentOf(sn), was.knows)
		default:
			f.resumed["page"]++
		}
	}
}

// define writes the definition of a plane.
func (f *followed) define() {
	f.t.Helper()
	id := f.random(false)
	if id == "" {
		return
	}
	ch := store.Change{Key: definition}
	if n := f.rng.IntN(7); n < 6 {
		ch.Data = []byte([]string{"a", "b", "none", "few", "same as a", "a"}[n])
	}
	if _, err := f.of(id).Commit(context.Background(), nil, []store.Change{ch}); err != nil {
		f.t.Fatal(err)
	}
	f.add(f.models[id], []store.Change{ch})
	f.told = f.newest
}

// testAcross compares what clients of all planes know, who are cut off at any event and go on there, with what the
// planes have, which begin with others, change, end, and show their objects in other forms, through restarts.
//
// SPEC: BEY-9
func testAcross(t *testing.T, b Implementation) {
	if !hasPlanes(t, b) {
		return
	}
	total := map[string]int{}
	for seed := range uint64(4) {
		f := &followed{planes: newPlanes(t, b, seed), resumed: total, defines: seed%2 == 1}
		f.begin()
		f.open()
		for step := range 300 {
			switch n := f.rng.IntN(60); {
			case n < 42:
				f.write()
			case n < 48 && len(f.models) < 12:
				f.begin()
			case n < 50:
				f.end()
				f.told = f.newest
			case n < 56 && f.defines:
				f.define()
			case n == 59:
				if err := f.across.Close(); err != nil {
					t.Fatal(err)
				}
				f.reopen() // where nothing is kept, another Across is made all the same
				f.open()
			}
			if f.rng.IntN(3) == 0 {
				f.follow()
			}
			if step%25 == 0 {
				f.resume()
			}
		}
		f.resume()
		if err := f.across.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("clients have gone on %v", total)
	need := []string{"since", "since lists", "page"}
	if b.Durable {
		need = append(need, "before", "before lists")
	}
	for _, what := range need {
		if total[what] < 10 {
			t.Errorf("%d clients have gone on %q, of %v", total[what], what, slices.Sorted(maps.Keys(total)))
		}
	}
}
