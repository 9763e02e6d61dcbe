package collection

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// The range of addresses for Services is small, so that a lost one is noticed: it has room for these and the server's
// Service, kubernetes in the namespace default.
const (
	killRange     = "10.96.0.0/27"
	killPorts     = "30000-30015"
	killAddresses = 29
	killNodePorts = 16
)

// fall holds the objects before a kill: a namespace that is deleted, an owner that is deleted in the foreground, and
// the objects that have to remain.
type fall struct {
	*testing.T
	server *harness.Server
	client *load.Client
	round  int
	kept   map[string][]byte // objects that must not change, by URL, as in the response
	own    ownerReference
	other  ownerReference
}

const (
	content    = 120 // objects in the deleted namespace
	dependents = 120 // of the deleted owner, every second with its own dependent
)

func (f *fall) send(method, path, body string) []byte {
	f.Helper()
	var b []byte
	if body != "" {
		b = []byte(body)
	}
	rq := load.Request{Method: method, Path: path, Body: b}
	if method == http.MethodPatch {
		rq.ContentType = "application/merge-patch+json"
	}
	answer, err := f.client.Do(f.Context(), rq)
	if err != nil {
		f.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

func (f *fall) doomed() string { return fmt.Sprintf("doomed-%d", f.round) }
func (f *fall) stays() string  { return fmt.Sprintf("stays-%d", f.round) }

func configmaps(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }

// make creates a ConfigMap.
func (f *fall) make(namespace, name string, owners []ownerReference, finalizers ...string) ownerReference {
	f.Helper()
	meta, err := json.Marshal(metadata{Name: name, OwnerReferences: owners, Finalizers: finalizers})
	if err != nil {
		f.Fatal(err)
	}
	answer := f.send(http.MethodPost, configmaps(namespace), `{"metadata":`+string(meta)+`}`)
	var obj item
	if err := json.Unmarshal(answer, &obj); err != nil {
		f.Fatal(err)
	}
	if len(owners) == 0 && len(finalizers) == 0 {
		f.kept[configmaps(namespace)+"/"+name] = bytes.TrimSpace(answer)
	}
	return ownerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: obj.Metadata.UID, BlockOwnerDeletion: true}
}

// prepare creates the objects before a kill.
func (f *fall) prepare() {
	f.Helper()
	f.kept = map[string][]byte{}
	for _, name := range []string{f.doomed(), f.stays()} {
		f.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"`+name+`"}}`)
	}
	for i := range content {
		name := fmt.Sprintf("c%03d", i)
		f.make(f.doomed(), name, nil)
		delete(f.kept, configmaps(f.doomed())+"/"+name)
		if i%10 == 0 {
			f.make(f.stays(), name, nil) // same name, another namespace
		}
	}
	f.make(f.doomed(), "held", nil, "x.example.com/hold")
	for i := range 4 {
		f.send(http.MethodPost, "/api/v1/namespaces/"+f.doomed()+"/services",
			fmt.Sprintf(`{"metadata":{"name":"s%d"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, i))
	}
	f.other = f.make(f.stays(), "other", nil)
	f.own = f.make(f.stays(), "owner", nil)
	delete(f.kept, configmaps(f.stays())+"/owner")
	for i := range dependents {
		d := f.make(f.stays(), fmt.Sprintf("d%03d", i), []ownerReference{f.own})
		if i%2 == 0 {
			f.make(f.stays(), fmt.Sprintf("e%03d", i), []ownerReference{d})
		}
	}
	f.make(f.stays(), "shared", []ownerReference{f.own, f.other})
	f.make(f.stays(), "holder", []ownerReference{f.own}, "x.example.com/hold")
}

// fell deletes both, and returns when the deletions are acknowledged.
func (f *fall) fell() {
	f.Helper()
	f.send(http.MethodDelete, configmaps(f.stays())+"/owner", `{"propagationPolicy":"Foreground"}`)
	f.send(http.MethodDelete, "/api/v1/namespaces/"+f.doomed(), "")
}

// names lists the ConfigMaps of a namespace; the list is empty if the namespace does not exist.
func (f *fall) names(namespace string) (names []string) {
	f.Helper()
	var list struct{ Items []item }
	if err := json.Unmarshal(f.send(http.MethodGet, configmaps(namespace), ""), &list); err != nil {
		f.Fatal(err)
	}
	for _, o := range list.Items {
		names = append(names, o.Metadata.Name)
	}
	return names
}

// there says whether an object exists at a URL.
func (f *fall) there(path string) bool {
	f.Helper()
	_, err := f.client.Do(f.Context(), load.Request{Method: http.MethodGet, Path: path})
	if status := (*load.StatusError)(nil); errors.As(err, &status) && status.Code == http.StatusNotFound {
		return false
	}
	if err != nil {
		f.Fatal(err)
	}
	return true
}

// of counts the names that begin with one of these letters.
func of(names []string, letters string) (n int) {
	for _, name := range names {
		if len(name) == 4 && strings.ContainsAny(name[:1], letters) {
			n++
		}
	}
	return n
}

// progress waits until this many of the objects to be deleted no longer exist.
func (f *fall) progress(gone int) {
	f.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if content+dependents*3/2-of(f.names(f.doomed()), "c")-of(f.names(f.stays()), "de") >= gone {
			return
		}
	}
	f.Fatalf("less than %d objects were deleted", gone)
}

// halfway inspects the objects after a kill, and says whether it interrupted a deletion.
func (f *fall) halfway() bool {
	f.Helper()
	emptied, owned := of(f.names(f.doomed()), "c"), of(f.names(f.stays()), "de")
	if !f.there(configmaps(f.stays()) + "/owner") {
		f.Error("the owner was deleted before a held dependent that blocks its deletion")
	}
	if !f.there("/api/v1/namespaces/" + f.doomed()) {
		f.Error("the namespace was deleted before the held object in it")
	}
	return emptied > 0 && emptied < content || owned > 0 && owned < dependents*3/2
}

// eventually waits until is returns true.
func (f *fall) eventually(what string, is func() bool) {
	f.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("timed out waiting until %s; the namespaces have %v and %v", what, f.names(f.doomed()), f.names(f.stays()))
		}
	}
}

// finish waits until all deletions are complete, and checks the other objects.
func (f *fall) finish() {
	f.Helper()
	f.eventually("only the held objects are left", func() bool {
		return slices.Equal(f.names(f.doomed()), []string{"held"}) && of(f.names(f.stays()), "de") == 0
	})
	hold := `{"metadata":{"finalizers":null}}`
	f.send(http.MethodPatch, configmaps(f.doomed())+"/held", hold)
	f.send(http.MethodPatch, configmaps(f.stays())+"/holder", hold)
	f.eventually("the namespace and the owner are deleted", func() bool {
		return !f.there("/api/v1/namespaces/"+f.doomed()) && !f.there(configmaps(f.stays())+"/owner")
	})
	for path, want := range f.kept {
		got, err := f.client.Do(f.Context(), load.Request{Method: http.MethodGet, Path: path})
		if err != nil {
			f.Errorf("%s no longer exists: %v", path, err)
		} else if !bytes.Equal(bytes.TrimSpace(got), want) {
			f.Errorf("%s is %s\nbefore the kill %s", path, got, want)
		}
	}
	var shared item
	if err := json.Unmarshal(f.send(http.MethodGet, configmaps(f.stays())+"/shared", ""), &shared); err != nil {
		f.Fatal(err)
	}
	if o := shared.Metadata.OwnerReferences; len(o) != 1 || o[0].UID != f.other.UID {
		f.Errorf("an object with another owner is owned by %v", o)
	}
	// The remaining objects are deleted in the ordinary way, so that the next round begins like this one.
	f.send(http.MethodDelete, "/api/v1/namespaces/"+f.stays(), "")
	f.eventually("the other namespace is gone", func() bool { return !f.there("/api/v1/namespaces/" + f.stays()) })
}

// allocated checks that each address and port is allocated once, and that all can be: it creates Services until none is
// left.
func (f *fall) allocated() {
	f.Helper()
	const services = "/api/v1/namespaces/default/services"
	create := func(name, kind string) bool {
		_, err := f.client.Do(f.Context(), load.Request{Method: http.MethodPost, Path: services,
			Body: fmt.Appendf(nil, `{"metadata":{"name":%q},"spec":{"type":%q,"ports":[{"port":80}]}}`, name, kind)})
		if status := (*load.StatusError)(nil); errors.As(err, &status) && strings.Contains(status.Text, "range is full") {
			return false
		} else if err != nil {
			f.Fatal(err)
		}
		return true
	}
	made := 0
	for made < 100 && create(fmt.Sprintf("n%d", made), "NodePort") {
		made++
	}
	ports := made
	for made < 100 && create(fmt.Sprintf("n%d", made), "ClusterIP") {
		made++
	}
	if ports != killNodePorts || made != killAddresses {
		f.Errorf("there is room for %d ports and %d addresses, and was for %d and %d", ports, made, killNodePorts,
			killAddresses)
	}
	var list struct {
		Items []struct {
			Spec struct {
				ClusterIP string
				Ports     []struct{ NodePort int }
			}
		}
	}
	if err := json.Unmarshal(f.send(http.MethodGet, "/api/v1/services", ""), &list); err != nil {
		f.Fatal(err)
	}
	given := map[string]int{}
	for _, s := range list.Items {
		given[s.Spec.ClusterIP]++
		for _, p := range s.Spec.Ports {
			if p.NodePort > 0 {
				given[fmt.Sprint(p.NodePort)]++
			}
		}
	}
	for what, n := range given {
		if n > 1 {
			f.Errorf("%s is given %d times", what, n)
		}
	}
	if len(given) != killAddresses+1+killNodePorts {
		f.Errorf("%d addresses and ports are given", len(given))
	}
	for i := range made {
		f.send(http.MethodDelete, fmt.Sprintf("%s/n%d", services, i), "")
	}
}

// SPEC: DEL-2, DEL-5, STORE-1: kill -9 in the middle of a deletion in the foreground and of the emptying of a
// namespace. After the restart both continue, no other object is deleted, and no address of a Service is lost or
// allocated twice.
func TestKill(t *testing.T) {
	if *rewrite || harness.Target() == harness.Reference {
		return
	}
	server := harness.RunTarget(t, "--service-cluster-ip-range="+killRange, "--service-node-port-range="+killPorts)
	f := &fall{T: t, server: server, client: load.New(server, 8)}
	f.prepare()
	f.fell()
	f.finish()
	f.allocated()
	halfway := 0
	for f.round = 1; f.round <= *kills && !t.Failed(); f.round++ {
		f.prepare()
		f.fell()
		f.progress(rand.IntN(content + dependents*3/2))
		server.Kill()
		f.client.Close()
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		if f.halfway() {
			halfway++
		}
		f.finish()
		if f.round%5 == 0 {
			f.allocated()
		}
	}
	t.Logf("%d of %d kills came in the middle", halfway, *kills)
	if halfway < *kills/4 {
		t.Error("that is too few kills in the middle to have found anything")
	}
}
