package aggregation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
)

const (
	flunders   = sample + "/namespaces/owners/flunders"
	configMaps = "/api/v1/namespaces/owners/configmaps"
)

// scenes are what happens to objects of the two servers that own each other: those whose names begin with "f" are
// Flunders, the others ConfigMaps. "b<a!" is a dependent of a that blocks its deletion, "b<a@" names another UID, and
// "b+" has a finalizer of its own. A scene ends when its last step has come true; then what is left is compared.
var scenes = []string{
	"make a f<a k f2<k; delete a Background; gone a f",
	"make f a<f f2 k<f2; delete f Background; gone f a",
	"make f f2<f; delete f Background; gone f f2",
	"make a f<a b<f f2<b; delete a Background; gone a f b f2",
	"make a f+<a!; delete a Foreground; deleting a f; let f; gone a f",
	"make f a+<f!; delete f Foreground; deleting f a; let a; gone f a",
	"make a f<a! b+<f!; delete a Foreground; deleting a f b; let b; gone a f b",
	"make a f+<a; delete a Foreground; gone a; deleting f; let f; gone f",
	"make a f<a; delete a Orphan; gone a; free f",
	"make f a<f f2<f; delete f Orphan; gone f; free a f2",
	"make f<a k<f9; gone f k",
	"make a f<a@; gone f",
	"make f a<f@; gone a",
	"make a f b<a<f f2<f<a; delete a Background; gone a; delete f Background; gone f b f2",
	"make a f<a k f2<k; kill; delete a Background; gone a; start; gone f",
	"make a f<a!; kill; delete a Foreground; deleting a; start; gone a f",
	"make a f<a; kill; delete a Orphan; deleting a; start; gone a; free f",
	"make f a<f; kill; make k<f@; start; gone k; delete f Background; gone f a",
}

// garbage notes what becomes of objects that own objects of the other server.
func (s *site) garbage() {
	s.Helper()
	if s.server.Kind == harness.Reference { // it finds new types every 30 s only, so it starts when they are served
		controlplane.Run(s, s.server, controlplane.Options{NoScheduler: true, Manager: []string{
			"--controllers=garbage-collector-controller,storage-version-migrator-controller", "--leader-elect=false", "--kube-api-qps=1000",
			"--kube-api-burst=2000"}})
	}
	s.migration()
	s.do("POST", "/api/v1/namespaces", `{"metadata":{"name":"owners"}}`, "application/json", "application/json")
	for _, scene := range scenes {
		uids := map[string]string{}
		for step := range strings.SplitSeq(scene, "; ") {
			words := strings.Fields(step)
			s.step(scene+": "+step, words[0], words[1:], uids)
		}
		s.answers = append(s.answers, scene+": "+s.left())
		for name := range uids {
			if code, _ := s.do("GET", owned(name), "", "", "application/json"); code == http.StatusOK {
				s.do("DELETE", owned(name)+"?propagationPolicy=Background", "", "application/json", "application/json")
				s.soon(scene+": end: "+name, func() bool { return s.state(name) == "gone" })
			}
		}
	}
}

// owned is the path of an object of a scene.
func owned(name string) string {
	if strings.HasPrefix(name, "f") {
		return flunders + "/" + name
	}
	return configMaps + "/" + name
}

func (s *site) step(what, verb string, names []string, uids map[string]string) {
	s.Helper()
	switch verb {
	case "make":
		for _, name := range names {
			s.create(name, uids)
		}
	case "delete":
		if code, text := s.do("DELETE", owned(names[0])+"?propagationPolicy="+names[1], "", "application/json",
			"application/json"); code != http.StatusOK {
			s.Fatalf("%s: %d %s", what, code, text)
		}
	case "let":
		if code, text := s.do("PATCH", owned(names[0]), `{"metadata":{"finalizers":null}}`, merge,
			"application/json"); code != http.StatusOK {
			s.Fatalf("%s: %d %s", what, code, text)
		}
	case "gone", "deleting", "free":
		for _, name := range names {
			s.soon(what+": "+name, func() bool { return s.state(name) == verb })
		}
	case "kill":
		s.must(s.process.Process.Kill())
		s.process.Wait()
	case "start":
		s.start()
		s.soon(what, func() bool {
			code, _ := s.do("GET", flunders, "", "", "application/json")
			return code == http.StatusOK
		})
	default:
		s.Fatalf("%q is no step", what)
	}
}

// create creates an object of a scene.
func (s *site) create(object string, uids map[string]string) {
	s.Helper()
	parts := strings.Split(object, "<")
	name, held := strings.CutSuffix(parts[0], "+")
	var refs []map[string]any
	for _, owner := range parts[1:] {
		owner, other := strings.CutSuffix(owner, "@")
		owner, blocks := strings.CutSuffix(owner, "!")
		ref := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uids[owner],
			"blockOwnerDeletion": blocks}
		if strings.HasPrefix(owner, "f") {
			ref["apiVersion"], ref["kind"] = "wardle.example.com/v1alpha1", "Flunder"
		}
		if other || uids[owner] == "" {
			ref["uid"] = "00000000-0000-0000-0000-000000000000"
		}
		refs = append(refs, ref)
	}
	meta := map[string]any{"name": name, "ownerReferences": refs}
	if held {
		meta["finalizers"] = []string{"wardle.example.com/held"}
	}
	body := map[string]any{"metadata": meta}
	if strings.HasPrefix(name, "f") {
		body["apiVersion"], body["kind"] = "wardle.example.com/v1alpha1", "Flunder"
		body["spec"] = map[string]any{"reference": "x"}
	}
	text, err := json.Marshal(body)
	s.must(err)
	path := owned(name)
	code, made := s.do("POST", path[:strings.LastIndex(path, "/")], string(text), "application/json", "application/json")
	if code != http.StatusCreated {
		s.Fatalf("%s: %d %s", object, code, made)
	}
	var obj struct{ Metadata struct{ UID string } }
	s.must(json.Unmarshal([]byte(made), &obj))
	uids[name] = obj.Metadata.UID
}

// state is "gone", "deleting", "free" of owners, or something else.
func (s *site) state(name string) string {
	code, text := s.do("GET", owned(name), "", "", "application/json")
	var obj struct {
		Metadata struct {
			DeletionTimestamp string
			OwnerReferences   []any
		}
	}
	switch {
	case code == http.StatusNotFound:
		return "gone"
	case code != http.StatusOK || json.Unmarshal([]byte(text), &obj) != nil:
		return text
	case obj.Metadata.DeletionTimestamp != "":
		return "deleting"
	case len(obj.Metadata.OwnerReferences) == 0:
		return "free"
	}
	return text
}

// soon waits until a condition holds.
func (s *site) soon(what string, holds func() bool) {
	s.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("not seen: %s; left: %s", what, s.left())
		}
	}
}

// left are the objects of a scene that are left: their names, owners, finalizers, and whether they are being deleted.
func (s *site) left() string {
	s.Helper()
	time.Sleep(200 * time.Millisecond) // what should stay has time to go
	var all []string
	for _, path := range []string{configMaps, flunders} {
		_, text := s.do("GET", path, "", "", "application/json")
		var list struct {
			Items []struct {
				Metadata struct {
					Name, DeletionTimestamp string
					Finalizers              []string
					OwnerReferences         []struct{ Name string }
				}
			}
		}
		s.must(json.Unmarshal([]byte(text), &list))
		for _, item := range list.Items {
			m := item.Metadata
			if m.Name == "kube-root-ca.crt" {
				continue
			}
			all = append(all, fmt.Sprint(m.Name, m.OwnerReferences, m.Finalizers, m.DeletionTimestamp != ""))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
