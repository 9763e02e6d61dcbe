package storetest

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"plinth/internal/store"
)

// model is the obvious implementation of a store: a list of all changes ever made, which is searched from the front for
// every query. It never drops history; the tests account for the history that the store may have dropped.
type model struct {
	oneRevision bool // all changes of a commit have the same one
	quiet       bool // a commit that changes nothing takes none
	revision    int64
	changes     []change
}

type change struct {
	revision int64
	key      store.Key
	data     *string // nil: deleted
}

func newModel(b Implementation) *model {
	return &model{oneRevision: b.OneRevision, quiet: b.Shared, revision: 1}
}

// commit makes the changes, one revision each or one for all. As in the store, the deletion of a key without a version
// takes a revision and leaves no record.
func (m *model) commit(changes []store.Change) {
	if m.quiet && !slices.ContainsFunc(changes, func(ch store.Change) bool {
		_, _, live := m.get(ch.Key, m.revision)
		return live || ch.Data != nil
	}) {
		return
	}
	for i, ch := range changes {
		if i == 0 || !m.oneRevision {
			m.revision++
		}
		c := change{revision: m.revision, key: ch.Key}
		if ch.Data != nil {
			s := string(ch.Data)
			c.data = &s
		} else if _, _, ok := m.get(ch.Key, m.revision); !ok {
			continue
		}
		m.changes = append(m.changes, c)
	}
}

// get returns the data of a key as of a revision, and the revision of the change that wrote them.
func (m *model) get(k store.Key, revision int64) (data string, since int64, ok bool) {
	for _, c := range m.changes {
		if c.key != k || c.revision > revision {
			continue
		}
		if data, since, ok = "", 0, c.data != nil; ok {
			data, since = *c.data, c.revision
		}
	}
	return data, since, ok
}

// list returns the objects of a resource as text, one per line.
func (m *model) list(resource, prefix, from string, revision int64) []string {
	keys := map[store.Key]bool{}
	for _, c := range m.changes {
		if c.key.Resource == resource && strings.HasPrefix(c.key.Name, prefix) && c.key.Name >= from {
			keys[c.key] = true
		}
	}
	var names []string
	for k := range keys {
		names = append(names, k.Name)
	}
	sort.Strings(names)
	var out []string
	for _, name := range names {
		if data, since, ok := m.get(store.Key{Resource: resource, Name: name}, revision); ok {
			out = append(out, fmt.Sprintf("%s@%d=%s", name, since, data))
		}
	}
	return out
}

// dependents returns the live objects of all resources whose data have a word, as text.
func (m *model) dependents(word string) string {
	live := map[store.Key]bool{}
	for _, c := range m.changes {
		live[c.key] = c.data != nil && strings.Contains(*c.data, word)
	}
	var keys []store.Key
	for k, holds := range live {
		if holds {
			keys = append(keys, k)
		}
	}
	sort.Slice(keys, func(i, j int) bool {
		a, b := keys[i], keys[j]
		return a.Resource < b.Resource || a.Resource == b.Resource && a.Name < b.Name
	})
	var b strings.Builder
	for _, k := range keys {
		data, since, _ := m.get(k, m.revision)
		fmt.Fprintf(&b, "%s@%d=%s\n", k, since, data)
	}
	return b.String()
}

// history returns the records of a resource, or of all for "", after one revision and up to another, as text: those
// whose new or old data begin with first.
func (m *model) history(resource, prefix, first string, after, until int64) string {
	var b strings.Builder
	for _, c := range m.changes {
		if resource != "" && c.key.Resource != resource || !strings.HasPrefix(c.key.Name, prefix) ||
			c.revision <= after || c.revision > until {
			continue
		}
		old, _, ok := m.get(c.key, c.revision-1)
		if !(ok && strings.HasPrefix(old, first)) && !(c.data != nil && strings.HasPrefix(*c.data, first)) {
			continue
		}
		switch {
		case !ok:
			fmt.Fprintf(&b, "%d +%s=%s\n", c.revision, c.key, *c.data)
		case c.data == nil:
			fmt.Fprintf(&b, "%d -%s=%s\n", c.revision, c.key, old)
		default:
			fmt.Fprintf(&b, "%d ~%s=%s→%s\n", c.revision, c.key, old, *c.data)
		}
	}
	return b.String()
}
