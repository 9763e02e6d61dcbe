package replicas

import (
	"fmt"
	"net/http"
)

// names are objects of which several clients create and delete the same ones: one of several creates wins, a deleted
// one stays so, and its successor has another UID. The mark of a create is in the object, and stands for it.
func names() *workload {
	return &workload{name: "names", rules: rules{unseenMatters: true}, step: func(c *client, w *workload) {
		name := fmt.Sprintf("o%d-%d", c.rand.Intn(6), c.generation())
		seen := w.lastOf(name)
		switch n := c.rand.Intn(10); {
		case n < 4 || n < 6 && seen == nil:
			w.create(c, name, dataOf)
		case n < 7 && seen != nil:
			w.delete(c, name, seen)
		case n == 7:
			w.delete(c, name, nil)
		default:
			w.get(c, name, dataOf)
		}
	}}
}

// delete deletes an object as it was seen, by its UID, or whatever is there.
func (w *workload) delete(c *client, name string, seen object) {
	var body any
	o := op{text: "delete any", apply: func(state string) (string, bool) { return "", state != "" }}
	if seen != nil {
		body = object{"preconditions": map[string]any{"uid": seen.uid()}}
		o = op{text: "delete " + dataOf(seen), apply: swap(dataOf(seen), "")}
	}
	a := c.send(http.MethodDelete, configMaps(w.name, name), plainJSON, body)
	w.write(c, a, name, o, nil)
	if a.outcome == done {
		w.know(name, nil)
	}
}
