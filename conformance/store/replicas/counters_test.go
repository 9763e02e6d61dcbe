package replicas

import (
	"fmt"
	"maps"
	"net/http"
)

// counters are objects that are changed by patches: one field by a JSON patch that tests it first, and a field of each
// client by merge patches, which test nothing.
func counters() *workload {
	return &workload{name: "counters", step: func(c *client, w *workload) {
		name := fmt.Sprintf("n%d-%d", c.rand.Intn(3), c.generation())
		seen := w.lastOf(name)
		switch {
		case seen == nil && c.rand.Intn(2) == 0:
			w.create(c, name, dataOf)
		case seen == nil || c.rand.Intn(3) == 0:
			w.get(c, name, dataOf)
		case c.rand.Intn(2) == 0:
			w.testAndReplace(c, name, seen.data()["v"])
		default:
			w.merge(c, name, fmt.Sprint("c", c.id))
		}
	}}
}

// conflicted says whether a patch without a condition was refused because others wrote at the same time. The server has
// tried it several times then, and may give up although the last state would do.
func conflicted(a *answer) bool { return a.status == http.StatusConflict }

// testAndReplace replaces the field v if it has the value.
func (w *workload) testAndReplace(c *client, name, value string) {
	mark := c.mark()
	a := c.send(http.MethodPatch, configMaps(w.name, name), jsonPatch, []any{
		map[string]any{"op": "test", "path": "/data/v", "value": value},
		map[string]any{"op": "replace", "path": "/data/v", "value": mark}})
	w.write(c, a, name, op{text: "replace " + value + " by " + mark, mark: mark, whatever: conflicted(a),
		apply: func(state string) (string, bool) {
			fields := fieldsOf(state)
			if fields["v"] != value {
				return state, false
			}
			fields["v"] = mark
			return fieldsText(fields), true
		}}, dataOf)
}

// merge sets a field.
func (w *workload) merge(c *client, name, field string) {
	mark := c.mark()
	a := c.send(http.MethodPatch, configMaps(w.name, name), mergePatch,
		object{"data": map[string]any{field: mark}})
	w.write(c, a, name, op{text: "merge " + field + "=" + mark, mark: mark, whatever: conflicted(a),
		apply: setField(field, mark)}, dataOf)
}

// setField is a write of one field of an object that is there.
func setField(field, value string) func(string) (string, bool) {
	return func(state string) (string, bool) {
		if state == "" {
			return "", false
		}
		fields := maps.Clone(fieldsOf(state))
		fields[field] = value
		return fieldsText(fields), true
	}
}
