package httpapi

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
)

const configMaps = "/api/v1/namespaces/default/configmaps"

// The answers to requests with an invalid URL, verb, option, media type or body. The texts are those of the reference,
// where it has one.
//
// SPEC: LIST-3
func TestRefusals(t *testing.T) {
	s := newServer(t, nil)
	s.create(configMaps, `{"metadata":{"name":"one"}}`)
	invalid := func(kind, what string) string { return kind + `.meta.k8s.io "" is invalid: ` + what }
	const (
		noPath    = "the server could not find the requested resource"
		noMethod  = "the server does not allow this method on the requested resource"
		noPage    = "404 page not found\n"
		merge     = "application/merge-patch+json"
		unmatched = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
		dry       = `dryRun: Unsupported value: ["x"]: supported values: "All"`
	)
	for _, c := range []struct {
		spec, method, path, body string
		contentType              string
		code                     int
		message                  string // a prefix of the message
	}{
		// SPEC: URI-2
		{"URI-2", "GET", "/nothing/here", "", "", 404, noPage},
		{"URI-2", "GET", "/apis/example.com/v1/things", "", "", 404, noPage},
		{"URI-2", "GET", "/apis/apps/v7", "", "", 404, noPath},
		{"URI-2", "GET", "/apis/apps/v7/deployments", "", "", 404, noPath},
		{"URI-2", "GET", "/api/v2", "", "", 404, noPath},
		{"URI-2", "GET", "/api/v1/things", "", "", 404, noPath},
		{"URI-2", "GET", "/api/v1/configmaps/one", "", "", 404, noPath},
		{"URI-2", "GET", "/api/v1/namespaces/default/nodes", "", "", 404, noPath},
		{"URI-2", "GET", "/api/v1/namespaces/default/namespaces", "", "", 404, noPath},
		{"URI-2", "GET", "/api/v1//namespaces/default/configmaps", "", "", 404, noPath},
		{"URI-2", "GET", configMaps + "/a%2Fb", "", "", 404, noPath},
		{"URI-7", "GET", configMaps + "/one/status", "", "", 404, noPath},
		{"URI-7", "GET", "/api/v1/namespaces/default/pods/one/status/more", "", "", 404, noPath},
		{"URI-2", "GET", "/api/v1/proxy/namespaces/default/services/one", "", "", 404, noPath},
		{"URI-2", "GET", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews", "", "", 404, noPath},
		// SPEC: URI-6
		{"URI-6", "POST", configMaps + "/one", "{}", "", 405, noMethod},
		{"URI-6", "PUT", configMaps, "{}", "", 405, noMethod},
		{"URI-6", "PATCH", configMaps, "{}", merge, 405, noMethod},
		{"URI-6", "POST", "/api/v1/configmaps", "{}", "", 405, noMethod},
		{"URI-6", "DELETE", "/api/v1/configmaps", "", "", 405, noMethod},
		{"URI-6", "DELETE", "/api/v1/namespaces", "", "", 405, noMethod},
		{"URI-6", "FETCH", configMaps, "", "", 405, noMethod},
		{"URI-6", "OPTIONS", configMaps, "", "", 405, noMethod},
		{"URI-6", "POST", "/api/v1/namespaces/default/pods/one/status", "{}", "", 405, noMethod},
		{"URI-6", "GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", "", 405, noMethod},
		{"URI-6", "POST", "/api/v1", "{}", "", 405, noMethod},
		{"URI-6", "POST", "/api/v1/watch/pods", "{}", "", 405, noMethod},
		// SPEC: MED-1
		{"MED-1", "POST", configMaps, "x", "text/plain", 415,
			"the body of the request was in an unknown format - accepted media types include: application/json"},
		{"MED-1", "PUT", configMaps + "/one", "x", ";;;", 415, "the body of the request was in an unknown format"},
		{"MED-1", "DELETE", configMaps + "/one", "x", "text/plain", 415, "the body of the request was in an unknown format"},
		{"WRITE-2", "PATCH", configMaps + "/one", "{}", "application/json", 415, "415: Unsupported Media Type"},
		{"MED-4", "PATCH", configMaps + "/one", "{}", "application/merge-patch+cbor", 415, "415: Unsupported Media Type"},
		{"MED-4", "PATCH", configMaps + "/one?fieldManager=a", "\xff", "application/apply-patch+cbor", 400,
			`error decoding patch: cbor: unexpected "break" code`},
		{"MED-4", "POST", configMaps, "\xa1", "application/cbor", 400,
			"the object provided is unrecognized (must be of type ConfigMap): unable to determine group/version/kind: unexpected EOF (a1)"},
		{"DEL-2", "DELETE", configMaps + "/one", `{"kind":1}`, "", 400,
			"couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string"},
		// SPEC: WRITE-6
		{"WRITE-6", "POST", configMaps, `{"x":"` + strings.Repeat("x", 3<<20) + `"}`, "", 413,
			"Request entity too large: limit is 3145728"},
		{"WRITE-6", "DELETE", configMaps + "/one", `{"x":"` + strings.Repeat("x", 3<<20) + `"}`, "", 413,
			"Request entity too large: limit is 3145728"},
		{"WRITE-6", "POST", configMaps, strings.Repeat("[", 100000), "", 400,
			"the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: invalid character '[' exceeded max depth (5b5b5b"},
		{"VAL-1", "POST", configMaps, "", "", 400,
			"the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"},
		{"VAL-1", "POST", configMaps, "hello", "", 400,
			"the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: invalid character 'h' looking for beginning of value (68656c6c6f)"},
		{"VAL-1", "POST", configMaps, `{"apiVersion":"v1","kind":"ConfigMap",}`, "", 400,
			`the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: invalid character '}' looking for beginning of object key string ({"apiVersion":"v1","kind":"Con ...)`},
		{"MED-2", "POST", configMaps, "a:\n b: {\n", "application/yaml", 400,
			"the object provided is unrecognized (must be of type ConfigMap): yaml: line "},
		// SPEC: DRY-1, VAL-2
		{"DRY-1", "POST", configMaps + "?dryRun=x", `{}`, "", 422, invalid("CreateOptions", dry)},
		{"DRY-1", "PUT", configMaps + "/one?dryRun=x", `{}`, "", 422, invalid("UpdateOptions", dry)},
		{"DRY-1", "PATCH", configMaps + "/one?dryRun=x", `{}`, merge, 422, invalid("PatchOptions", dry)},
		{"DRY-1", "DELETE", configMaps + "/one?dryRun=x", "", "", 422, invalid("DeleteOptions", dry)},
		{"DRY-1", "DELETE", configMaps + "?dryRun=x", "", "", 422, invalid("DeleteOptions", dry)},
		{"DRY-1", "DELETE", configMaps + "/one", `{"dryRun":["x"]}`, "", 422, invalid("DeleteOptions", dry)},
		{"DRY-1", "POST", configMaps + "?dryRun=", `{}`, "", 422,
			invalid("CreateOptions", `dryRun: Unsupported value: [""]: supported values: "All"`)},
		{"VAL-2", "POST", configMaps + "?fieldValidation=strict&dryRun=x", `{}`, "", 422, invalid("CreateOptions",
			`[`+dry+`, fieldValidation: Unsupported value: "strict": supported values: "", "Ignore", "Strict", "Warn"]`)},
		{"SSA-6", "POST", configMaps + "?fieldManager=" + strings.Repeat("x", 129), `{}`, "", 422,
			invalid("CreateOptions", "fieldManager: Too long: may not be more than 128 bytes")},
		{"SSA-6", "POST", configMaps + "?fieldManager=a%01b", `{}`, "", 422,
			invalid("CreateOptions", `fieldManager: Invalid value: "a\x01b": invalid character U+0001 (at position 1)`)},
		{"SSA-4", "PATCH", configMaps + "/one?force=maybe", `{}`, merge, 422,
			invalid("PatchOptions", "force: Forbidden: may not be specified for non-apply patch")},
		// SPEC: LIST-3
		{"LIST-3", "GET", configMaps + "?limit=x", "", "", 400, `strconv.ParseInt: parsing "x": invalid syntax`},
		{"LIST-3", "GET", configMaps + "?limit=", "", "", 400, `strconv.ParseInt: parsing "": invalid syntax`},
		{"LIST-3", "GET", configMaps + "?resourceVersionMatch=Exact", "", "", 422, invalid("ListOptions", unmatched)},
		{"LIST-3", "GET", configMaps + "?resourceVersionMatch=Exact&resourceVersion=0", "", "", 422, invalid("ListOptions",
			`resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`)},
		{"LIST-3", "GET", configMaps + "?resourceVersionMatch=Nearly&resourceVersion=1", "", "", 422, invalid("ListOptions",
			`resourceVersionMatch: Unsupported value: "Nearly": supported values: "Exact", "NotOlderThan", ""`)},
		{"LIST-3", "GET", configMaps + "?resourceVersionMatch=NotOlderThan&continue=x&limit=1", "", "", 422,
			invalid("ListOptions",
				"["+unmatched+", resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided]")},
		{"LIST-3", "GET", configMaps + "?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0&resourceVersion=5",
			"", "", 400, "specifying resource version is not allowed when using continue"},
		{"LIST-1", "GET", configMaps + "?resourceVersion=abc", "", "", 400,
			`invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax`},
		// SPEC: LIST-7
		{"LIST-7", "GET", configMaps + "?labelSelector=a%3Db%3Dc", "", "", 400,
			"found '=', expected: ',' or 'end of string'"},
		{"LIST-7", "GET", configMaps + "?fieldSelector=metadata.name", "", "", 400,
			"invalid selector: 'metadata.name'; can't understand 'metadata.name'"},
		{"LIST-7", "GET", configMaps + "?fieldSelector=data%3Dx", "", "", 400,
			`"data" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{"LIST-7", "GET", "/api/v1/watch/namespaces/default/configmaps/one?fieldSelector=metadata.name%3Dtwo", "", "", 400,
			"fieldSelector metadata.name doesn't match requested name"},
		// SPEC: WATCH-5
		{"WATCH-5", "GET", configMaps + "?sendInitialEvents=false", "", "", 422,
			invalid("ListOptions", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list")},
		{"WATCH-5", "GET", configMaps + "?watch=1&sendInitialEvents=true", "", "", 422, invalid("ListOptions",
			"resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")},
		{"WATCH-5", "GET", configMaps + "?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact", "", "", 422,
			invalid("ListOptions",
				`[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"]`)},
		{"WATCH-5", "GET", configMaps + "?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=0", "", "", 422,
			invalid("ListOptions",
				"resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")},
		{"WATCH-5", "GET", configMaps + "?watch=1&continue=abc", "", "", 422, invalid("ListOptions",
			"resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided")},
		{"WATCH-6", "GET", configMaps + "?watch=1&timeoutSeconds=x", "", "", 400,
			`strconv.ParseInt: parsing "x": invalid syntax`},
		{"WATCH-3", "GET", configMaps + "?watch=1&resourceVersion=abc", "", "", 400,
			"invalid resource version: resourceVersion:"},
		{"LIST-6", "GET", configMaps + "?timeout=x", "", "", 400,
			`invalid timeout specified in the request URL - time: invalid duration "x"`},
		// SPEC: DEL-2, DEL-4, DEL-6
		{"DEL-2", "DELETE", configMaps + "/one?gracePeriodSeconds=x", "", "", 400,
			`strconv.ParseInt: parsing "x": invalid syntax`},
		{"DEL-2", "DELETE", configMaps + "/one", `{"gracePeriodSeconds":"x"}`, "", 400,
			"json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"},
		{"DEL-2", "DELETE", configMaps + "/one", `{"preconditions":{"uid":5}}`, "", 400,
			"json: cannot unmarshal number into Go struct field Preconditions.preconditions.uid of type types.UID"},
		{"DEL-2", "DELETE", configMaps + "/one", `{"dryRun":[5]}`, "", 400,
			"json: cannot unmarshal number into Go struct field DeleteOptions.dryRun of type string"},
		{"DEL-2", "DELETE", configMaps + "/one", `hello`, "", 400,
			"couldn't get version/kind; json parse error: invalid character 'h' looking for beginning of value"},
		{"DEL-2", "DELETE", configMaps + "/one", `[]`, "", 400, "couldn't get version/kind; json parse error: "},
		{"DEL-2", "DELETE", configMaps + "/one", `{"kind":"Pod","apiVersion":"v1"}`, "", 400,
			`no kind "Pod" is registered for version "v1"`},
		{"DEL-2", "DELETE", configMaps + "/one?propagationPolicy=", "", "", 422,
			invalid("DeleteOptions",
				`propagationPolicy: Unsupported value: "": supported values: "Foreground", "Background", "Orphan", "nil"`)},
		{"DEL-2", "DELETE", configMaps + "/one?propagationPolicy=Orphan&orphanDependents=1", "", "", 422,
			invalid("DeleteOptions",
				`propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set`)},
		{"DEL-6", "DELETE", configMaps + "/one?ignoreStoreReadErrorWithClusterBreakingPotential=true&gracePeriodSeconds=1",
			"", "", 422, invalid("DeleteOptions",
				"ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be set together with .gracePeriodSeconds")},
		{"DEL-4", "DELETE", configMaps + "?uid=x", "", "", 409,
			`Operation cannot be fulfilled on ConfigMap "one": the UID in the precondition (x) does not match the UID in record (`},
		{"DEL-4", "DELETE", configMaps + "?resourceVersion=0", "", "", 409,
			`Operation cannot be fulfilled on ConfigMap "one": the ResourceVersion in the precondition (0) does not match`},
		{"DEL-6", "DELETE", configMaps + "?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", "", 422,
			invalid("DeleteOptions",
				"ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: is not allowed with DELETECOLLECTION")},
		{"WRITE-5", "DELETE", configMaps + "/nobody", `{"propagationPolicy":"Orphan","unknown":1}`, "", 404,
			`configmaps "nobody" not found`},
	} {
		header := []string{"Accept", "application/json"}
		if c.contentType != "" {
			header = append(header, "Content-Type", c.contentType)
		}
		got := s.do(c.method, c.path, c.body, header...)
		name := c.path
		if len(name) > 100 {
			name = name[:100]
		}
		if got.code != c.code || !strings.HasPrefix(got.message(), c.message) {
			t.Errorf("%s: %s %s: %d %q\nwant %d %q", c.spec, c.method, name, got.code, got.message(), c.code, c.message)
		}
		if strings.HasPrefix(got.body, "{") {
			status := got.value(t)
			if status.At("kind").Str() != "Status" || status.At("code").Int() != int64(c.code) ||
				status.At("reason").Str() == "" || status.At("status").Str() != "Failure" {
				t.Errorf("%s %s: the body is not a Status: %s", c.method, name, got.body)
			}
		}
	}
	if got := s.do("GET", configMaps+"/one", ""); got.code != 200 {
		t.Errorf("a refused request has deleted or changed the object: %v", got)
	}
}

// SPEC: URI-6
func TestHead(t *testing.T) {
	s := newServer(t, nil)
	for path, want := range map[string]int{configMaps: 405, "/api/v1": 405, "/apis": 200, "/healthz": 200, "/version": 405,
		"/": 200, "/nope": 404} {
		if got := s.do("HEAD", path, ""); got.code != want || got.body != "" {
			t.Errorf("HEAD %s: %d %q", path, got.code, got.body)
		}
	}
}

// Every error is sent in the requested media type, or as JSON if errors do not exist in it.
//
// SPEC: MED-1, URI-9
func TestErrorsAreNegotiated(t *testing.T) {
	s := newServer(t, nil)
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, c := range []struct{ path, accept, contentType, begins string }{
		{"/nobody", "application/yaml", "application/yaml", "apiVersion: v1\ncode: 404\n"},
		{"/nobody", table + ",application/json", "application/json", `{"apiVersion":"v1"`},
		{"/nobody", table, "application/json", "{\n  \"apiVersion\": \"v1\""},
		{"", "image/png", "application/json", "{\n  \"apiVersion\": \"v1\""},
		{"?watch=1", "application/yaml", "application/yaml", "apiVersion: v1\ncode: 406\n"},
		{"", table + "x", "application/json", "{\n"},
		{"?includeObject=Some", table + ",application/json", "application/json", `{"apiVersion":"v1"`},
		{"", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json", "application/json",
			`{"apiVersion":"v1"`},
	} {
		got := s.do("GET", configMaps+c.path, "", "Accept", c.accept)
		if got.code < 400 || got.header.Get("Content-Type") != c.contentType || !strings.HasPrefix(got.body, c.begins) {
			t.Errorf("%s as %s: %d %s %s", c.path, c.accept, got.code, got.header.Get("Content-Type"), got.body)
		}
	}
	if got := s.do("GET", configMaps, "", "Accept", "image/png").message(); !strings.HasSuffix(got,
		"Available representations: application/json, application/yaml, "+
			"application/vnd.kubernetes.protobuf, application/cbor, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq") {
		t.Errorf("got %q", got)
	}
}

// SPEC: MED-9
func TestPretty(t *testing.T) {
	s := newServer(t, nil)
	for _, c := range []struct {
		query, agent string
		want         bool
	}{
		{"", "test", false}, {"?pretty=true", "test", true}, {"?pretty=1", "test", true}, {"?pretty=maybe", "test", false},
		{"?pretty", "test", false}, {"", "curl/8.0", true}, {"", "Wget/1", true}, {"", "Mozilla/5.0 (X11)", true},
		{"", "Mozilla/4.0", false}, {"?pretty=false", "curl/8.0", false},
	} {
		for _, path := range []string{"/api/v1/namespaces/default", configMaps, configMaps + "/nobody", "/api"} {
			got := s.do("GET", path+c.query, "", "User-Agent", c.agent, "Accept", "*/*")
			if strings.HasPrefix(got.body, "{\n  \"") != c.want {
				t.Errorf("%s%s for %s: %s", path, c.query, c.agent, got.body)
			}
		}
	}
}

// SPEC: VAL-2
func TestWarnings(t *testing.T) {
	s := newServer(t, nil)
	got := s.do("POST", configMaps, `{"metadata":{"name":"a"},"b\"c":1,"d":2}`)
	warnings := strings.Join(got.header["Warning"], "|")
	if got.code != 201 || !strings.Contains(warnings, `299 - "unknown field \"b\\\"c\""`) ||
		!strings.Contains(warnings, `299 - "unknown field \"d\""`) {
		t.Errorf("%d %q", got.code, warnings)
	}
}

func TestManyWarnings(t *testing.T) {
	x := &requestState{w: &discardWriter{header: http.Header{}}}
	texts := []string{"", "a", "a", "control\x01", "ä" + strings.Repeat("x", 300)}
	x.warn(texts)
	if got := x.w.Header()["Warning"]; len(got) != 2 || len(got[1]) < 300 {
		t.Errorf("%q", got)
	}
	x = &requestState{w: &discardWriter{header: http.Header{}}}
	for i := range 100 {
		texts = append(texts, fmt.Sprintf("%d%s", i, strings.Repeat("y", 300)))
	}
	x.warn(texts)
	total := 0
	for _, w := range x.w.Header()["Warning"] {
		total += len(w)
	}
	if total > maxWarnings+2*maxWarning {
		t.Errorf("%d bytes of warnings", total)
	}
}

// SPEC: AUTH-1
func TestWhoMayWhat(t *testing.T) {
	s := newServer(t, nil)
	for _, c := range []struct {
		user, method, path string
		code               int
		message            string
	}{
		{"wrong", "GET", "/healthz", 401, "Unauthorized"},
		{"wrong", "GET", configMaps, 401, "Unauthorized"},
		{"nobody", "GET", "/healthz", 200, "ok"},
		{"nobody", "GET", "/nope", 403, `forbidden: User "system:anonymous" cannot get path "/nope"`},
		{"jane", "POST", "/apis", 403, `forbidden: User "jane" cannot post path "/apis"`},
		{"jane", "GET", configMaps, 403,
			`configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace "default"`},
		{"jane", "GET", "/api/v1/configmaps?watch=1", 403,
			`configmaps is forbidden: User "jane" cannot watch resource "configmaps" in API group "" at the cluster scope`},
		{"jane", "GET", configMaps + "/a", 403,
			`configmaps "a" is forbidden: User "jane" cannot get resource "configmaps" in API group "" in the namespace "default"`},
		{"jane", "GET", "/apis/apps/v1/namespaces/x/deployments/a/scale", 403,
			`deployments.apps "a" is forbidden: User "jane" cannot get resource "deployments/scale" in API group "apps" in the namespace "x"`},
		{"jane", "DELETE", "/api/v1/namespaces/x", 403,
			`namespaces "x" is forbidden: User "jane" cannot delete resource "namespaces" in API group "" in the namespace "x"`},
		{"jane", "DELETE", configMaps, 403,
			`configmaps is forbidden: User "jane" cannot deletecollection resource "configmaps" in API group "" in the namespace "default"`},
		{"jane", "GET", "/api/v1/nothing", 403,
			`nothing is forbidden: User "jane" cannot list resource "nothing" in API group "" at the cluster scope`},
		{"jane", "OPTIONS", configMaps, 403,
			`configmaps is forbidden: User "jane" cannot  resource "configmaps" in API group "" in the namespace "default"`},
		{"jane", "GET", "/api/v1/namespaces/%3Cb%3E/pods", 403,
			`pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "&lt;b&gt;"`},
		{"jane", "GET", configMaps + "?timeout=x", 400,
			`invalid timeout specified in the request URL - time: invalid duration "x"`},
	} {
		got := s.do(c.method, c.path, "", "Authorization", "Bearer "+c.user)
		if got.code != c.code || got.message() != c.message {
			t.Errorf("%s %s as %s: %d %q", c.method, c.path, c.user, got.code, got.message())
		}
	}
}

// A PUT that has to create is authorized for create by the engine.
//
// SPEC: URI-4
func TestCreateOnUpdateNeedsCreate(t *testing.T) {
	s := newServer(t, func(c *Config) {
		c.Authorizer = access.AuthorizerFunc(func(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
			if a.Verb == "update" || a.Resource == "namespaces" {
				return access.Allow, "", nil
			}
			return access.NoOpinion, "it is a test", nil
		})
	})
	got := s.do("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", `{"metadata":{"name":"l"}}`)
	if want := `leases.coordination.k8s.io "l" is forbidden: User "admin" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "default": it is a test`; got.message() != want {
		t.Errorf("%d %q", got.code, got.message())
	}
}

func TestAuthorizationThatFails(t *testing.T) {
	s := newServer(t, nil)
	s.config.Authorizer = access.AuthorizerFunc(func(context.Context, *access.Attributes) (access.Decision,
		string, error) {
		return access.NoOpinion, "", errors.New("no idea")
	})
	h, err := New(s.config)
	if err != nil {
		t.Fatal(err)
	}
	w := serve(h, "GET", configMaps)
	if w.code != 500 {
		t.Errorf("got %d", w.code)
	}
}

// codeWriter keeps the status.
type codeWriter struct {
	discardWriter
	code int
}

func (c *codeWriter) WriteHeader(code int) { c.code = code }

func serve(h http.Handler, method, path string) *codeWriter {
	r, err := http.NewRequest(method, "https://localhost"+path, nil)
	if err != nil {
		panic(err)
	}
	w := &codeWriter{discardWriter: discardWriter{header: http.Header{}}}
	h.ServeHTTP(w, r)
	return w
}

// Above the limit, requests get 429 with Retry-After, except those of access.Masters. Watches do not count.
func TestShedding(t *testing.T) { inBubble(t, nil, testShedding) }

func testShedding(t *testing.T, s *server) {
	inside, leave := make(chan bool), make(chan bool)
	s.config.Acquire = NewSlots(1, nil, nil).Acquire
	s.config.Authorizer = access.AuthorizerFunc(func(_ context.Context, a *access.Attributes) (access.Decision,
		string, error) {
		if a.Path == "/wait" {
			inside <- true
			<-leave
		}
		return access.Allow, "", nil
	})
	s.config.Authenticate = func(_ context.Context, r *http.Request) (*access.Identity, error) {
		if r.Header.Get("Master") != "" {
			return &access.Identity{User: access.User{Name: "root", Groups: []string{access.Masters}}}, nil
		}
		return &access.Identity{User: access.User{Name: "jane"}}, nil
	}
	var mu sync.Mutex
	inFlight, rejected := 0, 0
	s.config.Metrics = Metrics{
		InFlight: func(_ Class, delta int) { mu.Lock(); inFlight += delta; mu.Unlock() },
		Request: func(o Observation) {
			if o.Rejected {
				rejected++
			}
		},
	}
	h, err := New(s.config)
	if err != nil {
		t.Fatal(err)
	}
	go serve(h, "GET", "/wait")
	<-inside
	w := serve(h, "GET", configMaps)
	if w.code != 429 || w.header.Get("Retry-After") != "1" || rejected != 1 {
		t.Errorf("got %d %v, %d rejected", w.code, w.header, rejected)
	}
	r, _ := http.NewRequest("GET", "https://localhost"+configMaps, nil)
	r.Header.Set("Master", "yes")
	master := &codeWriter{discardWriter: discardWriter{header: http.Header{}}}
	h.ServeHTTP(master, r)
	if master.code != 200 {
		t.Errorf("a master got %d", master.code)
	}
	leave <- true
	synctest.Wait() // the slot is free when the request has ended
	testApart(t, s.config, inside, leave)
	w = serve(h, "GET", configMaps)
	mu.Lock()
	defer mu.Unlock()
	if w.code != 200 || inFlight != 0 {
		t.Errorf("afterwards: %d, %d in flight", w.code, inFlight)
	}
}

// Writes may have a separate limit, or none.
func testApart(t *testing.T, c Config, inside, leave chan bool) {
	c.Acquire = NewSlots(1, new(1), nil).Acquire
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	one := func(method string, want int) {
		t.Helper()
		if w := serve(h, method, configMaps); w.code != want {
			t.Errorf("%s while another request holds a slot: %d, want %d", method, w.code, want)
		}
	}
	go serve(h, "GET", "/wait")
	<-inside
	one("GET", 429)
	one("DELETE", 200)
	go serve(h, "POST", "/wait")
	<-inside
	one("DELETE", 429)
	leave <- true
	leave <- true
	synctest.Wait()
	c.Acquire = NewSlots(1, new(0), nil).Acquire
	if h, err = New(c); err != nil {
		t.Fatal(err)
	}
	go serve(h, "POST", "/wait")
	<-inside
	one("DELETE", 200)
	leave <- true
	synctest.Wait()
}

// A panic fails one request, and an answer that has begun is cut off, so that it does not look complete.
func TestPanics(t *testing.T) {
	var logged strings.Builder
	s := newServer(t, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		c.Handlers = map[string]http.Handler{
			"/early":  http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("early") }),
			"/below/": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "half"); panic("late") }),
		}
	})
	if got := s.do("GET", "/early", ""); got.code != 500 || !strings.Contains(got.message(), "panic") {
		t.Errorf("%d %s", got.code, got.body)
	}
	if response, err := s.client.Get(s.url + "/below/a/b"); err == nil {
		if _, err := io.ReadAll(response.Body); err == nil {
			t.Error("the answer of a handler that panicked looks complete")
		}
		response.Body.Close()
	}
	if got := s.do("GET", configMaps, ""); got.code != 200 {
		t.Errorf("afterwards: %d", got.code)
	}
	if !strings.Contains(logged.String(), "early") || !strings.Contains(logged.String(), "late") ||
		!strings.Contains(logged.String(), "TestPanics") {
		t.Errorf("logged: %s", logged.String())
	}
}

// SPEC: LIST-6, WRITE-6
func TestDeadline(t *testing.T) { inBubble(t, nil, testDeadline) }

func testDeadline(t *testing.T, s *server) {
	if got := s.do("GET", configMaps+"?resourceVersion=99999&timeout=50ms", ""); got.code != 504 ||
		!strings.Contains(got.body, `"message":"Timeout: request did not complete within the allotted timeout"`) {
		t.Errorf("a list at a future revision: %d %s", got.code, got.body)
	}
	slow, stop := io.Pipe()
	defer stop.Close()
	go stop.Write([]byte(`{"metadata":`))
	began := time.Now()
	r, err := http.NewRequest("POST", s.url+configMaps+"?timeout=100ms", slow)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != 504 ||
		!strings.Contains(string(text), `"message":"Timeout: the request body did not arrive within the allotted timeout"`) {
		t.Errorf("a body that never arrives: %d %s", response.StatusCode, text)
	}
	if took := time.Since(began); took != 100*time.Millisecond {
		t.Errorf("the timeout is reported after %s", took)
	}
}

// After its deadline a request is answered with 504, whatever the answer would be before and whatever the client
// accepts, in the form that the reference's filter for time-outs has.
//
// SPEC: WRITE-7
func TestErrorsAfterTheDeadline(t *testing.T) {
	s := newServer(t, nil)
	const late = `{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted ` +
		`timeout","reason":"Timeout","details":{},"code":504}` + "\n"
	for _, path := range []string{configMaps, configMaps + "/none", "/nope", "/apis/none/v1/things"} {
		for _, who := range []string{"jane", "nobody"} {
			for _, accept := range []string{"", "application/yaml", "application/vnd.kubernetes.protobuf", "text/none"} {
				got := s.do("GET", path+"?timeout=1ns", "", "Authorization", "Bearer "+who, "Accept", accept)
				form := got.header.Get("Content-Type")
				if got.code != 504 || got.body != late || form != "text/plain; charset=utf-8" {
					t.Errorf("%s, %s, %q: %d %s, %s", who, path, accept, got.code, form, got.body)
				}
				if got.header.Get("X-Kubernetes-Pf-Flowschema-Uid") != "" {
					t.Errorf("%s, %s, %q: the header names a flow schema", who, path, accept)
				}
			}
		}
	}
}

// SPEC: URI-11
func TestAuditID(t *testing.T) {
	s := newServer(t, nil)
	one, two := s.do("GET", configMaps, "").header.Get("Audit-Id"), s.do("GET", configMaps, "").header.Get("Audit-Id")
	if len(one) != 36 || one[14] != '4' || one == two {
		t.Errorf("%q, %q", one, two)
	}
	if got := s.do("GET", configMaps, "", "Audit-ID", "mine").header.Get("Audit-Id"); got != "mine" {
		t.Errorf("%q", got)
	}
}

// SPEC: MED-5
func TestCompression(t *testing.T) { inBubble(t, nil, testCompression) }

func testCompression(t *testing.T, s *server) {
	s.create(configMaps, `{"metadata":{"name":"small"}}`)
	large := `{"metadata":{"name":"large"},"data":{"k":"` + strings.Repeat("text ", 40<<10) + `"}}`
	s.create(configMaps, large)
	const list, initial = "?watch=1&timeoutSeconds=1&allowWatchBookmarks=true",
		"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	for _, c := range []struct {
		method, path, want string
		small              bool // too small to become much smaller
	}{
		{"GET", configMaps + "/small", "", true},
		{"GET", configMaps + "/large", "gzip", false},
		{"GET", configMaps, "gzip", false},
		{"GET", configMaps + "?fieldSelector=metadata.name%3Dsmall", "", true},
		{"GET", configMaps + "?pretty=1", "gzip", false},
		{"GET", configMaps + "?watch=1&timeoutSeconds=1", "", false},
		{"GET", configMaps + list + "&resourceVersion=1", "", false},
		{"GET", configMaps + list, "gzip", false},
		{"GET", configMaps + list + initial, "gzip", false},
		{"GET", configMaps + list + initial + "&fieldSelector=metadata.name%3Dsmall", "gzip", true},
		{"GET", configMaps + list + "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", "", true},
		{"PUT", configMaps + "/large", "gzip", false},
	} {
		body := ""
		if c.method == "PUT" {
			body = large // changes nothing
		}
		got := s.do(c.method, c.path, body, "Accept-Encoding", "br, gzip")
		plain := s.do(c.method, c.path, body)
		if got.header.Get("Content-Encoding") != c.want || plain.header.Get("Content-Encoding") != "" {
			t.Errorf("%s %s: %v", c.method, c.path, got.header)
			continue
		}
		text := got.body
		if c.want != "" {
			text = inflate(t, got.body)
			if vary := got.header["Vary"]; len(vary) != 1 || !strings.HasSuffix(vary[0], "Accept-Encoding") || !c.small &&
				len(got.body) > len(text)/2 {
				t.Errorf("%s %s: %v, %d bytes", c.method, c.path, got.header, len(got.body))
			}
		}
		if text != plain.body {
			t.Errorf("%s %s: %d bytes compressed, %d plain", c.method, c.path, len(text), len(plain.body))
		}
	}
}

func inflate(t *testing.T, text string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A long list is printed through one buffer in every form.
//
// SPEC: LIST-8, MED-2, MED-6, MED-7
func TestLongList(t *testing.T) {
	s := newServer(t, nil)
	s.makePods(500)
	want := s.do("GET", "/api/v1/pods", "").value(t)
	if n := want.At("items").Len(); n != 500 {
		t.Fatalf("%d items", n)
	}
	for _, accept := range []string{"application/yaml", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		"application/json;as=Table;g=meta.k8s.io;v=v1"} {
		got := s.do("GET", "/api/v1/namespaces/default/pods", "", "Accept", accept)
		if n := strings.Count(got.body, "uid"); got.code != 200 || n != 500 {
			t.Errorf("%s: %d, %d items", accept, got.code, n)
		}
	}
	item := want.At("items").Items()[7]
	if item.At("kind").Str() != "" || item.At("apiVersion").Str() != "" ||
		item.At("metadata", "resourceVersion").Str() == "" {
		t.Errorf("an item: %v", item)
	}
}

// SPEC: URI-8
func TestDocuments(t *testing.T) {
	s := newServer(t, nil)
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	got := s.do("GET", "/apis", "", "Accept", aggregated)
	tag := got.header.Get("Etag")
	if got.code != 200 || got.header.Get("Content-Type") != aggregated || tag == "" ||
		got.header.Get("Cache-Control") != "public" {
		t.Fatalf("%d %v", got.code, got.header)
	}
	for _, match := range []string{tag, `W/` + tag, `"x", ` + tag, "*"} {
		if again := s.do("GET", "/apis", "", "Accept", aggregated, "If-None-Match", match); again.code != 304 ||
			again.body != "" {
			t.Errorf("If-None-Match: %s: %d", match, again.code)
		}
	}
	if again := s.do("GET", "/apis", "", "Accept", aggregated, "If-None-Match", `"x"`); again.code != 200 {
		t.Errorf("another ETag: %d", again.code)
	}
	path := s.do("GET", "/openapi/v3", "").value(t).At("paths", "apis/apps/v1", "serverRelativeURL").Str()
	base, hash, _ := strings.Cut(path, "?hash=")
	got = s.do("GET", path, "", "Accept-Encoding", "gzip")
	if got.code != 200 || got.header.Get("Cache-Control") != "public, immutable" ||
		got.header.Get("Etag") != `"`+hash+`"` || got.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%s: %d %v", path, got.code, got.header)
	}
	plain := s.do("GET", path, "")
	if plain.header.Get("Content-Encoding") != "" || plain.value(t).At("openapi").Str() != "3.0.0" {
		t.Errorf("%s: %v", path, plain.header)
	}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if got = s.do("GET", base+"?hash=old", ""); got.code != 301 || got.header.Get("Location") != path {
		t.Errorf("an old hash: %d %v", got.code, got.header)
	}
	if got = s.do("GET", "/apis", "", "Accept", "image/png"); got.code != 406 {
		t.Errorf("discovery as image/png: %d %s", got.code, got.body)
	}
	if got = s.do("GET", "/version", ""); !strings.HasPrefix(got.body, "{\n  \"") {
		t.Errorf("/version: %s", got.body)
	}
	if got = s.do("GET", "/", ""); !strings.Contains(got.body, `"/apis/apps/v1",`) ||
		!strings.Contains(got.body, `"/healthz/ping",`) {
		t.Errorf("/: %s", got.body)
	}
}

// SPEC: URI-8
func TestHealth(t *testing.T) {
	broken := error(nil)
	s := newServer(t, func(c *Config) {
		c.Checks = append(c.Checks, Check{Name: "store", Run: func(context.Context) error { return broken }},
			Check{Name: "shutdown", ReadyOnly: true, Run: func(context.Context) error { return nil }})
	})
	for _, c := range []struct {
		broken error
		path   string
		code   int
		body   string
	}{
		{nil, "/healthz", 200, "ok"},
		{nil, "/livez?verbose", 200, "[+]ping ok\n[+]store ok\nlivez check passed\n"},
		{nil, "/readyz?verbose=1&exclude=store", 200,
			"[+]ping ok\n[+]store excluded: ok\n[+]shutdown ok\nreadyz check passed\n"},
		{nil, "/livez?verbose&exclude=z&exclude=ping&exclude=store,ping&exclude=z", 200,
			"[+]ping excluded: ok\n[+]store ok\nwarn: some health checks cannot be excluded: no matches for \"store,ping\",\"z\"\nlivez check passed\n"},
		{nil, "/healthz?verbose&exclude=nothing", 200,
			"[+]ping ok\n[+]store ok\nwarn: some health checks cannot be excluded: no matches for \"nothing\"\nhealthz check passed\n"},
		{nil, "/readyz/shutdown", 200, "ok"},
		{nil, "/livez/shutdown", 404, "404 page not found\n"},
		{nil, "/healthz/", 404, "404 page not found\n"},
		{nil, "/healthzz", 404, "404 page not found\n"},
		{errors.New("disk"), "/readyz", 500,
			"[+]ping ok\n[-]store failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n"},
		{errors.New("disk"), "/readyz?exclude=store", 200, "ok"},
		{errors.New("disk"), "/healthz/store", 500, "internal server error: disk\n"},
	} {
		broken = c.broken
		if got := s.do("GET", c.path, ""); got.code != c.code || got.body != c.body {
			t.Errorf("%s: %d %q", c.path, got.code, got.body)
		}
	}
}

// Bodies and answers in YAML, and answers in other forms, of every verb.
//
// SPEC: MED-2, MED-6, MED-7, DRY-1
func TestForms(t *testing.T) {
	s := newServer(t, nil)
	const (
		yaml  = "application/yaml"
		table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	)
	if got := s.do("POST", configMaps, "metadata: {name: a}\ndata: {k: v}\n", "Content-Type", yaml, "Accept",
		yaml); got.code != 201 || !strings.Contains(got.body, "\n  k: v\n") {
		t.Errorf("POST: %d %s", got.code, got.body)
	}
	if got := s.do("PUT", configMaps+"/a?dryRun=All", "metadata: {name: a}\n", "Content-Type", yaml, "Accept",
		table); got.code != 200 || !strings.Contains(got.body, `"rows":[{"cells":["a",0,`) {
		t.Errorf("PUT: %d %s", got.code, got.body)
	}
	if got := s.do("GET", configMaps+"/a?includeObject=Object", "", "Accept", table); !strings.Contains(got.body,
		`"data":{"k":"v"}`) {
		t.Errorf("GET: %d %s", got.code, got.body)
	}
	if got := s.do("POST", configMaps+"?dryRun=All", `{"metadata":{"name":"b"}}`, "Accept",
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"); got.code != 201 ||
		!strings.Contains(got.body, `"kind":"PartialObjectMetadata"`) || strings.Contains(got.body, "resourceVersion") {
		t.Errorf("dry POST: %d %s", got.code, got.body)
	}
	if got := s.do("DELETE", configMaps, "dryRun: [All]\n", "Content-Type", yaml, "Accept", table); got.code != 200 ||
		!strings.Contains(got.body, `"kind":"Table"`) {
		t.Errorf("DELETE: %d %s", got.code, got.body)
	}
	if got := s.do("DELETE", configMaps+"/a", "", "Accept", yaml); got.code != 200 ||
		!strings.Contains(got.body, "status: Success") {
		t.Errorf("DELETE: %d %s", got.code, got.body)
	}
	s.create(configMaps, `{"metadata":{"name":"held","finalizers":["example.com/a"]}}`)
	if got := s.do("DELETE", configMaps+"/held?orphanDependents=false", ""); got.code != 202 { // SPEC: DEL-3
		t.Errorf("DELETE: %d %s", got.code, got.body)
	}
}

// A connection is refused before anything is sent on; without a backend nothing is sent on at all.
//
// SPEC: URI-7
func TestConnectionsAreChecked(t *testing.T) {
	s := newServer(t, nil)
	const pod = "/api/v1/namespaces/default/pods/a"
	const noPath, noMethod = "the server could not find the requested resource",
		"the server does not allow this method on the requested resource"
	const nowhere = " of pods is not available here: there are no nodes"
	for _, c := range []struct {
		method, path, accept string
		code                 int
		message              string
	}{
		{"GET", pod + "/log", "", 501, "log" + nowhere},
		{"GET", pod + "/log?dryRun=All", "", 501, "log" + nowhere},
		{"GET", pod + "/log?tailLines=x", "", 400, `strconv.ParseInt: parsing "x": invalid syntax`},
		{"GET", pod + "/log", "text/html", 406, "406: Not Acceptable\n\nAvailable representations: text/plain, " +
			"application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"},
		{"GET", pod + "/log", "text/plain", 406, "only the following media types are accepted: application/json, " +
			"application/yaml, application/vnd.kubernetes.protobuf, application/cbor"},
		{"POST", pod + "/log", "", 405, noMethod},
		{"GET", pod + "/log/x", "", 404, noPath},
		{"GET", pod + "/exec?dryRun=All", "", 400, "dryRun is not supported"},
		{"GET", pod + "/exec?stdin=1", "", 501, "exec" + nowhere},
		{"POST", pod + "/exec/x", "", 404, noPath},
		{"PUT", pod + "/exec", "", 405, noMethod},
		{"POST", pod + "/portforward?ports=70000", "", 400,
			`cannot convert to []int32: strconv.ParseUint: parsing "70000": value out of range`},
		{"GET", pod + "/proxy/x", "", 501, "proxy" + nowhere},
		{"OPTIONS", pod + "/proxy/", "", 501, "proxy" + nowhere},
		{"GET", "/api/v1/namespaces/default/pods//proxy/", "", 400, "name must be provided"},
		{"GET", "/api/v1/pods/a/proxy/x", "", 404, noPath},
		{"GET", "/api/v1/watch/namespaces/default/pods/a/proxy/x", "", 404, noPath},
	} {
		if got := s.do(c.method, c.path, "", "Accept", c.accept); got.code != c.code || got.message() != c.message {
			t.Errorf("%s %s: %d %s", c.method, c.path, got.code, got.body)
		}
	}
}

func TestObservations(t *testing.T) {
	var mu sync.Mutex
	var seen []Observation
	s := newServer(t, func(c *Config) {
		c.Metrics.Request = func(o Observation) { mu.Lock(); seen = append(seen, o); mu.Unlock() }
	})
	mu.Lock()
	seen = nil
	mu.Unlock()
	s.do("POST", configMaps+"?dryRun=All", `{"metadata":{"name":"a"}}`)
	s.do("GET", "/apis/apps/v1/namespaces/default/deployments/a/scale", "")
	s.do("GET", "/apis/apps/v1/made-up", "")
	s.do("DELETE", configMaps, "")
	mu.Lock()
	defer mu.Unlock()
	for i, want := range []Observation{
		{Verb: "POST", Version: "v1", Resource: "configmaps", Scope: "resource", DryRun: true, Code: 201, Class: Mutating},
		{Verb: "GET", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "scale", Scope: "resource",
			Code: 404},
		{Verb: "LIST", Scope: "cluster", Code: 404},
		{Verb: "DELETE", Version: "v1", Resource: "configmaps", Scope: "namespace", Code: 200, Class: Mutating},
	} {
		got := seen[i]
		if got.Took <= 0 || got.Bytes <= 0 {
			t.Errorf("%+v", got)
		}
		got.Took, got.Bytes = 0, 0
		if got != want {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	_, err := New(Config{RequestTimeout: -1, BodyMemory: -1})
	for _, what := range []string{"Engine", "Registry", "Documents", "Authenticate", "Impersonate", "Authorizer",
		"RequestTimeout", "BodyMemory"} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("no error about %s: %v", what, err)
		}
	}
}

// The header is on every answer, errors included, if it is configured, and otherwise on none.
//
// SPEC: RUN-3
func TestStrictTransportSecurity(t *testing.T) {
	for _, want := range []string{"", "max-age=31536000; includeSubDomains; preload"} {
		s := newServer(t, func(c *Config) { c.StrictTransport = want })
		for _, path := range []string{configMaps, "/healthz", "/apis", "/nothing", configMaps + "/none",
			"/api/v1/pods?limit=x"} {
			for _, who := range []string{"", "Bearer jane", "Bearer wrong"} {
				var header []string
				if who != "" {
					header = []string{"Authorization", who}
				}
				got := s.do("GET", path, "", header...)
				if is := got.header.Get("Strict-Transport-Security"); is != want {
					t.Errorf("%s as %q: %d with %q, want %q", path, who, got.code, is, want)
				}
			}
		}
	}
}

// A write to the status of a Pod neither sets nor changes its deletionTimestamp. A body that contains one is not
// refused, and no manager owns the field.
//
// SPEC: WRITE-4, SSA-14
func TestPodStatusLeavesDeletionTimestamp(t *testing.T) {
	s := newServer(t, nil)
	const pods = "/api/v1/namespaces/default/pods"
	const spec = `"spec":{"containers":[{"name":"c","image":"i"}]}`
	for _, held := range []bool{false, true} {
		name := fmt.Sprint("held-", held)
		s.create(pods, `{"metadata":{"name":"`+name+`","finalizers":["a.b/c"]},`+spec+`}`)
		if held {
			s.do("DELETE", pods+"/"+name, "")
		}
		want := s.do("GET", pods+"/"+name, "").value(t).At("metadata", "deletionTimestamp")
		if want.IsNull() == held {
			t.Fatalf("%s: %s", name, want.Str())
		}
		body := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name +
			`","finalizers":["a.b/c"],"deletionTimestamp":"2020-01-01T00:00:00Z"},` + spec + `,"status":{"message":"m"}}`
		for _, write := range [][2]string{
			{"PUT", "application/json"}, {"PATCH", "application/merge-patch+json"}, {"PATCH", "application/apply-patch+yaml"},
		} {
			got := s.do(write[0], pods+"/"+name+"/status?fieldManager=m"+strings.Repeat("&force=true",
				strings.Count(write[1], "apply")), body, "Content-Type", write[1])
			if got.code != 200 {
				t.Errorf("%s %s %s: %d %s", name, write[0], write[1], got.code, got.message())
				continue
			}
			is := got.value(t)
			if at := is.At("metadata", "deletionTimestamp"); at.Str() != want.Str() ||
				strings.Contains(got.body, "f:deletionTimestamp") || is.At("status", "message").Str() != "m" {
				t.Errorf("%s %s %s: %s", name, write[0], write[1], got.body)
			}
		}
	}
}

// Clients may write "/v1" for v1 of the core group, whose name is empty.
//
// SPEC: VAL-1, SSA-2
func TestVersionOfTheGroupWithoutName(t *testing.T) {
	s := newServer(t, nil)
	body := func(version string) string {
		return `{"apiVersion":"` + version + `","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"` + version + `"}}`
	}
	for _, write := range []struct {
		method, path, mediaType string
		code                    int
	}{
		{"POST", configMaps, "application/json", 201},
		{"PUT", configMaps + "/a", "application/json", 200},
		{"PATCH", configMaps + "/a?fieldManager=m&force=true", "application/apply-patch+yaml", 200},
	} {
		for version, want := range map[string]int{"//v1": 400, "/v2": 400, "v1/": 400, "/apps/v1": 400} {
			if got := s.do(write.method, write.path, body(version), "Content-Type", write.mediaType); got.code != want {
				t.Errorf("%s of %s: %d %s", write.method, version, got.code, got.message())
			}
		}
		got := s.do(write.method, write.path, body("/v1"), "Content-Type", write.mediaType)
		if got.code != write.code || got.value(t).At("apiVersion").Str() != "v1" ||
			strings.Contains(got.body, `"apiVersion":"/v1"`) {
			t.Errorf("%s: %d %s", write.method, got.code, got.body)
		}
	}
}

// Duplicate fields of a merge patch or a strategic merge patch are reported whether or not the type has such a field:
// the reference parses these patches before it knows the type.
//
// SPEC: VAL-2, WRITE-2
func TestUnknownFieldsTwiceInPatches(t *testing.T) {
	s := newServer(t, nil)
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	for _, mediaType := range []string{"application/merge-patch+json", "application/strategic-merge-patch+json"} {
		const patch = `{"odd":{"twice":1,"twice":2},"odder":1,"odder":2,"data":{"k":"v","k":"w"}}`
		got := s.do("PATCH", configMaps+"/a?dryRun=All", patch, "Content-Type", mediaType)
		warnings := strings.Join(got.header["Warning"], "\n")
		for _, want := range []string{`duplicate field \"odd.twice\"`, `duplicate field \"odder\"`,
			`duplicate field \"data.k\"`, `unknown field \"odd\"`, `unknown field \"odder\"`} {
			if strings.Count(warnings, want) != 1 {
				t.Errorf("%s: the warnings do not have %s once:\n%s", mediaType, want, warnings)
			}
		}
		if got := s.do("PATCH", configMaps+"/a?fieldValidation=Strict", patch, "Content-Type", mediaType); got.code != 422 ||
			!strings.Contains(got.message(), `duplicate field "odder"`) {
			t.Errorf("%s, strict: %d %s", mediaType, got.code, got.message())
		}
	}
	// In the body of an object, an unknown field that is duplicated is only reported as unknown.
	got := s.do("POST", configMaps+"?dryRun=All", `{"metadata":{"name":"b"},"odder":1,"odder":2}`)
	if warnings := strings.Join(got.header["Warning"], "\n"); strings.Contains(warnings, "duplicate") ||
		!strings.Contains(warnings, "unknown") {
		t.Errorf("POST: warnings %s", warnings)
	}
}

// A client that says neither which manager it is nor which program has the manager "unknown".
//
// SPEC: SSA-6
func TestNoUserAgent(t *testing.T) {
	s := newServer(t, nil)
	got := s.do("POST", configMaps, `{"metadata":{"name":"a"},"data":{"a":"b"}}`, "User-Agent", "")
	if got.code != 201 || !strings.Contains(got.body, `"manager":"unknown"`) {
		t.Errorf("%d %s", got.code, got.body)
	}
}
