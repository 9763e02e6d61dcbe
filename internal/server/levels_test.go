package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/internal/execution"
	"plinth/internal/fairness"
)

const (
	schemasPath = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
	levelsPath  = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
	hooksPath   = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	mapsPath    = "/api/v1/namespaces/default/configmaps"
	leasesPath  = "/apis/coordination.k8s.io/v1/namespaces/"
	ofFlood     = `{"metadata":{"generateName":"m","labels":{"of":"flood"}}}`
)

// held is a server with a webhook that holds creates of ConfigMaps and namespaces of a flood until the test says so.
type held struct {
	*Server
	t     *testing.T
	hook  *holding
	flood sync.WaitGroup
	mu    sync.Mutex
	codes map[int]int // how many requests of floods got which status
}

func holdCreates(t *testing.T, edit func(*Config)) *held {
	h := &held{t: t, hook: &holding{make(chan struct{}), make(chan struct{})}, codes: map[int]int{}}
	h.Server = tenantsWith(t, t.TempDir(), func(c *Config) {
		c.PriorityAndFairness = true
		c.AuthorizationModes = []string{"Node", "RBAC"}
		c.Webhooks = func(string) http.RoundTripper { return h.hook }
		edit(c)
	})
	const account = `{"metadata":{"name":"tenants"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",
		"name":"cluster-admin"},"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"tenants"}]}`
	h.create(rbacPath+"/clusterrolebindings", editors)
	h.create(rbacPath+"/clusterrolebindings", account)
	h.create(leasesPath+"kube-node-lease/leases", `{"metadata":{"name":"n1"}}`)
	h.create(leasesPath+"kube-system/leases", `{"metadata":{"name":"kube-scheduler"}}`)
	h.create("/api/v1/nodes", `{"metadata":{"name":"n1"}}`)
	h.create(hooksPath, strings.NewReplacer(`["configmaps"]`, `["configmaps","namespaces"]`, `"rules":`,
		`"objectSelector":{"matchLabels":{"of":"flood"}},"rules":`).Replace(slowWebhook))
	go func() {
		for range h.hook.arrived {
		}
	}()
	t.Cleanup(func() { close(h.hook.arrived) })
	return h
}

// by sends a request of a user, who is a member of groups.
func (h *held) by(user, method, path, body string, groups ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if user != "" {
		r.Header.Set("Authorization", "Bearer sesame")
		r.Header.Set("Impersonate-User", user)
		r.Header["Impersonate-Group"] = append(groups, access.Authenticated)
	}
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	w := httptest.NewRecorder()
	h.http.Handler.ServeHTTP(w, r)
	return w
}

func (h *held) create(path, body string) { h.must(http.StatusCreated, "POST", path, body) }

// must sends a request of the administrator.
func (h *held) must(code int, method, path, body string) *httptest.ResponseRecorder {
	h.t.Helper()
	w := h.as("sesame", method, path, body)
	if w.Code != code {
		h.t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w
}

// patch changes an object by a merge patch.
func (h *held) patch(code int, path, patch string) {
	h.t.Helper()
	r := httptest.NewRequest("PATCH", path, strings.NewReader(patch))
	r.Header.Set("Authorization", "Bearer sesame")
	r.Header.Set("Content-Type", "application/merge-patch+json")
	w := httptest.NewRecorder()
	h.http.Handler.ServeHTTP(w, r)
	if w.Code != code {
		h.t.Fatalf("PATCH %s: %d %s", path, w.Code, w.Body)
	}
}

// send sends n requests at one time, which the webhook holds.
func (h *held) send(n int, request func(i int) *httptest.ResponseRecorder) {
	for i := range n {
		h.flood.Go(func() {
			code := request(i).Code
			h.mu.Lock()
			defer h.mu.Unlock()
			h.codes[code]++
		})
	}
}

// release ends the floods, and demands that their requests were served or refused for want of seats.
func (h *held) release() {
	h.t.Helper()
	close(h.hook.release)
	h.flood.Wait()
	served, others := 0, 0
	for code, n := range h.codes {
		switch code {
		case http.StatusCreated:
			served += n
		case http.StatusTooManyRequests:
		default:
			others += n
		}
	}
	if served == 0 || others > 0 {
		h.t.Errorf("the flood was answered %v", h.codes)
	}
	if f := h.plane.Fairness.Places(); f.Held != 0 || f.Waiting != 0 {
		h.t.Errorf("at the end %d places are held, and %d requests wait", f.Held, f.Waiting)
	}
}

// figures are what a level has: requests that execute, that wait, and that were refused.
type figures struct{ executing, waiting, refused int }

// of returns the figures of a level.
func (h *held) of(level string) (f figures) {
	for _, one := range h.plane.Fairness.Figures() {
		if len(one.Labels) == 0 || one.Labels[0] != level {
			continue
		}
		switch one.Name {
		case "current_executing_requests":
			f.executing += int(one.Value)
		case "current_inqueue_requests":
			f.waiting += int(one.Value)
		case "rejected_requests_total":
			f.refused += int(one.Value)
		}
	}
	return f
}

// until waits until a level is in a state.
func (h *held) until(level string, state func(figures) bool) {
	for !state(h.of(level)) {
		if h.t.Context().Err() != nil {
			return
		}
	}
}

// metadata is that of an object.
func (h *held) metadata(path string) (m struct{ UID, ResourceVersion string }) {
	h.t.Helper()
	obj := struct{ Metadata any }{&m}
	if err := json.Unmarshal(h.must(http.StatusOK, "GET", path, "").Body.Bytes(), &obj); err != nil {
		h.t.Fatal(err)
	}
	return m
}

// healthy demands that health, leases, and an administrator are served, each by its level.
func (h *held) healthy(when string) {
	h.t.Helper()
	const node, scheduler = leasesPath + "kube-node-lease/leases/n1", leasesPath + "kube-system/leases/kube-scheduler"
	for _, one := range []struct{ user, group, method, path, level string }{
		{"", "", "GET", "/readyz", "exempt"},
		{"", "", "GET", "/livez", "exempt"},
		{"system:node:n1", "system:nodes", "PUT", node, "node-high"},
		{"system:kube-scheduler", "", "PUT", scheduler, "leader-election"},
		{"root", access.Masters, "GET", mapsPath, "exempt"},
	} {
		body := ""
		if one.method == "PUT" {
			body = fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q},"spec":{"leaseDurationSeconds":15}}`,
				path.Base(one.path), h.metadata(one.path).ResourceVersion)
		}
		w := h.by(one.user, one.method, one.path, body, strings.Fields(one.group)...)
		level := w.Header().Get("X-Kubernetes-Pf-Prioritylevel-Uid")
		if w.Code != http.StatusOK || level != h.metadata(levelsPath+"/"+one.level).UID {
			h.t.Errorf("%s: %s %s: %d %s, of the level %s", when, one.method, one.path, w.Code, w.Body, level)
		}
	}
}

// Health, the Leases of nodes and leaders, and administrators are served while requests of 10,000 users, of 10,000
// namespaces, and 2,000 of administrators themselves are under way. The floods fill their levels, and are refused
// beyond that.
//
// SPEC: AUTH-6
func TestFloods(t *testing.T) {
	for _, flood := range []struct {
		what, level string
		n           int
		bounded     bool
		send        func(h *held, i int) *httptest.ResponseRecorder
	}{
		{"users", "global-default", 10_000, true, func(h *held, i int) *httptest.ResponseRecorder {
			return h.by(fmt.Sprint("user", i), "POST", mapsPath, ofFlood, "tenants")
		}},
		{"namespaces", "workload-high", 10_000, true, func(h *held, i int) *httptest.ResponseRecorder {
			return h.by("system:kube-controller-manager", "PATCH",
				fmt.Sprintf("/api/v1/namespaces/n%d?fieldManager=flood", i),
				fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n%d",
					"labels":{"of":"flood"}}}`, i), "tenants")
		}},
		{"administrators", "exempt", 2000, false, func(h *held, i int) *httptest.ResponseRecorder {
			return h.by(fmt.Sprint("root", i), "POST", mapsPath, ofFlood, access.Masters)
		}},
	} {
		t.Run(flood.what, func(t *testing.T) {
			h := holdCreates(t, func(*Config) {})
			h.send(flood.n, func(i int) *httptest.ResponseRecorder { return flood.send(h, i) })
			h.until(flood.level, func(f figures) bool { return f.executing+f.waiting+f.refused >= flood.n })
			if f := h.of(flood.level); (f.waiting+f.refused > 0) != flood.bounded || f.executing == 0 {
				t.Errorf("the level has %+v", f)
			}
			h.healthy("beside " + flood.what)
			h.release()
		})
	}
}

// crowd makes the level crowd, of which jane and bob are, and fills its seats with creates of jane; as many wait.
func (h *held) crowd() {
	h.create(levelsPath, crowd)
	h.create(schemasPath, crowded)
	h.send(2*openSeats, func(int) *httptest.ResponseRecorder {
		return h.as("jane", "POST", mapsPath, ofFlood)
	})
	h.until("crowd", func(f figures) bool { return f.executing == openSeats && f.waiting == openSeats })
}

func fewSeats(c *Config) { c.MaxRequestsInflight, c.MaxMutatingInflight = 50, 50 }

// A level that loses its shares while its seats are full finishes what executes, and begins nothing more; all else is
// served. When it has shares again, what waits is served.
//
// SPEC: AUTH-6
func TestLevelWithoutShares(t *testing.T) {
	h := holdCreates(t, fewSeats)
	h.crowd()
	const level = levelsPath + "/crowd"
	h.patch(http.StatusOK, level, `{"spec":{"limited":{"nominalConcurrencyShares":0}}}`)
	h.healthy("beside a level that has lost its shares")
	for range openSeats {
		h.hook.release <- struct{}{}
	}
	h.until("crowd", func(f figures) bool { return f.executing == 0 })
	h.send(1, func(int) *httptest.ResponseRecorder {
		return h.as("bob", "POST", mapsPath, ofFlood)
	})
	h.until("crowd", func(f figures) bool { return f.waiting == openSeats+1 })
	h.healthy("beside a level without seats")
	if f := h.of("crowd"); f.executing != 0 {
		t.Errorf("a level without seats has %+v", f)
	}
	h.patch(http.StatusOK, level, `{"spec":{"limited":{"nominalConcurrencyShares":100}}}`)
	h.healthy("when it has shares again") // the first request takes the new configuration in
	h.release()
	if h.codes[http.StatusCreated] != 2*openSeats+1 {
		t.Errorf("the requests of the level were answered %v", h.codes)
	}
}

// A level that is deleted while requests wait in its queues serves them, and new requests get what the next FlowSchema
// says. A level of that name that is created meanwhile goes on with them; without them it is gone.
//
// SPEC: AUTH-6
func TestDeletedLevel(t *testing.T) {
	for _, again := range []bool{false, true} {
		h := holdCreates(t, fewSeats)
		h.crowd()
		h.must(http.StatusOK, "DELETE", levelsPath+"/crowd", "")
		levelOf := func(want string) {
			t.Helper()
			w := h.as("bob", "GET", mapsPath, "")
			uid := h.metadata(levelsPath + "/" + want).UID
			if got := w.Header().Get("X-Kubernetes-Pf-Prioritylevel-Uid"); w.Code != http.StatusOK || got != uid {
				t.Errorf("bob got %d from the level %s, not from %s: %s", w.Code, got, uid, w.Body)
			}
		}
		levelOf("global-default")
		h.healthy("beside a level that was deleted")
		if f := h.of("crowd"); f.executing != openSeats || f.waiting != openSeats {
			t.Errorf("the level that was deleted has %+v", f)
		}
		if again {
			h.create(levelsPath, crowd)
			levelOf("crowd")
			if f := h.of("crowd"); f.executing != openSeats || f.waiting != openSeats {
				t.Errorf("the level that was created again has %+v", f)
			}
		}
		h.release()
		if h.codes[http.StatusCreated] != 2*openSeats {
			t.Errorf("the requests of the level were answered %v", h.codes)
		}
		h.must(http.StatusOK, "DELETE", schemasPath+"/crowd", "")
		h.healthy("at the end")
		page := h.must(http.StatusOK, "GET", "/debug/api_priority_and_fairness/dump_priority_levels", "").Body.String()
		if strings.Contains(page, "crowd") != again {
			t.Errorf("at the end the levels are\n%s", page)
		}
	}
}

// What would make the configuration unusable is refused, and what is missing in it is passed over: without the
// mandatory objects, and with FlowSchemas of levels that do not exist, requests are served as if these were not there,
// and the server writes the mandatory ones again.
//
// SPEC: AUTH-6
func TestMisconfiguredLevels(t *testing.T) {
	h := holdCreates(t, fewSeats)
	queuing := func(queuing string) string {
		return strings.Replace(crowd, `"queues":64,"handSize":4,"queueLengthLimit":50`, queuing, 1)
	}
	for _, body := range []string{queuing(`"queues":8,"handSize":9,"queueLengthLimit":50`),
		queuing(`"queues":1000000,"handSize":4,"queueLengthLimit":1`),
		queuing(`"queues":512,"handSize":8,"queueLengthLimit":50`), queuing(`"queues":8,"handSize":2,"queueLengthLimit":-1`),
		strings.Replace(crowd, `Shares":100`, `Shares":-1`, 1), strings.Replace(crowd, `Percent":0`, `Percent":-1`, 1)} {
		h.must(http.StatusUnprocessableEntity, "POST", levelsPath, body)
	}
	first := strings.Replace(crowded, `Precedence":50`, `Precedence":1`, 1)
	h.must(http.StatusUnprocessableEntity, "POST", schemasPath, first)
	for _, name := range []string{"exempt", "catch-all"} {
		h.patch(http.StatusUnprocessableEntity, schemasPath+"/"+name, `{"spec":{"matchingPrecedence":7}}`)
	}
	h.patch(http.StatusUnprocessableEntity, levelsPath+"/catch-all", `{"spec":{"limited":{"nominalConcurrencyShares":0}}}`)
	h.patch(http.StatusUnprocessableEntity, levelsPath+"/exempt", `{"spec":{"type":"Limited"}}`)

	h.create(schemasPath, crowded) // its level does not exist
	all := strings.NewReplacer(`"name":"crowd"`, `"name":"all"`, `{"kind":"User","user":{"name":"jane"}}`,
		`{"kind":"Group","group":{"name":"*"}}`, `Precedence":50`, `Precedence":2`)
	h.create(schemasPath, all.Replace(crowded)) // as does this one's, for everybody
	h.healthy("beside FlowSchemas without a level")
	for _, name := range []string{"exempt", "catch-all"} {
		uids := h.metadata(schemasPath+"/"+name).UID + h.metadata(levelsPath+"/"+name).UID
		h.must(http.StatusOK, "DELETE", schemasPath+"/"+name, "")
		h.must(http.StatusOK, "DELETE", levelsPath+"/"+name, "")
		for _, user := range []string{"somebody", "root"} {
			w := h.by(user, "GET", mapsPath, "", "tenants", access.Masters)
			if w.Code != http.StatusOK {
				t.Errorf("without %s, %s got %d %s", name, user, w.Code, w.Body)
			}
		}
		if err := h.plane.Objects.Ensure(t.Context(), h.plane.Objects.FlowControl()); err != nil {
			t.Fatal(err)
		}
		if h.metadata(schemasPath+"/"+name).UID+h.metadata(levelsPath+"/"+name).UID == uids {
			t.Errorf("%s was not deleted", name)
		}
		h.healthy("after the deletion of " + name)
	}
	h.send(1, func(int) *httptest.ResponseRecorder {
		return h.as("jane", "POST", mapsPath, ofFlood)
	})
	h.until("global-default", func(f figures) bool { return f.executing == 1 })
	h.release()
}

// While requests of a level hold all places to execute, and more of them wait for one, requests of other levels
// execute at once: those of the exempt level need none, and each other level has one of its own.
//
// SPEC: AUTH-8
func TestAllPlacesTaken(t *testing.T) {
	h := holdCreates(t, func(c *Config) { c.places = 3 })
	var tickets [6]fairness.Ticket
	var places [6]execution.Place
	var waiting sync.WaitGroup
	for i := range places {
		asked := &access.Attributes{IsResource: true, Verb: "list", Version: "v1", Resource: "configmaps",
			Path: "/api/v1/configmaps", User: access.User{Name: fmt.Sprint("user", i), Groups: []string{access.Authenticated}}}
		class := h.plane.Fairness.Match(asked)
		tickets[i].Work.Seats = 1
		if class.Acquire(t.Context(), &tickets[i], asked, time.Now().Add(time.Hour)) != 0 {
			t.Fatal("no seat is free")
		}
		enter := func() {
			if err := class.Enter(t.Context(), &tickets[i], &places[i]); err != nil {
				t.Error(err)
			}
		}
		// Each on a goroutine of its own, as requests are: this one has requests that need to hold none.
		waiting.Go(enter)
		for f := h.plane.Fairness.Places(); f.Held+f.Waiting <= i; f = h.plane.Fairness.Places() {
		}
	}
	for h.plane.Fairness.Places().Waiting < 3 {
	}
	h.healthy("beside requests that hold all places")
	if f := h.plane.Fairness.Places(); f.Held != 3 || f.Waiting != 3 {
		t.Errorf("%+v", f)
	}
	for i := range 3 {
		places[i].Exit()
	}
	waiting.Wait()
	for i := range places {
		places[i].Exit()
		tickets[i].Release(false)
	}
}
