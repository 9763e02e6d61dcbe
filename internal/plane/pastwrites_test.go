package plane

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"time"

	"plinth/internal/store"
)

const definitionPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// versionsOf are the versions of a definition of Widgets.
func versionsOf(f widgetForm) string {
	spec := `"size":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}`
	if f.color {
		spec += `,"color":{"type":"string"}`
	}
	if f.level {
		spec += `,"level":{"type":"integer","default":3}`
	}
	var all []string
	for _, name := range []string{"v1", "v2"} {
		if name == "v2" && !f.v2 {
			continue
		}
		all = append(all, fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"subresources":{"status":{}},"schema":{`+
			`"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%s}},`+
			`"status":{"type":"object","properties":{"phase":{"type":"string"}}}}}}}`, name, (name == "v2") == f.v2, spec))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// define makes the definition of Widgets, or changes it: a version is added, or a field comes or goes.
func (w *pastWorld) define() {
	m := &w.model
	form := widgetForm{v2: m.defined && m.form.v2 || w.rng.IntN(3) == 0, color: w.rng.IntN(3) > 0,
		level: w.rng.IntN(2) == 0}
	w.note("define %+v", form)
	if m.defined {
		w.n.add("forms", 1)
		w.must(http.MethodPatch, definitionPath+"/widgets.example.com", `{"spec":{"versions":`+versionsOf(form)+`}}`)
	} else {
		w.must(http.MethodPost, definitionPath, `{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com",`+
			`"scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":`+versionsOf(form)+`}}`)
	}
	m.form, m.defined = form, true
}

// undefineOrDefine deletes the definition with all Widgets, or makes it again.
func (w *pastWorld) undefineOrDefine() {
	if !w.model.defined {
		w.n.add("redefined", 1)
		w.define()
		return
	}
	w.note("undefine")
	for _, k := range w.model.keys() { // what holds them
		if k.kind == widgets && w.model.live(k) != nil {
			w.call(pastWrite{key: k, method: http.MethodPatch, contentType: "application/merge-patch+json",
				body: `{"metadata":{"finalizers":null}}`, verb: "patch"})
		}
	}
	path := definitionPath + "/widgets.example.com"
	if code, answer := w.send(pastCall{method: http.MethodDelete, path: path, user: "admin"}); code >= 300 {
		w.fail("DELETE %s: %d, %v", path, code, answer)
	}
	for begun := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		code, _ := w.get(path)
		w.learn(w.read(), pastBy{user: "system:apiserver"}, nil)
		if code == http.StatusNotFound {
			break
		}
		if time.Since(begun) > time.Minute {
			w.fail("the definition stays")
		}
	}
	w.model.defined = false
}

// pastWrite is a write of an object, or with a key without a name of several.
type pastWrite struct {
	key                       pastKey
	version                   string
	method, contentType, body string
	query, verb, subresource  string
	manager                   string // "": that of the user agent
}

// write makes a random write.
func (w *pastWorld) write() {
	k := w.key()
	r := pastWrite{key: k, version: w.version()}
	live := w.model.shown(k.kind, r.version, w.model.live(k))
	if w.rng.IntN(2) == 0 {
		r.manager = []string{"first", "second", "third"}[w.rng.IntN(3)]
	}
	n := w.rng.IntN(100)
	switch {
	case n < 8 || live == nil && n < 60:
		r.method, r.contentType, r.verb = http.MethodPost, "application/json", "create"
		r.body = jsonOf(w.content(k, r.version))
	case n < 24 && live != nil:
		changed := maps.Clone(live)
		for name, value := range w.content(k, r.version) {
			if name != "metadata" {
				changed[name] = value
			}
		}
		r.method, r.contentType, r.verb, r.body = http.MethodPut, "application/json", "update", jsonOf(changed)
	case n < 42:
		changed := w.content(k, r.version)
		changed["metadata"] = map[string]any{"labels": changed["metadata"].(map[string]any)["labels"]}
		if w.rng.IntN(4) == 0 { // it changes nothing, if it is there
			changed = map[string]any{"metadata": map[string]any{"labels": map[string]any{}}}
		} else if w.rng.IntN(4) == 0 {
			changed["metadata"].(map[string]any)["finalizers"] = []any{"example.com/held"}
		}
		r.method, r.contentType, r.verb = http.MethodPatch, "application/merge-patch+json", "patch"
		r.body = jsonOf(changed)
	case n < 64:
		r.manager = []string{"first", "second", "third"}[w.rng.IntN(3)]
		r.method, r.contentType, r.verb = http.MethodPatch, "application/apply-patch+yaml", "patch"
		r.query = "force=true"
		r.body = jsonOf(w.content(k, r.version))
	case n < 76 && k.kind != configMaps:
		r.method, r.contentType, r.verb = http.MethodPatch, "application/merge-patch+json", "patch"
		r.subresource = "status"
		r.body = fmt.Sprintf(`{"status":{"observedGeneration":%d,"phase":"p%d"}}`, w.rng.IntN(3), w.rng.IntN(3))
	case n < 82:
		r.method, r.contentType, r.verb = http.MethodPatch, "application/merge-patch+json", "patch"
		r.body = `{"metadata":{"finalizers":null}}`
	case n < 97:
		r.method, r.verb = http.MethodDelete, "delete"
	default:
		r.key.name, r.method, r.verb = "", http.MethodDelete, "deletecollection"
		if w.rng.IntN(2) == 0 {
			r.query = "labelSelector=team%3Dx"
		}
	}
	w.call(r)
}

// content is a new object.
func (w *pastWorld) content(k pastKey, version string) map[string]any {
	team := []string{"x", "y"}[w.rng.IntN(2)]
	obj := map[string]any{"metadata": map[string]any{"name": k.name, "namespace": k.namespace,
		"labels": map[string]any{"team": team, "app": k.name}}}
	number := w.rng.IntN(5)
	switch k.kind {
	case configMaps:
		obj["apiVersion"], obj["kind"] = "v1", "ConfigMap"
		data := map[string]any{"text": strings.Repeat("as it was, ", w.rng.IntN(40))}
		data[fmt.Sprint("key-", number)] = fmt.Sprint(w.rng.IntN(3))
		obj["data"] = data
	case deployments:
		obj["apiVersion"], obj["kind"] = "apps/v1", "Deployment"
		labels := map[string]any{"app": k.name}
		all := []any{map[string]any{"name": "main", "image": fmt.Sprint("main:", number)}}
		for i := range w.rng.IntN(3) {
			all = append(all, map[string]any{"name": fmt.Sprint("side-", (i+number)%3), "image": "side",
				"ports": []any{map[string]any{"containerPort": 80 + number}}})
		}
		if len(all) == 3 && w.rng.IntN(2) == 0 { // another order is another object
			all[0], all[2] = all[2], all[0]
		}
		obj["spec"] = map[string]any{"replicas": number, "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels},
				"spec": map[string]any{"containers": all}}}
	default:
		obj["apiVersion"], obj["kind"] = "example.com/"+version, "Widget"
		spec := map[string]any{"size": number, "tags": []any{"a", fmt.Sprint(w.rng.IntN(4))}}
		if w.rng.IntN(2) == 0 {
			spec["color"] = fmt.Sprint("color ", number)
		}
		if w.rng.IntN(4) == 0 {
			spec["level"] = number
		}
		obj["spec"] = spec
	}
	return obj
}

// call sends a write, and teaches the model what has become of it. A dry run leaves nothing.
func (w *pastWorld) call(r pastWrite) {
	if r.version == "" {
		r.version = w.version()
	}
	path := r.key.path(r.version)
	if r.method == http.MethodPost {
		path = pastKey{r.key.kind, r.key.namespace, ""}.path(r.version)
	}
	if r.subresource != "" {
		path += "/" + r.subresource
	}
	path += "?" + r.query
	by := pastBy{user: []string{"admin", "operator"}[w.rng.IntN(2)], manager: "oracle", verb: r.verb,
		subresource: r.subresource, auditID: fmt.Sprintf("audit-%d", w.rng.Uint32())}
	if r.manager != "" && r.method != http.MethodDelete {
		path += "&fieldManager=" + r.manager
		by.manager = r.manager
	}
	c := pastCall{method: r.method, path: path, contentType: r.contentType, body: r.body, user: by.user,
		auditID: by.auditID}
	if w.rng.IntN(4) == 0 {
		c.impersonate = []string{"jane", "joe"}[w.rng.IntN(2)]
		by.user, by.impersonator = c.impersonate, by.user
	}
	if w.rng.IntN(6) == 0 {
		dry := c
		dry.path += "&dryRun=All"
		w.send(dry)
		if w.n.add("dry", 1); len(w.read()) > 0 {
			w.fail("%s %s has changed something", dry.method, dry.path)
		}
	}
	code, answer := w.send(c)
	records := w.read()
	w.note("%s %s: %d, %d changes, newest %d; %s", c.method, c.path, code, len(records), w.model.newest, r.body)
	switch {
	case code >= 500:
		w.fail("%s %s: %d, %v", c.method, c.path, code, answer)
	case code >= 300:
		if w.n.add("refused", 1); len(records) > 0 {
			w.fail("%s %s: %d, and %d changes", c.method, c.path, code, len(records))
		}
		return
	case r.key.name == "":
		w.learn(records, by, nil)
		return
	case len(records) == 0:
		w.n.add("noops", 1)
		if r.method != http.MethodDelete {
			if want := w.model.shown(r.key.kind, r.version, w.model.live(r.key)); !reflect.DeepEqual(answer, want) {
				w.fail("%s %s changes nothing, and answers\n%s\nit is\n%s", c.method, c.path, jsonOf(answer), jsonOf(want))
			}
		}
		return
	case len(records) != 1 || keyOf(records[0].Key) != r.key:
		w.fail("%s %s: it changes %d objects, the first one %v", c.method, c.path, len(records), records[0].Key)
	}
	if r.method == http.MethodDelete {
		answer = nil
	}
	w.learn(records, by, answer)
}

// learn has the model take changes. What an object has become is what the request was answered, or what it is now.
func (w *pastWorld) learn(records []*store.Record, by pastBy, answer map[string]any) {
	for i, r := range records {
		w.n.add("writes", 1)
		v := pastVersion{revision: r.Revision, by: by}
		switch k := keyOf(r.Key); {
		case r.New == nil:
		case answer != nil:
			v.object = answer
		default:
			for _, later := range records[i+1:] {
				if later.Key == r.Key {
					w.fail("%s was changed twice by one request", r.Key)
				}
			}
			code, obj := w.get(k.path("v1"))
			if code != http.StatusOK {
				w.fail("GET %s: %d, %v", k.path("v1"), code, obj)
			}
			v.object = obj
		}
		if v.object != nil && textAt(v.object, "metadata", "resourceVersion") != fmt.Sprint(r.Revision) {
			w.fail("the change %d of %s is answered as %s", r.Revision, r.Key, jsonOf(v.object))
		}
		w.model.add(keyOf(r.Key), v)
	}
}
