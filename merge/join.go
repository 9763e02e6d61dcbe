package merge

import (
	"slices"

	"plinth/internal/invariants"
	"plinth/object"
	"plinth/schema"
)

// join merges an intent into a live value: the intent wins wherever both have a value, and nothing is removed.
//
//	fields(join(live, intent)) = fields(live) ∪ fields(intent)   join(join(live, intent), intent) = join(live, intent)
//
// The second formula says that an intent is satisfied by its result: applying it again changes nothing. From live {a:
// 1, b: {c: 1}, l: [x]} and the intent {b: {d: 2}, l: [y]}, where l is atomic, it makes {a: 1, b: {c: 1, d: 2}, l:
// [y]}; the value of a is the same memory as in live.
//
// Where the two disagree on whether a value is a map, the intent replaces it. Atomic maps and lists are replaced as
// wholes, too, even by an empty one. Where the intent has a granular map or list empty or null, live keeps its content:
// an intent lists only the fields that must exist, and fields that have been given up are removed by prune alone.
//
// Unchanged parts are the same memory as in live, up to the whole object. compare and apply rely on it: "unchanged" is
// then a comparison of pointers. The intent has been checked (checkedFieldsOf): no identity occurs twice in its lists.
func join(live, intent object.Value, t *schema.Type) (object.Value, error) {
	if live == intent {
		return live, nil
	}
	s := shapeOf(t, intent)
	switch {
	case s == mapping && !atomic(t, s) && eitherHas(live, intent, object.Map):
		return joinMembers(live, intent, t)
	case s == listing && !atomic(t, s) && eitherHas(live, intent, object.List):
		return joinItems(live, intent, t)
	}
	if object.Equal(live, intent) {
		return live, nil
	}
	return intent, nil
}

// eitherHas says whether at least one of two values is a container of this kind that is not empty. Two empty ones, or
// null and an empty one, are not merged but compared as leaves, so that `{}`, `[]` and null stay different values.
func eitherHas(a, b object.Value, k object.Kind) bool {
	return a.Kind() == k && a.Len() > 0 || b.Kind() == k && b.Len() > 0
}

// joinMembers merges maps in one pass, as both are sorted by key. It copies live at the first member that differs; from
// there on out holds old[:i], as merged so far.
func joinMembers(live, intent object.Value, t *schema.Type) (object.Value, error) {
	old, want := live.Members(), intent.Members()
	if len(old) == 0 {
		return intent, nil
	}
	var out []object.Member // nil as long as no member differs from live
	i := 0
	for k := range want {
		w := want[k]
		// Members that only live has precede w: they stay.
		from := i
		for i < len(old) && old[i].Key != w.Key && old[i].Key < w.Key {
			i++
		}
		if out != nil {
			out = append(out, old[from:i]...)
		}
		if i == len(old) || old[i].Key != w.Key {
			if out == nil {
				out = append(make([]object.Member, 0, len(old)+len(want)-k), old[:i]...)
			}
			out = append(out, w)
			continue
		}
		of, _ := memberType(t, w.Key)
		joined, err := join(old[i].Value, w.Value, of)
		if err != nil {
			return object.Nil, within(err, FieldElement(w.Key))
		}
		if out == nil && joined != old[i].Value {
			out = append(make([]object.Member, 0, len(old)+len(want)-k), old[:i]...)
		}
		if out != nil {
			out = append(out, object.Member{Key: w.Key, Value: joined})
		}
		i++
	}
	if out == nil {
		return live, nil
	}
	return object.MapOf(append(out, old[i:]...)...), nil
}

// joinItems merges associative lists by identity. The shortcuts need no identities: an empty side has no item to merge
// with.
func joinItems(live, intent object.Value, t *schema.Type) (object.Value, error) {
	old, want := live.Items(), intent.Items()
	if len(old) == 0 {
		return intent, nil
	}
	if len(want) == 0 {
		return live, nil
	}
	olds, wants := newItemIndex(), newItemIndex()
	defer olds.free()
	defer wants.free()
	if err := olds.build(t, old); err != nil {
		return object.Nil, &TypeError{Message: err.Error()}
	}
	if err := wants.build(t, want); err != nil {
		return object.Nil, &TypeError{Message: err.Error()}
	}
	z := listJoiner{t: t, old: old, want: want, olds: olds, wants: wants}
	if err := z.run(); err != nil {
		return object.Nil, err
	}
	if invariants.Enabled {
		z.check()
	}
	// Equal items are the same memory (join), so that this compares pointers.
	if slices.Equal(z.out, old) {
		return live, nil
	}
	return object.ListOf(z.out...), nil
}

// listJoiner merges two associative lists into one. With ids(x) the identities of a list in order, the result
// satisfies
//
//	set(ids(out)) = set(ids(old)) ∪ set(ids(want))
//	ids(want) is a subsequence of ids(out)
//
// and each item that both have is merged, unless old has it several times: then the item of the intent replaces them
// all.
//
// This does not determine the places of the items that only live has. They are part of the reference's result, and so
// of this one. Simple ways fail here. "live in its order, then the new items" ignores the order in the intent:
// initContainers run in the order of the list. "intent in its order, then the rest" moves the items of others: an init
// container that another manager has put first would become the last one.
//
// With letters for identities, live [m a b] (m is another manager's) and the intent [b x a] make
//
//	i    j    what                                                     out
//	m    b    only live has m                                          m
//	a    b    intent has a, but b is its next shared item: skip a      m
//	b    b    same                                                     m b
//	end  x    next of the intent                                       m b x
//	end  a    next of the intent, merged with live's a                 m b x a
//
// The lists are walked in parallel, with i and j positions in old and want. In words:
//
//   - If the items at i and j are the same, both are taken together.
//   - An item of old that want has, too, but not as its next shared item, is skipped: it is taken when j reaches it in
//     want.
//   - An item that only old has is taken as soon as i reaches it. So it stays behind the item that it follows in old.
//   - Otherwise the item at j is taken. So a new item stays behind the item that it follows in want.
//
// Each step advances i or j, and all look-ups use an index: the walk is linear, up to the sort of large lists. Which of
// several rules applies is fixed by the order in which run tries them. That order is the reference's and must not be
// changed: it decides the places where the formulas above leave a choice.
type listJoiner struct {
	t           *schema.Type
	old, want   []object.Value
	olds, wants *itemIndex
	out         []object.Value
	taken       []bool // taken[j]: item j of want is in out. An item of old with its identity is not taken again
	shared      int    // the least position ≥ j in want whose identity old has; len(want) if there is none
}

// run merges old and want into out. The errors are those of join, of items.
func (z *listJoiner) run() error {
	z.out = make([]object.Value, 0, max(len(z.old), len(z.want)))
	z.taken = make([]bool, len(z.want))
	z.shared = -1
	z.advance()
	for i, j := 0, 0; i < len(z.old) || j < len(z.want); {
		if i < len(z.old) && j < len(z.want) {
			// 1. Both orders agree here.
			if same(z.olds.ids[i], z.wants.ids[j]) {
				if err := z.take(j); err != nil {
					return err
				}
				i, j = i+1, j+1
				z.advance()
				continue
			}
			// 2. Shared, but not the next shared item of want.
			if z.wants.first(z.olds.ids[i]) >= 0 && z.shared < len(z.want) && !same(z.wants.ids[z.shared], z.olds.ids[i]) {
				i++ // shared, but its turn in want is later, or has passed
				continue
			}
		}
		if i < len(z.old) {
			k := z.wants.first(z.olds.ids[i])
			if k < 0 { // 3. only live has it
				z.out = append(z.out, z.old[i])
				i++
				continue
			}
			// Both have it, and it is not the item at j, or want is exhausted: if it has been taken already, i skips it.
			// Otherwise i waits here while items that only the intent has are taken, until j reaches it.
			if z.taken[k] {
				i++
			}
		}
		// 4. The next item of the intent.
		if j < len(z.want) {
			if err := z.take(j); err != nil {
				return err
			}
			if z.shared == j {
				z.advance()
			}
			j++
		}
	}
	return nil
}

// advance moves shared to the next item of want whose identity old has.
func (z *listJoiner) advance() {
	if z.shared == len(z.want) {
		return
	}
	for z.shared++; z.shared < len(z.want) && z.olds.first(z.wants.ids[z.shared]) < 0; z.shared++ {
	}
}

// take appends item j of the intent, merged with the item of live if there is exactly one of its identity.
func (z *listJoiner) take(j int) error {
	z.taken[j] = true
	k := z.olds.first(z.wants.ids[j])
	// With several items of this identity in live, it is undefined which one to merge with.
	if k < 0 || z.olds.next(k) >= 0 {
		z.out = append(z.out, z.want[j])
		return nil
	}
	joined, err := join(z.old[k], z.want[j], itemType(z.t))
	if err != nil {
		return within(err, elementOf(z.t, z.wants.ids[j]))
	}
	z.out = append(z.out, joined)
	return nil
}
