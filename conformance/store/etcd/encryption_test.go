package etcd

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
	"plinth/internal/encryption/plugintest"
)

var secrets = resource("", "v1", "secrets")

// encrypted is a provider of an EncryptionConfiguration, and what the values that it writes begin with; "" if they are
// not encrypted.
type encrypted struct{ provider, prefix string }

// wrote says whether a value is one of the provider.
func (e encrypted) wrote(value []byte) bool {
	if e.prefix == "" {
		return !bytes.HasPrefix(value, []byte("k8s:enc:"))
	}
	return bytes.HasPrefix(value, []byte(e.prefix))
}

// withKey is a provider with one key, made of the name.
func withKey(provider, version, name string) encrypted {
	secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name[:1]), 32))
	return encrypted{fmt.Sprintf("%s: {keys: [{name: %s, secret: %s}]}", provider, name, secret),
		fmt.Sprintf("k8s:enc:%s:%s:%s:", provider, version, name)}
}

// An EncryptionConfiguration holds for Plinth and a kube-apiserver on one etcd: each reads what the other one has
// encrypted, with every provider, built-in and custom types; both see the same changes; a value of an older provider
// is written again by an empty update through either, and one of the newest by none. At the end the older providers
// can go. The servers are restarted for each configuration.
//
// SPEC: STORE-5, STORE-3
func TestEncryption(t *testing.T) {
	if !harness.WantReference() {
		t.Skip("needs the reference: CONFORMANCE_REFERENCE=1")
	}
	plugin := plugintest.New(t)
	plugin.Start(t)
	providers := []encrypted{
		{"identity: {}", ""},
		withKey("aescbc", "v1", "first"), withKey("aesgcm", "v1", "second"), withKey("secretbox", "v1", "third"),
		{fmt.Sprintf("kms: {apiVersion: v2, name: plugin, endpoint: %q}", plugin.Endpoint), "k8s:enc:kms:v2:plugin:"},
	}
	p := startEtcd(t, reference.EtcdOptions{})
	for turn, now := range providers {
		newest := []encrypted{now}
		for i := turn - 1; i >= 0; i-- {
			newest = append(newest, providers[i])
		}
		both := encryptedServers(t, p.URL, newest)
		if turn == 0 {
			if _, err := both[0].Resource(definitions).Create(t.Context(), object(t, "%s", widgetDefinition),
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, of := range encryptedTypes {
			writeAndRewrite(t, p.URL, both, of, turn, now)
		}
		for _, s := range both {
			if err := s.Stop(); err != nil && s.Kind == harness.Plinth {
				t.Error(err)
			}
		}
	}
	for _, s := range encryptedServers(t, p.URL, providers[len(providers)-1:]) {
		for _, of := range encryptedTypes {
			list, err := s.Resource(of).Namespace("default").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) < 2*len(providers) {
				t.Errorf("with the last provider alone %s has %d %s (%v)", s.Kind, len(list.Items), of.Resource, err)
			}
		}
	}
}

var encryptedTypes = []schema.GroupVersionResource{secrets, widgets}

// encryptedServers starts both servers with these providers.
func encryptedServers(t *testing.T, etcd string, providers []encrypted) []*server {
	t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" +
		"- resources: [secrets, widgets.stable.example.com]\n  providers:\n"
	for _, e := range providers {
		text += "  - " + e.provider + "\n"
	}
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flag := "--encryption-provider-config=" + file
	return []*server{on(t, harness.Plinth, etcd, flag), on(t, harness.Reference, etcd, flag)}
}

// writeAndRewrite makes an object of a type through each server, and has the other one read all there are and update
// them with nothing.
func writeAndRewrite(t *testing.T, etcd string, both []*server, of schema.GroupVersionResource, turn int,
	now encrypted) {
	t.Helper()
	var follow []*follower
	for _, s := range both {
		eventually(t, "the type is served", func() error {
			_, err := s.Resource(of).List(t.Context(), metav1.ListOptions{})
			return err
		})
		follow = append(follow, newFollower(t, s, of))
	}
	for i, s := range both {
		secretOrWidget(t, s, of, fmt.Sprintf("made-%d-%d", turn, i))
		if is := stored(t, etcd, of, fmt.Sprintf("made-%d-%d", turn, i)); !now.wrote(is) {
			t.Errorf("%s writes %.40q with %s", s.Kind, is, now.provider)
		}
	}
	compared := 0
	eventually(t, "both read the same", func() error {
		if diff := differ(t, both[0], both[1], of, &compared); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	if want := 2 * (turn + 1); compared < want {
		t.Errorf("with %s: %d %s were compared, want %d", now.provider, compared, of.Resource, want)
	}
	rewrite(t, etcd, both, of, turn, now)
	compareFollowers(t, follow[0], follow[1])
}

// stored is the value of an object of the default namespace in etcd.
func stored(t *testing.T, etcd string, of schema.GroupVersionResource, name string) []byte {
	t.Helper()
	key := "/registry/"
	if of.Group != "" {
		key += of.Group + "/"
	}
	answer, err := direct(t, etcd).Get(t.Context(), key+of.Resource+"/default/"+name, clientv3.WithLimit(1))
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("%s %s: %d values, %v", of, name, len(answer.Kvs), err)
	}
	return answer.Kvs[0].Value
}

func secretOrWidget(t *testing.T, s *server, of schema.GroupVersionResource, name string) {
	t.Helper()
	text := `{apiVersion: v1, kind: Secret, metadata: {name: %s}, stringData: {password: hidden}}`
	if of == widgets {
		text = `{apiVersion: stable.example.com/v1, kind: Widget, metadata: {name: %s}, spec: {replicas: 3}}`
	}
	if _, err := s.Resource(of).Namespace("default").Create(t.Context(), object(t, text, name),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// rewrite makes an empty update of each object that was made, through the server that has not made it: it is written
// if it was of an older provider, which is once, and is of this one then.
func rewrite(t *testing.T, etcd string, both []*server, of schema.GroupVersionResource, turn int, e encrypted) {
	t.Helper()
	for made := range turn + 1 {
		for i := range both {
			name, other := fmt.Sprintf("made-%d-%d", made, i), both[1-i].Resource(of).Namespace("default")
			for again := range 2 {
				was, err := other.Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				older := !e.wrote(stored(t, etcd, of, name))
				is, err := other.Patch(t.Context(), name, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if changed := is.GetResourceVersion() != was.GetResourceVersion(); changed != older || again == 1 && older {
					t.Errorf("%s %s of turn %d, update %d through %s in turn %d: written %t, of an older provider %t",
						of.Resource, name, made, again, both[1-i].Kind, turn, changed, older)
				}
			}
		}
	}
}
