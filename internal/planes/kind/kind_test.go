package kind_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/auth"
	"plinth/internal/crd/validation"
	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/internal/plane"
	"plinth/internal/planes/kind"
	"plinth/internal/planes/kind/kindtest"
	"plinth/internal/store"
	"plinth/object"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// began is the time in a bubble.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// server is a plane that serves the type, in memory.
type server struct {
	*plane.Plane
	t *testing.T
}

// newServer makes a plane; with a nil config, one that does not serve the type.
func newServer(t *testing.T, planes *kind.Config) *server {
	t.Helper()
	return &server{kindtest.New(t, planes), t}
}

// The users of the tests.
var (
	admin = access.User{Name: "admin", Groups: []string{access.Masters, "system:authenticated"}}
	jane  = access.User{Name: "jane", Groups: []string{"devs", "system:authenticated"}}
)

const planes = "/apis/plinth/v1alpha1/planes"

// answer is a response.
type answer struct {
	code     int
	body     object.Value
	text     string
	warnings []string
}

// The media types of bodies.
const (
	asJSON  = "application/json"
	asMerge = "application/merge-patch+json"
	asApply = "application/apply-patch+yaml"
)

func (s *server) do(user access.User, method, path, media, body string) answer {
	s.t.Helper()
	r := httptest.NewRequestWithContext(auth.As(s.t.Context(), &access.Identity{User: user}), method, path,
		strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", media)
	}
	return s.serve(r)
}

func (s *server) serve(r *http.Request) answer {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	parsed, err := object.ParseJSON(w.Body.Bytes())
	if err != nil {
		s.t.Fatalf("%s %s: %v: %s", r.Method, r.URL, err, w.Body)
	}
	return answer{w.Code, parsed.Value, w.Body.String(), w.Header()["Warning"]}
}

// expect fails unless an answer has a code and, in its message, a text.
func (s *server) expect(a answer, code int, text string) object.Value {
	s.t.Helper()
	if a.code != code || !strings.Contains(a.body.At("message").Str(), text) {
		s.t.Fatalf("%d, and not %d with %q: %s", a.code, code, text, a.text)
	}
	return a.body
}

func (s *server) create(name, spec string) object.Value {
	s.t.Helper()
	return s.expect(s.do(admin, "POST", planes, asJSON, plain(name, spec)), 201, "")
}

// plain is a plane as JSON.
func plain(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"name":%q},"spec":%s}`, name, spec)
}

// The definition is one that the server would accept from a user, but for its group, which has no dot.
func TestDefinitionIsValid(t *testing.T) {
	r := kind.Resource(kind.Config{})
	if r.Type().String() != "planes.plinth" || r.Stored.Path != kind.Path || r.KindType().String() != "Plane.plinth" {
		t.Errorf("it is %s, %s, %s", r.Type(), r.Stored.Path, r.KindType())
	}
	parsed, err := object.ParseYAML(kind.Definition)
	if err != nil || len(parsed.Duplicates) > 0 {
		t.Fatal(err, parsed.Duplicates)
	}
	of := parsed.Value.WithAt(object.StringOf("None"), "spec", "conversion", "strategy").
		WithAt(object.Strings(kind.Version), "status", "storedVersions") // as they are by default
	errs := validation.Validate(of, validation.Options{Metadata: gotypes.Of[metav1.ObjectMeta]()})
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "should be a domain with at least one dot") {
		t.Errorf("%v", errs)
	}
}

// Without planes, no document has a trace of the type; with them, no other document differs.
//
// SPEC: BEY-12
func TestServedOnlyWithPlanes(t *testing.T) {
	without, with := newServer(t, nil), newServer(t, &kind.Config{})
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	get := func(s *server, path, accept string) string {
		r := httptest.NewRequestWithContext(auth.As(t.Context(), &access.Identity{User: admin}), "GET", path, nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != 200 {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	for _, d := range [][2]string{{"/apis", asJSON}, {"/apis", aggregated}, {"/openapi/v2", asJSON},
		{"/openapi/v3", asJSON}} {
		if text := get(without, d[0], d[1]); strings.Contains(text, "plinth") {
			t.Errorf("%v names plinth", d)
		}
		if text := get(with, d[0], d[1]); !strings.Contains(text, "plinth") {
			t.Errorf("%v does not name plinth: %s", d, text)
		}
	}
	w := httptest.NewRecorder()
	without.Handler().ServeHTTP(w, httptest.NewRequestWithContext(auth.As(t.Context(), &access.Identity{User: admin}),
		"GET", planes, nil))
	if w.Code != 404 {
		t.Errorf("without the type it is %d", w.Code)
	}
	for _, root := range []string{"/apis", "/openapi/v3"} {
		parsed, err := object.ParseJSON([]byte(get(without, root, asJSON)))
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, g := range parsed.Value.At("groups").Items() {
			for _, v := range g.At("versions").Items() {
				paths = append(paths, "/apis/"+v.At("groupVersion").Str())
			}
		}
		for _, m := range parsed.Value.At("paths").Members() {
			paths = append(paths, "/openapi/v3/"+m.Key)
		}
		if len(paths) < 20 {
			t.Fatalf("%s has %q", root, paths)
		}
		for _, path := range paths {
			if a, b := get(without, path, asJSON), get(with, path, asJSON); a != b {
				t.Errorf("%s differs", path)
			}
		}
	}
}

// What kubectl explain and kubectl get read.
//
// SPEC: BEY-12
func TestDescribed(t *testing.T) { synctest.Test(t, described) }

func described(t *testing.T) {
	s := newServer(t, &kind.Config{URL: func(name string) string { return "https://host/clusters/" + name },
		Origin: func(string, string) (kind.Origin, error) { return kind.Origin{UID: "u", Revision: 7}, nil }})
	doc := s.do(admin, "GET", "/openapi/v3/apis/plinth/v1alpha1", "", "").body
	var undescribed func(path string, v object.Value)
	undescribed = func(path string, v object.Value) {
		for _, p := range v.At("properties").Members() {
			if p.Value.At("description").Str() == "" {
				t.Errorf("%s.%s has no description", path, p.Key)
			}
			undescribed(path+"."+p.Key, p.Value)
			undescribed(path+"."+p.Key+"[]", p.Value.At("items"))
		}
	}
	model := doc.At("components", "schemas", "plinth.v1alpha1.Plane")
	if model.At("properties", "spec", "properties").Len() != 5 ||
		model.At("properties", "status", "properties").Len() != 9 {
		t.Errorf("the model is %s", object.AppendJSON(nil, model))
	}
	undescribed("plane", model)
	list := s.do(admin, "GET", "/apis/plinth/v1alpha1", "", "").body.At("resources")
	if len(list.Items()) != 2 || list.Items()[0].At("singularName").Str() != "plane" ||
		list.Items()[0].At("verbs").Len() != 8 || list.Items()[1].At("name").Str() != "planes/status" {
		t.Errorf("the types are %s", object.AppendJSON(nil, list))
	}

	s.create("prod", `{}`)
	s.create("pr-1", `{"from":{"name":"prod"},"ttlSeconds":7200}`)
	const usage = `{"status":{"objects":12,"bytes":1600,"memoryBytes":3000,"requests":7}}`
	s.expect(s.do(admin, "PATCH", planes+"/pr-1/status", asMerge, usage), 200, "")
	r := httptest.NewRequestWithContext(auth.As(t.Context(), &access.Identity{User: admin}), "GET", planes, nil)
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	table := s.serve(r).body
	var text strings.Builder
	for _, c := range table.At("columnDefinitions").Items() {
		description, _, long := strings.Cut(c.At("description").Str(), ". ")
		if long {
			description += "."
		}
		fmt.Fprintf(&text, "\n%s %s %s %d %q", c.At("name").Str(), c.At("type").Str(), c.At("format").Str(),
			c.At("priority").Int(), description)
	}
	for _, row := range table.At("rows").Items() {
		fmt.Fprintf(&text, "\n%s", object.AppendJSON(nil, row.At("cells")))
	}
	const want = `
Name string name 0 "Name must be unique within a namespace."
Phase string  0 "Whether requests to the plane are served."
Objects integer  0 "The number of its objects, of all types."
Bytes string  0 "The total size of its objects as they are stored."
From string  0 "The plane with whose objects it began, and at which revision."
Expires string  0 "When the plane is deleted."
Age string  0 "CreationTimestamp is a timestamp representing the server time when this object was created."
Memory string  1 "How much memory of the server belongs to it alone."
Requests integer  1 "How many it was sent since the server started."
URL string  1 "The address of the plane's API."
["pr-1","Ready",12,"1.6Ki","prod@7","in 120m","0s","2.9Ki",7,"https://host/clusters/pr-1"]
["prod","Ready",null,null,"","","0s","",null,"https://host/clusters/prod"]`
	if text.String() != want {
		t.Errorf("the Table is\n%s\nand not\n%s", text.String(), want)
	}
	for selector, n := range map[string]int{"metadata.name=prod": 1, "spec.from.name=prod": 1, "status.phase=Ready": 2,
		"status.phase!=Ready": 0} {
		if items := s.do(admin, "GET", planes+"?fieldSelector="+selector, "", "").body.At("items"); items.Len() != n {
			t.Errorf("%s selects %d planes, not %d", selector, items.Len(), n)
		}
	}
}

// What the server adds to a new plane, and to one that changes.
//
// SPEC: BEY-12, BEY-10
func TestStatusOfTheServer(t *testing.T) { synctest.Test(t, statusOfTheServer) }

func statusOfTheServer(t *testing.T) {
	asked := ""
	s := newServer(t, &kind.Config{URL: func(name string) string { return "https://host/clusters/" + name },
		Origin: func(name, resourceVersion string) (kind.Origin, error) {
			asked += name + "@" + resourceVersion + " "
			switch {
			case name == "gone":
				return kind.Origin{}, apierr.NewNotFound(apierr.Type{Group: kind.Group, Name: kind.Plural}, name)
			case resourceVersion == "1":
				return kind.Origin{}, apierr.NewExpired("too old")
			}
			return kind.Origin{UID: "uid-of-" + name, Revision: 41}, nil
		}})
	a := s.create("a", `{"from":{"name":"prod"},"ttlSeconds":60}`)
	const want = `{"conditions":[{"lastTransitionTime":"2000-01-01T00:00:00Z","message":"requests to the plane are served",` +
		`"reason":"Created","status":"True","type":"Ready"}],"expirationTime":"2000-01-01T00:01:00Z","origin":{"name":"prod",` +
		`"resourceVersion":"41","uid":"uid-of-prod"},"phase":"Ready","url":"https://host/clusters/a"}`
	if got := string(object.AppendJSON(nil, a.At("status"))); got != want {
		t.Errorf("the status is\n%s\nand not\n%s", got, want)
	}
	if got := string(object.AppendJSON(nil, a.At("spec"))); got != `{"from":{"name":"prod"},"ttlSeconds":60,"weight":1}` {
		t.Errorf("the spec is %s", got)
	}
	if none := s.expect(s.do(admin, "POST", planes, asJSON,
		`{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"name":"bare"},"status":{"objects":3,"phase":"Failed"}}`),
		201, ""); none.At("spec", "weight").Int() != 1 || none.At("status", "origin").Kind() != object.Null ||
		!none.At("status", "objects").IsNull() || none.At("status", "phase").Str() != kind.Ready {
		t.Errorf("a plane without a spec is %s", object.AppendJSON(nil, none))
	}
	if asked != "prod@ " {
		t.Errorf("asked for %s", asked)
	}
	s.expect(s.do(admin, "POST", planes+"?dryRun=All", asJSON, plain("b", `{"from":{"name":"gone"}}`)), 404,
		`"gone" not found`)
	s.expect(s.do(admin, "POST", planes, asJSON, plain("b", `{"from":{"name":"prod","resourceVersion":"1"}}`)), 410,
		"too old")
	s.expect(s.do(admin, "GET", planes+"/b", "", ""), 404, "")

	patch := func(path, body string) object.Value {
		t.Helper()
		return s.expect(s.do(admin, "PATCH", planes+path, asMerge, body), 200, "")
	}
	v := patch("/a", `{"spec":{"ttlSeconds":3600}}`)
	if v.At("status", "expirationTime").Str() != "2000-01-01T01:00:00Z" || v.At("metadata", "generation").Int() != 2 {
		t.Errorf("with a longer life: %s", object.AppendJSON(nil, v))
	}
	if v := patch("/a", `{"spec":{"ttlSeconds":null}}`); !v.At("status", "expirationTime").IsNull() {
		t.Errorf("without an end: %s", object.AppendJSON(nil, v.At("status")))
	}
	// The main URL changes no status, and /status nothing else, nor what follows from the spec.
	if v := patch("/a", `{"status":{"objects":5,"url":"https://evil"}}`); !v.At("status", "objects").IsNull() {
		t.Errorf("the main URL has changed the status: %s", object.AppendJSON(nil, v.At("status")))
	}
	v = patch("/a/status", `{"metadata":{"labels":{"a":"b"}},"spec":{"weight":9},"status":{"objects":5,"url":"https://evil",`+
		`"origin":{"name":"other","uid":"u","resourceVersion":"3"},"phase":"Terminating","expirationTime":"1999-01-01T00:00:00Z"}}`)
	if v.At("spec", "weight").Int() != 1 || !v.At("metadata", "labels").IsNull() || v.At("status", "objects").Int() != 5 ||
		v.At("status", "url").Str() != "https://host/clusters/a" || v.At("status", "origin", "uid").Str() != "uid-of-prod" ||
		v.At("status", "phase").Str() != kind.Ready || !v.At("status", "expirationTime").IsNull() {
		t.Errorf("/status has made %s", object.AppendJSON(nil, v))
	}
	v = patch("/a/status", `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Damaged","message":"",`+
		`"lastTransitionTime":"2000-01-01T00:00:00Z"}]}}`)
	if v.At("status", "phase").Str() != kind.Failed {
		t.Errorf("it is not ready, and %s", v.At("status", "phase").Str())
	}
	v = patch("/a/status", `{"status":{"conditions":[{"type":"Settled","status":"False","reason":"R","message":"",`+
		`"lastTransitionTime":"2000-01-01T00:00:00Z"},{"type":"Ready","status":"True","reason":"R","message":"",`+
		`"lastTransitionTime":"2000-01-01T00:00:00Z"}]}}`)
	if v.At("status", "phase").Str() != kind.Ready {
		t.Errorf("it has not settled, and is %s", v.At("status", "phase").Str())
	}
	s.expect(s.do(admin, "PATCH", planes+"/a/status", asMerge, `{"status":{"conditions":[{"type":"Ready"}]}}`), 422,
		"status.conditions[0].reason: Required value")
	s.expect(s.do(admin, "PATCH", planes+"/a/status", asMerge, `{"status":{"objects":-1}}`), 422,
		"status.objects: Invalid value: -1: objects in body should be greater than or equal to 0")
}

// SPEC: BEY-12
func TestValidation(t *testing.T) {
	s := newServer(t, &kind.Config{})
	refused := func(text, name, spec string) {
		t.Helper()
		s.expect(s.do(admin, "POST", planes, asJSON, plain(name, spec)), 422, text)
	}
	refused("metadata.name: Invalid value: \"a.b\": must not contain dots", "a.b", `{}`)
	refused("metadata.name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of", "A", `{}`)
	refused("must be no more than 63 characters", strings.Repeat("a", 64), `{}`)
	s.create(strings.Repeat("a", 63), `{}`)
	refused("spec.from.name: Required value", "b", `{"from":{}}`)
	refused(`spec.from.name: Invalid value: "A/../b": a lowercase RFC 1123 label`, "b", `{"from":{"name":"A/../b"}}`)
	refused(`spec.from.name: Invalid value: "": a lowercase RFC 1123 label`, "b", `{"from":{"name":""}}`)
	refused(`spec.from.name: Invalid value: "b": a plane cannot begin with itself`, "b", `{"from":{"name":"b"}}`)
	for _, revision := range []string{"", "0", "-1", "07", "x", "99999999999999999999"} {
		refused(fmt.Sprintf("spec.from.resourceVersion: Invalid value: %q: must be the resourceVersion", revision), "b",
			fmt.Sprintf(`{"from":{"name":"p","resourceVersion":%q}}`, revision))
	}
	refused("ttlSeconds in body should be greater than or equal to 0", "b", `{"ttlSeconds":-1}`)
	refused("ttlSeconds in body should be less than or equal to 3155760000", "b", `{"ttlSeconds":3155760001}`)
	refused("weight in body should be greater than or equal to 1", "b", `{"weight":0}`)
	refused("weight in body should be less than or equal to 1000", "b", `{"weight":1001}`)
	refused("objects in body should be greater than or equal to 0", "b", `{"limits":{"objects":-1}}`)
	refused("requests in body should be greater than or equal to 1", "b", `{"limits":{"requests":0}}`)
	refused("requests in body should be less than or equal to 2147483647", "b", `{"limits":{"requests":2147483648}}`)
	refused(`spec.limits.bytes: Invalid value: "64MB": quantities must match the regular expression`, "b", `{"limits":{"bytes":"64MB"}}`)
	refused(`spec.limits.bytes: Invalid value: "-1": must be greater than or equal to 0`, "b", `{"limits":{"bytes":-1}}`)
	refused("spec.readOnly: Invalid value", "b", `{"readOnly":"yes"}`)
	exactly := func(want, spec string) {
		t.Helper()
		a := s.do(admin, "POST", planes, asJSON, plain("b", spec))
		if got := a.body.At("message").Str(); a.code != 422 || got != `Plane.plinth "b" is invalid: `+want {
			t.Errorf("%d %s, and not %s", a.code, got, want)
		}
	}
	exactly(`spec.from.name: Invalid value: "b": a plane cannot begin with itself`, `{"from":{"name":"b"}}`)
	exactly(`spec.from.resourceVersion: Invalid value: "x": must be the resourceVersion of an object or a list of the other `+
		"plane", `{"from":{"name":"p","resourceVersion":"x"}}`)
	exactly(`spec.from.name: Invalid value: "integer": spec.from.name in body must be of type string: "integer"`,
		`{"from":{"name":5}}`)
	exactly(`spec.from.resourceVersion: Invalid value: "integer": spec.from.resourceVersion in body must be of type string: `+
		`"integer"`, `{"from":{"name":"p","resourceVersion":5}}`)
	exactly(`spec.limits.bytes: Invalid value: "-1": must be greater than or equal to 0`, `{"limits":{"bytes":-1}}`)
	refused("spec.from.name: Invalid value: \"p-\"", "b", `{"from":{"name":"p-"}}`)
	refused("metadata.name: Invalid value: \"b-\"", "b-", `{}`)
	s.create("nothing", `{"limits":{"bytes":0}}`)
	// All errors at once, as the API does.
	refused("[spec.from.name: Invalid value: \"B\"", "b", `{"from":{"name":"B"},"limits":{"bytes":"x"}}`)

	strict := s.do(admin, "POST", planes+"?fieldValidation=Strict", asJSON, plain("b", `{"wieght":2,"limits":{"pods":1}}`))
	s.expect(strict, 400, `strict decoding error: unknown field "spec.limits.pods", unknown field "spec.wieght"`)
	warned := s.do(admin, "POST", planes+"?fieldValidation=Warn&dryRun=All", asJSON, plain("b", `{"wieght":2}`))
	if s.expect(warned, 201, ""); len(warned.warnings) != 1 || !strings.Contains(warned.warnings[0], "spec.wieght") {
		t.Errorf("the warnings are %q", warned.warnings)
	}
	s.expect(s.do(admin, "GET", planes+"/b", "", ""), 404, "") // it was a dry run

	made := s.expect(s.do(admin, "POST", planes, asJSON,
		`{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"generateName":"pr-"}}`), 201, "")
	if name := made.At("metadata", "name").Str(); len(name) != len("pr-")+5 {
		t.Errorf("the generated name is %q", name)
	}
	s.expect(s.do(admin, "POST", planes, asJSON,
		`{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"generateName":"pr."}}`), 422, "metadata.generateName")
}

// SPEC: BEY-10
func TestFromIsImmutable(t *testing.T) { synctest.Test(t, fromIsImmutable) }

func fromIsImmutable(t *testing.T) {
	s := newServer(t, &kind.Config{})
	s.create("a", `{"from":{"name":"prod","resourceVersion":"12"},"limits":{"objects":10,"bytes":"1Mi","requests":3}}`)
	s.create("b", `{}`)
	for path, body := range map[string]string{
		"/a": `{"spec":{"from":{"name":"other"}}}`, "/a?x": `{"spec":{"from":{"resourceVersion":"13"}}}`,
		"/a?y": `{"spec":{"from":null}}`, "/b": `{"spec":{"from":{"name":"prod"}}}`,
	} {
		s.expect(s.do(admin, "PATCH", planes+path, asMerge, body), 422, "spec.from: Invalid value")
	}
	a := s.do(admin, "PATCH", planes+"/a", asMerge, `{"spec":{"from":null}}`)
	if a.body.At("message").Str() != `Plane.plinth "a" is invalid: spec.from: Invalid value: null: field is immutable` {
		t.Errorf("without an origin: %s", a.text)
	}
	if got := kind.SpecOf(s.do(admin, "GET", planes+"/a", "", "").body).Limits; got !=
		(kind.Limits{Objects: 10, Bytes: 1 << 20, Requests: 3}) {
		t.Errorf("the limits are %+v", got)
	}
	changed := s.expect(s.do(admin, "PATCH", planes+"/a", asMerge,
		`{"spec":{"limits":{"objects":0,"bytes":"99Ei","requests":null},"weight":7,"readOnly":true,"ttlSeconds":0}}`), 200, "")
	want := kind.Spec{From: kind.From{Name: "prod", ResourceVersion: "12"}, ReadOnly: true, Weight: 7,
		Limits: kind.Limits{Objects: 0, Bytes: math.MaxInt64, Requests: kind.Unlimited}}
	if got := kind.SpecOf(changed); got != want {
		t.Errorf("the spec is %+v, not %+v", got, want)
	}
	if at, ok := kind.Expires(changed); !ok || !at.Equal(began) {
		t.Errorf("it expires at %s, %t", at, ok)
	}
	none := kind.Limits{Objects: kind.Unlimited, Bytes: kind.Unlimited, Requests: kind.Unlimited}
	want = kind.Spec{Weight: 1, Limits: none}
	const longest = 3155760000
	long := s.create("c", fmt.Sprintf(`{"ttlSeconds":%d,"limits":{"bytes":12345}}`, longest))
	if at, _ := kind.Expires(long); at.Unix() != began.Unix()+longest {
		t.Errorf("it expires at %s", at)
	}
	if got := kind.SpecOf(long).Limits.Bytes; got != 12345 {
		t.Errorf("it may have %d bytes", got)
	}
	if got := kind.SpecOf(s.do(admin, "GET", planes+"/b", "", "").body); got != want {
		t.Errorf("the spec is %+v, not %+v", got, want)
	}
}

// grant gives jane a right by a role of its own.
func (s *server) grant(role, verbs, names string) {
	s.t.Helper()
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	s.expect(s.do(admin, "POST", rbac+"clusterroles", asJSON, fmt.Sprintf(`{"metadata":{"name":%q},"rules":[{"apiGroups":`+
		`["plinth"],"resources":["planes"],"resourceNames":%s,"verbs":%s}]}`, role, names, verbs)), 201, "")
	s.expect(s.do(admin, "POST", rbac+"clusterrolebindings", asJSON, fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":`+
		`{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[{"apiGroup":`+
		`"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}`, role, role)), 201, "")
}

// Who may create planes can begin with those alone that they may access, and learns nothing of the others.
//
// SPEC: BEY-10, BEY-12
func TestAccessToTheOrigin(t *testing.T) {
	asked := 0
	s := newServer(t, &kind.Config{Origin: func(name, _ string) (kind.Origin, error) {
		asked++
		if name == "none" {
			return kind.Origin{}, apierr.NewNotFound(apierr.Type{Group: kind.Group, Name: kind.Plural}, name)
		}
		return kind.Origin{UID: name, Revision: 1}, nil
	}})
	s.create("prod", `{}`)
	s.create("mine", `{}`)
	s.expect(s.do(jane, "POST", planes, asJSON, plain("a", `{}`)), 403, "cannot create resource")
	s.grant("creator", `["create","update","patch","get"]`, `[]`)
	s.grant("mine", `["access"]`, `["mine"]`)
	asked = 0
	refusal := func(origin string) string {
		return `planes.plinth "a" is forbidden: user "jane" (groups=["devs" "system:authenticated"]) is attempting to begin ` +
			"with a plane without the permission to access it:\n" +
			`{APIGroups:["plinth"], Resources:["planes"], ResourceNames:["` + origin + `"], Verbs:["access"]}`
	}
	apply := "?fieldManager=me"
	for _, origin := range []string{"prod", "none"} {
		spec := fmt.Sprintf(`{"from":{"name":%q}}`, origin)
		for _, a := range []answer{
			s.do(jane, "POST", planes, asJSON, plain("a", spec)),
			s.do(jane, "POST", planes+"?dryRun=All", asJSON, plain("a", spec)),
			s.do(jane, "PATCH", planes+"/a"+apply, asApply, plain("a", spec)),
		} {
			if a.code != 403 || a.body.At("message").Str() != refusal(origin) {
				t.Errorf("%s: %d %s", origin, a.code, a.text)
			}
		}
		a := s.do(jane, "POST", planes, asJSON, fmt.Sprintf(
			`{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"generateName":"a-"},"spec":%s}`, spec))
		s.expect(a, 403, "without the permission to access it")
	}
	if asked != 0 {
		t.Errorf("the planes were asked %d times for somebody who must not know of them", asked)
	}
	s.expect(s.do(jane, "POST", planes, asJSON, plain("a", `{"from":{"name":"mine"}}`)), 201, "")
	s.expect(s.do(admin, "POST", planes, asJSON, plain("b", `{"from":{"name":"prod"}}`)), 201, "")
	s.expect(s.do(admin, "POST", planes, asJSON, plain("c", `{"from":{"name":"none"}}`)), 404, "")
	// What is there already may be written again by those who cannot access the origin; another one may not.
	s.expect(s.do(jane, "PATCH", planes+"/b", asMerge, `{"spec":{"weight":2}}`), 200, "")
	live := s.do(jane, "GET", planes+"/b", "", "")
	s.expect(s.do(jane, "PUT", planes+"/b", asJSON, live.text), 200, "")
	s.expect(s.do(jane, "PATCH", planes+"/a", asMerge, `{"spec":{"from":{"name":"prod"}}}`), 403, refusal("prod"))
	s.expect(s.do(jane, "PATCH", planes+"/a", asMerge, `{"spec":{"from":null}}`), 422, "field is immutable")
	s.expect(s.do(admin, "PATCH", planes+"/a", asMerge, `{"spec":{"from":{"name":"prod"}}}`), 422, "field is immutable")
	// A name that none can have is an error of validation for all.
	s.expect(s.do(jane, "POST", planes, asJSON, plain("d", `{"from":{"name":"*"}}`)), 422, "spec.from.name")
	s.expect(s.do(jane, "POST", planes, asJSON, plain("d", `{"from":{"name":"a-"}}`)), 422, "spec.from.name")
	review := s.do(admin, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", asJSON, `{"apiVersion":`+
		`"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"jane","resourceAttributes":{"verb":"access",`+
		`"group":"plinth","resource":"planes","name":"mine"}}}`)
	if !review.body.At("status", "allowed").Bool() {
		t.Errorf("kubectl auth can-i says %s", review.text)
	}
}

// A plane whose origin ends before the commit is not created: 409, which names it.
//
// SPEC: BEY-10
func TestOriginThatEnds(t *testing.T) {
	s := newServer(t, &kind.Config{
		Origin: func(name, _ string) (kind.Origin, error) { return kind.Origin{UID: name, Revision: 1}, nil },
		Begin: func(_ context.Context, created *store.Version) (*store.Begin, error) {
			return &store.Begin{Plane: created.Key.Name, Origin: "ended"}, nil
		},
	})
	s.expect(s.do(admin, "POST", planes, asJSON, plain("a", `{"from":{"name":"b"}}`)), 409,
		`planes.plinth "a": the plane to begin with does not exist any more`)
	s.expect(s.do(admin, "GET", planes+"/a", "", ""), 404, "")
}

// Several managers own fields of one plane, and lose none of them unseen.
//
// SPEC: BEY-12
func TestApply(t *testing.T) {
	s := newServer(t, &kind.Config{})
	apply := func(manager, spec string) answer {
		t.Helper()
		return s.do(admin, "PATCH", planes+"/a?fieldManager="+manager, asApply, plain("a", spec))
	}
	s.expect(apply("team", `{"limits":{"objects":10}}`), 201, "")
	s.expect(apply("quota", `{"limits":{"bytes":"1Mi"}}`), 200, "")
	s.expect(apply("quota", `{"limits":{"bytes":"1Mi","objects":5}}`), 409, `conflict with "team"`)
	v := s.expect(apply("quota&force=true", `{"limits":{"bytes":"1Mi","objects":5}}`), 200, "")
	if v.At("spec", "limits", "objects").Int() != 5 {
		t.Errorf("after a forced apply: %s", object.AppendJSON(nil, v.At("spec")))
	}
	v = s.expect(apply("quota", `{}`), 200, "")
	if limits := v.At("spec", "limits"); !limits.At("bytes").IsNull() || v.At("spec", "weight").Int() != 1 {
		t.Errorf("what nobody applies any more is there: %s", object.AppendJSON(nil, v.At("spec")))
	}
	condition := func(manager, typ string) object.Value {
		t.Helper()
		return s.expect(s.do(admin, "PATCH", planes+"/a/status?fieldManager="+manager, asApply, `{"apiVersion":`+
			`"plinth/v1alpha1","kind":"Plane","metadata":{"name":"a"},"status":{"conditions":[{"type":"`+typ+`","status":"True",`+
			`"reason":"R","message":"m","lastTransitionTime":"2000-01-01T00:00:00Z"}]}}`), 200, "")
	}
	condition("one", "Settled")
	v = condition("two", "example.com/Checked")
	var types []string
	for _, c := range v.At("status", "conditions").Items() {
		types = append(types, c.At("type").Str())
	}
	slices.Sort(types)
	if want := []string{"Ready", "Settled", "example.com/Checked"}; !slices.Equal(types, want) {
		t.Errorf("the conditions are %q, not %q", types, want)
	}
	dry := s.expect(apply("team&dryRun=All", `{"weight":3}`), 200, "")
	if now := s.do(admin, "GET", planes+"/a", "", "").body; dry.At("spec", "weight").Int() != 3 ||
		now.At("spec", "weight").Int() != 1 {
		t.Errorf("a dry run has made %s of %s", object.AppendJSON(nil, now), object.AppendJSON(nil, dry))
	}
}

// A plane with a finalizer terminates; without one it is gone at once.
//
// SPEC: BEY-12
func TestFinalizersAndOwners(t *testing.T) {
	s := newServer(t, &kind.Config{})
	owner := s.create("a", `{}`)
	body := `{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"name":"b","finalizers":["example.com/keep"],` +
		`"ownerReferences":[{"apiVersion":"plinth/v1alpha1","kind":"Plane","name":"a","uid":"` +
		owner.At("metadata", "uid").Str() + `"}]}}`
	s.expect(s.do(admin, "POST", planes, asJSON, body), 201, "")
	v := s.expect(s.do(admin, "DELETE", planes+"/b", "", ""), 200, "")
	if v.At("status", "phase").Str() != kind.Terminating || v.At("metadata", "deletionTimestamp").IsNull() {
		t.Errorf("while it terminates, it is %s", object.AppendJSON(nil, v))
	}
	v = s.expect(s.do(admin, "PATCH", planes+"/b", asMerge, `{"metadata":{"labels":{"a":"b"}}}`), 200, "")
	if v.At("status", "phase").Str() != kind.Terminating {
		t.Errorf("after a write it is %s", v.At("status", "phase").Str())
	}
	s.expect(s.do(admin, "PATCH", planes+"/b", asMerge, `{"metadata":{"finalizers":null}}`), 200, "")
	s.expect(s.do(admin, "GET", planes+"/b", "", ""), 404, `planes.plinth "b" not found`)
	if v := s.expect(s.do(admin, "DELETE", planes+"/a", "", ""), 200, ""); v.At("kind").Str() != "Status" {
		t.Errorf("the delete is answered with %s", object.AppendJSON(nil, v))
	}
	var seen int
	s.Engine.Dependents(owner.At("metadata", "uid").Str(), func(*engine.Object) bool { seen++; return true })
	if seen != 0 {
		t.Errorf("%d dependents are left", seen)
	}
}

// Who reads the newest planes gets a status that is up to date.
func TestRefresh(t *testing.T) {
	refreshed := 0
	s := newServer(t, &kind.Config{Refresh: func(context.Context) { refreshed++ }})
	s.create("a", `{}`)
	s.do(admin, "GET", planes+"/a", "", "")
	s.do(admin, "GET", planes, "", "")
	s.do(admin, "GET", planes+"?resourceVersion=0", "", "")
	if refreshed != 2 {
		t.Errorf("the status was brought up to date %d times, not 2", refreshed)
	}
}

// denial is an authorizer that allows nothing.
type denial struct{ err error }

func (d denial) Authorize(context.Context, *access.Attributes) (access.Decision, string, error) {
	return access.NoOpinion, "", d.err
}

// Administrators pass whatever the authorizers say, and an authorizer that fails is no permission.
//
// SPEC: BEY-10
func TestPermitWithoutAnAuthorizer(t *testing.T) {
	r := kind.Resource(kind.Config{})
	obj, err := object.ParseJSON([]byte(plain("a", `{"from":{"name":"prod"}}`)))
	if err != nil {
		t.Fatal(err)
	}
	rq := &engine.Request{Resource: r, User: admin, Authorizer: denial{}}
	if err := r.Permit(t.Context(), rq, obj.Value, object.Nil); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	rq.User = jane
	if err := r.Permit(t.Context(), rq, obj.Value, object.Nil); !apierr.Is(err, apierr.Forbidden) {
		t.Errorf("a user: %v", err)
	}
	rq.Authorizer = denial{errors.New("it is broken")}
	if err := r.Permit(t.Context(), rq, obj.Value, object.Nil); !apierr.Is(err, apierr.InternalError) {
		t.Errorf("a user whose rights are not known: %v", err)
	}
	if a := kind.AccessTo("x"); a.Version != kind.Version || a.Group != kind.Group || a.Resource != kind.Plural ||
		a.Name != "x" || a.Verb != "access" || !a.IsResource || a.Namespace != "" {
		t.Errorf("the question is %+v", a)
	}
}

func TestCellsOfSomePlanes(t *testing.T) {
	r := kind.Resource(kind.Config{})
	cells := func(text string) string {
		obj, err := object.ParseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := kind.Expires(obj.Value); ok {
			t.Errorf("it expires at %s", at)
		}
		return fmt.Sprintf("%q", r.Cells(obj.Value))
	}
	if got := cells(plain("a", `{"from":{"name":"prod"},"ttlSeconds":5}`)); got !=
		`["a" "" <nil> <nil> "" "" "<unknown>" "" <nil> ""]` {
		t.Errorf("without an origin: %s", got)
	}
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1.0Ki", 1100: "1.1Ki", 10 << 10: "10Ki",
		10<<10 + 600: "11Ki", 999 << 10: "999Ki", 1000 << 10: "1.0Mi", 64 << 20: "64Mi", 5 << 30: "5.0Gi",
		math.MaxInt64: "8.0Ei"} {
		if got := kind.Size(n); got != want {
			t.Errorf("%d bytes are %s, not %s", n, got, want)
		}
	}
}

func TestConditionsAndUsage(t *testing.T) {
	status := kind.WithUsage(object.MapOf(), kind.Usage{Objects: 1, Bytes: 2, Requests: 3, Memory: 4})
	later := began.Add(time.Minute)
	for _, c := range []struct {
		kind.Condition
		at time.Time
	}{
		{kind.Condition{Type: "Ready", Status: "True", Reason: "A"}, began},
		{kind.Condition{Type: "Settled", Status: "False", Reason: "A"}, began},
		{kind.Condition{Type: "Settled", Status: "True", Reason: "B", Message: "m", Generation: 2}, later},
		{kind.Condition{Type: "Ready", Status: "True", Reason: "B"}, later},
	} {
		status = kind.WithCondition(status, c.Condition, c.at)
	}
	const want = `{"bytes":2,"conditions":[{"lastTransitionTime":"2000-01-01T00:00:00Z","message":"","reason":"B",` +
		`"status":"True","type":"Ready"},{"lastTransitionTime":"2000-01-01T00:01:00Z","message":"m",` +
		`"observedGeneration":2,"reason":"B","status":"True","type":"Settled"}],"memoryBytes":4,"objects":1,"requests":3}`
	if got := string(object.AppendJSON(nil, status)); got != want {
		t.Errorf("got\n%s\nnot\n%s", got, want)
	}
}
