package schema

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// This file decodes custom objects. The reference holds them as maps, and walks them five times, in this order. Here it
// is one walk. The errors of each step are kept apart, so that the first step with an error decides, as in the
// reference.
//
//  1. Numbers get the type that their literal implies: an integer of 64 bits, or else a float. A literal that no float
//     can hold is an error.
//  2. metadata is decoded as ObjectMeta, with Go's rules and errors. The reference keeps the result aside and puts it
//     back in the end, so that the steps below do not see it.
//  3. Fields that the schema does not have are dropped and reported, except below
//     x-kubernetes-preserve-unknown-fields. That reaches down to the next schema that is written out, which prunes
//     again unless it preserves, too:
//
//     kept(member) ⇔ declared ∨ additionalProperties ∨ the map preserves ∨ the map is an item of a list that preserves
//
//     This depends on the kind of the value alone, whatever type the schema gives it: a map where the schema has a
//     string loses every member, and is refused for its type only later.
//  4. Members that are null are dropped where the schema has neither `nullable` nor a default for them. They are no
//     error.
//  5. The metadata of embedded objects is decoded as in 2, and their apiVersion and kind have to be strings.
//
// Five walks, as in the reference, take five times the work, and each of them copies the result of the one before. One
// walk can do it because a step depends only on the effects of earlier steps on the same place: a member is first a
// number or not, then known or not, then null or not. Only one result depends on the order: which error the client
// gets. Hence an error per step (number, top, embedded), and three lists of unknown fields.
//
// For example, with properties a (integer), m (preserves unknown fields, has the property x: {type: object}) in
//
//	{a: 1.0, b: 2, m: {y: {z: 1}, x: {z: 1}}, n: null}
//
// 1.0 becomes 1, b is dropped and reported, m.y stays as it is, m.x.z is dropped and reported, because x is written out
// and does not preserve; n is dropped and reported as an unknown field, null or not.
//
// Two things differ from Go's decoding: no field is ever added, and a number without a fraction is an integer: `1.0` is
// stored as 1.
//
// The functions of the reference are, in the order of the steps: UnmarshalJSON of unstructured objects; GetObjectMeta
// of apiextensions-apiserver's package objectmeta; PruneWithOptions of pruning; PruneNonNullableNullsWithoutDefaults of
// defaulting; Coerce of objectmeta.

// DecodeStored is Decode for an object that was stored under an earlier schema. It was not sent by the client, who
// could not correct it: malformed members in the metadata of embedded objects are dropped and never an error
// (DropInvalidFields of the reference's Coerce). For a built-in type it is Decode.
func (t *Type) DecodeStored(v object.Value) (Decoded, error) {
	if t.Custom == nil {
		return t.Decode(v)
	}
	return t.prune(v, pruner{stored: true})
}

// prune walks an object with a pruner whose flags select the variant, and puts errors and unknown fields into the order
// of the reference: the error of the first step that has one is returned. On an error there is no value.
func (t *Type) prune(v object.Value, p pruner) (Decoded, error) {
	out := p.value(v, t, false, nil)
	for _, err := range []*TypeError{p.number, p.top, p.embedded} {
		if err != nil {
			return Decoded{}, err
		}
	}
	slices.Sort(p.unknown)
	slices.Sort(p.unknownEmbedded)
	unknown := append(append(p.unknownTop, p.unknown...), p.unknownEmbedded...)
	return Decoded{Value: out, Unknown: unknown[:min(len(unknown), maxUnknown)]}, nil
}

// pruner is the state of one walk. The flags differ by use: none for a body that a client sends; stored for an object
// from the store; nulls for the result of an apply (DecodeMerged); stored and nulls for the defaults of a schema that
// is compiled; nulls and keeps for the defaults of a schema that is validated.
type pruner struct {
	settled object.Value // see DecodeFrom
	stored  bool         // see DecodeStored
	nulls   bool         // step 4 is left out
	keeps   bool         // fields that step 3 would drop stay, and are reported

	// Unknown fields, of the top metadata, of the schema, and of embedded metadata: the reference reports them in this
	// order, the latter two sorted.
	unknownTop, unknown, unknownEmbedded []string
	reported                             int // the length of all of their text
	// The first error of each step, in the order of the steps.
	number, top, embedded *TypeError
	refused               *field.Error // embedded, as the error of a field
}

// location is one element of the path from the top to the current value, linked upwards; nil is the top. It stays on
// the stack, like [step]. It is a separate type because it is printed in other forms than step, and because a value of
// a custom type need not have the kind that its type names.
type location struct {
	up      *location
	key     string
	index   int          // of an item; -1 for a member
	free    bool         // the member is not declared: allowed by additionalProperties, or not at all
	settled object.Value // the value at this place of the older version (DecodeFrom)
}

// String is the path in the form of unknown fields, which is that of [step.String]: a.b[0].c.
func (p *location) String() string { return string(p.appendPath(nil)) }

func (p *location) appendPath(dst []byte) []byte {
	if p == nil {
		return dst
	}
	dst = p.up.appendPath(dst)
	switch {
	case p.index >= 0:
		dst = append(dst, '[')
		dst = strconv.AppendInt(dst, int64(p.index), 10)
		return append(dst, ']')
	case p.up != nil:
		dst = append(dst, '.')
	}
	return append(dst, p.key...)
}

// path is the path in the form of field errors: a.b[0][c] where c is a member that no property declares.
func (p *location) path() *field.Path {
	switch {
	case p == nil, p.up == nil && p.index < 0 && p.key == "":
		return nil
	case p.index >= 0:
		return p.up.path().Index(p.index)
	case p.free:
		return p.up.path().Key(p.key)
	}
	return p.up.path().Child(p.key)
}

// value decodes the value of a place. keep says that the place is an item of a list that preserves unknown fields.
// Other values than numbers, maps and lists are returned as they are; validation checks whether they fit their type.
func (p *pruner) value(v object.Value, t *Type, keep bool, at *location) object.Value {
	switch v.Kind() {
	case object.Number:
		return p.untyped(v, at)
	case object.Map:
		return p.members(v, t, keep || t.preserves(), at)
	case object.List:
		return p.items(v, t, keep || t.preserves(), at)
	}
	return v
}

// untyped is step 1 for v and everything below it. A literal that no float can hold stays, with an error.
func (p *pruner) untyped(v object.Value, at *location) object.Value {
	typed, err := v.Untyped()
	if err != nil && p.number == nil {
		p.number = &TypeError{Path: at.String(), Message: err.Error()}
	}
	return typed
}

// from is the value at a place of the older version that the object was made from, or null (DecodeFrom).
func (p *pruner) from(at *location) object.Value {
	if at == nil {
		return p.settled
	}
	return at.settled
}

// items decodes a list. Where the schema does not describe its items, as in a list where the schema has a string, they
// are kept or emptied as members would be: [{a: 1}, 2] in the place of a string becomes [{}, 2].
//
// keep extends to the items, unlike to members: {type: array, x-kubernetes-preserve-unknown-fields: true, items: {type:
// object}} keeps the members of each item, though the schema of the items is written out and does not preserve.
func (p *pruner) items(v object.Value, t *Type, keep bool, at *location) object.Value {
	of := t.Items()
	if of == nil {
		if keep {
			return p.untyped(v, at)
		}
		of = emptied
	}
	out := listEdit{old: v.Items()}
	before := p.from(at).Items()
	here := location{up: at}
	for i, item := range out.old {
		if here.index, here.settled = i, object.Nil; i < len(before) {
			here.settled = before[i]
		}
		if item == here.settled {
			out.set(i, item)
			continue
		}
		out.set(i, p.value(item, of, keep, &here))
	}
	return out.value(v)
}

// members decodes a map. keep says that unknown members stay. A member that is the same memory as the one of its name
// in settled has been decoded, and is skipped: see DecodeFrom.
func (p *pruner) members(v object.Value, t *Type, keep bool, at *location) object.Value {
	out := edit{old: v.Members()}
	before := counterpart{members: p.from(at).Members()}
	here := location{up: at, index: -1}
	for i := range out.old {
		m := &out.old[i]
		var same bool
		if here.settled, same = before.find(m.Key); same && here.settled == m.Value {
			out.keep(i, m.Value)
			continue
		}
		here.key, here.free = m.Key, false
		if value, stays := p.member(m.Value, t, keep, &here); stays {
			out.keep(i, value)
		} else {
			out.drop(i)
		}
	}
	return out.value(v)
}

// member decodes a member of a map and says whether it stays.
func (p *pruner) member(v object.Value, t *Type, keep bool, at *location) (object.Value, bool) {
	if t.embeds() {
		switch at.key {
		case "apiVersion", "kind":
			return p.typeMeta(v, t, at)
		case "metadata":
			if at.up == nil {
				return p.topMetadata(v, t, at), true
			}
			return p.metadata(v, t, at)
		}
	}
	of := t.below(at.key)
	if at.free = t.Field(at.key) == nil; of == nil {
		v = p.untyped(v, at) // an invalid number is an error even in a field that is dropped
		if !keep && p.reports(p.unknown) {
			p.unknown = p.report(p.unknown, at.String())
		}
		return v, keep || p.keeps
	}
	if p.loses(v, of) {
		return v, false
	}
	return p.value(v, of, false, at), true
}

// below is the type that pruning uses for a member of a map, declared or additional; nil for an unknown member. In an
// embedded object, or at the top, metadata has the type ObjectMeta here.
func (t *Type) below(name string) *Type {
	if f := t.Field(name); f != nil {
		return f.Type
	}
	return t.additional()
}

// loses says whether a member of this type is dropped because it is null (step 4). One with a default stays null, as
// the default replaces it later (filler). It is not called for items of lists: a null item stays, or validation refuses
// it.
func (p *pruner) loses(v object.Value, of *Type) bool {
	return v.IsNull() && !p.nulls && of.declared() && !of.nullable() && of.fallback().IsNull()
}

// declared says whether the type comes from a schema that was written for the place, and not from a boolean
// additionalProperties or from the fields that every object has.
func (t *Type) declared() bool { return t != emptied && t != closed && t != bareTypeMeta }

// reports says whether one more unknown field will be reported: not beyond maxUnknown, as in the reference, nor beyond
// maxReported. It is called before a path is printed.
func (p *pruner) reports(paths []string) bool {
	return len(paths) < maxUnknown && p.reported < maxReported
}

// report adds a path.
func (p *pruner) report(paths []string, path string) []string {
	p.reported += len(path)
	return append(paths, path)
}

// typeMeta decodes apiVersion and kind of an object: step 2 at the top, and step 5 in an embedded one.
func (p *pruner) typeMeta(v object.Value, t *Type, at *location) (object.Value, bool) {
	switch {
	case v.Kind() == object.String:
		return v, true
	case at.up == nil:
		if p.top == nil {
			p.top = &TypeError{Path: at.key, Message: fmt.Sprintf(".%s accessor error: %s is of the type %s, expected string",
				at.key, object.AppendJSON(nil, v), goType(v))}
		}
		return v, true
	case p.loses(v, t.Field(at.key).Type), p.stored:
		return v, false
	}
	p.refuse(v, at, "must be a string")
	return v, true
}

// refuse records an error in an embedded object. Only the first one is kept: as a field error for CheckEmbedded, and as
// text for all other callers.
func (p *pruner) refuse(v object.Value, at *location, detail string) {
	if p.embedded == nil {
		p.refused = field.Invalid(at.path(), BadValue(p.untyped(v, at)), detail)
		p.embedded = &TypeError{Path: at.String(), Message: p.refused.Error()}
	}
}

// topMetadata is step 2. After an error the walk continues: step 1 may still fail, and its error takes precedence.
func (p *pruner) topMetadata(v object.Value, t *Type, at *location) object.Value {
	decoded, err := p.objectMeta(v, t, at)
	if err != nil {
		p.top = &TypeError{Path: "metadata", Message: err.Error()}
		return v
	}
	for _, name := range decoded.Unknown {
		if p.reports(p.unknownTop) {
			p.unknownTop = p.report(p.unknownTop, "metadata."+name)
		}
	}
	return decoded.Value
}

// metadata is step 5. It says whether the member stays.
func (p *pruner) metadata(v object.Value, t *Type, at *location) (object.Value, bool) {
	if described := t.Custom.Metadata; described != nil {
		if p.loses(v, described) {
			return v, false
		}
		if !p.nulls {
			v = withoutNulls(v, described)
		}
	}
	decoded, err := p.objectMeta(v, t, at)
	if err != nil {
		if !p.stored {
			p.refuse(v, at, err.Error())
		}
		return v, true
	}
	for _, name := range decoded.Unknown {
		if p.reports(p.unknownEmbedded) {
			p.unknownEmbedded = p.report(p.unknownEmbedded, at.path().String()+"."+name)
		}
	}
	return decoded.Value, true
}

// objectMeta decodes metadata by the rules of Go. With stored, members that cannot be decoded are left out: each is
// decoded separately, as one error does not reveal whether there are more. That takes a second pass over the members,
// not one per member.
func (p *pruner) objectMeta(v object.Value, t *Type, at *location) (Decoded, error) {
	w := walker{settled: at.settled}
	// The reference prints the metadata that it has read and decodes the text: 1.0 has become 1 by then.
	current := goType(v)
	v, err := v.Scalars(func(v object.Value) (object.Value, error) {
		if v.Kind() != object.Number {
			return v, nil
		}
		return object.NumberOf(string(object.AppendJSON(nil, p.untyped(v, at)))), nil
	})
	if err != nil {
		return Decoded{}, err
	}
	of := t.Field("metadata").Type
	decoded, err := w.decode(v, of)
	switch {
	case err == nil || !p.stored:
		return decoded, err
	case v.Kind() != object.Map:
		return Decoded{}, fmt.Errorf("invalid metadata: expected object, got %s", current)
	}
	var members []object.Member // those that can be decoded
	for _, m := range v.Members() {
		w = walker{}
		if _, err := w.decode(object.MapOf(m), of); err == nil {
			members = append(members, m)
		}
	}
	w = walker{}
	return w.decode(object.MapOf(members...), of)
}

// withoutNulls is step 4 for metadata, which step 3 does not walk. The schema may describe metadata in more detail than
// ObjectMeta does, and a null that it does not allow is dropped before Go's decoding.
func withoutNulls(v object.Value, t *Type) object.Value {
	var p pruner
	switch v.Kind() {
	case object.Map:
		out := edit{old: v.Members()}
		for i := range out.old {
			m := &out.old[i]
			switch of := t.below(m.Key); {
			case of == nil:
				out.keep(i, m.Value)
			case p.loses(m.Value, of):
				out.drop(i)
			default:
				out.keep(i, withoutNulls(m.Value, of))
			}
		}
		return out.value(v)
	case object.List:
		of := t.Items()
		if of == nil {
			return v
		}
		out := listEdit{old: v.Items()}
		for i, item := range out.old {
			out.set(i, withoutNulls(item, of))
		}
		return out.value(v)
	}
	return v
}

// BadValue returns a value in the form in which errors of the reference print it (field.Error.BadValue): scalars as Go
// values, lists and maps as JSON.
func BadValue(v object.Value) any {
	switch v.Kind() {
	case object.String:
		return v.Str()
	case object.Int:
		return v.Int()
	case object.Float:
		return v.Float()
	case object.Bool:
		return v.Bool()
	case object.Null:
		return nil
	}
	return shown{v}
}

// shown is a list or a map in an error. It is printed only when the error is.
type shown struct{ value object.Value }

// MarshalJSON implements json.Marshaler.
func (s shown) MarshalJSON() ([]byte, error) { return object.AppendJSON(nil, s.value), nil }

// goType is the Go type in which the reference holds a value, as fmt's %T prints it. A Number is a literal that has not
// been decoded yet: a float, since it is not an integer of 64 bits.
func goType(v object.Value) string {
	switch v.Kind() {
	case object.String:
		return "string"
	case object.Bool:
		return "bool"
	case object.Int:
		return "int64"
	case object.Float, object.Number:
		return "float64"
	case object.List:
		return "[]interface {}"
	case object.Map:
		return "map[string]interface {}"
	}
	return "<nil>"
}
