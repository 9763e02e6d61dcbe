package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
)

// The formulas in the comments of this package are asserted here. Every call stands behind `if invariants.Enabled`, a
// constant that is true where the program is built with -tags invariants or with the race detector, so a release
// contains none of these assertions.

// assert panics unless ok. The arguments of format are evaluated in any case, so costly ones stand behind an if.
func assert(ok bool, format string, args ...any) {
	if !ok {
		panic("engine: invariant violated: " + fmt.Sprintf(format, args...))
	}
}

// assertCommit asserts the rules for a draft that is about to be committed, which no step of any verb may break. With
// old the live object and next the one that replaces it, in the order of the assertions:
//
//	removed          ⇒  finalizers(next) = ∅
//	next             :  stored in k.Storage, under the key of its namespace and name, without resourceVersion
//	created          ⇒  uid ≠ "" ∧ creationTimestamp ≠ null ∧ deletionTimestamp = null
//	replaced         ⇒  uid, creationTimestamp, name and namespace are those of old
//	replaced         ⇒  generation(old) ≤ generation(next) ≤ generation(old) + 1
//	old is deleting  ⇒  deletionTimestamp(next) ≠ null ∧ deletionTimestamp(next) ≤ max(deletionTimestamp(old), now)
//	old is deleting  ⇒  deletionGracePeriodSeconds(next) ≤ deletionGracePeriodSeconds(old)
//	old is deleting  ⇒  finalizers(next) ⊆ finalizers(old) ∪ {orphan, foregroundDeletion}
func (d *draft) assertCommit() {
	if d.remove {
		assert(d.live != nil, "%s is removed and was not there", d.key())
		assert(len(finalizers(d.obj)) == 0, "%s is removed with finalizers", d.key())
		return
	}
	// The bytes are asserted, and not d.obj: they are what is stored.
	parsed, err := object.ParseJSON(bytes.Clone(d.next.Data()))
	assert(err == nil, "%s: %v", d.key(), err)
	next := parsed.Value
	meta, key := next.At("metadata"), d.key()
	namespace, name := splitKey(key.Name)
	assert(meta.At("name").Str() == name && meta.At("namespace").Str() == namespace,
		"%s is stored as %s", meta.At("name").Str(), key)
	storage := d.rq.Resource.Stored.Storage.APIVersion
	assert(next.At("apiVersion").Str() == storage,
		"%s is stored as %s, not as %s", key, next.At("apiVersion").Str(), storage)
	_, versioned := meta.Get("resourceVersion")
	assert(!versioned, "%s is stored with a resourceVersion", key)
	if d.live == nil {
		assert(meta.At("uid").Str() != "" && !meta.At("creationTimestamp").IsNull() && !deleting(next),
			"%s is created as %s", key, d.next.Data())
		return
	}
	if d.old.IsNull() {
		return
	}
	before := d.old.At("metadata")
	for _, field := range []string{"uid", "creationTimestamp", "name", "namespace"} {
		if old, had := before.Get(field); had {
			assert(object.Equal(meta.At(field), old),
				"%s: metadata.%s changes from %s to %s", key, field, old.Str(), meta.At(field).Str())
		}
	}
	grown := meta.At("generation").Int() - before.At("generation").Int()
	assert(grown == 0 || grown == 1, "%s: metadata.generation grows by %d", key, grown)
	if deleting(d.old) {
		d.assertDeleting(next)
	}
}

// assertDeleting is the part of assertCommit about objects that were deleted before.
func (d *draft) assertDeleting(next object.Value) {
	meta, before := next.At("metadata"), d.old.At("metadata")
	end, last := timeAt(meta.At("deletionTimestamp")), timeAt(before.At("deletionTimestamp"))
	assert(deleting(next) && (!end.After(last) || !end.After(d.now)),
		"%s: deletionTimestamp changes from %s to %s", d.key(), last, end)
	if grace := before.At("deletionGracePeriodSeconds"); !grace.IsNull() {
		now := meta.At("deletionGracePeriodSeconds").Int()
		assert(now <= grace.Int(), "%s: deletionGracePeriodSeconds grows from %d to %d", d.key(), grace.Int(), now)
	}
	had := finalizers(d.old)
	for _, f := range finalizers(next) {
		known := slices.ContainsFunc(had, func(g object.Value) bool { return object.Equal(f, g) })
		assert(known || f.Str() == OrphanFinalizer || f.Str() == ForegroundFinalizer,
			"%s: finalizer %s is new", d.key(), f.Str())
	}
}

// timeAt parses a time that the server has set; null gives the zero time.
func timeAt(v object.Value) time.Time {
	t, err := time.Parse(time.RFC3339, v.Str())
	assert(v.IsNull() || err == nil, "a time of the server is %q", v.Str())
	return t
}

// assertAtomic asserts of a commit that every change is conditional, and that no key changes twice:
//
//	∀ c ∈ changes: ∃ p ∈ pre: p.Key = c.Key
//	∀ c, d ∈ changes: c ≠ d ⇒ c.Key ≠ d.Key
func assertAtomic(pre []store.Precondition, changes []store.Change) {
	conditional := make(map[store.Key]bool, len(pre)) // a Service with thousands of ports has as many claims
	for i := range pre {
		conditional[pre[i].Key] = true
	}
	seen := make(map[store.Key]bool, len(changes))
	for i := range changes {
		key := changes[i].Key
		assert(!seen[key], "a commit changes %s twice", key)
		seen[key] = true
		assert(conditional[key], "a commit changes %s unconditionally", key)
	}
}

// assertManagers asserts the form in which own leaves metadata.managedFields: all entries can be read, no two are of
// one manager, operation, subresource and (for updates) version, and none is empty.
func (d *draft) assertManagers() {
	managed := d.body.At("metadata", "managedFields")
	entries, err := merge.ParseManagedFields(managed)
	assert(err == nil && len(entries) == managed.Len(),
		"managedFields of %s: %v: %s", d.rq.Name, err, object.AppendJSON(nil, managed))
	for i := range entries {
		assert(!entries[i].Fields.Empty(), "managedFields of %s: %q owns nothing", d.rq.Name, entries[i].Manager)
	}
}

// assertPage asserts the order and the length of a page that was read from the name from on; next is the name at which
// the following page begins, "" if this is the last one:
//
//	within is a prefix of every name, and from ≤ name₁ < name₂ < … < nameₙ < next
//	next ≠ ""  ⇒  n = limit
//	remaining ≠ nil  ⇒  remaining ≥ 1
func (c *Collection) assertPage(items []*Object, within, from, next string, limit int64) {
	before, ordered := from, true
	for i, item := range items {
		name := item.Key.Name
		ordered = ordered && strings.HasPrefix(name, within) && (i == 0 && before <= name || before < name)
		before = name
	}
	assert(ordered && (next == "" || before < next), "a page from %q to %q is out of order", from, next)
	assert(next == "" || int64(len(items)) == limit, "a page of %d items at a limit of %d goes on", len(items), limit)
	assert(c.Remaining == nil || *c.Remaining >= 1, "behind a page that goes on are %v items", c.Remaining)
}

// assertContinue asserts that a token continues the list after last, and not after next.
//
//	parse(format(revision, start)) = (revision, prefix + start)  ∧  last < prefix + start ≤ next
func assertContinue(token, prefix string, revision int64, last, next string) {
	got, from, err := parseContinue(token, prefix)
	assert(err == nil && got == revision && last < from && from <= next,
		"the token of revision %d between %q and %q leads to revision %d, %q: %v", revision, last, next, got, from, err)
}

// assertIdentity asserts that a conversion does not change the identity of an object.
func assertIdentity(before, after []object.Value, to *Version) {
	assert(len(before) == len(after), "%d objects are converted to %d", len(before), len(after))
	for i := range before {
		for _, field := range []string{"name", "namespace", "uid"} {
			previous, now := before[i].At("metadata", field).Str(), after[i].At("metadata", field).Str()
			assert(previous == now, "a conversion to %s changes metadata.%s from %q to %q", to.APIVersion, field, previous, now)
		}
	}
}

// assertClaims asserts that an object that is about to be stored holds all its claims:
//
//	∀ c ∈ Claims(next): c is in the store, or the commit puts it there
//
// On a store that others write to, claims without a companion may be missing until they are repaired.
func (d *draft) assertClaims(ctx context.Context, has []Claim) {
	taken := map[store.Key]bool{}
	for i := range d.effects.claimed.changes {
		if c := &d.effects.claimed.changes[i]; c.Data != nil {
			taken[c.Key] = true
		}
	}
	for _, o := range d.effects.claimed.companions {
		if !o.remove {
			taken[o.key()] = true
		}
	}
	for i := range has {
		key := has[i].Key
		if has[i].Companion == nil && d.store.Others != nil {
			continue
		}
		if !taken[key] {
			live, _, err := d.store.Live(ctx, key, false)
			assert(err != nil || live != nil, "%s claims %s, and nobody puts that into the store", d.key(), key)
		}
	}
}

// assertSidecar asserts that the lists that selections search are sorted by name.
func assertSidecar(s *store.Sidecar) {
	byName := func(a, b store.Pair) int { return strings.Compare(a.Name, b.Name) }
	assert(slices.IsSortedFunc(s.Labels, byName), "labels are out of order: %v", s.Labels)
	assert(slices.IsSortedFunc(s.Fields, byName), "fields are out of order: %v", s.Fields)
}

// assertSorted asserts that a compiled selector has one clause for each name, in order, and that the required ones are
// counted.
func (c *conjunction) assertSorted() {
	required := 0
	for i := range c.clauses {
		assert(i == 0 || c.clauses[i-1].name < c.clauses[i].name, "clauses are out of order: %q", c.clauses[i].name)
		if c.clauses[i].required {
			required++
		}
	}
	assert(required == c.required, "%d clauses are required, %d are counted", required, c.required)
}

// assertIndexes asserts that the two indexes of definitions agree, and that group versions and their types are sorted.
func (t *Types) assertIndexes() {
	assert(t.byObject.Len() == t.byKind.Len(), "%d definitions by object, %d by kind", t.byObject.Len(), t.byKind.Len())
	t.byObject.Scan(func(name string, d *definition) bool {
		byKind, ok := t.byKind.Get(kindKey(d.kind.Path, name))
		assert(ok && byKind == d, "the definition %s of %s is not found by its kind", name, d.kind.Path)
		return true
	})
	for i, gv := range t.groups {
		assert(i == 0 || compareGroupVersions(t.groups[i-1], gv) < 0,
			"group versions are out of order: %s/%s", gv.Group, gv.Version)
		assert(len(gv.Resources) > 0, "%s/%s is empty", gv.Group, gv.Version)
		for j, r := range gv.Resources {
			assert(r.Group == gv.Group && r.Version == gv.Version && (j == 0 || gv.Resources[j-1].Name < r.Name),
				"%s of %s is out of place in %s/%s", r.Name, r.APIVersion(), gv.Group, gv.Version)
		}
	}
}

// assertBounds asserts the formula of origins.
func (c *origins) assertBounds() {
	sum := 0
	for i := range c.count {
		sum += c.kept[(c.first+i)%keptOrigins].bytes
	}
	assert(c.count <= keptOrigins && sum == c.bytes && (sum <= maxOriginBytes || c.count == 1),
		"%d origins of %d bytes are kept, %d are counted", c.count, sum, c.bytes)
}

// assertDescribed asserts that a sidecar that was made of a part of an object is that of the whole object.
func assertDescribed(k *Kind, data []byte, s *store.Sidecar) {
	parsed, err := object.ParseJSON(bytes.Clone(data))
	assert(err == nil, "%s is described, and is no JSON: %v", data, err)
	whole := sidecar(k, parsed.Value, data, &store.Sidecar{})
	assert(s.UID == whole.UID && s.Deleting == whole.Deleting && s.Form == whole.Form && s.Selection == whole.Selection &&
		slices.Equal(s.Labels, whole.Labels) && slices.Equal(s.Fields, whole.Fields) && slices.Equal(s.Owners, whole.Owners),
		"the sidecar of a part is %+v, of the whole %+v: %s", s, whole, data)
}
