package merge

import (
	"plinth/object"
	"plinth/schema"
)

// Intent is the intent by which a writer makes the live object what somebody has edited it to: for editors, in which
// one sees and changes a whole object, while an apply takes what it is given for the writer's. It has
//
//	touched(diff(live, edited)) ∪ (owned(last apply of the writer) ∩ fields(edited))
//
// with the values of edited, and its apiVersion, kind, name and namespace. live is null if there is no object: then it
// is all of edited. Both are in the version of the request.
//
// To apply edited itself would make the writer an owner of everything that it has left alone, and each later change by
// anybody else a conflict. To apply the difference alone would remove what the writer has applied before: an apply
// gives up what it does not mention.
//
// What was removed in edited is in no intent. It goes if only the writer has applied it; other fields stay, as with any
// apply.
func (k *Kind) Intent(live, edited object.Value, w Writer) (object.Value, error) {
	o := operation{kind: k, writer: &w, arena: new(arena)}
	var err error
	if o.entries, err = parseManaged(live.At("metadata", "managedFields"), o.arena); err != nil {
		return object.Nil, err
	}
	was, now := withoutManaged(live), withoutManaged(edited)
	if live.IsNull() {
		was = object.MapOf()
	}
	diff, err := compare(was, now, k.Type, o.arena)
	if err != nil {
		return object.Nil, err
	}
	fields := diff.only(touched)
	if err := o.reconcile(was); err != nil {
		return object.Nil, err
	}
	me := Entry{Manager: w.Manager, Operation: OperationApply, APIVersion: w.APIVersion, Subresource: w.Subresource}
	if at := indexOf(o.entries, &me); at >= 0 {
		applied, err := o.selectedIn(o.entries[at], now)
		if err != nil {
			return object.Nil, err
		}
		fields = fields.Union(applied)
	}
	intent := selected(now, k.Type, o.filtered(fields, w.APIVersion).Minus(unowned))
	if intent.IsNull() {
		intent = object.MapOf()
	}
	for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}} {
		if v := edited.At(path...); !v.IsNull() {
			intent = intent.WithAt(v, path...)
		}
	}
	return intent, nil
}

// selectedIn is the part of an object that an entry owns, as paths of the version of the request. The entry may be of
// another one: then the part is taken there, and converted back.
func (o *operation) selectedIn(e *entry, v object.Value) (Set, error) {
	if e.APIVersion == o.writer.APIVersion {
		return e.set, nil
	}
	there, t, err := o.in(v, e.APIVersion)
	if err != nil {
		return Set{}, err
	}
	part, _, err := o.in(selected(there, t, e.set).With("apiVersion", there.At("apiVersion")).
		With("kind", there.At("kind")), o.writer.APIVersion)
	if err != nil {
		return Set{}, err
	}
	return fieldsOf(part, o.kind.Type), nil
}

// selected is the part of a value at the paths of a set, with the keys of the items that it is in; null if there is
// none. It is the complement of without. A container that is in the set and of which nothing else is becomes an empty
// one: who has applied `labels: {}` owns that.
func selected(v object.Value, t *schema.Type, fields Set) object.Value {
	switch s := shapeOf(t, v); {
	case s == leaf || v.Len() == 0 || atomic(t, s):
		return object.Nil
	case s == mapping:
		return selectedMembers(v, t, fields)
	}
	return selectedItems(v, t, fields)
}

// selectedAt is selected for the value at a node of a set: all of it, if it is not divided any further.
func selectedAt(v object.Value, t *schema.Type, n node) (object.Value, bool) {
	s := shapeOf(t, v)
	if s == leaf || v.Len() == 0 || atomic(t, s) {
		// Paths below lead into what was granular once.
		return v, n.marks != 0 || !n.below.Empty()
	}
	if part := selected(v, t, n.below); !part.IsNull() {
		return part, true
	}
	if s == mapping {
		return emptyMap, n.marks != 0
	}
	return object.ListOf(), n.marks != 0
}

func selectedMembers(v object.Value, t *schema.Type, fields Set) object.Value {
	var out []object.Member
	for _, m := range v.Members() {
		of, _ := memberType(t, m.Key)
		if part, ok := selectedAt(m.Value, of, fields.at(FieldElement(m.Key))); ok {
			out = append(out, object.Member{Key: m.Key, Value: part})
		}
	}
	if len(out) == 0 {
		return object.Nil
	}
	return object.MapOf(out...)
}

// selectedItems takes items by their identities. An item without one, or that has the identity of another item, is what
// a valid object does not have: the apply says so.
func selectedItems(v object.Value, t *schema.Type, fields Set) object.Value {
	var out []object.Value
	for _, item := range v.Items() {
		id, err := identify(t, item)
		if err != nil {
			continue
		}
		part, ok := selectedAt(item, itemType(t), fields.at(elementOf(t, id)))
		if !ok {
			continue
		}
		for _, key := range t.ListKeys { // of a list of maps; those that item leaves out have a default
			if value, given := item.Get(key); given {
				part = part.With(key, value)
			}
		}
		out = append(out, part)
	}
	if len(out) == 0 {
		return object.Nil
	}
	return object.ListOf(out...)
}
