package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/object"
)

const (
	allMaps = "/clusters/*/api/v1/configmaps"
	ofPlane = "kcp.io/cluster"
)

// acrossServer serves planes by HTTP; the administrator is who asks.
func acrossServer(t *testing.T) (*planesServer, *httptest.Server) {
	s := startPlanes(t, nil)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handler().ServeHTTP(w, r.WithContext(auth.As(r.Context(), &access.Identity{User: access.User{Name: "admin",
			Groups: []string{access.Masters, "system:authenticated"}}})))
	}))
	t.Cleanup(front.Close)
	return s, front
}

// keyOf names an object among those of all planes.
func keyOf(meta object.Value) string {
	return meta.At("annotations", ofPlane).Str() + "/" + meta.At("namespace").Str() + "/" + meta.At("name").Str()
}

// A list has what all planes have, with selectors and in pages; nothing else is answered.
//
// SPEC: BEY-9
func TestAcross(t *testing.T) {
	s := startPlanes(t, nil)
	for _, plane := range []string{"a", "b", "c"} {
		s.create(plane, "")
		s.want(201, plane, http.MethodPost, planeMaps, mapOf("own", plane))
	}
	s.want(201, "b", http.MethodPost, planeMaps,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: marked, labels: {x: one}, annotations: {p: q}}}`)
	names := func(query string) (all []string, list object.Value) {
		t.Helper()
		list = s.want(200, "", http.MethodGet, "/clusters/*"+query, "")
		for _, item := range list.At("items").Items() {
			all = append(all, keyOf(item.At("metadata")))
		}
		return all, list
	}
	for query, want := range map[string]string{
		planeMaps + "?fieldSelector=metadata.name%3Down":               "a/default/own b/default/own c/default/own",
		"/api/v1/configmaps?fieldSelector=metadata.name%3Down":         "a/default/own b/default/own c/default/own",
		"/api/v1/configmaps?labelSelector=x%3Done":                     "b/default/marked",
		"/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault":     "a//default b//default c//default",
		"/api/v1/namespaces/none/configmaps":                           "",
		"/apis/apps/v1/deployments":                                    "",
		"/apis/autoscaling/v1/horizontalpodautoscalers":                "",
		planeMaps + "?limit=2&fieldSelector=metadata.name%3Down":       "a/default/own b/default/own",
		planeMaps + "?resourceVersion=0&labelSelector=x%21%3Done,none": "",
	} {
		if all, _ := names(query); strings.Join(all, " ") != want {
			t.Errorf("%s: %v, want %s", query, all, want)
		}
	}
	all, whole := names("/api/v1/configmaps")
	var paged []string
	for token := ""; ; {
		page, list := names("/api/v1/configmaps?limit=2&continue=" + token)
		paged = append(paged, page...)
		if list.At("metadata", "resourceVersion").Str() != whole.At("metadata", "resourceVersion").Str() {
			t.Error("the pages are of another moment")
		}
		if token = list.At("metadata", "continue").Str(); token == "" {
			break
		}
	}
	if strings.Join(all, " ") != strings.Join(paged, " ") || len(all) < 4 {
		t.Errorf("in pages there are %v, and at once %v", paged, all)
	}
	for _, item := range whole.At("items").Items() {
		meta := item.At("metadata")
		own := s.want(200, meta.At("annotations", ofPlane).Str(), http.MethodGet,
			"/api/v1/namespaces/"+meta.At("namespace").Str()+"/configmaps/"+meta.At("name").Str(), "")
		if !object.Equal(own.At("metadata", "resourceVersion"), meta.At("resourceVersion")) ||
			!object.Equal(own.At("data"), item.At("data")) ||
			own.At("metadata", "annotations", "p").Str() != meta.At("annotations", "p").Str() {
			t.Errorf("%s of all planes is not that of its plane", object.AppendObject(nil, item))
		}
	}
	for _, c := range []struct {
		code         int
		method, path string
	}{
		{404, http.MethodGet, "/api"}, {404, http.MethodGet, "/openapi/v2"},
		{404, http.MethodGet, "/apis/example.org/v1/things"},
		{422, http.MethodGet, "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"},
		{404, http.MethodGet, planesPath}, {405, http.MethodGet, planeMaps + "/own"}, {405, http.MethodPost, planeMaps},
		{405, http.MethodDelete, planeMaps + "/own"}, {405, http.MethodDelete, planeMaps},
		{405, http.MethodPatch, planeMaps + "/own"}, {405, http.MethodPut, planeMaps + "/own"},
		{405, http.MethodGet, "/api/v1/namespaces/default/pods/a/log"},
		{404, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews"},
	} {
		body := ""
		if c.method == http.MethodPost || c.method == http.MethodPut || c.method == http.MethodPatch {
			body = mapOf("own", "1")
		}
		if code, answer := s.do("*", c.method, c.path, body); code != c.code {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, code, c.code, object.AppendObject(nil, answer))
		}
	}
}

// Who reads all planes needs the verb access on all of them; rights on one, or to read the first plane, are not enough.
//
// SPEC: BEY-9
func TestAcrossRights(t *testing.T) {
	s := startPlanes(t, nil)
	s.create("a", "")
	grant := func(user, rule string) {
		s.want(201, "", http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", fmt.Sprintf(
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s}, rules: [%s]}", user, rule))
		s.want(201, "", http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", fmt.Sprintf(
			"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %s}, "+
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}, "+
				"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]}", user))
	}
	grant("all", `{apiGroups: [plinth], resources: [planes], verbs: [access]}`)
	grant("one", `{apiGroups: [plinth], resources: [planes], resourceNames: [a], verbs: [access]}`)
	grant("star", `{apiGroups: [plinth], resources: [planes], resourceNames: ["*"], verbs: [access]}`)
	grant("reader", `{apiGroups: [""], resources: ["*"], verbs: [list, watch]}`)
	for user, want := range map[string]int{"all": 200, "one": 403, "star": 403, "reader": 403, "": 403} {
		for _, query := range []string{"", "?watch=1&timeoutSeconds=1&resourceVersion=999999"} {
			r := httptest.NewRequest(http.MethodGet, allMaps+query, nil)
			id := &access.Identity{User: access.User{Name: user, Groups: []string{access.Authenticated}}}
			if user == "" {
				id.User = access.User{Name: access.Anonymous, Groups: []string{access.Unauthenticated}}
			}
			ctx, cancel := context.WithCancel(auth.As(r.Context(), id))
			w := httptest.NewRecorder()
			if query != "" && want == 200 {
				cancel() // it has begun, and is over
			}
			s.handler().ServeHTTP(w, r.WithContext(ctx))
			cancel()
			if w.Code != want {
				t.Errorf("%q%s: %d %s", user, query, w.Code, w.Body)
			}
			// Who may not read learns nothing of the types that planes have.
			none := httptest.NewRequest(http.MethodGet, "/clusters/*/apis/example.org/v1/nothings"+query, nil)
			w, hidden := httptest.NewRecorder(), map[int]int{200: 404, 403: 403}[want]
			s.handler().ServeHTTP(w, none.WithContext(auth.As(none.Context(), id)))
			if w.Code != hidden {
				t.Errorf("%q asks for a type that is not there: %d, want %d: %s", user, w.Code, hidden, w.Body)
			}
		}
	}
}

// acrossEvent is an event of a watch.
type acrossEvent struct {
	Type   string
	Object struct {
		Metadata struct {
			Name, Namespace, ResourceVersion string
			Annotations                      map[string]string
		}
		Data map[string]string
		Code int
	}
}

func (e *acrossEvent) key() string {
	m := &e.Object.Metadata
	return m.Annotations[ofPlane] + "/" + m.Namespace + "/" + m.Name
}

// What a watch has told is what a list has, after writers in twenty planes that begin and end have written: no change
// is missing, and none comes twice.
//
// SPEC: BEY-9
func TestAcrossFollows(t *testing.T) {
	s, front := acrossServer(t)
	first := s.want(200, "", http.MethodGet, "/api/v1/configmaps", "").At("metadata", "resourceVersion").Str()
	s.create("stays", "")
	s.want(201, "stays", http.MethodPost, planeMaps, mapOf("kept", "1"))
	list := s.want(200, "", http.MethodGet, allMaps, "")
	held := map[string]string{} // the resourceVersions
	for _, item := range list.At("items").Items() {
		held[keyOf(item.At("metadata"))] = item.At("metadata", "resourceVersion").Str()
	}
	events := watchAcross(t, front, list.At("metadata", "resourceVersion").Str())

	var writers sync.WaitGroup
	var lasting []string
	for i := range 20 {
		if i%2 == 1 {
			lasting = append(lasting, fmt.Sprintf("p%d", i))
		}
		writers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			plane := fmt.Sprintf("p%d", i)
			for life := range 2 {
				spec := ""
				if i%4 < 2 {
					spec = "from: {name: stays}"
				}
				if code, _ := s.do("", http.MethodPost, planesPath, planeOf(plane, spec)); code != 201 {
					t.Errorf("create %s: %d", plane, code)
					return
				}
				for n := range 30 {
					name := fmt.Sprintf("m%d", random.IntN(4))
					switch random.IntN(4) {
					case 0:
						s.do(plane, http.MethodDelete, planeMaps+"/"+name, "")
					case 1:
						s.do(plane, http.MethodPatch, planeMaps+"/"+name, fmt.Sprintf(`{"data": {"n": "%d"}}`, n))
					default:
						s.do(plane, http.MethodPost, planeMaps, mapOf(name, fmt.Sprint(n)))
					}
				}
				if life == 0 || i%2 == 0 {
					if code, _ := s.do("", http.MethodDelete, planesPath+"/"+plane, ""); code != 200 {
						t.Errorf("delete %s: %d", plane, code)
					}
				}
			}
		})
	}
	written := make(chan struct{})
	go func() {
		writers.Wait()
		s.do("stays", http.MethodPost, planeMaps, mapOf("last", "1"))
		close(written)
	}()
	type moment struct {
		place string // what the last event has shown
		held  map[string]string
	}
	var moments []moment
	newest := 0
	for {
		e := events()
		k, revision := e.key(), e.Object.Metadata.ResourceVersion
		before, has := held[k]
		shows, err := strconv.Atoi(revision)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Type == "BOOKMARK":
			if shows < newest {
				t.Fatalf("a bookmark has %d, an event before it %d", shows, newest)
			}
			moments = append(moments, moment{revision, maps.Clone(held)})
			continue
		case e.Type == "ERROR", (e.Type == "ADDED") == has, before == revision && e.Type != "DELETED":
			t.Fatalf("%s of %s at %s, and %q was held", e.Type, k, revision, before)
		case e.Type == "DELETED":
			delete(held, k)
		default:
			held[k] = revision
		}
		newest = max(newest, shows)
		moments = append(moments, moment{revision, maps.Clone(held)})
		if k == "stays/default/last" {
			break
		}
	}
	<-written
	// What each plane says itself. What its controllers write meanwhile may come later.
	now := 0
	for _, plane := range append([]string{"stays"}, lasting...) {
		for _, item := range s.want(200, plane, http.MethodGet, planeMaps, "").At("items").Items() {
			now++
			meta := item.At("metadata")
			k, revision := plane+"/default/"+meta.At("name").Str(), meta.At("resourceVersion").Str()
			if before, has := held[k]; !has || before != revision && meta.At("name").Str() != "kube-root-ca.crt" {
				t.Errorf("%s has the revision %s, and %q was watched", k, revision, before)
			}
		}
	}
	watched := 0
	for k := range held {
		if strings.Contains(k, "/default/") {
			watched++
		}
	}
	all := s.want(200, "", http.MethodGet, "/clusters/*"+planeMaps, "").At("items").Len()
	if watched != now || all != now {
		t.Errorf("%d objects were watched, the planes have %d, and all together %d", watched, now, all)
	}
	// A client that is cut off at any event, and goes on from what that shows, knows the same in the end.
	for i := 0; i < len(moments); i += 1 + len(moments)/60 {
		m := moments[i]
		next := watchAcross(t, front, m.place)
		for {
			if m.held["stays/default/last"] != "" {
				break
			}
			switch e := next(); e.Type {
			case "BOOKMARK":
			case "DELETED":
				delete(m.held, e.key())
			default:
				m.held[e.key()] = e.Object.Metadata.ResourceVersion
			}
		}
		maps.DeleteFunc(m.held, notOfDefault)
		if want := maps.Clone(held); !maps.Equal(m.held, deleted(want)) {
			t.Fatalf("who goes on from event %d of %d, at %s, knows %v, should %v", i, len(moments), m.place, m.held, want)
		}
	}
	// So does a watch from before the first list.
	all1 := map[string]string{}
	for next := watchAcross(t, front, first); all1["stays/default/last"] == ""; {
		switch e := next(); e.Type {
		case "BOOKMARK":
		case "DELETED":
			delete(all1, e.key())
		default:
			all1[e.key()] = e.Object.Metadata.ResourceVersion
		}
	}
	if all1 = deleted(all1); !maps.Equal(all1, deleted(maps.Clone(held))) {
		t.Errorf("a watch from before the first list knows %v, should %v", all1, held)
	}
}

// notOfDefault says whether a key is that of an object that controllers write.
func notOfDefault(k, _ string) bool {
	return !strings.Contains(k, "/default/") || strings.HasSuffix(k, "/kube-root-ca.crt")
}

func deleted(of map[string]string) map[string]string {
	maps.DeleteFunc(of, notOfDefault)
	return of
}

// watchAcross watches all planes; the function waits for the next event.
func watchAcross(t *testing.T, front *httptest.Server, resourceVersion string) func() *acrossEvent {
	t.Helper()
	return watchPath(t, front, allMaps, resourceVersion)
}

func watchPath(t *testing.T, front *httptest.Server, path, resourceVersion string) func() *acrossEvent {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+path+
		"?watch=1&allowWatchBookmarks=true&resourceVersion="+resourceVersion, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	events := bufio.NewScanner(answer.Body)
	events.Buffer(nil, 1<<20)
	return func() *acrossEvent {
		t.Helper()
		if !events.Scan() {
			t.Fatalf("the watch has ended: %v", events.Err())
		}
		e := &acrossEvent{}
		if err := json.Unmarshal(events.Bytes(), e); err != nil || e.Type == "ERROR" {
			t.Fatalf("%v: %s", err, events.Bytes())
		}
		return e
	}
}

// Behind the objects with which a plane begins there is a bookmark at once: they show old resourceVersions.
//
// SPEC: BEY-9
func TestAcrossBookmark(t *testing.T) {
	s, front := acrossServer(t)
	s.create("a", "")
	list := s.want(200, "", http.MethodGet, allMaps, "")
	next := watchAcross(t, front, list.At("metadata", "resourceVersion").Str())
	s.create("b", "from: {name: a}")
	for seen := 0; ; seen++ {
		e := next()
		if e.Type != "BOOKMARK" {
			continue
		}
		plane, _ := s.do("", http.MethodGet, planesPath+"/b", "")
		if revision, err := strconv.Atoi(e.Object.Metadata.ResourceVersion); plane != 200 || seen == 0 || err != nil ||
			revision <= maxRevision(t, list) {
			t.Errorf("after %d events there is the bookmark %s", seen, e.Object.Metadata.ResourceVersion)
		}
		return
	}
}

func maxRevision(t *testing.T, list object.Value) int {
	t.Helper()
	n, err := strconv.Atoi(list.At("metadata", "resourceVersion").Str())
	if err != nil {
		t.Fatal(err)
	}
	return n
}
