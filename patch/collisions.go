package patch

import (
	"fmt"
	"slices"
	"strings"

	"plinth/object"
	"plinth/schema"
)

// Collision is a list in which a strategic merge patch took several items for one, because they have the same merge
// key. Some keys of the API are not unique: a Service may have the ports 53/TCP and 53/UDP, and the merge key is the
// number alone. The reference merges such a patch without a word, and so does Strategic; a Collision tells what
// happened. At least one of these holds, for the items with this key:
//
//	Order > Result, Order > 1    the client wants more items than there are now: some are lost
//	Deleted > 1                  the patch deletes one item, and all are gone
//	Patch > 1                    items of the patch were merged into one
//	Object > 1, Patch > 0        the patch changed the first item, which may be another one than it means
type Collision struct {
	Path     string       // of the list, as in StrategicError
	MergeKey string       // port
	Value    object.Value // 53
	// ApplyKeys are the fields by which server-side apply identifies the items if these are more than the merge key, else
	// nil.
	ApplyKeys []string

	Object, Patch, Order, Result, Deleted int // numbers of items with this key
}

// maxCollisions bounds the collisions of one patch that are returned.
const maxCollisions = 8

// String says what happened to the items, and why.
func (c Collision) String() string {
	key := fmt.Sprintf("%s %s", c.MergeKey, object.AppendJSON(nil, c.Value))
	var what string
	switch {
	case c.lost():
		what = fmt.Sprintf("of %d items with %s, %d are lost", c.Order, key, c.Order-c.Result)
		if c.Order-c.Result == 1 {
			what = fmt.Sprintf("one of %d items with %s is lost", c.Order, key)
		}
	case c.Deleted > 1:
		what = fmt.Sprintf("all %d items with %s are deleted", c.Deleted, key)
	case c.Patch > 1:
		what = fmt.Sprintf("%d items of the patch with %s are merged into one", c.Patch, key)
	default:
		what = fmt.Sprintf("only the first of %d items with %s is patched", c.Object, key)
	}
	text := fmt.Sprintf("%s: %s: a strategic merge patch, as kubectl apply sends it, identifies items by %s alone",
		c.Path, what, c.MergeKey)
	if c.ApplyKeys != nil {
		text += "; server-side apply identifies them by " + strings.Join(c.ApplyKeys, " and ")
	}
	return text
}

func (c Collision) lost() bool { return c.Order > 1 && c.Order > c.Result }

// applyKeys returns the keys of a list if server-side apply identifies its items by more than the merge key.
func applyKeys(list *schema.Type, mergeKey string) []string {
	if list.ListType != schema.Associative || len(list.ListKeys) < 2 || !slices.Contains(list.ListKeys, mergeKey) {
		return nil
	}
	return list.ListKeys
}

// collided reports a collision in a list whose path is still empty. One that is known already is replaced.
func (m *merger) collided(c Collision, f member) {
	c.MergeKey, c.ApplyKeys = f.mergeKey, f.applyKeys
	for i := range m.collisions {
		if known := &m.collisions[i]; known.Path == "" && known.MergeKey == c.MergeKey && sameScalar(known.Value, c.Value) {
			*known = c
			return
		}
	}
	if len(m.collisions) < maxCollisions {
		m.collisions = append(m.collisions, c)
	}
}

// under puts the element of a path in front of the paths of the collisions that were found from the one at first on.
func (m *merger) under(first int, element string) {
	for i := first; i < len(m.collisions); i++ {
		m.collisions[i].Path = joined(element, m.collisions[i].Path)
	}
}

// collideItems reports the keys of a patch that occur more than once in it, or in the live list.
func (m *merger) collideItems(live, patch []object.Value, f member) {
	inLive, inPatch := countsOf(live, f.mergeKey), countsOf(patch, f.mergeKey)
	for _, key := range keysOf(patch, f.mergeKey) {
		id, _ := scalarOf(key)
		if ofLive, ofPatch := inLive[id], inPatch[id]; ofLive > 1 || ofPatch > 1 {
			m.collided(Collision{Value: key, Object: ofLive, Patch: ofPatch}, f)
		}
	}
}

// collideOrder reports the keys that $setElementOrder lists more often than the result has them.
func (m *merger) collideOrder(order, result []object.Value, f member) {
	inOrder, inResult := countsOf(order, f.mergeKey), countsOf(result, f.mergeKey)
	for _, key := range keysOf(order, f.mergeKey) {
		id, _ := scalarOf(key)
		if c := (Collision{Value: key, Order: inOrder[id], Result: inResult[id]}); c.lost() {
			m.collided(c, f)
		}
	}
}

// keysOf returns the merge keys of a list, each once.
func keysOf(list []object.Value, mergeKey string) []object.Value {
	var keys []object.Value
	known := make(map[scalar]bool, len(list))
	for _, item := range list {
		key, ok := item.Get(mergeKey)
		if id, scalar := scalarOf(key); ok && scalar && !known[id] {
			known[id] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// countsOf returns how many items of a list have each merge key.
func countsOf(list []object.Value, mergeKey string) map[scalar]int {
	counts := make(map[scalar]int, len(list))
	for _, item := range list {
		if key, ok := item.Get(mergeKey); ok {
			if id, ok := scalarOf(key); ok {
				counts[id]++
			}
		}
	}
	return counts
}

func sameScalar(a, b object.Value) bool {
	left, _ := scalarOf(a)
	right, _ := scalarOf(b)
	return left == right
}
