package patch

import (
	"container/heap"
	"slices"
	"strings"

	"plinth/object"
)

// This file merges lists by the rules of Strategic Merge Patch: items by their merge key, scalars as sets, and the
// directives that delete, replace and order.

// lists merges the items of two lists:
//
//	maps: by merge key. Items with a $patch directive are applied first, then items with known keys are merged, new
//	      ones appended
//	scalars: live ∪ patch, each once
//
// and then computes their order (interleaved). f is the member that contains the list, with the place of its items.
// deletes says that patch is the list of a $deleteFromPrimitiveList directive.
//
// after is what the reference's live list contains at this point: the reference deletes and appends in place, in the
// memory of the live list, and a $setElementOrder directive, which is applied next, takes the order from that memory.
// So the final result depends on it, and after must be computed as well.
func (m *merger) lists(live, patch []object.Value, f member, deletes bool) (merged, after []object.Value, err error) {
	if len(live) == 0 && len(patch) == 0 {
		return live, live, nil
	}
	if err := m.spend(len(live) + len(patch)); err != nil {
		return nil, nil, err
	}
	kind, err := itemKind(live, patch)
	if err != nil {
		return nil, nil, err
	}
	if kind != object.Map && deletes {
		listed := indexOf(patch, "")
		return slices.DeleteFunc(slices.Clone(live), func(v object.Value) bool { return listed.find(v) >= 0 }), live, nil
	}
	order := live
	switch {
	case kind != object.Map:
		merged, after = distinct(live, patch)
		order = after
	case f.mergeKey == "":
		return nil, nil, misfit("cannot merge lists without merge key for %s", f.reflected())
	default:
		s, err := withSpecialItems(live, patch, f.mergeKey)
		if err != nil {
			return nil, nil, err
		}
		for _, c := range s.collisions {
			m.collided(c, f)
		}
		patch, order = s.patch, s.live
		if merged, err = m.items(s.live, s.patch, f); err != nil {
			return nil, nil, err
		}
		after = s.slots
		if appended := merged[len(s.live):]; len(after) > len(s.live) && len(appended) > 0 && !s.replaced {
			copy(after[len(s.live):], appended)
		}
	}
	ofPatch, others, keys, err := partition(merged, patch, f.mergeKey)
	if err != nil {
		return nil, nil, err
	}
	if kind == object.Map && (len(patch) > keys || len(ofPatch) > keys) {
		m.collideItems(order, patch, f)
	}
	merged, err = interleaved(ofPatch, others, patch, order, f.mergeKey, kind)
	return merged, after, err
}

// items merges each item of a patch into the live item with the same merge key. New items are appended unchanged and
// added to the index, so that a later item of the patch with the same key is merged into them. The cost is linear,
// except for patches that merge the same item repeatedly, which maxWork bounds.
func (m *merger) items(live, patch []object.Value, f member) ([]object.Value, error) {
	if len(patch) == 0 {
		return live, nil
	}
	merged := slices.Clone(live)
	index := indexOf(live, f.mergeKey)
	for _, item := range patch {
		key, ok := item.Get(f.mergeKey)
		if !ok {
			return nil, noMergeKey(item, f.mergeKey)
		}
		at := index.find(key)
		switch {
		case at == incomparable:
			return nil, noScalar(key)
		case at < 0:
			index.add(key, len(merged))
			merged = append(merged, item)
			continue
		}
		first := len(m.collisions)
		made, err := m.maps(merged[at], item, f.valueType)
		if err != nil {
			return nil, within(err, elementOf(f.mergeKey, key))
		}
		if first < len(m.collisions) {
			m.under(first, elementOf(f.mergeKey, key))
		}
		merged[at] = made
		if _, still := made.Get(f.mergeKey); !still { // the item's key was null, which removes the key itself
			index.next(key, at, merged, f.mergeKey)
		}
	}
	return merged, nil
}

// elementOf is an item in a path: [name="a"].
func elementOf(mergeKey string, key object.Value) string {
	return string(append(object.AppendJSON(append([]byte("["+mergeKey), '='), key), ']'))
}

// special has the rest of two lists after the items with a $patch directive have been applied.
type special struct {
	live, patch []object.Value
	// slots is the memory of the live list in the reference, where each deletion shifts the following items to the front
	// and leaves the end unchanged: deleting b from [a b c] leaves [a c c], of which [a c] is the list. live is always a
	// prefix of it, unless the list has been replaced.
	slots    []object.Value
	replaced bool // live is the list of the patch
	// collisions are those of the items that the patch deletes.
	collisions []Collision
}

// withSpecialItems applies the items with a $patch directive, and removes them from the patch. With
//
//	live [a b c]    and the patch    [{name: b, $patch: delete}, {name: d}]
//
// [a c] and [d] remain. If {$patch: replace} is among the items, the other items of the patch become the list, and the
// patch becomes empty. Deletions are applied first, whatever the order of the items.
func withSpecialItems(live, patch []object.Value, mergeKey string) (special, error) {
	s := special{live: live, slots: live}
	var deleted []object.Value
	for i, item := range patch {
		directive, ok := item.Get(patchDirective)
		if !ok {
			if s.patch != nil {
				s.patch = append(s.patch, item)
			}
			continue
		}
		if s.patch == nil {
			s.patch = append(make([]object.Value, 0, len(patch)), patch[:i]...)
		}
		switch directive.Str() {
		case deleting:
			key, ok := item.Get(mergeKey)
			if !ok {
				return special{}, noMergeKey(item, mergeKey)
			}
			deleted = append(deleted, key)
		case replacing:
			s.replaced = true
		case merging:
			return special{}, misfit("merging lists cannot yet be specified in the patch")
		default:
			return special{}, unknownDirective(directive, item)
		}
	}
	if s.patch == nil {
		s.patch = patch
	}
	if err := s.delete(deleted, mergeKey); err != nil {
		return special{}, err
	}
	if s.replaced {
		s.live, s.patch = s.patch, nil
	}
	return s, nil
}

// delete removes the items with these keys. Deleting one by one, as the reference does, takes quadratic time; here the
// items are first marked, and then the others are copied once.
//
// slots must be what the single deletions leave. Each of them shifts the items behind the deleted one, so that the last
// item of the list stays in the slot that becomes free as well. So slots is kept, followed by the item that was last
// before each deletion, that of the first deletion at the end:
//
//	delete d and then a from [a b c d]    [a b c|d], [b c|c d]    last were d and then c, kept is [b c]
func (s *special) delete(keys []object.Value, mergeKey string) error {
	if len(keys) == 0 || len(s.live) == 0 {
		return nil
	}
	wanted := make(map[scalar][]int, len(keys)) // the positions of the items with these keys
	for _, key := range keys {
		if id, ok := scalarOf(key); ok {
			wanted[id] = nil
		}
	}
	var odd index
	for i, item := range s.live {
		key, ok := item.Get(mergeKey)
		if !ok {
			continue
		}
		if id, ok := scalarOf(key); !ok {
			odd.add(key, i)
		} else if places, ok := wanted[id]; ok {
			wanted[id] = append(places, i)
		}
	}
	gone := make([]bool, len(s.live))
	var tail []object.Value // in the order of the deletions
	last := len(s.live) - 1
	for _, key := range keys {
		id, ok := scalarOf(key)
		if !ok {
			if odd.find(key) == incomparable {
				return noScalar(key)
			}
			continue
		}
		if n := len(wanted[id]); n > 1 && len(s.collisions) < maxCollisions {
			s.collisions = append(s.collisions, Collision{Value: key, Object: n, Deleted: n})
		}
		for _, i := range wanted[id] {
			tail = append(tail, s.live[last])
			for gone[i] = true; last >= 0 && gone[last]; {
				last--
			}
		}
		delete(wanted, id)
	}
	if len(tail) == 0 {
		return nil
	}
	kept := make([]object.Value, 0, len(s.live))
	for i, item := range s.live {
		if !gone[i] {
			kept = append(kept, item)
		}
	}
	slices.Reverse(tail)
	s.slots = append(slices.Clone(kept), tail...)
	s.live = kept
	return nil
}

// distinct appends a list of scalars to another, and removes duplicates:
//
//	set(merged) = set(live) ∪ set(patch), each once
//
// The reference overwrites each duplicate with the last item of the list, which may itself be a duplicate of an earlier
// one, and so on; the order of the result is observable. A literal implementation compares each item with all later
// ones. Here a heap of positions per scalar gives the next duplicate in logarithmic time, and an item that is moved is
// entered at its new position. For [a b a b c]:
//
//	i = 0, a is also at 2: c moves there     [a b c b]
//	i = 1, b is also at 3, the last          [a b c]
//
// slots is the list that decides the order of the other items: the live list or, if the patch appends nothing, the
// result itself, because the reference then works in place.
func distinct(live, patch []object.Value) (merged, slots []object.Value) {
	s := append(slices.Clone(live), patch...)
	places := make(map[scalar]*heapOfInts, len(s))
	for i, v := range s {
		id, _ := scalarOf(v)
		at := places[id]
		if at == nil {
			at = new(heapOfInts)
			places[id] = at
		}
		*at = append(*at, i) // ascending, so that it is a heap
	}
	// Each step removes a duplicate at j > i of the item at i, by moving the last item to j: [0, last] shrinks by one
	// and keeps all scalars. Positions after last stay in the heaps, and are ignored because they are greater than
	// last.
	last := len(s) - 1
	if len(places) <= last {
		for i := 0; i < last; i++ {
			id, _ := scalarOf(s[i])
			at := places[id]
			for len(*at) > 0 && (*at)[0] <= last {
				j := heap.Pop(at).(int)
				if j <= i {
					continue
				}
				s[j] = s[last]
				if j < last {
					moved, _ := scalarOf(s[j])
					heap.Push(places[moved], j)
				}
				last--
			}
		}
	}
	if len(patch) == 0 {
		return s[:last+1], s
	}
	return s[:last+1], live
}

// heapOfInts is a heap with the smallest number on top (container/heap).
type heapOfInts []int

func (h heapOfInts) Len() int           { return len(h) }
func (h heapOfInts) Less(i, j int) bool { return h[i] < h[j] }
func (h heapOfInts) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heapOfInts) Push(x any)        { *h = append(*h, x.(int)) }
func (h *heapOfInts) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// inOrder merges the lists for which the patch has a $setElementOrder directive, and puts them in that order. placed
// has the members of the patch that need no further merge. inOrder runs before the other members are merged, because
// merging a list first and ordering it afterwards gives another result than doing both at once (lists, after).
func (m *merger) inOrder(live, patch object.Value, p valueType, directives []object.Member) (_ object.Value,
	placed map[string]bool, err error) {
	e := edit{base: live}
	for _, directive := range directives {
		if directive.Value.Kind() != object.List {
			return object.Nil, nil, notA(object.List, directive.Value)
		}
		prefix, key, slash := strings.Cut(directive.Key, "/")
		if !slash || prefix != orderPrefix {
			return object.Nil, nil, malformed("invalid patch format of setElementOrder list")
		}
		first := len(m.collisions)
		made, found, err := m.ordered(live, patch, p, key, directive.Value.Items())
		if err != nil {
			return object.Nil, nil, within(err, key)
		}
		m.under(first, key)
		if found {
			e.set(key, object.ListOf(made...))
			if placed == nil {
				placed = make(map[string]bool, len(directives))
			}
			placed[key] = true
		}
	}
	return e.done(), placed, nil
}

// ordered merges a list and puts it in the given order. found is false if neither the object nor the patch has the
// list.
func (m *merger) ordered(live, patch object.Value, p valueType, key string, order []object.Value) (made []object.Value,
	found bool, err error) {
	ofLive, inLive := live.Get(key)
	if inLive && ofLive.Kind() != object.List {
		return nil, false, notA(object.List, ofLive)
	}
	ofPatch, inPatch := patch.Get(key)
	if inPatch && ofPatch.Kind() != object.List {
		return nil, false, notA(object.List, ofPatch)
	}
	field, err := p.list(key)
	if err != nil {
		return nil, false, err
	}
	strategy, err := field.strategy()
	if err != nil {
		return nil, false, err
	}
	if err := m.spend(ofLive.Len() + ofPatch.Len() + len(order)); err != nil {
		return nil, false, err
	}
	if err := inThatOrder(ofPatch.Items(), order, field.mergeKey); err != nil {
		return nil, false, err
	}
	merged, after := ofLive.Items(), ofLive.Items()
	switch {
	case !inLive && !inPatch:
		return nil, false, nil
	case !inLive:
		kept, _ := plain(ofPatch, directiveMaps)
		merged = kept.Items()
	case inPatch && strategy != merging:
		merged = ofPatch.Items()
	case inPatch:
		if merged, after, err = m.lists(merged, ofPatch.Items(), field, false); err != nil {
			return nil, false, err
		}
	}
	listed, others, keys, err := partition(merged, order, field.mergeKey)
	if err != nil {
		return nil, false, err
	}
	if field.mergeKey != "" && len(order) > keys {
		m.collideOrder(order, listed, field)
	}
	kind, err := itemKind(after, ofPatch.Items())
	if err != nil {
		return nil, false, err
	}
	made, err = interleaved(listed, others, order, after, field.mergeKey, kind)
	return made, true, err
}
