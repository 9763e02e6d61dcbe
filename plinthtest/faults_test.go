package plinthtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Each effect, as a client sees it, and whether the write took place.
func TestFaults(t *testing.T) {
	Bubble(t, func(t *testing.T, p *Plane) {
		c := newClient(t, p)
		c.do(201, "POST", configMaps, configMap("a", "n", "1"))
		status := func(text string) (reason string) {
			var s struct{ Reason string }
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatal(err)
			}
			return s.Reason
		}
		value := func() string { return between(c.do(200, "GET", configMaps+"/a", ""), `"n":"`, `"`) }
		patch := `{"data": {"n": "2"}}`

		rule := p.Fault(On{Verb: "patch", Resource: "configmaps", Nth: 2}, Conflict)
		c.do(200, "PATCH", configMaps+"/a", `{"data": {"n": "0"}}`)
		if got := status(c.do(409, "PATCH", configMaps+"/a", patch)); got != "Conflict" || value() != "0" {
			t.Errorf("Conflict: %s, and %s", got, value())
		}
		c.do(200, "PATCH", configMaps+"/a", `{"data": {"n": "1"}}`)
		if rule.Hits() != 1 {
			t.Errorf("the rule was hit %d times", rule.Hits())
		}
		rule.Remove()

		rule = p.Fault(On{Verb: "write", Namespace: "default", Name: "a"}, CommitThenTimeout)
		if got := status(c.do(504, "PATCH", configMaps+"/a", patch)); got != "Timeout" || value() != "2" {
			t.Errorf("CommitThenTimeout: %s, and %s", got, value())
		}
		c.do(201, "POST", configMaps, configMap("b")) // of another name
		if got := status(c.do(404, "PATCH", "/api/v1/namespaces/default/secrets/a", patch)); got != "NotFound" {
			t.Errorf("CommitThenTimeout of a write that fails: %s", got)
		}
		rule.Remove()

		rule = p.Fault(On{User: "test"}, TooManyRequests, Latency(time.Minute))
		began := time.Now()
		if got := status(c.do(429, "GET", configMaps, "")); got != "TooManyRequests" || time.Since(began) != time.Minute {
			t.Errorf("TooManyRequests: %s after %s", got, time.Since(began))
		}
		rule.Remove()

		rule = p.Fault(On{Verb: "list"}, Status(503, "ServiceUnavailable", "out of order"))
		if text := c.do(503, "GET", configMaps, ""); status(text) != "ServiceUnavailable" ||
			!strings.Contains(text, "out of order") {
			t.Errorf("Status: %s", text)
		}
		driver := &client{t, p.Host(), p.Driver(), "test/1"}
		before := len(p.Requests())
		driver.do(200, "GET", configMaps, "")
		if n := len(p.Requests()); n != before || rule.Hits() != 1 {
			t.Errorf("the driver's requests are recorded, or faulty: %d, %d", n-before, rule.Hits())
		}
		rule.Remove()

		rule = p.Fault(On{Verb: "watch"}, Expire410)
		if got := status(c.do(410, "GET", configMaps+"?watch=true&resourceVersion=1", "")); got != "Expired" {
			t.Errorf("Expire410: %s", got)
		}
		rule.Remove()
	})
}

// A watch that is broken off ends without the event, and its client cannot take that for the end of the answer.
func TestDropWatch(t *testing.T) {
	p := New(t)
	c := newClient(t, p)
	p.Fault(On{Verb: "watch", Nth: 1}, DropWatch)
	p.Fault(On{Verb: "watch", Nth: 2}, DropWatchAfter(2))
	version := between(c.do(200, "GET", configMaps, ""), `"resourceVersion":"`, `"`)
	for nth, want := range []int{0, 2, 3} {
		next, end := c.watch(configMaps + "?watch=true&resourceVersion=" + version)
		for i := range 3 {
			if i < want || i == 0 {
				c.do(201, "POST", configMaps, configMap(fmt.Sprintf("w%d-%d", nth, i)))
			}
			e, err := next()
			if i < want && (err != nil || e.Type != "ADDED") {
				t.Fatalf("watch %d: event %d is %+v, %v", nth, i, e, err)
			}
			if i == want && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("watch %d ends with %v, %+v", nth, err, e)
			}
			if i == want {
				break
			}
			if i == 1 && want == 2 { // the event that is lost
				c.do(201, "POST", configMaps, configMap(fmt.Sprintf("w%d-lost", nth)))
			}
		}
		end()
		version = between(c.do(200, "GET", configMaps, ""), `"resourceVersion":"`, `"`)
	}
}

// A stale read shows what was there before the last change of what is read.
func TestStaleReads(t *testing.T) {
	p := New(t, CRDs(crds))
	c := newClient(t, p)
	c.do(201, "POST", configMaps, configMap("a", "n", "1"))
	c.do(201, "POST", configMaps, configMap("b", "n", "1"))
	c.do(200, "PATCH", configMaps+"/a", `{"data": {"n": "2"}}`)
	c.do(201, "POST", widgets, widget)
	c.do(200, "DELETE", configMaps+"/b", "")
	fresh := c.do(200, "GET", configMaps+"/a", "")
	rule := p.Fault(On{}, StaleReads)
	if got := between(c.do(200, "GET", configMaps+"/a", ""), `"n":"`, `"`); got != "1" {
		t.Errorf("a has %s, want 1", got)
	}
	c.do(200, "GET", configMaps+"/b", "") // it is deleted by now
	c.do(404, "GET", widgets+"/a", "")
	list := c.do(200, "GET", configMaps, "")
	if !strings.Contains(list, `"name":"b"`) || !strings.Contains(list, `"n":"2"`) {
		t.Errorf("the list is %s", list)
	}
	c.do(200, "GET", "/api/v1/namespaces/default", "") // it has never changed
	rule.Remove()
	if now := c.do(200, "GET", configMaps+"/a", ""); now != fresh {
		t.Errorf("after the fault: %s", now)
	}
}

// The record has who asked for what, in order, with the answers.
func TestRequests(t *testing.T) {
	p := New(t, CRDs(crds))
	c := newClient(t, p)
	c.do(201, "POST", configMaps, configMap("a"))
	c.do(201, "POST", configMaps, `{"metadata": {"generateName": "g-"}}`)
	c.apply(200, "boss", configMaps+"/a", configMap("a", "k", "v"))
	c.do(200, "GET", "/api", "")
	c.do(404, "DELETE", configMaps+"/z", "")
	other := newClient(t, p, User{Name: "joe"})
	other.agent = "robot/v1 (linux)"
	other.do(403, "PATCH", "/apis/example.com/v1/namespaces/default/widgets/a/status?dryRun=All", `{}`)
	var lines []string
	for _, q := range p.Requests() {
		lines = append(lines, q.User+" "+q.Manager+": "+q.String())
	}
	want := []string{
		"admin test: create configmaps default/a 201",
		"admin test: create configmaps default/g-* 201",
		"admin boss: apply configmaps default/a 200",
		"admin test: get /api 200",
		"admin test: delete configmaps default/z 404",
		"joe robot: patch example.com/widgets/status default/a (dry run) 403",
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the record is\n%s", got)
	}
	log := p.Requests()
	for name, test := range map[string]struct{ got, want int }{
		"by user": {len(log.By("joe")), 1}, "by program": {len(log.By("robot")), 1}, "by manager": {len(log.By("boss")), 1},
		"writes": {len(log.Writes()), 4}, "on": {len(log.On("configmaps")), 4},
		"on status": {len(log.On("widgets/status")), 1},
		"verb":      {len(log.Verb("apply", "delete")), 2},
	} {
		if test.got != test.want {
			t.Errorf("%s: %d, want %d", name, test.got, test.want)
		}
	}
}

// Names of objects that are created are read from bodies in every encoding, and the body still arrives.
func TestNamesInBodies(t *testing.T) {
	protobuf := append([]byte("k8s\x00"), 0x0a, 2, 0x0a, 0, 0x12, 9, 0x0a, 7, 0x0a, 1, 'a', 0x12, 2, 'g', '-')
	cbor := "\xd9\xd9\xf7\xa1hmetadata\xa1dname" + "aa"
	for text, want := range map[string]string{
		`{"metadata": {"name": "a"}}`: "a", "metadata: {generateName: g-}": "/g-", string(protobuf): "a/g-",
		cbor: "a", "k8s\x00\xff\xff": "", "{{": "", "[]": "", "": "",
	} {
		name, generate := nameIn([]byte(text))
		if generate != "" {
			generate = "/" + generate
		}
		if name+generate != want {
			t.Errorf("%q: %q, want %q", text, name+generate, want)
		}
	}
}

func FuzzNameIn(f *testing.F) {
	for _, seed := range []string{"k8s\x00\x12\x02\x0a\x00", `{"metadata": {"name": "a"}}`, "\xd9\xd9\xf7\xa0"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(_ *testing.T, text []byte) { nameIn(text) })
}

// Webhooks are handlers: no port, no certificate, also in a bubble, and what they ask the server is answered
// meanwhile.
func TestWebhooks(t *testing.T) {
	Bubble(t, func(t *testing.T, p *Plane) {
		c := newClient(t, p)
		text := c.do(201, "POST", configMaps, configMap("a"))
		if !strings.Contains(text, `"hook":"/change"`) {
			t.Errorf("made %s", text)
		}
		if text := c.do(400, "POST", configMaps, configMap("bad")); !strings.Contains(text, "it is bad") {
			t.Errorf("refused with %s", text)
		}
		began := time.Now()
		c.do(500, "POST", configMaps, configMap("slow")) // it takes an hour, and may take two seconds
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("a slow webhook takes %s", took)
		}
		time.Sleep(time.Hour) // its handler returns
	}, Webhooks(http.HandlerFunc(review), []byte(hookConfigurations)))
}

const hookConfigurations = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: change.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 2
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  clientConfig: {service: {namespace: system, name: hooks, path: /change}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: check.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
  clientConfig: {url: "https://hooks.example.com/check"}
`

// review answers an AdmissionReview.
func review(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Request struct {
			UID    string
			Object struct {
				Metadata struct{ Name string }
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := ask.Request.Object.Metadata.Name
	if name == "slow" {
		time.Sleep(time.Hour)
	}
	answer := map[string]any{"uid": ask.Request.UID, "allowed": true}
	switch {
	case r.URL.Path == "/check" && name == "bad":
		answer["allowed"], answer["status"] = false, map[string]string{"message": "it is bad"}
	case r.URL.Path == "/change":
		answer["patchType"] = "JSONPatch"
		answer["patch"] = []byte(`[{"op": "add", "path": "/data", "value": {"hook": "/change"}}]`)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})
}
