package replicas

import (
	"fmt"
	"net/http"
	"strings"
)

// finalizerPrefix is what all finalizers of the tests begin with.
const finalizerPrefix = "example.com/"

// finalizers are objects that are held: a delete marks them, they are gone with their last finalizer and not before,
// and nothing that was meant for them is written to a successor.
func finalizers() *workload {
	return &workload{name: "finalizers", rules: rules{unseenMatters: true}, step: func(c *client, w *workload) {
		name := fmt.Sprintf("f%d-%d", c.rand.Intn(4), c.generation())
		seen := w.lastOf(name)
		switch n := c.rand.Intn(10); {
		case seen == nil && n < 7:
			w.createHeld(c, name)
		case seen == nil || n < 2:
			w.get(c, name, heldState)
		case n < 4:
			w.deleteHeld(c, name, seen)
		default:
			w.release(c, name, seen, n < 8)
		}
	}}
}

// heldState is what the model knows of an object with finalizers: the mark of its creation, that of its last write,
// whether it is being deleted, and its finalizers.
func heldState(o object) string {
	fields := o.data()
	if o.deletion() != "" {
		fields["deleting"] = "yes"
	}
	fields["held"] = o.finalizers()
	return fieldsText(fields)
}

// deleted is the state after a delete.
func deleted(state string) (string, bool) {
	fields := fieldsOf(state)
	switch {
	case state == "":
		return "", false
	case fields["held"] == "":
		return "", true
	}
	fields["deleting"] = "yes"
	return fieldsText(fields), true
}

func (w *workload) createHeld(c *client, name string) {
	mark := c.mark()
	o := configMap(name, map[string]string{"born": mark, "v": mark})
	o["metadata"].(map[string]any)["finalizers"] = []any{finalizerPrefix + "a", finalizerPrefix + "b"}
	a := c.send(http.MethodPost, configMaps(w.name), plainJSON, o)
	w.write(c, a, name, op{text: "create " + mark, mark: mark, apply: swap("", heldState(o))}, heldState)
}

// deleteHeld deletes the object with the UID that was seen, whatever was written to it since. The answer shows it, if
// it is still there.
func (w *workload) deleteHeld(c *client, name string, seen object) {
	a := c.send(http.MethodDelete, configMaps(w.name, name), plainJSON,
		object{"preconditions": map[string]any{"uid": seen.uid()}})
	born := seen.data()["born"]
	var state stateOf
	if a.outcome == done && a.body.text("kind") == "ConfigMap" {
		state = heldState
	}
	w.write(c, a, name, op{text: "delete " + born, apply: func(state string) (string, bool) {
		if fieldsOf(state)["born"] != born {
			return state, false
		}
		return deleted(state)
	}}, state)
	if state == nil && a.outcome == done {
		w.know(name, nil)
	}
}

// release updates an object as it was seen, with one finalizer less or with all. The answer shows the object as it was
// written last, although it may be gone with that.
func (w *workload) release(c *client, name string, seen object, one bool) {
	mark, before := c.mark(), heldState(seen)
	fields := seen.data()
	fields["v"] = mark
	o := configMap(name, fields)
	metadata := o["metadata"].(map[string]any)
	metadata["resourceVersion"], metadata["uid"] = seen.text("metadata", "resourceVersion"), seen.uid()
	var left []any
	for i, f := range strings.Split(seen.finalizers(), "") {
		if !one || i > 0 {
			left = append(left, finalizerPrefix+f)
		}
	}
	metadata["finalizers"] = left
	if seen.deletion() != "" {
		metadata["deletionTimestamp"] = seen.deletion()
	}
	after := heldState(o)
	gone := seen.deletion() != "" && len(left) == 0
	delete(metadata, "deletionTimestamp") // the server keeps its own
	a := c.send(http.MethodPut, configMaps(w.name, name), plainJSON, o)
	state := stateOf(heldState)
	sign := mark
	if gone { // and with it the mark
		state, after, sign = nil, "", ""
	}
	w.write(c, a, name, op{text: fmt.Sprintf("put %s held by %d for %s", mark, len(left), before), mark: sign,
		apply: swap(before, after)}, state)
	if a.outcome == done && gone {
		w.know(name, nil)
	}
}
