package etcd

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
	"plinth/internal/encryption/plugintest"
)

// withPlugin is the flags of a server whose Secrets and Events are encrypted by a plugin.
func withPlugin(t *testing.T, plugin *plugintest.Plugin, timeout time.Duration) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" +
		"- resources: [secrets, events]\n  providers:\n" +
		fmt.Sprintf("  - kms: {apiVersion: v2, name: plugin, endpoint: %q, timeout: %s}\n", plugin.Endpoint, timeout)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--encryption-provider-config=" + file
}

// What a server cannot decrypt when it arrives, because its plugin is away, is readable as soon as the plugin is back:
// what comes by the watch of etcd, and what is read after changes were missed. Until then it is not gone, other types
// go on, and an Event ends when it would have ended.
//
// SPEC: STORE-5
func TestPluginComesAndGoes(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	l := newLine(t, p.URL)
	ours, theirs := plugintest.New(t), plugintest.New(t) // of one key management service
	ours.Start(t)
	theirs.Start(t)
	s := on(t, harness.Plinth, l.URL(), withPlugin(t, ours, 3*time.Second))
	for turn, arrive := range map[string]func(write func()){
		"followed": func(write func()) { write() },
		"missed": func(write func()) {
			l.Cut(true)
			write()
			d := direct(t, p.URL)
			newest, err := d.Get(t.Context(), "/", clientv3.WithLimit(1))
			if err == nil {
				_, err = d.Compact(t.Context(), newest.Header.Revision)
			}
			if err != nil {
				t.Fatal(err)
			}
			l.Cut(false)
		},
	} {
		ours.Stop()
		other := on(t, harness.Plinth, p.URL, withPlugin(t, theirs, 3*time.Second)) // which begins with a key of its own
		made := map[schema.GroupVersionResource]string{
			secrets:    `{apiVersion: v1, kind: Secret, metadata: {name: %s}, stringData: {password: hidden}}`,
			events:     `{apiVersion: v1, kind: Event, metadata: {name: %s}, involvedObject: {namespace: default}}`,
			configMaps: `{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}}`,
		}
		arrive(func() {
			for _, of := range []schema.GroupVersionResource{secrets, events, configMaps} {
				if _, err := other.Resource(of).Namespace("default").Create(t.Context(), object(t, made[of], turn),
					metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		})
		get := func(of schema.GroupVersionResource) error {
			_, err := s.Resource(of).Namespace("default").Get(t.Context(), turn, metav1.GetOptions{})
			return err
		}
		eventually(t, turn+": other types go on", func() error { return get(configMaps) })
		for _, of := range encryptedHere {
			if err := get(of); !apierrors.IsInternalError(err) {
				t.Errorf("%s: without the plugin %s: %v", turn, of.Resource, err)
			}
		}
		ours.Start(t)
		for _, of := range encryptedHere {
			eventually(t, turn+": "+of.Resource+" become readable", func() error { return get(of) })
		}
		answer, err := direct(t, p.URL).Get(t.Context(), "/registry/events/default/"+turn)
		if err != nil || len(answer.Kvs) != 1 || answer.Kvs[0].Lease == 0 {
			t.Errorf("%s: the Event has no lease any more: %v, %v", turn, answer, err)
		}
		if err := other.Stop(); err != nil {
			t.Error(err)
		}
	}
}

var encryptedHere = []schema.GroupVersionResource{secrets, events}

// A plugin that hangs holds up the objects that it encrypts, and no others: what other servers write of other types
// arrives while it hangs, for longer than anyone waits here. The Secret that it does not decrypt is not taken for gone:
// reads, lists and watches fail. It is readable when the plugin is there again.
//
// SPEC: STORE-5
func TestPluginHangs(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	ours, theirs := plugintest.New(t), plugintest.New(t)
	ours.Start(t)
	theirs.Start(t)
	s := on(t, harness.Plinth, p.URL, withPlugin(t, ours, 10*time.Minute))
	other := on(t, harness.Plinth, p.URL, withPlugin(t, theirs, 3*time.Second))
	ours.Set(func(s *plugintest.State) { s.Hang = "Decrypt" })
	watch, err := s.Resource(secrets).Namespace("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	create := func(of schema.GroupVersionResource, text string) {
		t.Helper()
		if _, err := other.Resource(of).Namespace("default").Create(t.Context(), object(t, "%s", text),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(secrets, `{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {password: hidden}}`)
	create(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`)
	eventually(t, "other types go on", func() error {
		_, err := s.Resource(configMaps).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
		return err
	})
	get := func() error {
		_, err := s.Resource(secrets).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
		return err
	}
	if err := get(); !apierrors.IsInternalError(err) {
		t.Errorf("the Secret: %v", err)
	}
	if list, err := s.Resource(secrets).Namespace("default").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Errorf("a list without it: %v", list)
	}
	if e := <-watch.ResultChan(); e.Type != "ERROR" {
		t.Errorf("a watch: %v", e)
	}
	ours.Stop()
	ours.Set(func(s *plugintest.State) { s.Hang = "" })
	ours.Start(t)
	eventually(t, "the Secret becomes readable", get)
}
