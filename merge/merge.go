package merge

import (
	"errors"
	"fmt"

	"plinth/object"
	"plinth/schema"
)

// Versions knows the API versions of a kind and how to get from one to another (SSA-11).
type Versions interface {
	// Type is the schema of a version; nil if there is none of this name.
	Type(apiVersion string) *schema.Type
	// Convert gives an object in another version.
	Convert(v object.Value, apiVersion string) (object.Value, error)
}

// Kind is what is merged: objects of one kind, seen through one endpoint of the API.
type Kind struct {
	Type     *schema.Type   // of the version of the request
	Versions Versions       // nil: there is but that version
	Reset    map[string]Set // by API version: what requests to this endpoint may not touch, with all that is below it
}

// Writer says who writes, and how.
type Writer struct {
	Manager     string // "" is "unknown"
	APIVersion  string // of the request
	Subresource string
	Force       bool   // of an apply: take over the fields that conflict
	Clear       bool   // of an update: forget all managers, as an empty list of managedFields wants it
	Now         string // in UTC as RFC 3339 has it, to the second: "2026-01-02T15:04:05Z"
}

// unknownManager is who writes without a name.
const unknownManager = "unknown"

// beforeFirstApply owns what was there when an object that nobody managed is applied to for the first time (SSA-1).
const beforeFirstApply = "before-first-apply"

// unowned is what nobody ever owns (SSA-15).
var unowned = Fields("apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.creationTimestamp",
	"metadata.selfLink", "metadata.uid", "metadata.clusterName", "metadata.generation", "metadata.managedFields",
	"metadata.resourceVersion")

// operation is one apply or update under way.
type operation struct {
	kind    *Kind
	writer  *Writer
	room    *room
	entries []*entry // never changed in place: an entry is replaced
}

// in gives an object in a version, with its type; a nil type says that there is no such version.
func (o *operation) in(v object.Value, version string) (object.Value, *schema.Type, error) {
	t := o.typeOf(version)
	if t == nil || v.At("apiVersion").Str() == version || o.kind.Versions == nil {
		return v, t, nil
	}
	converted, err := o.kind.Versions.Convert(v, version)
	return converted, t, err
}

func (o *operation) typeOf(version string) *schema.Type {
	switch {
	case version == o.writer.APIVersion:
		return o.kind.Type
	case o.kind.Versions == nil:
		return nil
	}
	return o.kind.Versions.Type(version)
}

// Update tells who owns what after a write that is no apply (SSA-6): next is what is going to be stored, live what was
// there, null if there was nothing. It returns next with its managedFields. An error says why ownership cannot be told: what
// is returned beside it has the managedFields of live, for whoever goes on with the write all the same.
func (k *Kind) Update(live, next object.Value, w Writer) (object.Value, error) {
	o := operation{kind: k, writer: &w, room: newRoom()}
	defer o.room.giveBack()
	o.entries = o.startingPoint(live, next)
	bare := withoutManaged(next)
	if len(o.entries) == 0 && live.At("metadata", "uid").Str() != "" {
		return bare, nil // nobody has begun to manage it
	}
	if live.IsNull() {
		live = o.nothing(next)
	}
	if err := o.update(withoutManaged(live), bare, w.Manager); err != nil {
		return withManaged(bare, live.At("metadata", "managedFields")), err
	}
	o.cap()
	return withManaged(bare, printManaged(o.entries)), nil
}

// startingPoint is the managers before an update: those that the request tells, or else those of the live object (SSA-7).
func (o *operation) startingPoint(live, next object.Value) []*entry {
	if o.writer.Subresource == "" {
		told := next.At("metadata", "managedFields")
		if o.writer.Clear || clears(told) {
			return nil
		}
		if entries, err := parseManaged(told, o.room); err == nil && len(entries) > 0 {
			return entries
		}
	}
	entries, err := parseManaged(live.At("metadata", "managedFields"), o.room)
	if err != nil {
		return nil
	}
	return entries
}

// clears recognises the list with one empty entry, which says that nobody manages anything.
func clears(managed object.Value) bool {
	return managed.Len() == 1 && managed.Items()[0].Len() == 0
}

func withoutManaged(v object.Value) object.Value { return v.WithoutAt("metadata", "managedFields") }

func withManaged(v, managed object.Value) object.Value {
	if managed.Len() == 0 {
		return withoutManaged(v)
	}
	return v.WithAt(managed, "metadata", "managedFields")
}

// update gives the writer what it changes, and takes that from everybody else, the writer's earlier self included.
func (o *operation) update(live, next object.Value, manager string) error {
	if err := o.reconcile(live); err != nil {
		return err
	}
	now := &entry{Entry: Entry{Manager: manager, Operation: OperationUpdate, APIVersion: o.writer.APIVersion, Subresource: o.writer.Subresource}}
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
// managedFields; it is live itself where nothing changes. The intent has been brought into the form in which its type holds
// scalars.
//
// Errors: *ConflictError, *TypeError, and ErrManaged for an intent that brings managedFields along.
func (k *Kind) Apply(live, intent object.Value, w Writer) (object.Value, error) {
	if !intent.At("metadata", "managedFields").IsNull() {
		return object.Nil, ErrManaged
	}
	r := newRoom()
	defer r.giveBack()
	set, err := survey(intent, k.Type, r)
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

// ErrManaged is an intent that wants to say who owns what.
var ErrManaged = errors.New("metadata.managedFields must be nil")

// apply merges an intent that has been surveyed.
func (k *Kind) apply(live, intent object.Value, set Set, w Writer, r *room) (object.Value, []*entry, error) {
	o := operation{kind: k, writer: &w, room: r}
	var err error
	if o.entries, err = parseManaged(live.At("metadata", "managedFields"), r); err != nil {
		return object.Nil, nil, fmt.Errorf("failed to decode managed fields: %w", err)
	}
	if live.IsNull() {
		live = o.nothing(intent)
	}
	live = withoutManaged(live)
	if len(o.entries) == 0 {
		if err := o.update(o.nothing(live), live, beforeFirstApply); err != nil {
			return object.Nil, nil, err
		}
	}
	me := &entry{Entry: Entry{Manager: w.Manager, Operation: OperationApply, APIVersion: w.APIVersion, Subresource: w.Subresource}}
	if at := indexOf(o.entries, &me.Entry); at >= 0 {
		me.Time = o.entries[at].Time // even if it was in a version that is gone
	}
	if err := o.reconcile(live); err != nil {
		return object.Nil, nil, err
	}
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
	mine := me.set.Minus(unowned) // as it is going to be stored
	again := last != nil && mine.Equal(last.stored)
	if !again || !last.set.is(last.stored) || last.APIVersion != w.APIVersion { // else nothing can have been given up
		if merged, err = o.prune(merged, last, me); err != nil {
			return object.Nil, nil, err
		}
	}
	if _, err := o.updateOwners(live, merged, me, w.Force); err != nil {
		var conflict *ConflictError
		if errors.As(err, &conflict) {
			o.tell(conflict, live, merged)
		}
		return object.Nil, nil, err
	}
	if again {
		mine = last.stored
	}
	o.finish(me, mine, !same(live, merged))
	return merged, o.entries, nil
}

// finish gives the writer's entry the set that is stored. The time is that of the last change of the object.
func (o *operation) finish(me *entry, mine Set, changed bool) {
	me.set = mine
	if me.set.Empty() {
		o.drop(me)
		return
	}
	if changed {
		me.Time = o.writer.Now
	}
}

// nothing is what an object is compared with where there was none: Go's zero value of its kind, in its version.
func (o *operation) nothing(obj object.Value) object.Value {
	zero := o.kind.Type.Zero()
	if zero.Kind() != object.Map {
		zero = object.MapOf()
	}
	return zero.Edit([]object.Member{{Key: "apiVersion", Value: obj.At("apiVersion")}, {Key: "kind", Value: obj.At("kind")}})
}

func (o *operation) filtered(s Set, version string) Set {
	return s.MinusAll(o.kind.Reset[version])
}

// reconcile brings the sets of all managers in line with the schemas of their versions. Managers of versions that are gone
// are gone.
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
		if set := e.set.reconcile(t); !set.is(e.set) {
			changed := *e
			changed.set = set
			e = &changed
		}
		kept = append(kept, e)
	}
	o.entries = kept
	return nil
}

// updateOwners compares what was with what is, and takes from everybody but the writer what they do not own any longer: fields
// that are gone, and by force those that have changed. Without force a changed field that another manager owns is a
// conflict. It returns the difference in the version of the request. The managers have been reconciled: their versions are
// there.
func (o *operation) updateOwners(live, next object.Value, writer *entry, force bool) (Set, error) {
	type comparison struct {
		version string
		diff    Set
	}
	var done []comparison
	diffIn := func(version string) (Set, error) {
		for _, c := range done {
			if c.version == version {
				return c.diff, nil
			}
		}
		was, t, err := o.in(live, version)
		if err != nil {
			return Set{}, err
		}
		is, _, err := o.in(next, version)
		if err != nil {
			return Set{}, err
		}
		diff, err := compare(was, is, t, o.room)
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
		if taken := e.set.both(diff, touched); !taken.Empty() && !force {
			conflicts = append(conflicts, conflict{e, taken})
		}
		if set := e.set.minus(diff, touched|removed, false); !set.is(e.set) {
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
