package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/engine"
	"plinth/object"
)

// rehearsal sends each write twice: as a dry run, which must leave no trace, and for good, with the same response.
type rehearsal struct {
	*testing.T
	server *Server
	// rehearsed counts, by the verb and the subresource, the writes that were done for good and have changed something.
	rehearsed map[string]int
}

// As in the reference, a dry run of a Service with an explicit address does not check whether the address is taken. So
// it proceeds to the check of the name.
const addressTaken = "create what is there: /api/v1/namespaces/default/services"

// reply is the part of a response by which the two runs are compared.
type reply struct {
	code     int
	warnings string
	body     string
	raw      string
}

// cleaned waits until the server itself has completed the deletion of definitions.
func (h *rehearsal) cleaned() {
	h.Helper()
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	unfinished := regexp.MustCompile("InstanceDeletion(Pending|InProgress)")
	for end := time.Now().Add(10 * time.Second); unfinished.MatchString(h.send("GET", definitions, "", "").raw); {
		if time.Now().After(end) {
			h.Fatal("a definition has not been cleaned up")
		}
		time.Sleep(time.Millisecond)
	}
}

// send serves one request. The header Content-Type is that of the body.
func (h *rehearsal) send(method, path, body, contentType string) reply {
	h.Helper()
	r, err := http.NewRequest(method, path, strings.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	r.RequestURI = path
	if body != "" {
		r.Header.Set("Content-Type", cmp.Or(contentType, "application/json"))
	}
	r.Header.Set("User-Agent", "rehearsal/1.0")
	w := httptest.NewRecorder()
	h.server.http.Handler.ServeHTTP(w, asAdmin(r))
	return reply{code: w.Code, warnings: strings.Join(w.Header()["Warning"], "\n"), body: comparable(w.Body.String()),
		raw: w.Body.String()}
}

// Values that the server makes, which may differ between the two runs (DRY-3): UIDs, versions, times, names,
// addresses and tokens.
var (
	made = regexp.MustCompile(
		`"(uid|resourceVersion|continue|token|clusterIP|nodePort|healthCheckNodePort|ipaddress\.kubernetes\.io/[a-z-]*)":("[^"]*"|\d+)`)
	list   = regexp.MustCompile(`"clusterIPs":\[[^\]]*\]`)
	when   = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`)
	name   = regexp.MustCompile(`made-[a-z0-9]{5}\b`)
	volume = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}\b`)
	ids    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

func comparable(body string) string {
	// A dry run that creates an object has no version to report.
	body = strings.ReplaceAll(body, `"resourceVersion":"0",`, "")
	body = made.ReplaceAllString(body, `"$1":"~"`)
	body = list.ReplaceAllString(body, `"clusterIPs":"~"`)
	body = when.ReplaceAllString(body, `"~"`)
	body = name.ReplaceAllString(body, "made-~")
	body = volume.ReplaceAllString(body, "kube-api-access-~")
	body = strings.ReplaceAll(body, `"resourceVersion":"~",`, "")
	return ids.ReplaceAllString(body, "~")
}

// changes are the keys that were written since a revision. The server renews its own Lease now and then.
func (h *rehearsal) changes(since int64) (keys []string) {
	h.Helper()
	for h.server.plane.Store.Revision() > since {
		cursor, err := h.server.plane.Store.WatchAll(h.Context(), since)
		if err != nil {
			h.Fatal(err)
		}
		records, err := cursor.Next(h.Context())
		cursor.Close()
		if err != nil {
			h.Fatal(err)
		}
		for _, r := range records {
			since = r.Revision
			version := r.New
			if version == nil {
				version = r.Old
			}
			if key := version.Key.String(); !strings.HasPrefix(key, "coordination.k8s.io/leases/kube-system/apiserver-") {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// both sends a write as a dry run and for good. what is its name in the tally.
func (h *rehearsal) both(what, method, path, body, contentType string) reply {
	h.Helper()
	query := func(extra string) string {
		if strings.Contains(path, "?") {
			return path + "&" + extra
		}
		return path + "?" + extra
	}
	before := h.server.plane.Store.Revision()
	if method != http.MethodDelete || body == "" {
		for _, wrong := range []string{"dryRun=", "dryRun=all", "dryRun=All&dryRun=Some"} {
			if got := h.send(method, query(wrong), body, contentType); got.code != 422 && got.code != 415 ||
				got.code == 422 && !strings.Contains(got.raw, `: supported values: \"All\"`) {
				h.Errorf("%s: %s %s: %d %.300s", what, method, query(wrong), got.code, got.raw)
			}
		}
	}
	var dry reply
	if method == http.MethodDelete && body != "" {
		dry = h.send(method, path, strings.Replace(body, "{", `{"dryRun":["All"],`, 1), contentType)
	} else {
		dry = h.send(method, query("dryRun=All"), body, contentType)
	}
	if keys := h.changes(before); len(keys) > 0 {
		h.Errorf("%s: the dry run %s %s has written %q", what, method, path, keys)
	}
	before = h.server.plane.Store.Revision()
	real := h.send(method, path, body, contentType)
	if what+": "+path == addressTaken {
		if dry.code != 409 || real.code != 422 {
			h.Errorf("%s: %d, %d", what, dry.code, real.code)
		}
		return real
	}
	if dry.code != real.code || dry.body != real.body || dry.warnings != real.warnings {
		h.Errorf("%s: %s %s\ndry run: %d %s%s\nfor good: %d %s%s", what, method, path, dry.code, dry.warnings, dry.body,
			real.code, real.warnings, real.body)
	}
	if len(h.changes(before)) > 0 {
		h.rehearsed[what]++
	}
	return real
}

const (
	mergeType     = "application/merge-patch+json"
	jsonPatchType = "application/json-patch+json"
	strategicType = "application/strategic-merge-patch+json"
	applyType     = "application/apply-patch+yaml"
)

// specimen is an object of a type that is written, and its path.
type specimen struct {
	of         *engine.Resource
	obj        object.Value
	collection string
	path       string
}

func (s *specimen) body() string { return string(object.AppendJSON(nil, s.obj)) }

// intent is what is applied: an annotation.
func (s *specimen) intent(extra string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"annotations":{"dry":%q}}}`,
		s.of.APIVersion(), s.of.Kind, s.obj.At("metadata", "name").Str(), extra)
}

// live is the stored object.
func (h *rehearsal) live(path string) object.Value {
	h.Helper()
	got := h.send("GET", path, "", "")
	parsed, err := object.ParseJSON([]byte(got.raw))
	if err != nil || got.code != 200 {
		h.Fatalf("GET %s: %d %s", path, got.code, got.raw)
	}
	return parsed.Value
}

// clear removes the object, even if finalizers hold it, and make creates it again.
func (h *rehearsal) clear(s *specimen) {
	h.Helper()
	for range 5 {
		if h.send("GET", s.path, "", "").code == 404 {
			return
		}
		h.send("PATCH", s.path, `{"metadata":{"finalizers":null}}`, mergeType)
		h.send("DELETE", s.path+"?gracePeriodSeconds=0&propagationPolicy=Background", "", "")
		if s.of.Name == "namespaces" {
			if got := h.send("GET", s.path, "", ""); got.code == 200 {
				h.send("PUT", s.path+"/finalize", string(object.AppendJSON(nil, h.live(s.path).With("spec", object.MapOf()))), "")
			}
		}
	}
	h.Errorf("%s does not go", s.path)
}

func (h *rehearsal) make(s *specimen) {
	h.Helper()
	h.clear(s)
	if got := h.send("POST", s.collection, s.body(), ""); got.code != 201 {
		h.Fatalf("POST %s: %d %s", s.collection, got.code, got.raw)
	}
}

// specimens are one object of every type that is served: a valid one where it is stored.
func (h *rehearsal) specimens() []*specimen {
	h.Helper()
	documents := map[string]object.Value{}
	files, err := filepath.Glob(filepath.Join("..", "builtin", "validation", "testdata", "*.yaml"))
	if err != nil || len(files) < 4 {
		h.Fatalf("%v: %v", files, err)
	}
	keep := func(v object.Value) {
		id := v.At("apiVersion").Str() + "/" + v.At("kind").Str()
		if _, has := documents[id]; !has {
			documents[id] = v
		}
	}
	for _, extra := range moreSpecimens {
		v, err := object.ParseYAML([]byte(extra))
		if err != nil {
			h.Fatal(err)
		}
		keep(v.Value)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			h.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "\n---") {
			v, err := object.ParseYAML([]byte(strings.TrimLeft(document, "-\n")))
			if err != nil {
				h.Fatalf("%s: %v", file, err)
			}
			keep(v.Value)
		}
	}
	var all []*specimen
	for r := range h.server.plane.Registry.Now().All() {
		if !slices.Contains(r.Verbs, "create") {
			if slices.ContainsFunc(r.Verbs, func(v string) bool { return v != "get" && v != "list" && v != "watch" }) {
				h.Errorf("%s is written, but not created", r.Name)
			}
			continue
		}
		obj, ok := documents[r.APIVersion()+"/"+r.Kind]
		if !ok {
			h.Errorf("there is no specimen of %s, %s", r.APIVersion(), r.Kind)
			continue
		}
		prefix := "/apis/" + r.Group + "/" + r.Version
		if r.Group == "" {
			prefix = "/api/" + r.Version
		}
		obj = obj.WithoutAt("metadata", "namespace").WithoutAt("metadata", "finalizers").WithoutAt("metadata",
			"ownerReferences").
			WithoutAt("metadata", "resourceVersion").WithoutAt("metadata",
			"uid").WithAt(object.Fields("dry", object.StringOf("run")), "metadata", "labels")
		if r.Namespaced {
			prefix += "/namespaces/default"
		}
		if r.Kind == "Pod" { // admission demands that what these name exists
			for _, key := range []string{"priorityClassName", "preemptionPolicy", "runtimeClassName", "overhead"} {
				obj = obj.WithoutAt("spec", key)
			}
		}
		s := &specimen{of: r, obj: obj, collection: prefix + "/" + r.Name}
		s.path = s.collection + "/" + obj.At("metadata", "name").Str()
		all = append(all, s)
	}
	return all
}

// moreSpecimens are objects of types for which package validation has no documents, or none that can be created without
// preparation.
var moreSpecimens = []string{
	`{apiVersion: v1, kind: Binding, metadata: {name: web}, target: {name: a-node}}`,
	`{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}`,
	`{apiVersion: dry.example/v1, kind: Thing, metadata: {name: thing}, spec: {replicas: 1}}`,
	`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: others.dry.example}, spec: {group: dry.example, scope: Namespaced,
		names: {plural: others, kind: Other}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`,
	`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.others.example}, spec: {group: others.example, version: v1,
		groupPriorityMinimum: 100, versionPriority: 10}}`, // without a server, so that no controller writes to it
	`{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: rule}, spec: {deviceSelector: {driver: d.example}, taint: {key: example.com/k, effect: NoSchedule}}}`,
	`{apiVersion: authentication.k8s.io/v1, kind: TokenReview, metadata: {}, spec: {token: t}}`,
	`{apiVersion: authentication.k8s.io/v1, kind: SelfSubjectReview, metadata: {}}`,
	`{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectAccessReview, metadata: {}, spec: {nonResourceAttributes: {path: /, verb: get}}}`,
	`{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectRulesReview, metadata: {}, spec: {namespace: default}}`,
	`{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, metadata: {}, spec: {user: u, nonResourceAttributes: {path: /, verb: get}}}`,
	`{apiVersion: authorization.k8s.io/v1, kind: LocalSubjectAccessReview, metadata: {namespace: default}, spec: {user: u, resourceAttributes: {namespace: default, verb: get, resource: pods}}}`,
}

// A dry run of every write of every type, with every option, leaves no trace: no object, no revision, no event, no
// address; so it does not trigger controllers, either. Its response is that of the same write that follows it.
//
// SPEC: DRY-1, DRY-3
func TestDryRuns(t *testing.T) {
	c := Defaults()
	c.DataDir, c.Storage, c.SecurePort, c.Logger = t.TempDir(), "memory", 0, slog.New(slog.DiscardHandler)
	c.TokenAuthFile = tokenFile(t, c.DataDir)
	c.Controllers, c.PriorityAndFairness = nil, false // their writes would be mistaken for those of a dry run
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c.Now = func() time.Time { return at }
	s, err := Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := &rehearsal{T: t, server: s, rehearsed: map[string]int{}}
	const definition = `{"metadata":{"name":"things.dry.example"},"spec":{"group":"dry.example","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},
		"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"replicas":{"type":"integer"}}},"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}`
	if got := h.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition, ""); got.code != 201 {
		t.Fatal(got.raw)
	}
	for _, name := range []string{"default", "web"} {
		if got := h.send("POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"`+name+`"}}`,
			""); got.code != 201 {
			t.Fatal(got.raw)
		}
	}
	types := 0
	for _, s := range h.specimens() {
		types++
		t.Run(s.of.APIVersion()+" "+s.of.Kind, func(t *testing.T) {
			h := *h
			h.T = t
			if s.of.Virtual() {
				h.virtual(s)
				return
			}
			h.writes(s)
			for i := range s.of.Subresources {
				h.subresource(s, s.of.Subresources[i])
			}
			h.deletes(s)
		})
	}
	for what, least := range map[string]int{
		"create": 60, "create by update": 5, "create by apply": 60, "generate": 40, "update": 60, "merge patch": 60,
		"JSON patch": 60, "strategic patch": 60, "apply": 60,
		"update of status": 20, "merge patch of status": 20, "apply of status": 20, "update of scale": 4,
		"merge patch of scale": 4, "update of approval": 1, "update of finalize": 1,
		"create of binding": 1, "create of eviction": 1, "bindings": 1,
		"delete": 60, "delete, Background": 60, "delete, Foreground": 60, "delete, Orphan": 60, "delete, orphaning": 60,
		"delete, not orphaning": 60,
		"delete now":            60, "delete later": 60, "delete on a condition": 60, "delete what waits": 60,
		"deletecollection":   55,
		"the last finalizer": 60,
	} {
		if h.rehearsed[what] < least {
			t.Errorf("%q was done %d times only", what, h.rehearsed[what])
		}
	}
	if types < 72 {
		t.Errorf("only %d types", types)
	}
	t.Logf("%d types: %v", types, h.rehearsed)
}

// writes rehearses creates, updates, patches and applies.
func (h *rehearsal) writes(s *specimen) {
	h.clear(s)
	h.both("create", "POST", s.collection, s.body(), "")
	h.both("create what is there", "POST", s.collection, s.body(), "")
	h.both("create with an error", "POST", s.collection, `{"metadata":{"name":"no name!"}}`, "")
	h.both("create in Strict", "POST", s.collection+"?fieldValidation=Strict",
		strings.Replace(s.body(), "{", `{"extra":1,`, 1), "")

	changed := h.live(s.path).WithAt(object.Fields("dry", object.StringOf("update")), "metadata", "annotations")
	h.both("update", "PUT", s.path, string(object.AppendJSON(nil, changed)), "")
	h.both("update that is stale", "PUT", s.path,
		string(object.AppendJSON(nil, changed.WithAt(object.StringOf("1"), "metadata", "resourceVersion"))), "")
	h.both("update of nothing", "PUT", s.path, string(object.AppendJSON(nil, h.live(s.path))), "")
	h.both("merge patch", "PATCH", s.path, `{"metadata":{"annotations":{"dry":"merge"}}}`, mergeType)
	h.both("JSON patch", "PATCH", s.path, `[{"op":"replace","path":"/metadata/annotations/dry","value":"json"}]`,
		jsonPatchType)
	h.both("JSON patch that fails", "PATCH", s.path, `[{"op":"test","path":"/metadata/annotations/dry","value":"x"}]`,
		jsonPatchType)
	h.both("strategic patch", "PATCH", s.path, `{"metadata":{"annotations":{"dry":"strategic"}}}`, strategicType)
	h.both("apply with a conflict", "PATCH", s.path+"?fieldManager=m", s.intent("conflict"), applyType)
	h.both("apply", "PATCH", s.path+"?fieldManager=m&force=true", s.intent("apply"), applyType)

	h.clear(s)
	h.both("create by update", "PUT", s.path, s.body(), "")
	h.clear(s)
	h.both("patch of what is not there", "PATCH", s.path, `{}`, mergeType)
	h.both("delete what is not there", "DELETE", s.path, "", "")
	h.both("create by apply", "PATCH", s.path+"?fieldManager=m", s.body(), applyType)
	h.clear(s)
	made := s.obj.WithoutAt("metadata", "name").WithAt(object.StringOf("made-"), "metadata", "generateName")
	if got := h.both("generate", "POST", s.collection, string(object.AppendJSON(nil, made)), ""); got.code == 201 {
		parsed, err := object.ParseJSON([]byte(got.raw))
		if err != nil {
			h.Fatal(err)
		}
		h.clear(&specimen{of: s.of, path: s.collection + "/" + parsed.Value.At("metadata", "name").Str()})
	}
}

// operations are bodies for a POST to a subresource.
var operations = map[string]string{
	"binding":  `{"metadata":{"name":"%s"},"target":{"name":"a-node"}}`,
	"eviction": `{"metadata":{"name":"%s"}}`,
	"token":    `{"spec":{"audiences":["a"],"expirationSeconds":3600}}`,
}

// subresource rehearses the writes of a subresource.
func (h *rehearsal) subresource(s *specimen, sub *engine.Subresource) {
	if sub.Connection != nil {
		return // it is sent on, and nothing is written here
	}
	path := s.path + "/" + sub.Name
	does := func(verb string) bool { return slices.Contains(sub.Verbs, verb) }
	if does("create") {
		body, ok := operations[sub.Name]
		if !ok {
			h.Errorf("nobody knows what a POST to %s does", sub.Name)
			return
		}
		if strings.Contains(body, "%s") {
			body = fmt.Sprintf(body, s.obj.At("metadata", "name").Str())
		}
		h.unbound(s)
		h.both("create of "+sub.Name, "POST", path, body, "")
	}
	if !does("update") {
		return
	}
	h.make(s)
	if does("get") {
		obj := h.live(path)
		if sub.Name == "scale" {
			obj = obj.WithAt(object.IntOf(obj.At("spec", "replicas").Int()+1), "spec", "replicas")
		} else {
			obj = obj.WithAt(object.Fields("dry", object.StringOf("update")), "metadata", "annotations")
		}
		if sub.Name == "approval" {
			obj = obj.WithAt(object.ListOf(object.Fields("type", object.StringOf("Approved"), "status", object.StringOf("True"),
				"reason", object.StringOf("R"))), "status", "conditions")
		}
		h.both("update of "+sub.Name, "PUT", path, string(object.AppendJSON(nil, obj)), "")
	} else { // finalize
		h.both("update of "+sub.Name, "PUT", path,
			string(object.AppendJSON(nil, h.live(s.path).With("spec", object.MapOf()))), "")
	}
	if does("patch") {
		patch := `{"metadata":{"annotations":{"dry":"merge"}}}`
		if sub.Name == "scale" {
			patch = `{"spec":{"replicas":7}}`
		}
		h.both("merge patch of "+sub.Name, "PATCH", path, patch, mergeType)
		h.both("strategic patch of "+sub.Name, "PATCH", path, strings.Replace(strings.Replace(patch, "merge", "strategic", 1),
			"7", "8", 1), strategicType)
		intent := s.intent("apply")
		if sub.Name == "scale" {
			intent = fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":%q},"spec":{"replicas":9}}`,
				s.obj.At("metadata", "name").Str())
		}
		h.both("apply of "+sub.Name, "PATCH", path+"?fieldManager=m&force=true", intent, applyType)
	}
}

// unbound creates a Pod that is not bound to a node.
func (h *rehearsal) unbound(s *specimen) {
	h.make(s)
	if s.of.Name != "pods" {
		return
	}
	h.clear(s)
	free := s.obj.WithoutAt("spec", "nodeName").WithoutAt("spec", "schedulingGates")
	if got := h.send("POST", s.collection, string(object.AppendJSON(nil, free)), ""); got.code != 201 {
		h.Fatal(got.raw)
	}
}

// virtual rehearses a create of a type that is not stored.
func (h *rehearsal) virtual(s *specimen) {
	if s.of.Through == nil {
		before := h.server.plane.Store.Revision()
		if h.both("review", "POST", s.collection, s.body(), ""); len(h.changes(before)) > 0 {
			h.Error("it has written something")
		}
		return
	}
	pod := &specimen{of: h.server.plane.Registry.Now().Find("", "v1", "pods"),
		collection: "/api/v1/namespaces/default/pods",
		path:       "/api/v1/namespaces/default/pods/web"}
	parsed, err := object.ParseYAML([]byte(`{metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}`))
	if err != nil {
		h.Fatal(err)
	}
	pod.obj = parsed.Value
	h.make(pod)
	h.both("bindings", "POST", s.collection, s.body(), "")
	h.clear(pod)
}

// deletes rehearses deletes with all their options.
func (h *rehearsal) deletes(s *specimen) {
	for _, c := range []struct{ what, query, body string }{
		{"delete", "", ""},
		{"delete, Background", "?propagationPolicy=Background", ""},
		{"delete, Foreground", "?propagationPolicy=Foreground", ""},
		{"delete, Orphan", "", `{"propagationPolicy":"Orphan"}`},
		{"delete, orphaning", "", `{"orphanDependents":true}`},
		{"delete, not orphaning", "?orphanDependents=false", ""},
		{"delete now", "?gracePeriodSeconds=0", ""},
		{"delete later", "", `{"gracePeriodSeconds":30}`},
	} {
		h.make(s)
		h.both(c.what, "DELETE", s.path+c.query, c.body, "")
	}
	h.make(s)
	uid := h.live(s.path).At("metadata", "uid").Str()
	h.both("delete of another", "DELETE", s.path, `{"preconditions":{"uid":"1"}}`, "")
	h.both("delete of another version", "DELETE", s.path+"?resourceVersion=1", "", "")
	h.both("delete what can be read", "DELETE", s.path+"?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", "")
	h.both("delete on a condition", "DELETE", s.path, `{"preconditions":{"uid":"`+uid+`"}}`, "")

	h.make(s)
	h.send("PATCH", s.path, `{"metadata":{"finalizers":["dry.example/run"]}}`, mergeType)
	h.both("delete what waits", "DELETE", s.path+"?gracePeriodSeconds=0", "", "")
	h.cleaned()
	h.both("delete what waits again", "DELETE", s.path+"?gracePeriodSeconds=0", "", "")
	h.both("the last finalizer", "PATCH", s.path, `{"metadata":{"finalizers":null}}`, mergeType)
	if slices.Contains(s.of.Verbs, "deletecollection") {
		h.make(s)
		h.both("deletecollection", "DELETE", s.collection+"?labelSelector=dry%3Drun", "", "")
		h.cleaned()
		h.both("deletecollection of nothing", "DELETE", s.collection+"?labelSelector=dry%3Dnone", "", "")
	}
	h.clear(s)
}
