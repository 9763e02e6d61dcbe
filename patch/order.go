package patch

import (
	"fmt"
	"math"
	"sort"
	"sync/atomic"

	"plinth/internal/invariants"
	"plinth/object"
)

// This file has the index that finds items by their keys, and the order of merged lists.

// scalar is a value other than a list or a map, as a key of a Go map. Two scalars are equal if and only if the
// reference's comparison of the Go values is true: 80 and 80.0 differ, as int64 and float64 do.
type scalar struct {
	kind object.Kind
	bits uint64
	text string
}

// scalarsRead counts the calls of scalarOf, through which all keys and items are compared, if invariants are on. A test
// checks with it that lists are merged in linear time, which measurements of time cannot show reliably.
var scalarsRead atomic.Int64

// scalarOf converts a value. ok is false for lists and maps, which cannot be keys.
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
	// lists and maps say whether some key is a list or a map. Comparing two keys of one of these kinds crashes the
	// reference.
	lists, maps bool
	// noMap is one more than the position of the first item that is not a map, and so has no key; 0 if all are maps.
	noMap int
}

// Values in place of a position.
const (
	missing      = -1 // no item has the key
	incomparable = -2 // the key and some key of the list are both lists, or both maps: the reference crashes
)

// indexOf makes the index of a list by a merge key or, if that is "", by the items themselves. It leaves out items
// without the key.
//
// The reference compares each item of a patch with each one of the live list, which takes minutes for lists of tens of
// thousands of items. All searches here use an index, so that a list is merged in linear time. The results must be
// those of the reference, and a plain map would miss two of its properties: of several items with one key, the first
// one counts (add), and a comparison of keys that are lists or maps is an error, because it crashes the reference
// (lists, maps).
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

// add enters the position of a key, unless the key has an earlier position.
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

// find returns the position of the first item with this key, or missing, or incomparable.
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

// next moves the entry of a key to the next item with that key, because the item at i no longer has it. All calls for
// one key together scan the list once.
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

// itemKind returns the common kind of all items of both lists, of which there must be at least one. Integers and floats
// are different kinds, as in Go: a list of 1 and 1.5 cannot be merged.
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
// order. Without a merge key, the items themselves are the keys. keys is the number of different keys in the other
// list. An item without its key, a key that is a list or a map, and an item of by that is not a map are errors; in the
// reference they are errors, too, or crashes.
func partition(items, by []object.Value, mergeKey string) (named, others []object.Value, keys int,
	err error) {
	named, others = make([]object.Value, 0, len(items)), make([]object.Value, 0, len(items))
	names := indexOf(by, mergeKey)
	if mergeKey == "" {
		for _, list := range [2][]object.Value{by, items} {
			for _, item := range list {
				if _, ok := scalarOf(item); !ok {
					return nil, nil, 0, noScalar(item)
				}
			}
		}
	}
	for _, item := range items {
		key := item
		if mergeKey != "" {
			if key, err = mergeKeyOf(item, mergeKey); err != nil {
				return nil, nil, 0, err
			}
		}
		at := names.find(key)
		switch {
		case names.noMap > 0 && (at < 0 || at >= names.noMap):
			return nil, nil, 0, misfit("value for key %v is not a map", names.noMap-1)
		case at == incomparable:
			return nil, nil, 0, noScalar(key)
		case at >= 0:
			named = append(named, item)
		default:
			others = append(others, item)
		}
	}
	return named, others, len(names.at), nil
}

// ranked is an item and its position in the list that decides the order, or missing, or incomparable.
type ranked struct {
	item object.Value
	rank int
}

// interleaved computes the order of a merged list. Items that occur in the patch have the order of the patch, the
// others that of the live list, and the two sequences are merged: the next of the others goes before the next item of
// the patch if it precedes that item in the live list:
//
//	ofPatch is a subsequence of the result, and so is others
//
// With live [a b c d] and the patch [c x a], the items of the patch are c x a, and the others b d:
//
//	b or c?    b precedes c in live      b
//	d or c?    d does not                b c
//	d or x?    x is not in live          b c x
//	d or a?    d does not precede a      b c x a
//	the rest                             b c x a d
//
// This is not a sort by one key, since the two orders may contradict each other; it is the greedy merge of the
// reference, and the order of a list is visible to clients.
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

// haveKeys checks that all items are maps that have the merge key.
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

// inOrderOf sorts items by their position in an index. Items to be deleted are last, in their order. Most patches list
// the items in the order of the object, and need no sorting.
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
		// If one of two items is missing, the reference's comparison reports each as less than the other one. The result of
		// such a sort depends on the algorithm, so this must be the algorithm of the reference.
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

// inThatOrder checks that the items of a patch, except those with directives, are in the order of $setElementOrder:
// they must be a subsequence of it, which one pass over both shows. The order [a b c] allows the items [a c], but
// neither [c a] nor [d].
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

// deletes says whether an item has the directive $patch: delete.
func deletes(item object.Value) bool {
	directive, _ := item.Get(patchDirective)
	return directive.Str() == deleting
}

// keyIn returns the merge key of an item, null if it has none; without a merge key, the item itself.
func keyIn(item object.Value, mergeKey string) object.Value {
	if mergeKey == "" {
		return item
	}
	return item.At(mergeKey)
}

// mergeKeyOf returns the merge key of an item, or an error if it has none.
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

// noMergeKey is the error for an item without its merge key.
func noMergeKey(item object.Value, mergeKey string) error {
	return misfit("map: %v does not contain declared merge key: %s", item.Native(), mergeKey)
}

// noScalar is the error for a list or map that would have to be compared. The reference crashes on it.
func noScalar(v object.Value) error {
	return malformed("a list can only be merged by scalars, not by %s", object.AppendJSON(nil, v))
}

// unknownDirective is the error for a $patch directive that does not exist.
func unknownDirective(directive, in object.Value) error {
	return misfit("unknown patch type: %s in map: %v", directive.Native(), in.Native())
}

// notA is the error for a value of the wrong kind, with the names of the reference's Go types.
func notA(want object.Kind, v object.Value) error {
	names := map[object.Kind]string{object.List: "[]interface {}", object.Map: "map[string]interface {}"}
	if v.IsNull() {
		return misfit("expected a %s, but received a %%!s(<nil>)", names[want])
	}
	return misfit("expected a %s, but received a %s", names[want], fmt.Sprintf("%T", v.Native()))
}
