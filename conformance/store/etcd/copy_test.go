package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
	"plinth/conformance/internal/stubs"
	"plinth/internal/storage"
	"plinth/internal/store"
	"plinth/internal/transfer"
)

// copyAll is `plinth copy`.
func copyAll(t *testing.T, from, to string, flags ...string) (output string, err error) {
	t.Helper()
	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	text, err := exec.CommandContext(ctx, program, append([]string{"copy", from, to}, flags...)...).CombinedOutput()
	return string(text), err
}

// mustCopy returns the hash of what was copied.
func mustCopy(t *testing.T, from, to string, flags ...string) (sum string) {
	t.Helper()
	text, err := copyAll(t, from, to, flags...)
	if err != nil {
		t.Fatalf("copy %s %s: %v\n%s", from, to, err, text)
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "sha256:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatal(text)
	return ""
}

// everyKind makes an object of each type, a custom type with an object, an Event that expires, a Secret, and a Service
// with a node port, through a server.
func everyKind(t *testing.T, s *server) {
	t.Helper()
	ctx := t.Context()
	s.makeNamespace(t, "made")
	for _, text := range []string{
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: tabs.own.example.com},
		  spec: {group: own.example.com, scope: Namespaced, names: {plural: tabs, singular: tab, kind: Tab},
		    versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object,
		      properties: {z: {type: object, x-kubernetes-preserve-unknown-fields: true},
		        a: {type: integer, default: 7}}}}}]}}`,
		`{apiVersion: v1, kind: Secret, metadata: {name: hidden, namespace: made}, stringData: {word: covert-text}}`,
		`{apiVersion: v1, kind: Service, metadata: {name: node-port, namespace: made},
		  spec: {type: NodePort, ports: [{port: 80, nodePort: 30123}]}}`,
		`{apiVersion: own.example.com/v1, kind: Tab, metadata: {name: own, namespace: made}, z: {"ä": [1.5, {b: null}]}}`,
	} {
		u := object(t, "%s", text)
		eventually(t, "it is made", func() error {
			resources, err := s.discovery.ServerResourcesForGroupVersion(u.GetAPIVersion())
			if err != nil {
				return err
			}
			for _, r := range resources.APIResources {
				if r.Kind == u.GetKind() && !strings.Contains(r.Name, "/") {
					of := resource(u.GroupVersionKind().Group, u.GroupVersionKind().Version, r.Name)
					_, err := s.Resource(of).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u,
						metav1.ApplyOptions{FieldManager: "copier"})
					return err
				}
			}
			return fmt.Errorf("%s is not served yet", u.GetKind())
		})
	}
	here := served(t, s)
	for _, stub := range stubs.All(t, "made") {
		if !here[stub.Resource] || stub.Resource.Group == "apiregistration.k8s.io" {
			continue
		}
		u := object(t, "%s", withKind(t, s, &stub))
		of := s.Resource(stub.Resource).Namespace("")
		if namespaced(t, s, &stub) {
			of = s.Resource(stub.Resource).Namespace("made")
		}
		if _, err := of.Create(ctx, u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("%s: %v", stub.Resource, err)
		}
		if stub.Status != "" {
			if _, err := of.Patch(ctx, u.GetName(), types.MergePatchType, []byte(stub.Status), metav1.PatchOptions{},
				"status"); err != nil {
				t.Fatalf("%s: %v", stub.Resource, err)
			}
		}
	}
}

// objectsOf are all objects of a server as JSON, with UIDs, managedFields and times, and without resourceVersions; and
// the least and the greatest of those. Left out is what a server writes when it starts, or all the time.
func objectsOf(t *testing.T, s *server) (all map[string]string, least, most int64) {
	t.Helper()
	all, least = map[string]string{}, 1<<62
	for of := range served(t, s) {
		if of.Resource == "componentstatuses" {
			continue
		}
		list, err := s.Resource(of).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(of, err)
		}
		for _, o := range list.Items {
			if system := o.GetNamespace() == "kube-system" || o.GetNamespace() == "default"; system && (of == leases ||
				o.GetName() == "kubernetes" || strings.HasPrefix(o.GetName(), "extension-apiserver-") ||
				strings.HasPrefix(o.GetName(), "kube-apiserver-legacy-")) {
				continue
			}
			revision, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
			if err != nil && of.Group != "apiregistration.k8s.io" {
				t.Fatal(of, err)
			} else if err == nil && revision > 0 {
				least, most = min(least, revision), max(most, revision)
			}
			o.SetResourceVersion("")
			text, err := json.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			all[of.String()+" "+o.GetNamespace()+"/"+o.GetName()] = string(text)
		}
	}
	if len(all) < 150 {
		t.Fatalf("only %d objects", len(all))
	}
	return all, least, most
}

// sameObjects reports objects that are not the same. A kube-apiserver among the two servers has other types, and makes
// objects of its own; at least two thirds of all are compared.
func sameObjects(t *testing.T, want, have map[string]string, kind harness.Kind) {
	t.Helper()
	compared := 0
	for key, was := range want {
		is := have[key]
		switch {
		case is == was:
			compared++
		case is != "" || kind == harness.Plinth || strings.Contains(key, " made/"):
			t.Errorf("%s was\n%s\nand is\n%s", key, was, is)
		}
	}
	for key := range have {
		if want[key] == "" && kind == harness.Plinth {
			t.Errorf("%s is new", key)
		}
	}
	if compared < len(want)*2/3 {
		t.Errorf("only %d of %d objects are the same", compared, len(want))
	}
}

// stop ends a server, and waits until the keys by which it is known in an etcd have ended.
func stop(t *testing.T, s *server, etcd string) {
	t.Helper()
	if err := s.Stop(); err != nil && s.Kind == harness.Plinth {
		t.Fatal(err)
	}
	if etcd == "" {
		return
	}
	client := etcdClient(t, etcd)
	eventually(t, "the server's keys have ended", func() error {
		for _, folder := range []string{"masterleases", "peerserverleases"} {
			if keys := keysUnder(t, client, folder); len(keys) > 0 {
				return fmt.Errorf("%d keys in %s", len(keys), folder)
			}
		}
		return nil
	})
}

// TestCopy: objects of all types go from a data directory to an etcd, to another prefix of it in another form, to an
// etcd with other keys, and to a data directory, and are the same after each step: to the clients of a server there.
//
// SPEC: STORE-6, STORE-3, STORE-5
func TestCopy(t *testing.T) {
	kinds := []harness.Kind{harness.Plinth}
	if harness.WantReference() {
		kinds = append(kinds, harness.Reference)
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) { testCopy(t, kind) })
	}
}

// testCopy copies to an etcd, where a server of a kind serves the objects, and back.
func testCopy(t *testing.T, kind harness.Kind) {
	configuration := func(key string) string {
		e := withKey("secretbox", "v1", key)
		file := filepath.Join(t.TempDir(), key+".yaml")
		if err := os.WriteFile(file, []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"+
			"resources:\n- resources: [secrets]\n  providers:\n  - "+e.provider+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	first, second := configuration("first"), configuration("second")
	encrypted := func(file string) string { return "--encryption-provider-config=" + file }

	dir := t.TempDir()
	s := &server{Server: harness.Run(t, harness.Options{Kind: harness.Plinth, Dir: dir,
		Flags: []string{encrypted(first), "--controllers=", "--storage=embedded"}})}
	s.connect(t)
	everyKind(t, s)
	want, _, most := objectsOf(t, s)
	stop(t, s, "")

	data := filepath.Join(dir, "data")
	p := startEtcd(t, reference.EtcdOptions{})
	if text, err := copyAll(t, data, p.URL); err == nil || !strings.Contains(text, "cannot be read") {
		t.Fatalf("what is encrypted was copied without its key: %v\n%s", err, text)
	}
	mustCopy(t, data, p.URL, "--from-encryption-provider-config", first, "--to-encryption-provider-config", second)
	client := etcdClient(t, p.URL)
	secret, err := client.Get(t.Context(), "/registry/secrets/made/hidden")
	if err != nil || len(secret.Kvs) != 1 || !withKey("secretbox", "v1", "second").wrote(secret.Kvs[0].Value) {
		t.Fatalf("the Secret is %v, %v", secret, err)
	}
	event, err := client.Get(t.Context(), "/registry/events/made/event1")
	if err != nil || len(event.Kvs) != 1 || event.Kvs[0].Lease == 0 {
		t.Fatalf("the Event is %v, %v", event, err)
	}

	serve := func(kind harness.Kind, url string, flags ...string) *server {
		if kind == harness.Plinth {
			flags = append(flags, "--controllers=")
		}
		s := &server{Server: harness.Run(t, harness.Options{Kind: kind, Etcd: url, Flags: flags})}
		s.connect(t)
		return s
	}
	inEtcd := serve(kind, p.URL, encrypted(second))
	have, least, _ := objectsOf(t, inEtcd)
	sameObjects(t, want, have, kind)
	if least <= most {
		t.Errorf("there is a resourceVersion %d, and the directory has given out %d", least, most)
	}
	want = have
	stop(t, inEtcd, p.URL)

	// To another prefix of it, as JSON.
	sum := mustCopy(t, p.URL, p.URL, "--to-etcd-prefix=/other", "--to-storage-media-type=application/json",
		"--from-encryption-provider-config", second, "--to-encryption-provider-config", first)
	pod, err := client.Get(t.Context(), "/other/pods/made/pod1")
	if err != nil || len(pod.Kvs) != 1 || !strings.HasPrefix(string(pod.Kvs[0].Value), `{"kind":"Pod"`) {
		t.Errorf("the Pod is %v, %v", pod, err)
	}

	// And to a directory.
	back := filepath.Join(t.TempDir(), "data")
	if again := mustCopy(t, p.URL, back, "--from-etcd-prefix=/other", "--from-encryption-provider-config",
		first); again != sum {
		t.Errorf("the hash was %s, and is %s", sum, again)
	}
	d := &server{Server: harness.Run(t, harness.Options{Kind: harness.Plinth, Dir: filepath.Dir(back),
		Flags: []string{"--storage=embedded", "--controllers="}})}
	d.connect(t)
	have, _, _ = objectsOf(t, d)
	sameObjects(t, want, have, kind)
	u := object(t, `{apiVersion: v1, kind: Service, metadata: {name: thief, namespace: made},
		spec: {type: NodePort, ports: [{port: 80, nodePort: 30123}]}}`)
	services := d.Resource(resource("", "v1", "services")).Namespace("made")
	if _, err := services.Create(t.Context(), u, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("the node port of another Service was given away: %v", err)
	}
	made, err := d.Resource(configMaps).Namespace("made").Create(t.Context(), object(t,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: later}}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if revision, _ := strconv.ParseInt(made.GetResourceVersion(), 10, 64); revision <= pod.Header.Revision {
		t.Errorf("the directory gives out %d, and the etcd has given out %d", revision, pod.Header.Revision)
	}
}

// configMapsOf is a content with some ConfigMaps, of a source that has given out revisions up to one.
func configMapsOf(n int, revision int64) *transfer.Content {
	c := &transfer.Content{Revision: revision}
	for i := range n {
		name := fmt.Sprintf("m%05d", i)
		data := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","namespace":"n","uid":"u%d",`+
			`"creationTimestamp":"2026-01-02T03:04:05Z"},"data":{"a":"%s"}}`, name, i, strings.Repeat(name, 300))
		c.Versions = append(c.Versions, store.NewVersion(store.Key{Resource: "/configmaps", Name: "n/" + name}, 2,
			[]byte(data), &store.Sidecar{}))
	}
	return c
}

// etcdAt is an etcd to copy from or to.
func etcdAt(url string) transfer.Etcd {
	return transfer.Etcd{Etcd: storage.Etcd{Servers: []string{url}, Prefix: "/registry", Timeout: time.Minute},
		FirstNodePort: 30000, LastNodePort: 32767, Logger: slog.New(slog.DiscardHandler)}
}

// interruption ends a copy at a call of its progress: of Raising or of Writing, the call with this number; 0: at none.
type interruption struct {
	end               context.CancelFunc
	raising, writing  int
	raisings, written int // calls
}

// Raising implements transfer.Progress.
func (i *interruption) Raising(int64, int64) {
	if i.raisings++; i.raisings == i.raising {
		i.end()
	}
}

// Writing implements transfer.Progress.
func (i *interruption) Writing(int, int) {
	if i.written++; i.written == i.writing {
		i.end()
	}
}

// TestCopyGoesOn: a copy into an etcd is interrupted again and again, in each of its stages, and goes on each time. No
// server serves what is there meanwhile.
//
// SPEC: STORE-6
func TestCopyGoesOn(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	content := configMapsOf(3000, 3000)
	client := etcdClient(t, p.URL)
	attempt := func(raising, writing int) (*transfer.Result, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return content.ToEtcd(ctx, etcdAt(p.URL), &interruption{end: cancel, raising: raising, writing: writing})
	}
	// Eight transactions of a hundred objects are under way at a time.
	for n, at := range [][2]int{{1, 0}, {700, 0}, {1, 0}, {0, 1}, {0, 1}, {0, 1}} {
		if _, err := attempt(at[0], at[1]); err == nil || !strings.Contains(err.Error(), "context canceled") {
			t.Fatalf("attempt %d: %v", n, err)
		}
	}
	if s, err := harness.Start(harness.Options{Kind: harness.Plinth, Etcd: p.URL, Dir: t.TempDir()}); err == nil {
		s.Kill()
		t.Error("a server serves half a copy")
	}
	if _, err := configMapsOf(10, 3000).ToEtcd(t.Context(), etcdAt(p.URL), &interruption{}); err == nil ||
		!strings.Contains(err.Error(), "a copy of something else") {
		t.Errorf("another copy: %v", err)
	}
	made, err := attempt(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if made.Already < 300 || made.Already == made.Objects || made.Objects != 3000 {
		t.Errorf("%+v", made)
	}
	answer, err := client.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil || len(answer.Kvs) != 3000 {
		t.Fatalf("%d keys, %v", len(answer.Kvs), err)
	}
	for _, kv := range answer.Kvs {
		if kv.ModRevision <= 3000 || kv.Version != 1 {
			t.Errorf("%s was written %d times, at last at %d", kv.Key, kv.Version, kv.ModRevision)
		}
	}
	s := on(t, harness.Plinth, p.URL)
	if _, err := s.Resource(configMaps).Namespace("n").Get(t.Context(), "m02999", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// TestCopyRefuses: what cannot be copied whole, or would mix with something, is an error, and nothing is written.
//
// SPEC: STORE-6
func TestCopyRefuses(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	client := etcdClient(t, p.URL)
	ctx := t.Context()
	put := func(key, value string) {
		t.Helper()
		if _, err := client.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		t.Helper()
		if _, err := client.Delete(ctx, "/registry/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, and should say %q", err, want)
		}
	}
	to := func(c *transfer.Content) error {
		_, err := c.ToEtcd(ctx, etcdAt(p.URL), &interruption{})
		return err
	}
	from := func(leaveOut ...string) (*transfer.Content, error) {
		c, end, err := transfer.FromEtcd(ctx, etcdAt(p.URL), leaveOut)
		if err != nil {
			return nil, err
		}
		_, err = end(ctx)
		return c, err
	}

	// As a target.
	put("/registry/configmaps/n/other", "x")
	refused(to(configMapsOf(1, 5)), "the target is not empty")
	remove()
	put("/registry/masterleases/10.0.0.1", "x")
	refused(to(configMapsOf(1, 5)), "or a server runs there")
	remove()
	refused(to(configMapsOf(1, 1<<40)), "etcdutl snapshot restore --bump-revision")
	remove()
	large := configMapsOf(1, 5)
	large.Versions[0] = store.NewVersion(large.Versions[0].Key, 2, []byte(strings.Replace(string(large.Versions[0].Data()),
		`"a":"`, `"a":"`+strings.Repeat("x", 2<<20), 1)), &store.Sidecar{})
	refused(to(large), "/registry/configmaps/n/m00000")
	remove()
	damaged := configMapsOf(2, 5)
	damaged.Versions[1] = store.NewVersion(damaged.Versions[1].Key, 2, []byte(`{"apiVersion":"v9","kind":"ConfigMap"}`),
		&store.Sidecar{})
	refused(to(damaged), "/configmaps/n/m00001: v9 is no version")
	if answer, err := client.Get(ctx, "/registry/", clientv3.WithPrefix()); err != nil || len(answer.Kvs) != 0 {
		t.Errorf("%d keys were written, %v", len(answer.Kvs), err)
	}

	// As a source.
	if err := to(configMapsOf(3, 5)); err != nil {
		t.Fatal(err)
	}
	put("/registry/strangers/n/a", "x")
	_, err := from()
	refused(err, "strangers (1)")
	if c, err := from("strangers"); err != nil || len(c.Versions) != 3 || c.LeftOut["strangers"] != 1 {
		t.Errorf("%v, %v", c, err)
	}
	put("/registry/configmaps/n/damaged", "x")
	_, err = from("strangers")
	refused(err, "/configmaps/n/damaged: ")
	remove()
	put("/registry/plinth/copy", "{}")
	_, err = from()
	refused(err, "has begun and not ended")
	remove()

	// While servers write.
	if err := to(configMapsOf(3, 5)); err != nil {
		t.Fatal(err)
	}
	_, end, err := transfer.FromEtcd(ctx, etcdAt(p.URL), nil)
	if err != nil {
		t.Fatal(err)
	}
	put("/registry/configmaps/n/later", "x")
	put("/registry/masterleases/10.0.0.1", "x")
	if changed, err := end(ctx); err != nil || changed != 1 {
		t.Errorf("%d objects were written, %v", changed, err)
	}
}
