package replicas

import (
	"fmt"
	"net/http"
)

// registers are objects that are written on the condition of the resourceVersion that the client has seen.
func registers() *workload {
	return &workload{name: "registers", step: func(c *client, w *workload) {
		name := fmt.Sprintf("r%d-%d", c.rand.Intn(4), c.generation())
		seen := w.lastOf(name)
		switch {
		case seen == nil && c.rand.Intn(2) == 0:
			w.create(c, name, dataOf)
		case seen == nil || c.rand.Intn(2) == 0:
			w.get(c, name, dataOf)
		default:
			w.put(c, name, seen)
		}
	}}
}

// create creates an object with a mark.
func (w *workload) create(c *client, name string, state stateOf) {
	mark := c.mark()
	o := labelled(configMap(name, map[string]string{"v": mark}))
	a := c.send(http.MethodPost, configMaps(w.name), plainJSON, o)
	w.write(c, a, name, op{text: "create " + mark, mark: mark, apply: swap("", state(o))}, state)
}

// put updates an object as it was seen.
func (w *workload) put(c *client, name string, seen object) {
	mark := c.mark()
	o := labelled(configMap(name, map[string]string{"v": mark}))
	o["metadata"].(map[string]any)["resourceVersion"] = seen.text("metadata", "resourceVersion")
	a := c.send(http.MethodPut, configMaps(w.name, name), plainJSON, o)
	text := fmt.Sprintf("put %s for %s (rv %d)", mark, dataOf(seen), seen.revision())
	w.write(c, a, name, op{text: text, mark: mark, apply: swap(dataOf(seen), dataOf(o))}, dataOf)
}
