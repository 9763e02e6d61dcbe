package merge

import (
	"errors"
	"fmt"

	"plinth/internal/invariants"
	"plinth/object"
	"plinth/schema"
)

// Versions knows the API versions of a kind and how to convert between them (SSA-11). Conversions may fail, and need
// not be lossless.
type Versions interface {
	// Type is the schema of a version; nil if the version does not exist. It is the same at each call during an
	// operation.
	Type(apiVersion string) *schema.Type
	// Convert returns an object in another version, for which Type is not nil. It must depend on its arguments alone:
	// its results are reused during an operation. The object may be a part of a real one, as prune converts objects
	// from which fields have been removed.
	Convert(v object.Value, apiVersion string) (object.Value, error)
}

// Kind is a kind of objects as one endpoint of the API sees it: the main URL of Deployments, or their status. It is
// only read, and may be used by several goroutines.
//
// Reset is why the endpoint matters. A client that reads a Deployment and PUTs it back to the main URL sends its
// status, which the server ignores. Without Reset the client would own status, and the controller that writes it would
// take it away again at each of its writes.
type Kind struct {
	Type     *schema.Type   // of the version of the request
	Versions Versions       // nil: that version is the only one
	Reset    map[string]Set // by API version: paths that requests to this endpoint cannot change, nor anything below them
}

// Writer says who writes, and how. With the operation, which is Apply or Update after the method that is called, it
// names the manager (managerID).
type Writer struct {
	Manager     string // "" is "unknown"
	APIVersion  string // of the request
	Subresource string
	Force       bool // of an apply: conflicting fields change hands
	// of an update: remove all managers first, as requested by an empty list of managedFields
	Clear bool
	Now   string // in UTC and RFC 3339, to the second: "2026-01-02T15:04:05Z"
}

// unknownManager is the manager of a request without a name.
const unknownManager = "unknown"

// beforeFirstApply owns the fields that an object without managers had before it was first applied to (SSA-1).
const beforeFirstApply = "before-first-apply"

// unowned are the paths that never have an owner (SSA-15).
var unowned = Fields("apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace",
	"metadata.creationTimestamp",
	"metadata.selfLink", "metadata.uid", "metadata.clusterName", "metadata.generation", "metadata.managedFields",
	"metadata.resourceVersion")

// operation is the state of one apply or update.
type operation struct {
	kind   *Kind
	writer *Writer
	arena  *arena // of all sets; it must outlive the operation, and the printed entries need it no longer

	// entries are the managers, in the order in which they were read; printManaged sorts them. A set that changes is put
	// into a copy of its entry: conflicts, and last in apply, refer to entries as they were before.
	//
	// Invariants, at the end of an operation: no two are of the same manager, and none has an empty set
	// (checkEntries). In between an entry may be empty: one that a client has sent so, or the writer's own while it is
	// computed.
	entries []*entry

	// converted are the conversions so far; nil before the first one. Values are immutable, so that the memory of one
	// identifies its content.
	converted map[conversion]object.Value
}

// conversion is the key of a converted object.
type conversion struct {
	of      object.Value
	version string
}

// in converts an object to a version and returns the type of that version. The type is nil if there is no such
// version; then the object is returned as it is. Managers whose version is unknown are dropped before it matters
// (reconcile), so that a set is never compared with an object of another version than its own.
//
// An object is converted once per version: reconcile needs it for each entry, updateOwners once more, and a conversion
// may be a call of a webhook. A client may send thousands of entries.
func (o *operation) in(v object.Value, version string) (object.Value, *schema.Type, error) {
	t := o.typeOf(version)
	if t == nil || v.At("apiVersion").Str() == version || o.kind.Versions == nil {
		return v, t, nil
	}
	key := conversion{v, version}
	if done, ok := o.converted[key]; ok {
		return done, t, nil
	}
	converted, err := o.kind.Versions.Convert(v, version)
	if err != nil {
		return object.Nil, t, err
	}
	if o.converted == nil {
		o.converted = map[conversion]object.Value{}
	}
	o.converted[key] = converted
	return converted, t, nil
}

// typeOf is the type of a version; nil if the version does not exist.
func (o *operation) typeOf(version string) *schema.Type {
	switch {
	case version == o.writer.APIVersion:
		return o.kind.Type
	case o.kind.Versions == nil:
		return nil
	}
	return o.kind.Versions.Type(version)
}

// Update computes the owners after a write other than an apply (SSA-6). next is the object to be stored, live the
// stored one, null if there is none. Both are in the version of the request. The result is next with its new
// managedFields. If they cannot be computed, the result has the managedFields of live and there is an error: the
// reference stores that, and so does the engine. Items of stored lists that have no identity in the current schema are
// such an error.
//
// An update contains a whole object and does not state which of its fields the client meant. So ownership follows from
// what it changes: a client that reads an object, sets one label and writes all of it back owns that label, and not the
// rest.
func (k *Kind) Update(live, next object.Value, w Writer) (object.Value, error) {
	o := operation{kind: k, writer: &w, arena: newArena()}
	defer o.arena.release()
	o.entries = o.entriesBefore(live, next)
	bare := withoutManaged(next)
	if len(o.entries) == 0 && live.At("metadata", "uid").Str() != "" {
		return bare, nil // the object exists and has no managers: only an apply, or a new object, starts to have some
	}
	if live.IsNull() {
		live = o.zeroObject(next)
	}
	// If this fails, some entries may have changed already: they are not used, but those of live.
	if err := o.update(withoutManaged(live), bare, w.Manager); err != nil {
		return withManaged(bare, live.At("metadata", "managedFields")), err
	}
	o.capUpdaters()
	if invariants.Enabled {
		checkEntries(o.entries)
	}
	return withManaged(bare, printManaged(o.entries)), nil
}

// entriesBefore are the managers that an update starts from: those of its body if it has valid ones, otherwise those of
// the live object (SSA-7). So a client may correct managedFields, and a client that drops or garbles them changes
// nothing. Most clients send back what they have read: then both are the same.
//
// Requests to a subresource cannot correct managedFields. The paths of the entries that a client brings are not checked
// against the object.
func (o *operation) entriesBefore(live, next object.Value) []*entry {
	if o.writer.Subresource == "" {
		brought := next.At("metadata", "managedFields")
		if o.writer.Clear || clears(brought) {
			return nil
		}
		if entries, err := parseManaged(brought, o.arena); err == nil && len(entries) > 0 {
			return entries
		}
	}
	entries, err := parseManaged(live.At("metadata", "managedFields"), o.arena)
	if err != nil {
		return nil
	}
	return entries
}

// clears says whether managedFields is a list of one empty entry, by which a client removes all managers.
func clears(managed object.Value) bool {
	return managed.Len() == 1 && managed.Items()[0].Len() == 0
}

// withoutManaged is the object without its managedFields: they are the record of the merge and take no part in it.
func withoutManaged(v object.Value) object.Value { return v.WithoutAt("metadata", "managedFields") }

// withManaged is the object with these managedFields, or without the field if they are null.
func withManaged(v, managed object.Value) object.Value {
	if managed.Len() == 0 {
		return withoutManaged(v)
	}
	return v.WithAt(managed, "metadata", "managedFields")
}

// update gives the manager the paths that differ between live and next, and takes them from every entry, the manager's
// own included:
//
//	owned(m) = owned(m) ∖ diff(live, next) for each m; then owned(manager) ∪= touched(diff(live, next)) ∖ unowned
//
// The manager's own entry must lose them, too, because it may own removed paths. live and next are without
// managedFields and in the version of the request. apply uses it, too, to record the fields of an object without
// managers (beforeFirstApply).
//
// Giving the manager all fields that it wrote, fields(next), would make it an owner of everything: from then on every
// change by an applier would be a conflict with any controller that has updated the object.
func (o *operation) update(live, next object.Value, manager string) error {
	if err := o.reconcile(live); err != nil {
		return err
	}
	now := &entry{Entry: Entry{Manager: manager, Operation: OperationUpdate, APIVersion: o.writer.APIVersion,
		Subresource: o.writer.Subresource}}
	if now.Manager == "" {
		now.Manager = unknownManager
	}
	diff, err := o.updateOwners(live, next, nil, true)
	if err != nil {
		return err
	}
	now.set = diff.only(touched).Minus(unowned)
	if now.set.Empty() {
		return nil
	}
	now.Time = o.writer.Now
	if at := indexOf(o.entries, &now.Entry); at >= 0 {
		now.set = now.set.Union(o.entries[at].set)
		o.entries[at] = now
	} else {
		o.entries = append(o.entries, now)
	}
	return nil
}

// Apply merges an intent into the live object, which is null if there is none (SSA-2, SSA-3). The result has its
// managedFields. It shares the memory of unchanged parts with live. The intent must have been decoded: its scalars are
// in the form in which its type holds them. Both are in the version of the request.
//
// The result need not be a valid object: pruning may have removed a required field. Defaulting and validation follow.
//
// Errors are *ConflictError, *TypeError, ErrManaged if the intent has managedFields, and those of Versions.
func (k *Kind) Apply(live, intent object.Value, w Writer) (object.Value, error) {
	if !intent.At("metadata", "managedFields").IsNull() {
		return object.Nil, ErrManaged
	}
	r := newArena()
	defer r.release()
	set, err := checkedFieldsOf(intent, k.Type, r)
	if err != nil {
		return object.Nil, err
	}
	if w.Manager == "" {
		w.Manager = unknownManager
	}
	merged, entries, err := k.apply(live, intent, set, w, r)
	if err != nil && w.Manager == kubectl {
		merged, entries, err = k.applyAfterClientSide(live, intent, set, w, r, err)
	}
	if err != nil {
		return object.Nil, err
	}
	if w.Manager == kubectl {
		merged = withLastApplied(merged, intent)
	}
	return withManaged(merged, printManaged(entries)), nil
}

// ErrManaged is the error of an intent that has managedFields.
var ErrManaged = errors.New("metadata.managedFields must be nil")

// apply merges an intent whose paths, set, have been collected and checked. The package comment has the formulas.
//
// Two shortcuts keep a repeated apply, which is by far the most frequent one, at the cost of a walk over the intent.
// join returns live itself if the intent adds nothing; and if the manager owned exactly what it applies now, in the
// same version, nothing can have been given up, so that there is nothing to prune.
func (k *Kind) apply(live, intent object.Value, set Set, w Writer, r *arena) (object.Value, []*entry, error) {
	o := operation{kind: k, writer: &w, arena: r}
	var err error
	if o.entries, err = parseManaged(live.At("metadata", "managedFields"), r); err != nil {
		return object.Nil, nil, fmt.Errorf("failed to decode managed fields: %w", err)
	}
	// 1. The current object and its managers. An object that was written without managers gets one that owns all of its
	// fields: otherwise this apply would change them without a conflict.
	if live.IsNull() {
		live = o.zeroObject(intent)
	}
	live = withoutManaged(live)
	if len(o.entries) == 0 {
		if err := o.update(o.zeroObject(live), live, beforeFirstApply); err != nil {
			return object.Nil, nil, err
		}
	}
	// me is the writer's new entry; last, below, is the one of its previous apply.
	me := &entry{Entry: Entry{Manager: w.Manager, Operation: OperationApply, APIVersion: w.APIVersion,
		Subresource: w.Subresource}}
	if at := indexOf(o.entries, &me.Entry); at >= 0 {
		me.Time = o.entries[at].Time // read before reconcile, which drops the entry if its version is gone
	}
	if err := o.reconcile(live); err != nil {
		return object.Nil, nil, err
	}
	// 2. The object with the intent merged in.
	merged, err := join(live, intent, k.Type)
	if err != nil {
		return object.Nil, nil, err
	}
	me.set = o.filtered(set, w.APIVersion)
	var last *entry
	if at := indexOf(o.entries, &me.Entry); at >= 0 {
		last = o.entries[at]
		me.stored, me.printed = last.stored, last.printed
		o.entries[at] = me
	} else {
		o.entries = append(o.entries, me)
	}
	// 3. Fields that the writer has given up since its last apply are removed, unless another manager owns them. me.set
	// still has the unowned paths here: those in the intent must not be pruned. Nothing has been given up if the set is
	// the one that was stored, reconcile has left that one alone, and both name the fields of one version.
	mine := me.set.Minus(unowned) // as it is going to be stored
	unchanged := last != nil && mine.Equal(last.stored)
	if !unchanged || !last.set.identical(last.stored) || last.APIVersion != w.APIVersion {
		if merged, err = o.prune(merged, last, me); err != nil {
			return object.Nil, nil, err
		}
	}
	// 4. Changed fields are taken from the others, or are a conflict with them. This follows prune: a pruned item is
	// removed with the fields that others own in it, and they must not keep paths of it.
	if _, err := o.updateOwners(live, merged, me, w.Force); err != nil {
		var conflict *ConflictError
		if errors.As(err, &conflict) {
			conflict.addValues = func(e *ConflictError) { o.addValues(e, live, merged) }
			conflict.addValues(conflict)
		}
		return object.Nil, nil, err
	}
	if unchanged {
		mine = last.stored // the same paths, and print reuses their text
	}
	o.setApplied(me, mine, !same(live, merged))
	if invariants.Enabled {
		checkEntries(o.entries)
		o.checkApplied(merged, intent, set, me)
	}
	return merged, o.entries, nil
}

// setApplied gives the writer's entry the set that is stored. Its time changes when the object does, not when the set
// does: a controller that applies the same intent every minute must not change managedFields, or each of its applies
// would be a write, and wake every watch. An intent of unowned paths only, such as a name, leaves no entry.
func (o *operation) setApplied(me *entry, mine Set, changed bool) {
	me.set = mine
	if me.set.Empty() {
		o.drop(me)
		return
	}
	if changed {
		me.Time = o.writer.Now
	}
}

// zeroObject is the object that a new one is compared with: Go's zero value of its kind, in its version. Null would be
// wrong: the creator would then own the fields that Go always writes (`status: {}`), although the creator has not
// written them. A custom type has no zero value; its new objects are compared with {apiVersion, kind}.
func (o *operation) zeroObject(obj object.Value) object.Value {
	zero := o.kind.Type.Zero()
	if zero.Kind() != object.Map {
		zero = object.MapOf()
	}
	return zero.Edit([]object.Member{{Key: "apiVersion", Value: obj.At("apiVersion")},
		{Key: "kind", Value: obj.At("kind")}})
}

// filtered is the set without the paths that requests to this endpoint cannot change, and without anything below them.
// It is applied to the set of an intent, so that the writer does not own its status, and to every difference, so that
// the status that the server restores does not count as a change by the writer, and is not taken from any manager.
func (o *operation) filtered(s Set, version string) Set {
	return s.MinusAll(o.kind.Reset[version])
}

// reconcile adapts the sets of all managers to the schemas of their versions (Set.reconcile), and drops managers whose
// version does not exist any longer: their paths mean nothing.
//
// It converts live to each version although it needs the type only: a conversion that fails must fail here, as in the
// reference, before anything has been computed. updateOwners needs the result anyway.
func (o *operation) reconcile(live object.Value) error {
	kept := make([]*entry, 0, len(o.entries)+1)
	for _, e := range o.entries {
		_, t, err := o.in(live, e.APIVersion)
		if err != nil {
			return err
		}
		if t == nil {
			continue
		}
		if set := e.set.reconcile(t); !set.identical(e.set) {
			changed := *e
			changed.set = set
			e = &changed
		}
		kept = append(kept, e)
	}
	o.entries = kept
	return nil
}

// updateOwners compares live with next and takes the difference from every manager but the writer:
//
//	conflicts(m) = owned(m) ∩ touched(diff)        owned(m) = owned(m) ∖ diff
//
// with diff in the version of m. Any conflict is an error, and changes nothing, unless force is set. A manager whose
// set becomes empty is dropped. The result is diff in the version of the request. writer is nil in an update, which
// takes the difference from the entry of its own manager, too.
//
// The intersection leaves out two cases that look like conflicts. A value that is equal in the intent and in live is
// not in diff: several managers may own one field as long as they agree on it. And the owner of an item does not have a
// conflict when a field in it is changed.
//
// Removed fields are not a conflict: an apply removes only fields without another owner (prune), and an update may
// remove anything. The whole objects are compared, not the intent with live, because pruning changes fields that the
// intent does not mention.
//
// The managers must have been reconciled, so that their versions exist. There are few distinct versions, mostly one: a
// linear search finds the comparison that has been made for one.
func (o *operation) updateOwners(live, next object.Value, writer *entry, force bool) (Set, error) {
	type comparison struct {
		version string
		diff    Set
	}
	var done []comparison // one for each distinct version so far
	diffIn := func(version string) (Set, error) {
		for _, c := range done {
			if c.version == version {
				return c.diff, nil
			}
		}
		before, t, err := o.in(live, version)
		if err != nil {
			return Set{}, err
		}
		now, _, err := o.in(next, version)
		if err != nil {
			return Set{}, err
		}
		diff, err := compare(before, now, t, o.arena)
		if err != nil {
			return Set{}, err
		}
		diff = o.filtered(diff, version)
		done = append(done, comparison{version, diff})
		return diff, nil
	}
	mine, err := diffIn(o.writer.APIVersion)
	if err != nil {
		return Set{}, err
	}
	var conflicts []conflict
	kept := make([]*entry, 0, len(o.entries)+1)
	for _, e := range o.entries {
		if e == writer {
			kept = append(kept, e)
			continue
		}
		diff, err := diffIn(e.APIVersion)
		if err != nil {
			return Set{}, err
		}
		if taken := e.set.intersect(diff, touched); !taken.Empty() && !force {
			conflicts = append(conflicts, conflict{e, taken})
		}
		if set := e.set.minus(diff, touched|removed, false); !set.identical(e.set) {
			changed := *e
			changed.set = set
			e = &changed
		}
		if !e.set.Empty() {
			kept = append(kept, e)
		}
	}
	if len(conflicts) > 0 {
		return Set{}, conflictError(conflicts)
	}
	o.entries = kept
	return mine, nil
}
