package schema

import (
	"strconv"

	"plinth/object"
)

// Pair is a value of a custom type and the value that it replaces (CorrelatedObject of apiserver's package cel/common;
// KEP-4008). The validation of an update walks pairs: an error in a value that has not changed does not refuse the
// update, and rules compare a value with its old one.
//
// The problem: a definition gets a stricter schema while objects exist that violate it. If every update were validated
// as a whole, the owners of these objects could not change anything in them, not even a label or a finalizer, so that
// they could not be deleted either. If updates were not validated at all, the objects could get worse. So an update is
// refused only for values that it changes:
//
//	schema: size ≤ 10       stored: {size: 20, name: a}
//	{size: 20, name: b} is accepted        {size: 30, name: a} is refused
//
// Which old value belongs to which new one: fields and entries match by name; items of a list of type map match by
// their keys, with the first old item that has them; items of other lists have no old value, since an index does not
// identify an item: inserting one in front moves all others. The nil Pair is a value without an old one.
//
// Pairs are created lazily, on the way down. A Pair caches the results of its comparisons, and so belongs to one
// validation, on one goroutine.
type Pair struct {
	Type       *Type
	Value, Old object.Value

	compared, unchanged bool   // the result of Unchanged, valid if compared
	old                 *Keyed // index of the items of Old; nil until first used
}

// Correlate is the pair that a validation starts from: that of an object, or of a part of one, with its type.
func Correlate(t *Type, v, old object.Value) *Pair { return &Pair{Type: t, Value: v, Old: old} }

// Key is the pair of a member; nil if one of the two values does not have it, or if the schema does not describe it.
func (p *Pair) Key(name string) *Pair {
	if p == nil {
		return nil
	}
	v, isNew := p.Value.Get(name)
	old, isOld := p.Old.Get(name)
	of := p.Type.member(name)
	if !isNew || !isOld || of == nil {
		return nil
	}
	return &Pair{Type: of, Value: v, Old: old}
}

// member is the type that the schema gives a member: for metadata the type in the schema, and not ObjectMeta. Nil where
// the schema does not describe the member. Validation and pairs use it; decoding uses below.
func (t *Type) member(name string) *Type {
	if t.embeds() && name == "metadata" {
		return t.Custom.Metadata
	}
	if of := t.below(name); of != nil && of.declared() {
		return of
	}
	return nil
}

// Item is the pair of an item of a list of type map; nil for other lists, and if there is no old item with its keys.
// The old list is indexed at the first call.
func (p *Pair) Item(i int) *Pair {
	if p == nil || p.Type.Kind != List || p.Type.ListType != Associative || p.Old.Kind() != object.List ||
		i >= p.Value.Len() {
		return nil
	}
	if p.old == nil {
		p.old = p.Type.Keyed(p.Old)
	}
	item := p.Value.Items()[i]
	old := p.old.Get(item)
	if old.IsNull() {
		return nil
	}
	return &Pair{Type: p.Type.Elem, Value: item, Old: old}
}

// Unchanged says whether a value equals its old one. The order of a list of type map does not count. A value counts as
// changed if the schema does not describe a part of it, as in the reference: that part has no pair. The nil Pair is
// changed.
//
// The result is cached: the checker calls it at each place that has an error, and package cel at each rule that
// compares. The checker also sets the result without a comparison, where a part is known to have changed.
func (p *Pair) Unchanged() bool {
	if p == nil {
		return false
	}
	if !p.compared {
		p.compared, p.unchanged = true, p.compare()
	}
	return p.unchanged
}

// compare computes Unchanged. Lists other than those of type map are compared as wholes, since their items have no
// pair. If both sides have the same number of members, and each new one equals its old one, no old member is left over.
// For a list of type map this holds only while keys are distinct: compared with [a b], [a a] counts as unchanged, as in
// the reference, and is refused by the separate check of list types.
func (p *Pair) compare() bool {
	if p.Value.Kind() != p.Old.Kind() || p.Value.Len() != p.Old.Len() && p.Value.Kind() != object.String {
		return false
	}
	switch p.Value.Kind() {
	case object.List:
		if p.Type.Kind != List || p.Type.ListType != Associative {
			return object.Equal(p.Value, p.Old)
		}
		for i := range p.Value.Items() {
			if !p.Item(i).Unchanged() {
				return false
			}
		}
		return true
	case object.Map:
		for _, m := range p.Value.Members() {
			if !p.Key(m.Key).Unchanged() {
				return false
			}
		}
		return true
	}
	return object.Equal(p.Value, p.Old)
}

// Keyed finds items of a list of type map by the keys of another item. It is a hash table, since an update of a list of
// many items looks up each of them: comparing each with each takes a minute for 100,000 items.
//
// An item is indexed by the text of its keys, with kind and length, so that different tuples of keys have different
// texts. ("a", "b:c") is "S1:a0S3:b:c0", and ("a:b", "c") is "S3:a:b0S1:c0", where S is the byte of the kind and 0 a
// zero byte.
type Keyed struct {
	keys  []string
	items map[string]object.Value
}

// Keyed indexes a list of this type. The index is empty for any other type than a list of type map. If several items
// have the same keys, the first one is found.
func (t *Type) Keyed(list object.Value) *Keyed {
	k := &Keyed{keys: t.ListKeys}
	if t.Kind != List || t.ListType != Associative || len(k.keys) == 0 || list.Len() == 0 {
		return k
	}
	k.items = make(map[string]object.Value, list.Len())
	var scratch []byte
	for _, item := range list.Items() {
		key, ok := k.appendKey(scratch[:0], item)
		if scratch = key; !ok {
			continue
		}
		if _, found := k.items[string(key)]; !found {
			k.items[string(key)] = item
		}
	}
	return k
}

// Get is the first item with the keys of this one, null if there is none. It allocates only for keys of more than 64
// bytes.
func (k *Keyed) Get(item object.Value) object.Value {
	if len(k.items) == 0 {
		return object.Nil
	}
	var scratch [64]byte
	key, ok := k.appendKey(scratch[:0], item)
	if !ok {
		return object.Nil
	}
	return k.items[string(key)]
}

// appendKey appends the values of the keys of an item, each with its kind and in a form that marks its end. It fails if
// the item lacks a key, or if the value of a key is not a scalar. An integer and a float of the same number differ, as
// they do in object.Equal.
func (k *Keyed) appendKey(dst []byte, item object.Value) ([]byte, bool) {
	for _, name := range k.keys {
		v, _ := item.Get(name)
		dst = append(dst, byte(v.Kind()))
		switch v.Kind() {
		case object.Bool:
			dst = strconv.AppendBool(dst, v.Bool())
		case object.Int:
			dst = strconv.AppendInt(dst, v.Int(), 10)
		case object.Float:
			dst = strconv.AppendFloat(dst, v.Float(), 'g', -1, 64)
		case object.String:
			dst = strconv.AppendInt(dst, int64(v.Len()), 10)
			dst = append(dst, ':')
			dst = append(dst, v.Str()...)
		default:
			return dst, false
		}
		dst = append(dst, 0)
	}
	return dst, true
}

// Additional is the schema of additionalProperties; nil where it is absent or a boolean.
func (t *Type) Additional() *Type {
	if of := t.additional(); of != nil && of.declared() {
		return of
	}
	return nil
}

// HasAdditional says whether the schema has additionalProperties at all, be it only a boolean.
func (t *Type) HasAdditional() bool { return t.additional() != nil }
