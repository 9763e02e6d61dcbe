// Package policies runs the examples of a policy library against a server: each has objects that its policy lets
// through, and such that it stops or changes.
package policies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/modules"
)

func TestMain(m *testing.M) { harness.Main(m) }

// library has the examples: those of Kyverno's command for admission policies of Kubernetes.
const library = "github.com/kyverno/kyverno@v1.19.1"

// example is the file that says what becomes of the objects of a folder.
type example struct {
	Policies, Resources, ParamResources []string
	Results                             []struct {
		Kind, Result, PatchedResources string
		Resources                      []string
	}
	UserInfo, Variables string
}

// bench is a server with its clients.
type bench struct {
	*testing.T
	config *rest.Config
	mapper meta.RESTMapper
	admin  dynamic.Interface
}

// POLICIES=1 runs the examples: the module with them has 60 MB.
//
// SPEC: AUTH-3
func TestKyverno(t *testing.T) {
	if os.Getenv("POLICIES") == "" {
		t.Skip("POLICIES is not set")
	}
	folder, err := modules.Folder(library)
	if err != nil {
		t.Fatal(err)
	}
	server := harness.RunTarget(t)
	b := &bench{T: t}
	if b.config, err = server.Config(); err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClientForConfigOrDie(b.config))
	if err != nil {
		t.Fatal(err)
	}
	b.mapper, b.admin = restmapper.NewDiscoveryRESTMapper(groups), dynamic.NewForConfigOrDie(b.config)
	files, err := filepath.Glob(filepath.Join(folder, "test/cli/test-*-admission-policy/*/kyverno-test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir), func(t *testing.T) {
			one := *b
			one.T = t
			one.example(file, count)
		})
	}
	if len(files) < 24 || count["pass"] < 24 || count["fail"] < 10 || count["changed"] < 14 {
		t.Errorf("%d examples, %v", len(files), count)
	}
}

// example installs the policies of an example, and sends its objects.
func (b *bench) example(file string, count map[string]int) {
	dir := filepath.Dir(file)
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	var of example
	if err := yaml.Unmarshal(text, &of); err != nil {
		b.Fatal(err)
	}
	objects := b.read(dir, of.Resources...)
	b.namespaces(dir, of.Variables, slices.Concat(objects, b.read(dir, of.ParamResources...)))
	policies := b.read(dir, of.Policies...)
	for _, obj := range slices.Concat(b.read(dir, of.ParamResources...), policies, bindingsFor(policies)) {
		b.install(obj)
	}
	sender := b.as(dir, of.UserInfo)
	for _, result := range of.Results {
		for _, obj := range objects {
			if obj.GetKind() == result.Kind && slices.Contains(result.Resources, obj.GetName()) {
				b.send(sender, obj, result.Result, b.patched(dir, result.PatchedResources, obj), count)
			}
		}
	}
}

// read reads the objects of files.
func (b *bench) read(dir string, names ...string) (all []*unstructured.Unstructured) {
	b.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			b.Fatal(err)
		}
		for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			var obj unstructured.Unstructured
			err := decoder.Decode(&obj.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			if obj.Object != nil {
				mend(obj.Object)
				all = append(all, &obj)
			}
		}
	}
	return all
}

// mend adds what the API demands, and Kyverno's command does not: some examples leave it out.
func mend(obj map[string]any) {
	spec, _ := obj["spec"].(map[string]any)
	if data, ok := obj["data"].(map[string]any); ok {
		for key, value := range data {
			data[key] = fmt.Sprint(value)
		}
	}
	rules, _, _ := unstructured.NestedSlice(obj, "spec", "matchConstraints", "resourceRules")
	for _, rule := range rules {
		if rule, ok := rule.(map[string]any); ok && rule["operations"] == nil {
			rule["operations"] = []any{"CREATE"}
		}
	}
	if rules != nil {
		_ = unstructured.SetNestedSlice(obj, rules, "spec", "matchConstraints", "resourceRules") // it is there
	}
	if spec["policyName"] == nil {
		return
	}
	if ref, ok := spec["paramRef"].(map[string]any); ok && ref["parameterNotFoundAction"] == nil {
		ref["parameterNotFoundAction"] = "Deny"
	}
	if obj["kind"] == "ValidatingAdmissionPolicyBinding" && spec["validationActions"] == nil {
		spec["validationActions"] = []any{"Deny"}
	}
}

// bindingsFor are bindings of the policies that have none: Kyverno applies a policy without one to everything.
func bindingsFor(objects []*unstructured.Unstructured) (all []*unstructured.Unstructured) {
	bound := map[string]bool{}
	for _, obj := range objects {
		if name, ok, _ := unstructured.NestedString(obj.Object, "spec", "policyName"); ok {
			bound[name] = true
		}
	}
	for _, obj := range objects {
		if _, is, _ := unstructured.NestedString(obj.Object, "spec", "policyName"); is || bound[obj.GetName()] {
			continue
		}
		spec := map[string]any{"policyName": obj.GetName()}
		if obj.GetKind() == "ValidatingAdmissionPolicy" {
			spec["validationActions"] = []any{"Deny"}
		}
		all = append(all, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": obj.GetAPIVersion(), "kind": obj.GetKind() + "Binding",
			"metadata": map[string]any{"name": obj.GetName()}, "spec": spec,
		}})
	}
	return all
}

// namespaces makes the namespaces of objects, with the labels that a file says they have.
func (b *bench) namespaces(dir, variables string, objects []*unstructured.Unstructured) {
	all := map[string]map[string]string{}
	for _, obj := range objects {
		if obj.GetKind() != "Namespace" && obj.GetNamespace() != "" {
			all[obj.GetNamespace()] = nil
		}
	}
	if variables != "" {
		text, err := os.ReadFile(filepath.Join(dir, variables))
		if err != nil {
			b.Fatal(err)
		}
		var values struct {
			NamespaceSelector []struct {
				Name   string
				Labels map[string]string
			}
		}
		if err := yaml.Unmarshal(text, &values); err != nil {
			b.Fatal(err)
		}
		for _, ns := range values.NamespaceSelector {
			all[ns.Name] = ns.Labels
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		ns.SetName(name)
		ns.SetLabels(all[name])
		_, err := b.on(b.admin, ns).Create(b.Context(), ns, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			_, err = b.on(b.admin, ns).Update(b.Context(), ns, metav1.UpdateOptions{})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// on is the client of the type of an object.
func (b *bench) on(client dynamic.Interface, obj *unstructured.Unstructured) dynamic.ResourceInterface {
	b.Helper()
	gvk := obj.GroupVersionKind()
	mapping, err := b.mapper.RESTMapping(schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind}, gvk.Version)
	if err != nil {
		b.Fatal(err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return client.Resource(mapping.Resource)
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace("default")
	}
	return client.Resource(mapping.Resource).Namespace(obj.GetNamespace())
}

// install creates an object for the time of the test. Policies are of the version that both servers have.
func (b *bench) install(obj *unstructured.Unstructured) {
	b.Helper()
	if gvk := obj.GroupVersionKind(); gvk.Group == "admissionregistration.k8s.io" {
		obj.SetAPIVersion(gvk.Group + "/v1")
	}
	on := b.on(b.admin, obj)
	if _, err := on.Create(b.Context(), obj, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	name := obj.GetName()
	b.Cleanup(func() {
		if err := on.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			b.Error(err)
		}
	})
}

// as is the client of the user that a file describes; "": of the administrator.
func (b *bench) as(dir, file string) dynamic.Interface {
	if file == "" {
		return b.admin
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		b.Fatal(err)
	}
	var user struct {
		UserInfo struct {
			Username string
			Groups   []string
		}
	}
	if err := yaml.Unmarshal(text, &user); err != nil {
		b.Fatal(err)
	}
	config := rest.CopyConfig(b.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user.UserInfo.Username, Groups: user.UserInfo.Groups}
	return dynamic.NewForConfigOrDie(config)
}

// patched is what an object is to become; nil: the example does not say it.
func (b *bench) patched(dir, file string, of *unstructured.Unstructured) *unstructured.Unstructured {
	if file == "" {
		return nil
	}
	for _, obj := range b.read(dir, file) {
		if obj.GetKind() == of.GetKind() && obj.GetName() == of.GetName() {
			return obj
		}
	}
	return nil
}

// send creates an object in a dry run, until the answer is the expected one: the reference takes a while to notice
// policies.
func (b *bench) send(by dynamic.Interface, obj *unstructured.Unstructured, result string,
	patched *unstructured.Unstructured, count map[string]int) {
	wrong := ""
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		made, err := b.on(by, obj).Create(b.Context(), obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		refused := apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
		switch {
		case err != nil && !refused:
			b.Fatalf("%s: %v", obj.GetName(), err)
		case refused != (result == "fail"):
			wrong = "refused: " + errorText(err)
		case patched != nil && !contains(made.Object, patched.Object):
			text, _ := yaml.Marshal(made.Object)
			wrong = "made\n" + string(text)
		default:
			count[result]++
			if patched != nil && !contains(obj.Object, patched.Object) {
				count["changed"]++
			}
			return
		}
		if time.Now().After(end) {
			b.Errorf("%s: want %s; %s", obj.GetName(), result, wrong)
			return
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return "no"
	}
	return err.Error()
}

// contains says whether a value has everything that another has: the server fills in defaults.
func contains(whole, part any) bool {
	switch part := part.(type) {
	case map[string]any:
		of, ok := whole.(map[string]any)
		for key, v := range part {
			ok = ok && contains(of[key], v)
		}
		return ok
	case []any:
		of, ok := whole.([]any)
		ok = ok && len(of) == len(part)
		for i := range part {
			ok = ok && contains(of[i], part[i])
		}
		return ok
	case nil:
		return true
	}
	return fmt.Sprint(whole) == fmt.Sprint(part) // numbers are of two types
}
