package patch

import (
	"fmt"
	"math"
	"sort"
	"sync/atomic"

	"plinth/internal/invariants"
	"plinth/object"
)

// This file has the order of merged lists, and the index by which items are found.

// scalar is a value that is no list or map, made comparable: the key of a Go map. Two scalars are equal exactly if the
// reference's comparison of the Go values is true: 80 and 80.0 differ, as int64 and float64 do.
type scalar struct {
	kind object.Kind
	bits uint64
	text string
}

// scalarsRead counts the calls of scalarOf, through which all keys and items are compared. It is kept where invariants
// are on: a test that reads of it sees whether lists are merged in linear time, which no clock tells for certain.
var scalarsRead atomic.Int64

// scalarOf is false for lists and maps, which identify nothing.
func scalarOf(v object.Value) (scalar, bool) {
	if invariants.Enabled {
		scalarsRead.Add(1)
	}
	switch v.Kind() {
	case object.Null:
		return scalar{}, true
	case object.Bool:
		if v.Bool() {
			return scalar{kind: object.Bool, bits: 1}, true
		}
		return scalar{kind: object.Bool}, true
	case object.Int:
		return scalar{kind: object.Int, bits: uint64(v.Int())}, true
	case object.Float:
		return scalar{kind: object.Float, bits: math.Float64bits(v.Float() + 0)}, true // -0 is 0
	case object.Number, object.String:
		return scalar{kind: v.Kind(), text: v.Str()}, true
	}
	return scalar{kind: v.Kind()}, false
}

// index finds the first item of a list with a key, or the first scalar.
type index struct {
	at map[scalar]int
	// lists and maps say whether some key is one. Comparing two of a kind is where upstream crashes.
	lists, maps bool
	// noMap is one more than the position of the first item that is not a map, and so has no key; 0 if there is none.
	noMap int
}

// These stand for positions where there is none.
const (
	missing      = -1 // no item has the key
	incomparable = -2 // the key and some key of the list are both lists, or both maps: the reference crashes
)

// indexOf makes the index of a list by a merge key, or, if that is "", by the items themselves. Items without a key
// are not in it.
//
// The reference compares each item of a patch with each one of the live list, which takes minutes for lists of some
// ten thousand items. All searches here go through an index, so that a list is merged in linear time. The results must
// be the reference's, of which a map alone does not give two: the first of several items with one key counts (add),
// and keys that are lists or maps are found out, where comparing them crashes the reference (lists, maps).
func indexOf(list []object.Value, mergeKey string) *index {
	x := &index{at: make(map[scalar]int, len(list))}
	for i, item := range list {
		switch {
		case mergeKey == "":
			x.add(item, i)
		case item.Kind() == object.Map:
			if key, ok := item.Get(mergeKey); ok {
				x.add(key, i)
			}
		case x.noMap == 0:
			x.noMap = i + 1
		}
	}
	return x
}

// add enters the position of a key, unless the same key is at an earlier one.
func (x *index) add(key object.Value, i int) {
	id, ok := scalarOf(key)
	if !ok {
		x.lists = x.lists || key.Kind() == object.List
		x.maps = x.maps || key.Kind() == object.Map
		return
	}
	if _, taken := x.at[id]; !taken {
		x.at[id] = i
	}
}

// find is the position of the first item with this key, or missing, or incomparable.
func (x *index) find(key object.Value) int {
	id, ok := scalarOf(key)
	if !ok {
		if key.Kind() == object.List && x.lists || key.Kind() == object.Map && x.maps {
			return incomparable
		}
		return missing
	}
	if i, ok := x.at[id]; ok {
		return i
	}
	return missing
}

// next moves the entry of a key to the next item that has it, since the one at i has lost its key. All calls for one
// key together pass the list once.
func (x *index) next(key object.Value, i int, list []object.Value, mergeKey string) {
	id, _ := scalarOf(key)
	delete(x.at, id)
	for i++; i < len(list); i++ {
		if other, ok := list[i].Get(mergeKey); ok {
			if otherID, ok := scalarOf(other); ok && otherID == id {
				x.at[id] = i
				return
			}
		}
	}
}

// itemKind is the kind that all items of both lists have. There must be one item at least. Integers and floats are two
// kinds, as in Go: a list of 1 and 1.5 cannot be merged.
func itemKind(live, patch []object.Value) (object.Kind, error) {
	kind, known := object.Null, false
	for _, list := range [2][]object.Value{live, patch} {
		for _, item := range list {
			k := item.Kind()
			if k == object.Number {
				k = object.Float
			}
			switch {
			case known && k != kind:
				return 0, misfit("list element types are not identical: %v", [][]any{natives(live), natives(patch)})
			case known:
			case k == object.Null: // upstream crashes
				return 0, malformed("a list that begins with null cannot be merged")
			case k == object.List:
				return 0, &StrategicError{kind: ErrUnprocessable, message: "lists of lists are not supported"}
			}
			kind, known = k, true
		}
	}
	if !known {
		return 0, misfit("no elements in any of the given slices")
	}
	return kind, nil
}

// partition splits the items of a list into those whose keys occur in another list, and the others. Both keep their
// order. Without a merge key the items themselves are the keys. Errors stand for what ends in one in the reference, or
// in a crash: an item without its key, a key that is a list or a map, an item of by that is no map.
func partition(items, by []object.Value, mergeKey string) (named, others []object.Value, err error) {
	named, others = make([]object.Value, 0, len(items)), make([]object.Value, 0, len(items))
	names := indexOf(by, mergeKey)
	if mergeKey == "" {
		for _, list := range [2][]object.Value{by, items} {
			for _, item := range list {
				if _, ok := scalarOf(item); !ok {
					return nil, nil, noScalar(item)
				}
			}
		}
	}
	for _, item := range items {
		key := item
		if mergeKey != "" {
			if key, err = mergeKeyOf(item, mergeKey); err != nil {
				return nil, nil, err
			}
		}
		at := names.find(key)
		switch {
		case names.noMap > 0 && (at < 0 || at >= names.noMap):
			return nil, nil, misfit("value for key %v is not a map", names.noMap-1)
		case at == incomparable:
			return nil, nil, noScalar(key)
		case at >= 0:
			named = append(named, item)
		default:
			others = append(others, item)
		}
	}
	return named, others, nil
}

// ranked is an item and its position in the list that decides the order; missing or incomparable if it is not in that.
type ranked struct {
	item object.Value
	rank int
}

// interleaved computes the order of a merged list. Items that occur in the patch are in the order of the patch, the
// others in that of the live list, and the two sequences are merged so that one of the others comes before the next
// item of the patch if it precedes it in the live list:
//
//	ofPatch is a subsequence of the result, and so is others
//
// With live [a b c d] and the patch [c x a], the items of the patch are c x a, and the others b d:
//
//	b or c?    b precedes c in live      b
//	d or c?    d does not                b c
//	d or x?    x is not in live          b c x
//	d or a?    d does not precede a      b c x a
//	what is left                         b c x a d
//
// This is no sort by one key, since the two orders may contradict each other; it is the greedy merge that the
// reference does, and clients compare lists with their order.
func interleaved(ofPatch, others, patchOrder, liveOrder []object.Value, mergeKey string,
	kind object.Kind) ([]object.Value, error) {
	if kind != object.Map {
		mergeKey = ""
	} else if err := haveKeys(mergeKey, ofPatch, patchOrder, others, liveOrder); err != nil {
		return nil, err
	}
	sorted, err := inOrderOf(ofPatch, indexOf(patchOrder, mergeKey), mergeKey)
	if err != nil {
		return nil, err
	}
	inLive := indexOf(liveOrder, mergeKey)
	rest, err := inOrderOf(others, inLive, mergeKey)
	if err != nil {
		return nil, err
	}
	all := make([]object.Value, 0, len(sorted)+len(rest))
	for len(sorted) > 0 && len(rest) > 0 {
		before := false
		if left := rest[0].rank; left != missing {
			right := inLive.find(keyIn(sorted[0].item, mergeKey))
			if left == incomparable || right == incomparable {
				return nil, noScalar(keyIn(rest[0].item, mergeKey))
			}
			before = right >= 0 && left < right
		}
		if before {
			all, rest = append(all, rest[0].item), rest[1:]
		} else {
			all, sorted = append(all, sorted[0].item), sorted[1:]
		}
	}
	for _, r := range append(sorted, rest...) {
		all = append(all, r.item)
	}
	return all, nil
}

// haveKeys checks that all items are maps with a merge key.
func haveKeys(mergeKey string, lists ...[]object.Value) error {
	for _, list := range lists {
		for _, item := range list {
			if _, err := mergeKeyOf(item, mergeKey); err != nil {
				return err
			}
		}
	}
	return nil
}

// inOrderOf sorts items by where an index has them. Items to be deleted come last, in their order. Mostly nothing is to
// be sorted, as a patch lists items in the order of the object.
func inOrderOf(items []object.Value, index *index, mergeKey string) ([]ranked, error) {
	list := make([]ranked, 0, len(items))
	var deleted []ranked
	sorted := true
	for _, item := range items {
		r := ranked{item, index.find(keyIn(item, mergeKey))}
		if mergeKey != "" && deletes(item) {
			deleted = append(deleted, r)
			continue
		}
		if r.rank < 0 || len(list) > 0 && list[len(list)-1].rank > r.rank {
			sorted = false
		}
		list = append(list, r)
	}
	if !sorted {
		var crash error
		// Upstream says of two items of which one is missing that either comes before the other. What becomes of them
		// is up to the algorithm, so this must be the same one.
		sort.SliceStable(list, func(i, j int) bool {
			if list[i].rank == incomparable || list[i].rank >= 0 && list[j].rank == incomparable {
				crash = noScalar(keyIn(list[i].item, mergeKey))
			}
			return list[i].rank < 0 || list[j].rank < 0 || list[i].rank < list[j].rank
		})
		if crash != nil {
			return nil, crash
		}
	}
	return append(list, deleted...), nil
}

// inThatOrder checks that the items of a patch, but for the directives, are in the order that $setElementOrder says:
// the items are a subsequence of the order. One pass over both shows that. The order [a b c] allows the items [a c],
// and neither [c a] nor [d].
func inThatOrder(patch, order []object.Value, mergeKey string) error {
	if len(patch) == 0 || len(order) == 0 {
		return nil
	}
	items := patch
	if mergeKey != "" {
		items = make([]object.Value, 0, len(patch))
		for _, item := range patch {
			if item.Kind() != object.Map {
				return notA(object.Map, item)
			}
			if !deletes(item) {
				items = append(items, item)
			}
		}
	}
	i, j := 0, 0
	for i < len(items) && j < len(order) {
		if _, special := items[i].Get(patchDirective); special {
			i++
			continue
		}
		equal, err := sameKey(items[i], order[j], mergeKey)
		if err != nil {
			return err
		}
		if equal {
			i++
		}
		j++
	}
	if i < len(items) {
		return misfit("The order in patch list:\n%v\n doesn't match %s list:\n%v\n", natives(patch), orderPrefix,
			natives(order))
	}
	return nil
}

// sameKey says whether two items of a list have the same merge key, or are the same scalar.
func sameKey(a, b object.Value, mergeKey string) (bool, error) {
	if mergeKey != "" {
		for _, item := range [2]object.Value{a, b} {
			if item.Kind() != object.Map {
				return false, notA(object.Map, item)
			}
		}
		var err error
		if a, err = mergeKeyOf(a, mergeKey); err != nil {
			return false, err
		}
		if b, err = mergeKeyOf(b, mergeKey); err != nil {
			return false, err
		}
	}
	left, ok := scalarOf(a)
	right, _ := scalarOf(b)
	if !ok && a.Kind() == b.Kind() {
		return false, noScalar(a)
	}
	return left == right, nil
}

// deletes says whether an item is the directive that removes items.
func deletes(item object.Value) bool {
	directive, _ := item.Get(patchDirective)
	return directive.Str() == deleting
}

// keyIn is the merge key of an item, null if it has none; or the item itself where there is no merge key.
func keyIn(item object.Value, mergeKey string) object.Value {
	if mergeKey == "" {
		return item
	}
	return item.At(mergeKey)
}

// mergeKeyOf is the merge key of an item, or an error if it has none.
func mergeKeyOf(item object.Value, mergeKey string) (object.Value, error) {
	if item.Kind() != object.Map {
		return object.Nil, notA(object.Map, item)
	}
	key, ok := item.Get(mergeKey)
	if !ok {
		return object.Nil, noMergeKey(item, mergeKey)
	}
	return key, nil
}

// noMergeKey is the error of an item without its merge key.
func noMergeKey(item object.Value, mergeKey string) error {
	return misfit("map: %v does not contain declared merge key: %s", item.Native(), mergeKey)
}

// noScalar is a list or map where only scalars can be told apart. Upstream crashes on it.
func noScalar(v object.Value) error {
	return malformed("a list is merged by scalars, and this is none: %s", object.AppendJSON(nil, v))
}

// unknownDirective is the error of a $patch directive that does not exist.
func unknownDirective(directive, in object.Value) error {
	return misfit("unknown patch type: %s in map: %v", directive.Native(), in.Native())
}

// notA is a value of the wrong kind, told in the Go types that the reference has.
func notA(want object.Kind, v object.Value) error {
	names := map[object.Kind]string{object.List: "[]interface {}", object.Map: "map[string]interface {}"}
	if v.IsNull() {
		return misfit("expected a %s, but received a %%!s(<nil>)", names[want])
	}
	return misfit("expected a %s, but received a %s", names[want], fmt.Sprintf("%T", v.Native()))
}
