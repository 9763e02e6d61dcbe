package etcdform

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/kubeapiserver"

	_ "plinth/conformance/internal/scheme"
	"plinth/conformance/internal/valuediff"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/etcdform"
	"plinth/internal/proto"
	"plinth/internal/store"
	"plinth/object"
)

// storageFactory knows the storage codecs of the reference.
func storageFactory(t testing.TB, mediaType string) *serverstorage.DefaultStorageFactory {
	t.Helper()
	config := kubeapiserver.NewStorageFactoryConfig()
	config.APIResourceConfig = controlplane.DefaultAPIResourceConfigSource()
	options := serveroptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil))
	options.DefaultStorageMediaType = mediaType
	factory, err := config.Complete(options).New()
	if err != nil {
		t.Fatal(err)
	}
	return factory
}

// kindRow is a built-in kind of Plinth and the codec with which the reference stores it.
type kindRow struct {
	resource *engine.Resource
	codec    runtime.Codec
}

// kinds are the kinds that both have, by group and kind.
func kinds(t testing.TB, registry *engine.Registry, mediaType string) map[schema.GroupKind]*kindRow {
	t.Helper()
	factory := storageFactory(t, mediaType)
	all := map[schema.GroupKind]*kindRow{}
	for _, r := range registry.Builtin().Builtin() {
		if r.Stored == nil || r.Group == "apiextensions.k8s.io" || r.Group == "apiregistration.k8s.io" {
			continue
		}
		config, err := factory.NewConfig(schema.GroupResource{Group: r.Group, Resource: r.Name}, nil)
		if err != nil {
			t.Fatalf("%s: %v", r.Stored.Path, err)
		}
		all[schema.GroupKind{Group: r.Group, Kind: r.Kind}] = &kindRow{r, config.Codec}
	}
	return all
}

// vector is a value in testdata of k8s.io/api.
type vector struct {
	release, name string // "v1.36.0", "core.v1.Pod.pb"; the release of k8s.io/api for one that was fetched
	kind          schema.GroupVersionKind
	value         []byte
}

// older are the releases whose examples are no longer in that of this one. Their servers may have written what is in an
// etcd now.
var older = []string{"v0.30.14", "v0.31.14", "v0.32.13", "v0.33.10", "v0.34.6"}

// vectors reads the values of this release and of those before it.
func vectors(t testing.TB) []vector {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	own := strings.TrimSpace(string(dir))
	files, err := filepath.Glob(filepath.Join(own, "testdata", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range older {
		out, err := exec.Command("go", "mod", "download", "-json", "k8s.io/api@"+release).Output()
		var is struct{ Dir string }
		if err == nil {
			err = json.Unmarshal(out, &is)
		}
		if err != nil {
			t.Fatalf("k8s.io/api@%s: %v", release, err)
		}
		more, err := filepath.Glob(filepath.Join(is.Dir, "testdata", "HEAD", "*"))
		if err != nil || len(more) < 100 {
			t.Fatalf("k8s.io/api@%s has %d examples: %v", release, len(more), err)
		}
		files = append(files, more...)
	}
	var all []vector
	for _, file := range files {
		name := filepath.Base(file)
		extension := filepath.Ext(name)
		if extension != ".pb" && extension != ".json" && extension != ".yaml" || strings.Contains(name, ".after_roundtrip.") {
			continue
		}
		parts := strings.Split(strings.TrimSuffix(name, extension), ".")
		if len(parts) < 3 {
			continue
		}
		value, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		last := len(parts) - 1
		group := strings.Join(parts[:last-1], ".")
		if group == "core" {
			group = ""
		}
		release := filepath.Base(filepath.Dir(file))
		if release == "HEAD" && !strings.HasPrefix(file, own) {
			release = filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(file))))
		}
		all = append(all, vector{release, name,
			schema.GroupVersionKind{Group: group, Version: parts[last-1], Kind: parts[last]}, value})
	}
	return all
}

// stored is what the reference stores after it has read a value; an error if it cannot read it.
func stored(codec runtime.Codec, value []byte) ([]byte, error) {
	obj, err := runtime.Decode(codec, value)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion("")
	accessor.SetSelfLink("")
	return runtime.Encode(codec, obj)
}

// restored is what Plinth stores after it has read a value.
func restored(form *etcdform.Form, r *engine.Resource, value []byte) (back, data []byte, exact bool, err error) {
	key := store.Key{Resource: r.Stored.Path, Name: "namespaceValue/nameValue"}
	data, sidecar, exact, err := form.Decode(key, value)
	if err != nil {
		return nil, nil, false, err
	}
	if sidecar.Form == 0 {
		if data, err = current(r.Stored, data); err != nil {
			return nil, nil, false, err
		}
	}
	back, err = form.Encode(key, data)
	return back, data, exact, err
}

// current converts an object that is not in the version in which its kind is stored, as the engine does.
func current(k *engine.Kind, data []byte) ([]byte, error) {
	parsed, err := object.ParseJSON(data)
	if err != nil {
		return nil, err
	}
	obj := parsed.Value
	if from := k.Version(obj.At("apiVersion").Str()); from.Default != nil {
		obj = from.Default(obj)
	}
	converted, err := k.Convert(context.Background(), []object.Value{obj}, k.Storage)
	if err != nil {
		return nil, err
	}
	decoded, err := k.Storage.Schema().Decode(converted[0])
	if err != nil {
		return nil, err
	}
	return object.AppendObject(nil, k.Storage.Schema().Settle(decoded.Value)), nil
}

// Every value that k8s.io/api has as an example, of this release and of the ones before it, in every encoding, is read
// as the reference's storage codec reads it, and written as that writes it. SPEC: STORE-3
func TestVectors(t *testing.T) {
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}.Every()))
	all := vectors(t)
	for _, mediaType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		form := etcdform.New(registry, mediaType)
		rows := kinds(t, registry, mediaType)
		read, unreadable := 0, map[string]bool{}
		for _, v := range all {
			row := rows[v.kind.GroupKind()]
			if row == nil {
				continue
			}
			want, err := stored(row.codec, v.value)
			back, data, exact, ourErr := restored(form, row.resource, v.value)
			switch {
			case err != nil && ourErr != nil:
				continue
			case err != nil:
				t.Errorf("%s/%s: read; the reference: %v", v.release, v.name, err)
				continue
			case ourErr != nil:
				unreadable[v.kind.GroupVersion().String()+" "+v.kind.Kind] = true
				if !slices.Contains(unread, v.kind.GroupVersion().String()+" "+v.kind.Kind) {
					t.Errorf("%s/%s: %v", v.release, v.name, ourErr)
				}
				continue
			}
			read++
			if exact != bytes.Equal(back, v.value) {
				t.Errorf("%s/%s: exact is %v", v.release, v.name, exact)
			}
			// Untyped content (RawExtension) is written in another order and without white space.
			if raw := mediaType == runtime.ContentTypeProtobuf && strings.HasSuffix(v.name, ".json"); raw &&
				slices.Contains(untyped, v.kind.Kind) {
				if bytes.Equal(back, want) {
					t.Errorf("%s/%s: untyped content is written as the reference writes it", v.release, v.name)
				}
				continue
			}
			if !bytes.Equal(back, want) {
				t.Errorf("%s %s/%s: written differently: %s\n%s", mediaType, v.release, v.name, difference(row, want, back), data)
			}
		}
		for _, name := range unread {
			if !unreadable[name] {
				t.Errorf("%s is listed as not readable, and is read", name)
			}
		}
		if read < 2500 {
			t.Errorf("only %d values were read", read)
		}
	}
}

// unread are the versions of served kinds that the reference reads and Plinth does not: their shape or their defaults
// differ, and no release since 1.30 has stored them.
var unread = []string{
	"admissionregistration.k8s.io/v1alpha1 ValidatingAdmissionPolicyBinding",
	"admissionregistration.k8s.io/v1beta1 MutatingWebhookConfiguration",
	"admissionregistration.k8s.io/v1beta1 ValidatingWebhookConfiguration",
	"apps/v1beta1 Deployment",
	"apps/v1beta1 StatefulSet",
	"certificates.k8s.io/v1beta1 CertificateSigningRequest",
	"discovery.k8s.io/v1beta1 EndpointSlice",
	"events.k8s.io/v1beta1 Event",
	"flowcontrol.apiserver.k8s.io/v1beta1 PriorityLevelConfiguration",
	"flowcontrol.apiserver.k8s.io/v1beta2 PriorityLevelConfiguration",
	"networking.k8s.io/v1beta1 Ingress",
	"networking.k8s.io/v1beta1 IngressClass",
	"node.k8s.io/v1alpha1 RuntimeClass",
	"rbac.authorization.k8s.io/v1alpha1 ClusterRole",
	"rbac.authorization.k8s.io/v1alpha1 ClusterRoleBinding",
	"rbac.authorization.k8s.io/v1alpha1 Role",
	"rbac.authorization.k8s.io/v1alpha1 RoleBinding",
	"storage.k8s.io/v1alpha1 VolumeAttachment",
}

// untyped are the kinds with a field of the type RawExtension. Of their examples, those in JSON have white space in it.
var untyped = []string{"ControllerRevision", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate"}

// difference describes how two values differ.
func difference(row *kindRow, want, got []byte) string {
	parse := func(value []byte) object.Value {
		if !proto.Enveloped(value) {
			parsed, err := object.ParseJSON(bytes.Clone(value))
			if err != nil {
				return object.StringOf(err.Error())
			}
			return parsed.Value
		}
		v, err := proto.Parse(row.resource.Stored.Storage.Schema(), value)
		if err != nil {
			return object.StringOf(err.Error())
		}
		return v
	}
	if d := valuediff.First(parse(want), parse(got)); d != "" {
		return d
	}
	at := 0
	for at < len(want) && at < len(got) && want[at] == got[at] {
		at++
	}
	around := func(b []byte) []byte { return b[max(0, at-40):min(len(b), at+60)] }
	return "at byte " + string(rune('0'+at%10)) + ": have " + string(around(got)) + "\nwant " + string(around(want))
}
