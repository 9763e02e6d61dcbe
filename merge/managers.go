package merge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"plinth/internal/invariants"
	"plinth/object"
)

// The operations by which a manager becomes the owner of fields.
const (
	OperationApply  = "Apply"
	OperationUpdate = "Update"
)

// Entry is one entry of metadata.managedFields (SSA-1). In an operation an entry is made, replaced or dropped, but
// never changed: conflicts and last (apply) refer to entries as they were.
type Entry struct {
	Manager     string
	Operation   string // OperationApply or OperationUpdate
	APIVersion  string // in which the fields are named
	Subresource string
	Time        string // of the last change, in UTC and RFC 3339, to the second; "" if unknown
	Fields      Set
}

// managerID is the part of an entry that identifies its manager.
type managerID struct {
	manager, operation, subresource string
	version                         string // of an update; "" for an apply
}

// id says which manager an entry is of: e.id() = f.id() ⇔ e and f may not stand beside each other in managedFields.
//
// The version distinguishes updates, but not applies. An applier that moves from v1 to v2 replaces its entry: fields
// that it applied in v1 and omits in v2 have been given up, and are pruned. An updater owns what it has changed at any
// time, in the version in which it changed it; an update in v2 does not give up fields that an update in v1 has set.
func (e *Entry) id() managerID {
	if invariants.Enabled {
		comparisons.Add(1)
	}
	id := managerID{manager: e.Manager, operation: e.Operation, subresource: e.Subresource}
	if e.Operation != OperationApply {
		id.version = e.APIVersion
	}
	return id
}

// entry is an Entry during an operation. It keeps the value that it was parsed from: most entries do not change, and
// then neither is their set printed nor their text compared.
//
// Invariant: printed ≠ null ⇒ printed = FieldsV1(stored). So set is printed as printed where set.identical(stored).
//
// An object with five managers has a few kilobytes of managedFields, and a typical write changes one entry: reading the
// others is unavoidable, but printing them again is not.
type entry struct {
	Entry                // its Fields are unused
	set     Set          // the paths that are owned now
	stored  Set          // the set that was read; empty if the entry is new
	printed object.Value // the FieldsV1 that stored was read from, or null if FieldsV1 would print another
}

// An entry as it is stored:
//
//	- manager: kubectl
//	  operation: Apply
//	  apiVersion: apps/v1
//	  time: "2026-01-02T03:04:05Z"
//	  fieldsType: FieldsV1
//	  fieldsV1: {f:spec: {f:replicas: {}, f:template: {f:spec: {f:containers: {k:{"name":"web"}: {.: {}, f:name: {}}}}}}}
//
// whose set is .spec.replicas, .spec.template.spec.containers[name="web"] and, below that, .name. The entries are
// metadata of the object: a client may write any of this by a PUT (SSA-7), so the functions here take every text that
// FieldsV1 allows, and every number of entries.

// ParseManagedFields reads metadata.managedFields. If a manager has two entries, the later one counts.
func ParseManagedFields(v object.Value) ([]Entry, error) {
	entries, err := parseManaged(v, new(arena))
	out := make([]Entry, len(entries))
	for i, e := range entries {
		out[i] = e.Entry
		out[i].Fields = e.set
	}
	return out, err
}

// parseManaged reads managedFields with sets that live in the arena. Null means no entries. One invalid entry makes all
// of them unreadable, as in the reference: ownership of a part of the managers would look as if the others had given up
// their fields. The errors are worded as the reference's where clients see them.
func parseManaged(v object.Value, r *arena) ([]*entry, error) {
	if v.Kind() != object.List && !v.IsNull() {
		return nil, errors.New("managedFields must be a list")
	}
	entries := make([]*entry, 0, v.Len()+1)
	var known map[managerID]int // positions in entries; nil for few entries, among which indexOf is faster
	if v.Len() > fewEntries {
		known = make(map[managerID]int, v.Len())
	}
	for i, item := range v.Items() {
		e := &entry{Entry: Entry{
			Manager: item.At("manager").Str(), Operation: item.At("operation").Str(), APIVersion: item.At("apiVersion").Str(),
			Subresource: item.At("subresource").Str(), Time: item.At("time").Str(),
		}}
		switch fieldsType := item.At("fieldsType").Str(); {
		case e.Operation != OperationApply && e.Operation != OperationUpdate:
			return nil, errors.New("operation must be `Apply` or `Update`")
		case e.APIVersion == "":
			return nil, errors.New("apiVersion must not be empty")
		case fieldsType == "":
			return nil, fmt.Errorf("missing fieldsType in managed fields entry %d", i)
		case fieldsType != "FieldsV1":
			return nil, fmt.Errorf("invalid fieldsType %q in managed fields entry %d", fieldsType, i)
		}
		p := fieldsParser{arena: r}
		var err error
		if e.stored, err = p.parse(item.At("fieldsV1")); err != nil {
			return nil, fmt.Errorf("fieldsV1 of managed fields entry %d: %w", i, err)
		}
		if e.set = e.stored; !p.noncanonical {
			e.printed = item.At("fieldsV1")
		}
		at, ok := known[e.id()]
		if known == nil {
			at = indexOf(entries, &e.Entry)
			ok = at >= 0
		}
		switch {
		case ok:
			entries[at] = e
			continue
		case known != nil:
			known[e.id()] = len(entries)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// fewEntries is the greatest number of entries that are searched linearly while managedFields is read.
const fewEntries = 16

// indexOf is the position of the entry of e's manager, or -1. It is a linear search: there are few entries, and an
// operation calls it a fixed number of times. Loops over the entries use a map instead, as a client may send any number
// of them.
func indexOf(entries []*entry, e *Entry) int {
	return slices.IndexFunc(entries, func(f *entry) bool { return f.id() == e.id() })
}

// printManaged is metadata.managedFields: appliers first, and by time in each group. The other keys make the order
// total, so that equal managers are printed as equal bytes: a write without a change is recognised by comparing bytes.
// Times compare as text, being in UTC and to the second. It sorts entries in place.
func printManaged(entries []*entry) object.Value {
	slices.SortStableFunc(entries, func(a, b *entry) int {
		return cmp.Or(
			cmp.Compare(a.Operation, b.Operation),
			cmp.Compare(a.Time, b.Time),
			cmp.Compare(a.Manager, b.Manager),
			cmp.Compare(a.APIVersion, b.APIVersion),
			cmp.Compare(a.Subresource, b.Subresource),
		)
	})
	items := make([]object.Value, len(entries))
	for i, e := range entries {
		items[i] = e.print()
	}
	return object.ListOf(items...)
}

// print is the entry as an item of managedFields.
func (e *entry) print() object.Value {
	if !e.set.identical(e.stored) || e.printed.IsNull() {
		e.printed = e.set.FieldsV1()
	}
	if invariants.Enabled {
		again, err := ParseFieldsV1(e.printed)
		mustHold(err == nil && again.Equal(e.set), "merge: a set is printed as another one", e.Manager, err)
	}
	members := make([]object.Member, 0, 7)
	put := func(key, text string) {
		if text != "" {
			members = append(members, object.Member{Key: key, Value: object.StringOf(text)})
		}
	}
	put("apiVersion", e.APIVersion)
	put("fieldsType", "FieldsV1")
	members = append(members, object.Member{Key: "fieldsV1", Value: e.printed})
	put("manager", e.Manager)
	put("operation", e.Operation)
	put("subresource", e.Subresource)
	put("time", e.Time)
	return object.MapOf(members...)
}

// maxUpdaters is how many entries of updates an object may have before the oldest of them are merged (SSA-6). Appliers
// are not counted: without an applier's entry, it would be unknown which fields its next intent gives up.
const maxUpdaters = 10

// ancient is the manager of merged entries.
const ancient = "ancient-changes"

// capUpdaters merges the oldest entries of updates into one entry per version, its bucket, until
//
//	updaters ≤ maxUpdaters, or no two updaters have the same version
//
// An object that many clients update, each under a different name (a User-Agent with a version in it), would otherwise
// gather an entry for each. Versions are not merged with each other, as their paths differ. The union of what all
// updaters of a version own stays the same, so that no field loses its owner and an apply still meets its conflicts;
// only the names of the owners are lost.
//
// Say eleven clients have updated an object in v1, u1 first and u11 last. u1 and u2 become ancient-changes, with the
// time of u2, and ten entries are left. When u12 updates the object, u3 is merged into ancient-changes, too.
//
// A bucket of an earlier merge is used again. It may not be the oldest entry of its version, since its time is that of
// the newest that went into it: the reference merges it with itself then, and so loses it (conformance/oracle/merge,
// "ancient changes").
func (o *operation) capUpdaters() {
	var updaters []*entry
	for _, e := range o.entries {
		if e.Operation == OperationUpdate {
			updaters = append(updaters, e)
		}
	}
	n := len(updaters)
	if n <= maxUpdaters {
		return
	}
	// 1. Oldest first. Times are in seconds, so that many are equal; then the names decide.
	slices.SortStableFunc(updaters, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.identifier(), b.identifier()))
	})
	// 2. The oldest entry of each version becomes the bucket as soon as there is a second one to merge with it. An entry
	// that is alone in its version stays under its name. Sets are gathered here, and united in the end: a union per
	// entry would copy the bucket each time.
	positions := make(map[managerID]int, len(o.entries)) // in o.entries
	for i, e := range o.entries {
		positions[e.id()] = i
	}
	firsts := map[string]*entry{} // by version
	into := map[int][]Set{}       // the sets to be merged into the entry at this position
	for _, e := range updaters {
		if n <= maxUpdaters {
			break
		}
		first := firsts[e.APIVersion]
		if first == nil {
			firsts[e.APIVersion] = e
			continue
		}
		bucket := Entry{Manager: ancient, Operation: OperationUpdate, APIVersion: e.APIVersion}
		if e.id() == bucket.id() {
			// e is the bucket itself, and not the oldest: the older one is merged into it.
			firsts[e.APIVersion], first, e = e, e, first
		}
		at, exists := positions[bucket.id()]
		if !exists {
			at = positions[first.id()]
			positions[bucket.id()] = at
			o.entries[at] = &entry{Entry: bucket, set: first.set}
		}
		merged := *o.entries[at]
		merged.Time = e.Time
		o.entries[at] = &merged
		into[at] = append(into[at], e.set)
		o.entries[positions[e.id()]] = nil
		n--
	}
	for at, sets := range into {
		o.entries[at].set = unionOf(append(sets, o.entries[at].set))
	}
	o.entries = slices.DeleteFunc(o.entries, func(e *entry) bool { return e == nil })
}

// identifier is the JSON text by which the reference names an entry. It decides the order of entries of one second,
// which clients can see.
func (e *Entry) identifier() string {
	text := []byte("{")
	for _, m := range [...][2]string{{"manager", e.Manager}, {"operation", e.Operation}, {"apiVersion", e.APIVersion},
		{"subresource", e.Subresource}} {
		if m[1] == "" || m[0] == "apiVersion" && e.Operation == OperationApply {
			continue
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = object.AppendString(text, m[0])
		text = object.AppendString(append(text, ':'), m[1])
	}
	return string(append(text, '}'))
}

// drop removes an entry, identified by its memory. It has no effect if the entry is absent. It does not search by
// manager, since the caller means the entry that it has made, and another one of the same manager would be a violated
// invariant.
func (o *operation) drop(e *entry) {
	if at := slices.Index(o.entries, e); at >= 0 {
		o.entries = slices.Delete(o.entries, at, at+1)
	}
}
