package merge

import (
	"slices"

	"plinth/object"
	"plinth/schema"
)

// join lays an intent over a live value: the intent wins where both say something, and nothing goes away. What does not
// change is shared with live. The intent has been checked: its lists have no item twice.
func join(live, intent object.Value, t *schema.Type) (object.Value, error) {
	if live == intent {
		return live, nil
	}
	s := shapeOf(t, intent)
	switch {
	case s == mapping && !atomic(t, s) && either(live, intent, object.Map):
		return joinMembers(live, intent, t)
	case s == listing && !atomic(t, s) && either(live, intent, object.List):
		return joinItems(live, intent, t)
	}
	if object.Equal(live, intent) {
		return live, nil
	}
	return intent, nil
}

// either says whether one of two values has content of this kind. Between empty ones and null the intent decides, so that
// the difference of those is kept.
func either(a, b object.Value, k object.Kind) bool {
	return a.Kind() == k && a.Len() > 0 || b.Kind() == k && b.Len() > 0
}

func joinMembers(live, intent object.Value, t *schema.Type) (object.Value, error) {
	old, want := live.Members(), intent.Members()
	if len(old) == 0 {
		return intent, nil
	}
	var out []object.Member // nil for as long as live stays as it is
	i := 0
	for k := range want {
		w := want[k]
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

// items merges associative lists. Items of live keep their order for as long as the intent does not order them in
// another way; items that only the intent has come where it has them.
func joinItems(live, intent object.Value, t *schema.Type) (object.Value, error) {
	old, want := live.Items(), intent.Items()
	if len(old) == 0 {
		return intent, nil
	}
	if len(want) == 0 {
		return live, nil
	}
	olds, wants := newRoster(), newRoster()
	defer olds.free()
	defer wants.free()
	if err := olds.enroll(t, old); err != nil {
		return object.Nil, &TypeError{Message: err.Error()}
	}
	if err := wants.enroll(t, want); err != nil {
		return object.Nil, &TypeError{Message: err.Error()}
	}
	z := zipper{t: t, old: old, want: want, olds: olds, wants: wants}
	if err := z.run(); err != nil {
		return object.Nil, err
	}
	if slices.Equal(z.out, old) {
		return live, nil
	}
	return object.ListOf(z.out...), nil
}

// zipper walks down two associative lists at once.
type zipper struct {
	t           *schema.Type
	old, want   []object.Value
	olds, wants *roster
	out         []object.Value
	taken       []bool // which items of want are in out
	shared      int    // position in want of the next item that is in old, too; len(want) if there is none
}

func (z *zipper) run() error {
	z.out = make([]object.Value, 0, max(len(z.old), len(z.want)))
	z.taken = make([]bool, len(z.want))
	z.shared = -1
	z.advance()
	for i, j := 0, 0; i < len(z.old) || j < len(z.want); {
		if i < len(z.old) && j < len(z.want) {
			if same(z.olds.ids[i], z.wants.ids[j]) {
				if err := z.take(j); err != nil {
					return err
				}
				i, j = i+1, j+1
				z.advance()
				continue
			}
			if z.wants.first(z.olds.ids[i]) >= 0 && z.shared < len(z.want) && !same(z.wants.ids[z.shared], z.olds.ids[i]) {
				i++ // it is shared, and not the one whose turn it is
				continue
			}
		}
		if i < len(z.old) {
			k := z.wants.first(z.olds.ids[i])
			if k < 0 {
				z.out = append(z.out, z.old[i])
				i++
				continue
			}
			if z.taken[k] {
				i++
			}
		}
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

// advance goes to the next item of want that is in old, too.
func (z *zipper) advance() {
	if z.shared == len(z.want) {
		return
	}
	for z.shared++; z.shared < len(z.want) && z.olds.first(z.wants.ids[z.shared]) < 0; z.shared++ {
	}
}

// take puts an item of the intent out, merged with the live one where there is just one of its identity.
func (z *zipper) take(j int) error {
	z.taken[j] = true
	k := z.olds.first(z.wants.ids[j])
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
