package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"plinth/object"
)

const undoDeployments = "/apis/apps/v1/namespaces/default/deployments"

const undoWeb = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, labels: {app: web}}, spec: {replicas: 1,
selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web,
	image: "web:1"}]}}}}`

// setImage sets the image of a container as a manager, by a PUT, and returns the resourceVersion.
func (s *planesServer) setImage(manager, container, image string) string {
	s.t.Helper()
	live := s.want(200, "", http.MethodGet, undoDeployments+"/web", "")
	for i, c := range live.At("spec", "template", "spec", "containers").Items() {
		if c.At("name").Str() == container {
			spec := live.At("spec", "template", "spec")
			live = live.WithAt(spec.At("containers").WithItem(i, c.With("image", object.StringOf(image))),
				"spec", "template", "spec", "containers")
		}
	}
	return versionOf(s.want(200, "", http.MethodPut, undoDeployments+"/web?fieldManager="+manager,
		string(object.AppendObject(nil, live))))
}

func imageOf(v object.Value) string {
	return v.At("spec", "template", "spec", "containers").Items()[0].At("image").Str()
}

// write sends the object of an Undo, as a client does.
func (s *planesServer) write(path, name string, undo object.Value) object.Value {
	s.t.Helper()
	text := string(object.AppendObject(nil, undo.At("object")))
	switch write := undo.At("write").Str(); write {
	case "create":
		return s.want(201, "", http.MethodPost, path+"?fieldManager=undo", text)
	case "update":
		return s.want(200, "", http.MethodPut, path+"/"+name+"?fieldManager=undo", text)
	default:
		s.t.Fatalf("nothing is to be written: %s", object.AppendObject(nil, undo))
		return object.Nil
	}
}

// A change is taken back by paths: what others have set since stays, or is a disagreement. What is written is an
// ordinary update, and can be taken back, too.
//
// SPEC: BEY-4
func TestUndo(t *testing.T) {
	s := startPlanes(t, nil)
	created := versionOf(s.want(201, "", http.MethodPost, undoDeployments+"?fieldManager=maker", undoWeb))
	second := s.setImage("release", "web", "web:2")
	s.want(200, "", http.MethodPatch, undoDeployments+"/web?fieldManager=label",
		`{"metadata": {"labels": {"team": "a"}}}`)
	s.want(200, "", http.MethodPatch, undoDeployments+"/web/status?fieldManager=status",
		`{"status": {"observedGeneration": 7}}`)
	web := undoDeployments + "/web"

	undo := s.want(200, "", http.MethodGet, web+"?undo="+second, "")
	if undo.At("change", "manager").Str() != "release" || undo.At("change", "resourceVersion").Str() != second {
		t.Errorf("the change that is taken back is %s", object.AppendObject(nil, undo.At("change")))
	}
	before := s.want(200, "", http.MethodGet, web, "")
	now := s.write(undoDeployments, "web", undo)
	if imageOf(now) != "web:1" || now.At("metadata", "labels", "team").Str() != "a" || now.At("metadata",
		"generation").Int() != 3 ||
		now.At("status", "observedGeneration").Int() != 7 {
		t.Errorf("without the second change it is %s", object.AppendObject(nil, now))
	}
	owners := map[string]bool{}
	for _, m := range now.At("metadata", "managedFields").Items() {
		owners[m.At("manager").Str()] = true
	}
	for _, m := range []string{"maker", "label", "status", "undo"} {
		if !owners[m] {
			t.Errorf("the managers are %v, without %s", owners, m)
		}
	}
	// The change is taken back already, and what has done that can be, too.
	if again := s.want(200, "", http.MethodGet, web+"?undo="+second, ""); again.At("write").Str() != "none" {
		t.Errorf("once more: %s", object.AppendObject(nil, again))
	}
	now = s.write(undoDeployments, "web", s.want(200, "", http.MethodGet, web+"?undo", ""))
	if was, is := object.AppendObject(nil, before.At("spec")), object.AppendObject(nil,
		now.At("spec")); string(was) != string(is) {
		t.Errorf("an undo that is taken back makes %s, it was %s", is, was)
	}

	// Somebody changes the same field.
	s.setImage("other", "web", "web:3")
	undo = s.want(200, "", http.MethodGet, web+"?undo="+second, "")
	want := `[{"after":"web:2","before":"web:1","live":"web:3","path":".spec.template.spec.containers[name=\"web\"].image"}]`
	if got := string(object.AppendJSON(nil, undo.At("disagreements"))); got != want ||
		undo.At("write").Str() != "none" {
		t.Errorf("disagreements: %s", object.AppendObject(nil, undo))
	}
	forced := s.write(undoDeployments, "web", s.want(200, "", http.MethodGet, web+"?force=1&undo="+second, ""))
	if imageOf(forced) != "web:1" {
		t.Errorf("with force it is %s", imageOf(forced))
	}
	// A write between the question and the undo is a conflict, as for each update.
	undo = s.want(200, "", http.MethodGet, web+"?undo&to="+second, "")
	s.want(200, "", http.MethodPatch, web, `{"metadata": {"labels": {"team": "b"}}}`)
	s.want(409, "", http.MethodPut, web, string(object.AppendObject(nil, undo.At("object"))))
	back := s.write(undoDeployments, "web", s.want(200, "", http.MethodGet, web+"?undo&to="+second, ""))
	if imageOf(back) != "web:2" || !back.At("metadata", "labels", "team").IsNull() || back.At("status",
		"observedGeneration").Int() != 7 {
		t.Errorf("as of %s it is %s", second, object.AppendObject(nil, back))
	}
	at := s.want(200, "", http.MethodGet, web+"?history", "").At("changes").Items()
	first := at[len(at)-1].At("time").Str()
	if to := s.want(200, "", http.MethodGet, web+"?undo&to="+first, ""); to.At("to").Str() != created ||
		imageOf(to.At("object")) != "web:1" {
		t.Errorf("as of %s it is %s", first, object.AppendObject(nil, to))
	}
	// A change of status alone is none of those that are taken back.
	status := versionOf(s.want(200, "", http.MethodPatch, web+"/status", `{"status": {"observedGeneration": 8}}`))
	if undo = s.want(200, "", http.MethodGet, web+"?undo="+status, ""); undo.At("write").Str() != "none" {
		t.Errorf("of status: %s", object.AppendObject(nil, undo))
	}
	for _, query := range []string{"undo=" + created, "undo=999999", "undo=x", "undo=" + second + "&to=" + created,
		"undo&to=1", "undo&to=x"} {
		s.want(400, "", http.MethodGet, web+"?"+query, "")
	}
	s.want(404, "", http.MethodGet, undoDeployments+"/nobody?undo", "")
}

// A deleted object is made anew, and what has depended on it is named.
//
// SPEC: BEY-4
func TestUndoOfADeletion(t *testing.T) {
	s := startPlanes(t, func(c *Config) { c.Controllers = nil }) // dependents stay until they are deleted here
	owned := func(name, owner, uid string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %q, finalizers: [x/y], ownerReferences: [{apiVersion: v1,
kind: ConfigMap, name: %q, uid: %q}]}, data: {value: one}}`, name, owner, uid)
	}
	uid := func(v object.Value) string { return v.At("metadata", "uid").Str() }
	root := s.want(201, "", http.MethodPost, planeMaps, mapOf("root", "1"))
	middle := s.want(201, "", http.MethodPost, planeMaps, owned("middle", "root", uid(root)))
	s.want(201, "", http.MethodPost, planeMaps, owned("leaf", "middle", uid(middle)))
	s.want(201, "", http.MethodPost, planeMaps, owned("gone", "middle", uid(middle)))
	free := `{"metadata": {"finalizers": null}}`
	s.want(200, "", http.MethodDelete, planeMaps+"/middle", "")
	for _, name := range []string{"middle", "gone"} {
		s.do("", http.MethodPatch, planeMaps+"/"+name, free)
	}
	s.do("", http.MethodDelete, planeMaps+"/gone", "")
	undo := s.want(200, "", http.MethodGet, planeMaps+"/middle?undo", "")
	got := string(object.AppendJSON(nil, undo.At("dependents")))
	for name, deleted := range map[string]bool{"leaf": false, "gone": true} {
		want := fmt.Sprintf(`{"apiVersion":"v1","deleted":%t,"kind":"ConfigMap","name":%q,"namespace":"default"}`,
			deleted, name)
		if !strings.Contains(got, want) || undo.At("dependents").Len() != 2 {
			t.Errorf("%s has depended on it: %s", name, object.AppendObject(nil, undo))
		}
	}
	now := s.write(planeMaps, "middle", undo)
	if uid(now) == uid(middle) || uid(now) == "" || now.At("data", "value").Str() != "one" ||
		!now.At("metadata", "finalizers").IsNull() ||
		now.At("metadata", "ownerReferences").Items()[0].At("uid").Str() != uid(root) {
		t.Errorf("it is back as %s", object.AppendObject(nil, now))
	}
	s.want(400, "", http.MethodGet, planeMaps+"/middle?undo="+undo.At("change", "resourceVersion").Str(), "")

	// Without its owner it would be collected at once.
	s.want(200, "", http.MethodDelete, planeMaps+"/middle", "")
	s.want(200, "", http.MethodDelete, planeMaps+"/root", "")
	undo = s.want(200, "", http.MethodGet, planeMaps+"/middle?undo", "")
	if now := s.write(planeMaps, "middle", undo); !now.At("metadata", "ownerReferences").IsNull() ||
		undo.At("notes").Len() == 0 {
		t.Errorf("without its owner it is %s", object.AppendObject(nil, now))
	}
}

// Each line of an object is attributed to the change that has set it.
//
// SPEC: BEY-4
func TestBlameOfLines(t *testing.T) {
	s := startPlanes(t, nil)
	created := versionOf(s.want(201, "", http.MethodPost, undoDeployments+"?fieldManager=maker", undoWeb))
	s.setImage("passing", "web", "web:9")
	back := s.setImage("release", "web", "web:1")
	label := versionOf(s.want(200, "", http.MethodPatch, undoDeployments+"/web?fieldManager=label",
		`{"metadata": {"labels": {"team": "a"}}}`))
	s.want(200, "", http.MethodPatch, undoDeployments+"/web/status?fieldManager=status",
		`{"status": {"observedGeneration": 7}}`)
	check := func(query string, want map[string]string) {
		t.Helper()
		text := s.want(200, "", http.MethodGet, undoDeployments+"/web?history=yaml"+query, "").Str()
		lines := s.want(200, "", http.MethodGet, undoDeployments+"/web?history=lines"+query, "")
		found := 0
		for _, line := range strings.Split(text, "\n") {
			value, comment, _ := strings.Cut(line, " # ")
			value = strings.TrimSpace(value)
			if revision, ok := want[value]; ok {
				found++
				if !strings.HasPrefix(comment, revision+" at ") {
					t.Errorf("%s: by %s, should be %s", value, comment, revision)
				}
			}
		}
		for _, line := range lines.At("lines").Items() {
			if revision, ok := want[strings.TrimSpace(line.At("text").Str())]; ok {
				found++
				by := lines.At("changes").Items()[line.At("change").Int()]
				if by.At("resourceVersion").Str() != revision {
					t.Errorf("%s: %s", line.At("text").Str(), object.AppendObject(nil, by))
				}
			}
		}
		if found != 2*len(want) {
			t.Errorf("%d of %d lines were found in\n%s", found, 2*len(want), text)
		}
	}
	check("", map[string]string{"replicas: 1": created, `- image: "web:1"`: back, "team: a": label})
	check("&resourceVersionMatch=Exact&resourceVersion="+created, map[string]string{`- image: "web:1"`: created})
	if text := s.want(200, "", http.MethodGet, undoDeployments+"/web?history=yaml", "").Str(); !strings.Contains(text,
		"by admin with label\n") {
		t.Errorf("nobody has set the label:\n%s", text)
	}
	s.want(400, "", http.MethodGet, undoDeployments+"/web?history=x", "")
}
