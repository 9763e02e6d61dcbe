package replicas

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// reading is a list at a revision.
type reading struct {
	match    string // of resourceVersionMatch; "" is a get
	asked    int64
	revision int64 // of the answer
	replica  int
	items    []change
}

// revisions are reads that name a revision which the client has from another replica: they are of that revision, or not
// older. A replica that is behind waits, or refuses.
func revisions() *workload {
	var mu sync.Mutex
	var readings []reading
	w := &workload{name: "revisions"}
	w.step = func(c *client, w *workload) {
		name := fmt.Sprintf("v%d-%d", c.rand.Intn(3), c.generation())
		seen := w.lastOf(name)
		if seen == nil && c.rand.Intn(2) == 0 {
			w.create(c, name, dataOf)
			return
		}
		if seen == nil {
			w.get(c, name, dataOf)
			return
		}
		mark := c.mark()
		a := c.send(http.MethodPatch, configMaps(w.name, name), mergePatch, object{"data": map[string]any{"v": mark},
			"metadata": map[string]any{"labels": map[string]any{"side": sideOf("v=" + mark)}}})
		w.write(c, a, name, op{text: "merge v=" + mark, mark: mark, whatever: conflicted(a), apply: setField("v", mark)},
			dataOf)
		if a.outcome != done {
			return
		}
		r := reading{asked: a.body.revision(), match: []string{"", "Exact", "NotOlderThan"}[c.rand.Intn(3)]}
		path := query(configMaps(w.name), "resourceVersion", fmt.Sprint(r.asked), "resourceVersionMatch", r.match)
		if r.match == "" {
			path = query(configMaps(w.name, name), "resourceVersion", fmt.Sprint(r.asked))
		}
		b := c.send(http.MethodGet, path, "", nil)
		w.count(b)
		if b.outcome != done {
			return
		}
		r.revision, r.replica = b.body.revision(), b.replica
		items := b.body.items()
		if r.match == "" {
			items = []object{b.body}
		}
		for _, i := range items {
			r.items = append(r.items, changeOf("", i))
		}
		mu.Lock()
		defer mu.Unlock()
		readings = append(readings, r)
	}
	w.check = func(r *run, w *workload) (found []string) {
		mu.Lock()
		defer mu.Unlock()
		r.figure("%d reads at revisions", len(readings))
		return checkReadings(readings, r.changes(w.name))
	}
	return w
}

// checkReadings checks lists and gets at revisions against the truth.
func checkReadings(readings []reading, changes []change) (violations []string) {
	at := map[int64]change{}
	for _, c := range changes {
		at[c.revision] = c
	}
	readings = slices.SortedFunc(slices.Values(readings), func(a, b reading) int {
		return cmp.Compare(a.revision,
			b.revision)
	})
	past := &sweep{changes: changes}
	for _, r := range readings {
		said := func(format string, arguments ...any) {
			violations = append(violations, fmt.Sprintf("replica %d was asked for revision %d (%q) and answers with %d: %s",
				r.replica, r.asked, r.match, r.revision, fmt.Sprintf(format, arguments...)))
		}
		if r.revision < r.asked {
			said("that is older")
		}
		if r.match == "Exact" && r.revision != r.asked {
			said("that is another one")
		}
		if r.match == "" {
			if c := at[r.revision]; c.state != r.items[0].state || c.uid != r.items[0].uid || c.name != r.items[0].name {
				said("%s, and the change was %s", r.items[0], c)
			}
			continue
		}
		want, got := past.to(r.revision), map[string]change{}
		for _, i := range r.items {
			got[i.name] = i
		}
		if contents(got) != contents(want) {
			said("it has %s, and should have %s", contents(got), contents(want))
		}
	}
	return violations
}

// contents describes objects.
func contents(objects map[string]change) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		all = append(all, fmt.Sprintf("%s at %d %q", name, objects[name].revision, objects[name].state))
	}
	return strings.Join(all, "; ")
}
