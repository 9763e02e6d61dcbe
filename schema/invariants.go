package schema

import (
	"errors"
	"slices"

	"plinth/internal/invariants"
	"plinth/object"
)

// The checks of this file run where invariants.Enabled is set: in every test, and in no release. They end
// the process.

// checkCompiled checks one compiled type, without those below it:
//
//	Fields[i].Name < Fields[i+1].Name        find(Fields[i].Name) = i        always ascends
//	a list has Elem                          a built-in map has Elem
//	a built-in Associative list has ListKeys, and each is a field of Elem where Elem has fields
//
// Decoding walks members and fields in parallel by the order of names, and a merge identifies items by their keys: a
// type that broke one of these would lose fields, or hold different items for the same one.
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
		return // the validation of a definition compiles its schema before it has looked for the keys of lists
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

// checkDecoded: DecodeFrom(v, settled) = Decode(v), errors included, if Decode has nothing to change in settled.
// Whatever both values share is not looked at, so it must have been decoded before.
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

// checkSettled: SettleFrom(v, settled) = Settle(v), if Settle has nothing to change in settled; and Settle(Settle(v))
// = Settle(v).
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
