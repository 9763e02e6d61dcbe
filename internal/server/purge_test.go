package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/object"
)

// as sends a request as a user, and returns the code and the text of the answer.
func (s *planesServer) as(user, method, path, body string) (int, string) {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1"
	r.Header.Set("Content-Type", "application/yaml")
	r = r.WithContext(auth.As(r.Context(), &access.Identity{User: access.User{Name: user,
		Groups: []string{"system:authenticated"}}}))
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// filesWith are the files below a directory that have a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// watchEnds wants a watch that begins at a revision to end at once, as what follows is not kept.
func (s *planesServer) watchEnds(revision string) {
	s.t.Helper()
	event := s.want(200, "", http.MethodGet, planeMaps+"?watch=1&resourceVersion="+revision, "")
	if event.At("type").Str() != "ERROR" || event.At("object", "code").Int() != 410 {
		s.t.Errorf("a watch from %s begins with %s", revision, object.AppendJSON(nil, event))
	}
}

// What an object was is on no disk and in no answer after a purge, in the plane in which it was purged; who has changed
// it stays, and so does everything else.
//
// SPEC: BEY-4, LIST-6, WATCH-3
func TestPurge(t *testing.T) {
	s := startPlanes(t, nil)
	s.create("other", "")
	const path, secret = planeMaps + "/a", "aHVudGVyMi1vZi1hbi1vYmplY3Q"
	before := map[string]string{}
	for _, plane := range []string{"", "other"} {
		before[plane] = versionOf(s.want(201, plane, http.MethodPost, planeMaps, mapOf("z", "stays")))
		s.want(201, plane, http.MethodPost, planeMaps+"?fieldManager=first", mapOf("a", secret+plane))
	}
	first := versionOf(s.want(200, "", http.MethodGet, path, ""))
	s.want(200, "", http.MethodPatch, path+"?fieldManager=second", `{"data": {"more": "`+secret+`2"}}`)
	second := versionOf(s.want(200, "", http.MethodGet, path, ""))
	last := versionOf(s.want(200, "", http.MethodPatch, path+"?fieldManager=third",
		`{"data": {"value": "none", "more": "nothing"}}`))
	s.want(200, "", http.MethodGet, path+"?history", "") // packs it
	other := versionOf(s.want(200, "", http.MethodPatch, planeMaps+"/z", `{"data": {"value": "changes"}}`))

	would := s.want(200, "", http.MethodPost, path+"?purge&dryRun=All", "")
	if got := fmt.Sprintf("%s %d %d %s%s", would.At("kind").Str(), would.At("versions").Int(), would.At("changes").Int(),
		would.At("live").Str(), would.At("until").Str()); got != "Purge 2 3 "+last || !would.At("dryRun").Bool() {
		t.Errorf("a dry run: %s", object.AppendObject(nil, would))
	}
	if v := s.want(200, "", http.MethodGet, path+asOf(first), ""); v.At("data", "value").Str() != secret {
		t.Errorf("after a dry run it was %s", object.AppendObject(nil, v))
	}
	if len(filesWith(t, s.config.DataDir, secret)) == 0 {
		t.Error("no file has it before the purge")
	}
	done := s.want(200, "", http.MethodPost, path+"?purge", "")
	notes := string(object.AppendJSON(nil, done.At("notes")))
	if done.At("versions").Int() != 2 || done.At("until").Str() == "" || done.At("dryRun").Bool() ||
		!strings.Contains(notes, "backups") || !strings.Contains(notes, "stays as it is") {
		t.Errorf("a purge: %s", object.AppendObject(nil, done))
	}
	check := func(versions int64) {
		t.Helper()
		for _, file := range filesWith(t, s.config.DataDir, secret) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Count(b, []byte(secret)) > bytes.Count(b, []byte(secret+"other")) {
				t.Errorf("%s has it", file)
			}
		}
		gone := fmt.Sprintf(`What configmaps "default/a" was before its change of the resourceVersion %s was purged.`, last)
		for _, query := range []string{path + asOf(second), planeMaps + asOf(second), planeMaps + asOf(second) + "&limit=1",
			"/api/v1/configmaps" + asOf(second) + "&labelSelector=a%3Db", path + "?undo&to=" + second, path + "?undo"} {
			if e := s.want(410, "", http.MethodGet, query, ""); e.At("message").Str() != gone ||
				e.At("reason").Str() != "Expired" {
				t.Errorf("%s: %s", query, object.AppendObject(nil, e))
			}
		}
		s.want(410, "", http.MethodGet, path+asOf(first), "")
		s.want(410, "", http.MethodGet, path+"?undo="+second, "")
		s.watchEnds(first)
		// What does not show it is whole.
		s.want(404, "", http.MethodGet, path+asOf(before[""]), "")
		for _, query := range []string{asOf(before[""]), asOf(second) + "&fieldSelector=metadata.name=z"} {
			query = planeMaps + query
			list := s.want(200, "", http.MethodGet, query, "").At("items")
			if n := list.Len(); list.Items()[n-1].At("data", "value").Str() != "stays" {
				t.Errorf("%s: %s", query, object.AppendJSON(nil, list))
			}
		}
		s.want(200, "", http.MethodGet, "/api/v1/namespaces/kube-system/configmaps"+asOf(second), "")
		if v := s.want(200, "", http.MethodGet, path+asOf(other), ""); v.At("data", "value").Str() != "none" {
			t.Errorf("after its last change it is %s", object.AppendObject(nil, v))
		}
		var have []string
		for _, query := range []string{"?history", "?history&limit=2", "?history&limit=2&continue=" + second} {
			for _, c := range s.want(200, "", http.MethodGet, path+query, "").At("changes").Items() {
				have = append(have, fmt.Sprint(c.At("change").Str(), " ", c.At("user").Str(), " ", c.At("manager").Str(), " ",
					c.At("purged").Bool(), c.At("patch").IsNull(), c.At("object").IsNull()))
			}
		}
		third, two, one := "modified admin third true true true", "modified admin second true true true",
			"created admin first true true true"
		if want := fmt.Sprint([]string{third, two, one, third, two, one}); fmt.Sprint(have) != want {
			t.Errorf("the record is\n%q\nwant\n%s", have, want)
		}
		blame := s.text(path + "?history=yaml")
		if !strings.Contains(blame, "value: none") || strings.Contains(blame, secret) ||
			!strings.Contains(blame, " (purged)") {
			t.Errorf("who has set what:\n%s", blame)
		}
		if lines := s.want(200, "", http.MethodGet, path+"?history=lines", ""); !lines.At("purged").Bool() {
			t.Errorf("who has set what: %s", object.AppendObject(nil, lines))
		}
		if v := s.want(200, "other", http.MethodGet, path, ""); v.At("data", "value").Str() != secret+"other" {
			t.Errorf("in another plane it is %s", object.AppendObject(nil, v))
		}
		if again := s.want(200, "", http.MethodPost, path+"?purge", ""); again.At("versions").Int() != versions {
			t.Errorf("once more: %s", object.AppendObject(nil, again))
		}
	}
	check(0)
	s = s.restarted()
	check(0)

	// A change after the purge can be seen and taken back; the version that was live then is purged with the next one.
	s.want(200, "", http.MethodPatch, path, `{"data": {"value": "next"}}`)
	record := s.want(200, "", http.MethodGet, path+"?history&limit=1", "").At("changes").Items()[0]
	if string(object.AppendJSON(nil, record.At("patch"))) != `{"data":{"value":"next"}}` {
		t.Errorf("the change after the purge is %s", object.AppendObject(nil, record))
	}
	s.want(200, "", http.MethodGet, path+"?undo", "")

	// An object that is gone, and another one of its name.
	s.want(200, "", http.MethodDelete, path, "")
	s.want(201, "", http.MethodPost, planeMaps, mapOf("a", secret+"3"))
	s.want(200, "", http.MethodDelete, path, "")
	done = s.want(200, "", http.MethodPost, path+"?purge=true", "")
	if done.At("versions").Int() != 3 || done.At("changes").Int() != 7 || !done.At("live").IsNull() {
		t.Errorf("the purge of an object that is gone: %s", object.AppendObject(nil, done))
	}
	if e := s.want(410, "", http.MethodGet, path+"?undo", ""); !strings.Contains(e.At("message").Str(), "purged") {
		t.Errorf("an undo of its deletion: %s", object.AppendObject(nil, e))
	}
	if found := filesWith(t, s.config.DataDir, secret+"3"); len(found) > 0 {
		t.Errorf("%q have what was purged", found)
	}
	s.want(200, "other", http.MethodGet, path+"?history", "")
}

// A purge needs a right of its own, which only administrators of everything have by default; it is in the audit log.
//
// SPEC: BEY-4, AUTH-4
func TestMayPurge(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s := startPlanes(t, func(c *Config) { c.Audit.PolicyFile, c.Audit.Log.Path = policy, log })
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	s.want(201, "", http.MethodPost, roles, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole,
metadata: {name: purges}, rules: [{apiGroups: [""], resources: [configmaps], verbs: [purge]}]}`)
	for _, role := range []string{"edit", "admin", "cluster-admin", "purges"} {
		s.want(201, "", http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", fmt.Sprintf(
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: "%s-too"},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %q},
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}]}`, role, role, role))
	}
	s.want(201, "", http.MethodPost, planeMaps, mapOf("a", "1"))
	for user, want := range map[string]int{"edit": 403, "admin": 403, "cluster-admin": 200, "purges": 200} {
		for _, query := range []string{"?purge", "?purge&dryRun=All"} {
			if code, text := s.as(user, http.MethodPost, planeMaps+"/a"+query, ""); code != want ||
				code == 403 && !strings.Contains(text, `cannot purge resource`) {
				t.Errorf("%s as %s: %d %s", query, user, code, text)
			}
		}
	}
	if code, text := s.as("purges", http.MethodPost, planeMaps, mapOf("b", "1")); code != 403 {
		t.Errorf("who may purge creates: %d %s", code, text)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	purges := map[string]int{}
	for line := range bytes.Lines(text) {
		var event struct {
			Verb, Stage    string
			User           struct{ Username string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		if event.Verb == "purge" && event.Stage == "ResponseComplete" {
			purges[fmt.Sprint(event.User.Username, " ", event.ResponseStatus.Code)]++
		}
	}
	if want := map[string]int{"edit 403": 2, "admin 403": 2, "cluster-admin 200": 2, "purges 200": 2}; fmt.Sprint(
		purges) != fmt.Sprint(want) {
		t.Errorf("the audit log has the purges %v, should have %v", purges, want)
	}
}

// The parameter is an error wherever it is no purge, and changes nothing there.
//
// SPEC: BEY-4
func TestPurgeRefuses(t *testing.T) {
	s := startPlanes(t, nil)
	const path = planeMaps + "/a"
	s.want(201, "", http.MethodPost, planeMaps, mapOf("a", "1"))
	version := versionOf(s.want(200, "", http.MethodPatch, path, `{"data": {"value": "2"}}`))
	for _, refused := range []struct {
		method, path, body string
		code               int
	}{
		{http.MethodDelete, path + "?purge", "", 405},
		{http.MethodPut, path + "?purge", mapOf("a", "3"), 405},
		{http.MethodPatch, path + "?purge", `{"data": {"value": "3"}}`, 405},
		{http.MethodPost, planeMaps + "?purge", mapOf("b", "1"), 405},
		{http.MethodDelete, planeMaps + "?purge", "", 405},
		{http.MethodPost, path, "", 405},
		{http.MethodPost, path + "/status?purge", "", 404},
		{http.MethodPost, path + "?purge=all", "", 400},
		{http.MethodPost, path + "?purge&dryRun=some", "", 422},
		{http.MethodPost, planeMaps + "/none?purge", "", 404},
		{http.MethodPost, planeMaps + "/none?purge&dryRun=All", "", 404},
		{http.MethodPost, "/api/v1/namespaces//configmaps/a?purge", "", 400},
		{http.MethodPost, "/api/v1/componentstatuses/etcd-0?purge", "", 405},
		{http.MethodPost, "/apis/example.com/v1/namespaces/default/widgets/a?purge", "", 404},
	} {
		if code, answer := s.do("", refused.method, refused.path, refused.body); code != refused.code {
			t.Errorf("%s %s: %d, should be %d: %v", refused.method, refused.path, code, refused.code,
				string(object.AppendJSON(nil, answer)))
		}
	}
	if v := s.want(200, "", http.MethodGet, path+"?purge", ""); versionOf(v) != version {
		t.Errorf("it was changed: %s", object.AppendObject(nil, v))
	}
	s.want(404, "", http.MethodGet, planeMaps+"/b", "")
	s.want(200, "", http.MethodGet, path+asOf(fmt.Sprint(s.plane.Store.Revision()-1)), "")
	s.want(200, "", http.MethodPost, "/api/v1/namespaces/default?purge&dryRun=All", "")
}

// Without a past, and in memory, the history of watches is purged.
//
// SPEC: BEY-4
func TestPurgeWithoutPast(t *testing.T) {
	for _, storage := range []string{"embedded", "memory"} {
		s := startPlanes(t, func(c *Config) { c.Storage, c.Past.Retention = storage, 0 })
		const path, secret = planeMaps + "/a", "c2VjcmV0LW9mLW5vLXBhc3Q"
		first := versionOf(s.want(201, "", http.MethodPost, planeMaps, mapOf("a", secret)))
		s.want(200, "", http.MethodPatch, path, `{"data": {"value": "none"}}`)
		s.want(200, "", http.MethodGet, path+asOf(first), "")
		if done := s.want(200, "", http.MethodPost, path+"?purge", ""); done.At("versions").Int() != 1 {
			t.Errorf("%s: %s", storage, object.AppendObject(nil, done))
		}
		s.want(410, "", http.MethodGet, path+asOf(first), "")
		s.watchEnds(first)
		if v := s.want(200, "", http.MethodGet, path, ""); v.At("data", "value").Str() != "none" {
			t.Errorf("%s: it is %s", storage, object.AppendObject(nil, v))
		}
		if found := filesWith(t, s.config.DataDir, secret); len(found) > 0 {
			t.Errorf("%s: %q have it", storage, found)
		}
	}
}

// A past that was kept once, and is not read any more, is not purged, and the answer says so.
//
// SPEC: BEY-4
func TestPurgeBesideAnUnusedPast(t *testing.T) {
	s := startPlanes(t, nil)
	const path = planeMaps + "/a"
	s.want(201, "", http.MethodPost, planeMaps, mapOf("a", "1"))
	s.want(200, "", http.MethodPatch, path, `{"data": {"value": "2"}}`)
	s.want(200, "", http.MethodGet, path+"?history", "")
	s = s.restarted(func(c *Config) { c.Past.Retention = 0 })
	s.want(200, "", http.MethodPatch, path, `{"data": {"value": "3"}}`)
	dir := filepath.Join(s.config.DataDir, "past")
	e := s.want(500, "", http.MethodPost, path+"?purge", "")
	if text := e.At("message").Str(); !strings.Contains(text, dir+" has what was kept") {
		t.Errorf("it says %s", text)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	s.want(200, "", http.MethodPost, path+"?purge", "")
}
