package schema

import (
	"errors"
	"slices"

	"plinth/internal/invariants"
	"plinth/object"
)

// This file checks the assumptions that the walks make without testing them: the order of fields and of the list
// always, and the equations of the package comment. A violation would not crash anything. It would lose a field of some
// object, or give it a value that a slower walk would not give it, and would be found much later, if at all. So each
// result is compared with that of a walk without the assumptions, which is slower: DecodeFrom with Decode, SettleFrom
// with Settle.
//
// The checks run where invariants.Enabled is set: in every test, and in no release, because they cost more than the
// walks themselves. A failed check ends the process (invariants.Fail).
//
// One property is not checked here: that Decode and Settle compute the form that the reference has.
// conformance/oracle/schema tests it against the original Go types.

// checkCompiled checks one compiled type, without those below it:
//
//	Fields[i].Name < Fields[i+1].Name        find(Fields[i].Name) = i        always ascends
//	a built-in list or map has Elem
//	a built-in Associative list has ListKeys, and each is a field of Elem where Elem has fields
//
// The first line has three users. Decoding inserts the fields of always while it passes the members of a value, both in
// the order of names: an index out of order would insert a field after its place. The result of such an insertion is a
// map whose members are not sorted, in which a later binary search (object.Value.Get) misses existing members. And a
// merge identifies items by their keys: two items that lack a key which Elem does not have would count as the same one.
//
// Types of definitions are exempt from the last line: the validation of a definition compiles its schema before it has
// checked that the keys of its lists exist, and reports a missing one to the client itself.
//
// The check is not recursive. Each type is checked when it is complete, so that all types below it have been checked,
// or will be in the same batch.
func (t *Type) checkCompiled() {
	for i := range t.Fields {
		name := t.Fields[i].Name
		if i > 0 && t.Fields[i-1].Name >= name {
			invariants.Fail("schema: fields out of order: %s.%s", t.GoName, name)
		}
		if at, ok := t.find(name, 0); !ok || at != i {
			invariants.Fail("schema: a field that is not found: %s.%s", t.GoName, name)
		}
	}
	for i, field := range t.always {
		if int(field) >= len(t.Fields) || i > 0 && t.always[i-1] >= field {
			invariants.Fail("schema: fields that are always written out of order: %s", t.GoName)
		}
	}
	if t.golang != nil && (t.Kind == List || t.Kind == Map) && t.Elem == nil {
		invariants.Fail("schema: a list or map without a type of its content: %v", t.golang)
	}
	if t.ListType != Associative || t.golang == nil {
		return // see above: the keys of a definition's lists are checked later
	}
	if t.Kind != List || len(t.ListKeys) == 0 {
		invariants.Fail("schema: an associative list without keys: %s", t.Name)
	}
	for _, key := range t.ListKeys {
		if t.Elem != nil && len(t.Elem.Fields) > 0 && t.Elem.Field(key) == nil {
			invariants.Fail("schema: an associative list whose items do not have its key: %s.%s", t.Elem.GoName, key)
		}
	}
}

// checkDecoded checks that skipping shared subtrees does not change the result, errors included:
//
//	Decode(settled) = settled  ⇒  DecodeFrom(v, settled) = Decode(v)
//
// The premise is checked first, since callers may pass any older version: DecodeFrom does not look at subtrees that
// both values share, so the equation holds only if they have been decoded before. For example, if settled is {a: 1, b:
// {x: 2}}, and the type of b has no field x, then DecodeFrom of {a: 3, b: (the same map)} keeps b.x, and Decode drops
// it. No caller does this, and the check ignores it.
//
// Errors are compared by path and message, since these are what the client sees.
func (t *Type) checkDecoded(v, settled object.Value, got Decoded, err error) {
	before, beforeErr := t.Decode(settled)
	if settled.IsNull() || beforeErr != nil || len(before.Unknown) > 0 || !object.Equal(before.Value, settled) {
		return
	}
	want, wantErr := t.Decode(v)
	var a, b *TypeError
	if errors.As(err, &a) && errors.As(wantErr, &b) {
		if *a != *b {
			invariants.Fail("schema: DecodeFrom has another error than Decode: %v, not %v", a, b)
		}
		return
	}
	if (err == nil) != (wantErr == nil) {
		invariants.Fail("schema: DecodeFrom and Decode disagree: %v, not %v", err, wantErr)
	}
	if err == nil && (!object.Equal(got.Value, want.Value) || !slices.Equal(got.Unknown, want.Unknown)) {
		invariants.Fail("schema: DecodeFrom is not Decode: %s, not %s", object.AppendJSON(nil, got.Value),
			object.AppendJSON(nil, want.Value))
	}
}

// checkSettled checks two equations, the first for every value and the second where its premise holds, as in
// checkDecoded:
//
//	Settle(Settle(v)) = Settle(v)
//	Settle(settled) = settled  ⇒  SettleFrom(v, settled) = Settle(v)
//
// If the first failed, an update that changes nothing would still differ from the stored object, and would be written
// again with each request (WRITE-3).
func (t *Type) checkSettled(v, settled, got object.Value) {
	var s settler
	if !object.Equal(got, s.value(got, object.Nil, t)) {
		invariants.Fail("schema: Settle changes what is settled: %s", t.GoName)
	}
	if !settled.IsNull() && object.Equal(settled, s.value(settled, object.Nil, t)) &&
		!object.Equal(got, s.value(v, object.Nil, t)) {
		invariants.Fail("schema: SettleFrom is not Settle: %s", t.GoName)
	}
}
