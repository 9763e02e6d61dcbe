package replicas

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// lists are collections of a few objects: one list of all is a snapshot, at once or in pages, which each replica serves
// a part of. The model's state is the whole collection, which a label selects.
func lists() *workload {
	return &workload{name: "lists", rules: rules{unseenMatters: true}, step: func(c *client, w *workload) {
		collection := fmt.Sprintf("l%d-%d", c.rand.Intn(2), c.generation())
		field := fmt.Sprint("k", c.rand.Intn(5))
		name := collection + "-" + field
		seen := w.lastOf(name)
		switch n := c.rand.Intn(10); {
		case n < 3:
			w.list(c, collection, n == 0)
		case seen == nil:
			w.createIn(c, collection, field)
		case n == 3:
			w.deleteIn(c, collection, field, seen)
		default:
			w.putIn(c, collection, field, seen)
		}
	}}
}

// collected is the state of a collection.
func collected(items []object) string {
	fields := map[string]string{}
	for _, i := range items {
		name := i.name()
		fields[name[strings.LastIndex(name, "-")+1:]] = i.data()["v"]
	}
	return fieldsText(fields)
}

// replaceIn is a write of one object of a collection, on the condition of its value. "" is none.
func replaceIn(field, before, after string) func(string) (string, bool) {
	return func(state string) (string, bool) {
		fields := maps.Clone(fieldsOf(state))
		if fields[field] != before {
			return state, false
		}
		if fields[field] = after; after == "" {
			delete(fields, field)
		}
		return fieldsText(fields), true
	}
}

func (w *workload) createIn(c *client, collection, field string) {
	mark, name := c.mark(), collection+"-"+field
	o := labelled(configMap(name, map[string]string{"v": mark}), "in", collection)
	a := c.send(http.MethodPost, configMaps(w.name), plainJSON, o)
	w.write(c, a, name, op{key: w.key(collection), text: "create " + field + "=" + mark, mark: mark,
		apply: replaceIn(field, "", mark)}, nil)
	if a.outcome == done {
		w.see(c, name, a, a.body, dataOf)
	}
}

func (w *workload) putIn(c *client, collection, field string, seen object) {
	mark, name := c.mark(), collection+"-"+field
	o := labelled(configMap(name, map[string]string{"v": mark}), "in", collection)
	o["metadata"].(map[string]any)["resourceVersion"] = seen.text("metadata", "resourceVersion")
	a := c.send(http.MethodPut, configMaps(w.name, name), plainJSON, o)
	w.write(c, a, name, op{key: w.key(collection), text: "put " + field + "=" + mark + " for " + seen.data()["v"],
		mark: mark, apply: replaceIn(field, seen.data()["v"], mark)}, nil)
	switch {
	case a.outcome == done:
		w.see(c, name, a, a.body, dataOf)
	case a.outcome == refused: // somebody was quicker
		w.list(c, collection, false)
	}
}

func (w *workload) deleteIn(c *client, collection, field string, seen object) {
	name := collection + "-" + field
	a := c.send(http.MethodDelete, configMaps(w.name, name), plainJSON, object{"preconditions": map[string]any{
		"uid": seen.uid(), "resourceVersion": seen.text("metadata", "resourceVersion")}})
	w.write(c, a, name, op{key: w.key(collection), text: "delete " + field + "=" + seen.data()["v"],
		apply: replaceIn(field, seen.data()["v"], "")}, nil)
	if a.outcome == done {
		w.know(name, nil)
	}
}

// list lists a collection, at once or in pages at different replicas.
func (w *workload) list(c *client, collection string, pages bool) bool {
	path := query(configMaps(w.name), "labelSelector", "in="+collection)
	if pages {
		path += "&limit=2"
	}
	first := c.send(http.MethodGet, path, "", nil)
	w.count(first)
	if first.outcome != done {
		return false
	}
	items, text := first.body.items(), fmt.Sprintf("list at rv %d", first.body.revision())
	for page := first; page.body.text("metadata", "continue") != ""; {
		token := page.body.text("metadata", "continue")
		page = c.send(http.MethodGet, path+"&"+strings.TrimPrefix(query("", "continue", token), "?"), "", nil)
		w.count(page)
		if page.outcome != done {
			return false // the history was compacted meanwhile, or nobody knows
		}
		items = append(items, page.body.items()...)
		text += fmt.Sprintf(", a page of %d at rv %d", page.replica, page.body.revision())
	}
	// All pages are of the moment of the first one.
	w.history.add(&op{client: c.id, replica: first.replica, key: w.key(collection), text: text, note: first.note(),
		apply: read, call: first.call, back: first.back, shows: true, seen: collected(items)})
	for _, i := range items {
		w.see(c, i.name(), first, i, dataOf)
	}
	for _, name := range w.names() {
		if strings.HasPrefix(name, collection+"-") && !slices.ContainsFunc(items,
			func(o object) bool { return o.name() == name }) {
			w.know(name, nil)
		}
	}
	return true
}

// listAll lists every collection once more.
func (w *workload) listAll(c *client) error {
	for _, key := range w.keys() {
		collection := strings.TrimPrefix(key, w.name+"/")
		if err := c.insist(func() bool { return w.list(c, collection, false) }); err != nil {
			return fmt.Errorf("listing %s in the end: %w", key, err)
		}
	}
	return nil
}
