package schema

import (
	"errors"
	"fmt"
	"slices"

	"plinth/object"
)

// The checks of this file run where invariants.Enabled is set: in every test, and in no release. They panic.

// mustHold panics with what does not hold, and with that for which it does not.
func mustHold(ok bool, formula string, of ...any) {
	if !ok {
		panic(fmt.Sprint(append([]any{formula, ": "}, of...)...))
	}
}

// checkCompiled checks one compiled type, without those below it:
//
//	Fields[i].Name < Fields[i+1].Name        find(Fields[i].Name) = i        always ascends
//	a list has Elem                          a built-in map has Elem
//	an Associative list has ListKeys, and each is a field of Elem where Elem has fields
//
// Decoding walks members and fields in parallel by the order of names, and a merge identifies items by their keys: a
// type that broke one of these would lose fields, or hold different items for the same one.
func (t *Type) checkCompiled() {
	for i := range t.Fields {
		name := t.Fields[i].Name
		mustHold(i == 0 || t.Fields[i-1].Name < name, "schema: fields out of order", t.GoName, ".", name)
		at, ok := t.find(name, 0)
		mustHold(ok && at == i, "schema: a field that is not found", t.GoName, ".", name)
	}
	for i, field := range t.always {
		mustHold(int(field) < len(t.Fields) && (i == 0 || t.always[i-1] < field), "schema: fields that are always written out of order", t.GoName)
	}
	if t.golang != nil && (t.Kind == List || t.Kind == Map) {
		mustHold(t.Elem != nil, "schema: a list or map without a type of its content", t.golang)
	}
	if t.ListType != Associative {
		return
	}
	mustHold(t.Kind == List && len(t.ListKeys) > 0, "schema: an associative list without keys", t.Name)
	if t.Elem != nil && len(t.Elem.Fields) > 0 {
		for _, key := range t.ListKeys {
			mustHold(t.Elem.Field(key) != nil, "schema: an associative list whose items do not have its key", t.Elem.GoName, ".", key)
		}
	}
}

// checkDecoded: DecodeFrom(v, settled) = Decode(v), errors included. What is skipped because both values share it must
// have been decoded and settled before.
func (t *Type) checkDecoded(v object.Value, got Decoded, err error) {
	want, wantErr := t.Decode(v)
	var a, b *TypeError
	if errors.As(err, &a) && errors.As(wantErr, &b) {
		mustHold(*a == *b, "schema: DecodeFrom has another error than Decode", a, " ", b)
		return
	}
	mustHold((err == nil) == (wantErr == nil), "schema: DecodeFrom and Decode disagree", err, " ", wantErr)
	mustHold(err != nil || object.Equal(got.Value, want.Value) && slices.Equal(got.Unknown, want.Unknown),
		"schema: DecodeFrom is not Decode", string(object.AppendJSON(nil, got.Value)), " ", string(object.AppendJSON(nil, want.Value)))
}

// checkSettled: SettleFrom(v, settled) = Settle(v), and Settle(Settle(v)) = Settle(v). Stable ⇒ Decode changes nothing
// in it, if it changed nothing in v.
func (t *Type) checkSettled(v, got object.Value) {
	var s settler
	mustHold(object.Equal(got, s.value(v, object.Nil, t)), "schema: SettleFrom is not Settle", t.GoName)
	mustHold(object.Equal(got, s.value(got, object.Nil, t)), "schema: Settle changes what is settled", t.GoName)
}
