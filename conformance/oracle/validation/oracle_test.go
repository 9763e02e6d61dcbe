package validation

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/capabilities"

	"plinth/conformance/internal/scheme"
	"plinth/conformance/internal/strategies"
	"plinth/internal/builtin"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/validation/validationtest"
	"plinth/internal/engine"
	"plinth/internal/objectmeta"
	"plinth/object"
)

func init() {
	capabilities.Setup(true, 0) // the reference of the other tests runs with --allow-privileged
	klog.LogToStderr(false)     // upstream logs where its handwritten and its declarative validation differ
	klog.SetOutput(io.Discard)
}

const namespace = "default"

// kindUnderTest is one kind in one version, with upstream's validation and ours.
type kindUnderTest struct {
	gvk      schema.GroupVersionKind
	upstream strategies.Strategies
	resource *engine.Resource
	rules    validation.Rules
	scores   *kindScores
}

// kindsUnderTest pairs each kind that we serve with upstream's strategies for it; a kind without any is left out.
func kindsUnderTest(t testing.TB) []*kindUnderTest {
	var kinds []*kindUnderTest
	for _, r := range builtin.Resources(builtin.Config{}.Every()) {
		gvk := schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
		upstream, ok := strategies.Of[gvk.GroupKind()]
		if !ok {
			continue
		}
		kinds = append(kinds, &kindUnderTest{gvk: gvk, upstream: upstream, resource: r,
			rules: builtin.FunctionsAt(func() time.Time { return strategies.Now }, gvk.Group, gvk.Version, gvk.Kind).Rules})
	}
	if len(kinds) == 0 {
		t.Fatal("no kinds")
	}
	return kinds
}

func (k *kindUnderTest) context(subresource string) context.Context {
	ctx := request.WithUser(context.Background(),
		&user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}})
	if k.resource.Namespaced {
		ctx = request.WithNamespace(ctx, namespace)
	} else {
		ctx = request.WithNamespace(ctx, metav1.NamespaceNone)
	}
	return request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, APIGroup: k.gvk.Group, APIVersion: k.gvk.Version, Resource: k.resource.Name,
		Subresource: subresource,
	})
}

// decode turns a document into an internal object: decoded, defaulted, converted, and with the fields that the server
// sets.
func (k *kindUnderTest) decode(doc map[string]any) (runtime.Object, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	typed, err := scheme.Scheme.New(k.gvk)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, typed); err != nil {
		return nil, err
	}
	scheme.Scheme.Default(typed)
	internal, err := scheme.Scheme.ConvertToVersion(typed,
		k.gvk.GroupKind().WithVersion(runtime.APIVersionInternal).GroupVersion())
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(internal)
	if err != nil {
		return nil, err
	}
	accessor.SetUID("5f3c0cbe-3f2c-4a0e-8a4e-6a3a1d3c0001")
	accessor.SetCreationTimestamp(metav1.Unix(1700000000, 0))
	accessor.SetResourceVersion("7")
	accessor.SetManagedFields(nil)
	return internal, nil
}

// value converts an internal object to our engine's form.
func (k *kindUnderTest) value(t testing.TB, internal runtime.Object) object.Value {
	v, err := scheme.Value(k.gvk, internal)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// verdict holds the errors of both sides for one request.
type verdict struct {
	theirs, ours field.ErrorList
	input        object.Value
}

// recovered turns a panic in upstream's code into an error: the reference answers 500 for such objects.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("upstream: %v", r)
	}
}

func (k *kindUnderTest) create(t testing.TB, doc map[string]any) (_ verdict, _ runtime.Object, err error) {
	obj, err := k.decode(doc)
	if err != nil {
		return verdict{}, nil, err
	}
	ctx := k.context("")
	k.upstream.Main.PrepareForCreate(ctx, obj)
	v := verdict{input: k.value(t, obj)}
	stored := obj.DeepCopyObject()
	func() {
		defer recovered(&err)
		v.theirs = rest.ValidateCreate(ctx, obj, k.upstream.Main)
	}()
	v.ours = objectmeta.ObjectMeta(v.input.At("metadata"), k.resource.Namespaced, k.resource.ValidateName,
		field.NewPath("metadata"))
	if k.rules.Create != nil {
		v.ours = append(v.ours, k.rules.Create(v.input)...)
	}
	return v, stored, err
}

func (k *kindUnderTest) update(t testing.TB, doc map[string]any, old runtime.Object, subresource string) (_ verdict,
	_ runtime.Object, err error) {
	obj, err := k.decode(doc)
	if err != nil {
		return verdict{}, nil, err
	}
	var strategy rest.RESTUpdateStrategy = k.upstream.Main
	rule := k.rules.Update
	if subresource != "" {
		strategy = k.upstream.Subresources[subresource]
	}
	switch subresource {
	case "status":
		rule = k.rules.Status
	case "approval":
		rule = k.rules.Approval
	}
	ctx := k.context(subresource)
	old = old.DeepCopyObject()
	likeBeforeUpdate(obj, old)
	strategy.PrepareForUpdate(ctx, obj, old)
	v := verdict{input: k.value(t, obj)}
	was := k.value(t, old)
	stored := obj.DeepCopyObject()
	func() {
		defer recovered(&err)
		v.theirs = rest.ValidateUpdate(ctx, obj, old, strategy)
	}()
	v.ours = objectmeta.ObjectMetaUpdate(v.input.At("metadata"), was.At("metadata"), field.NewPath("metadata"))
	if rule != nil {
		v.ours = append(v.ours, rule(v.input, was)...)
	}
	return v, stored, err
}

// likeBeforeUpdate makes the changes that the reference makes to an object before it validates an update.
func likeBeforeUpdate(obj, old runtime.Object) {
	now, _ := meta.Accessor(obj)
	was, _ := meta.Accessor(old)
	now.SetName(was.GetName()) // a body with another name or namespace is refused before validation
	now.SetNamespace(was.GetNamespace())
	now.SetGenerateName(was.GetGenerateName()) // listed in validation.Gaps
	now.SetUID(was.GetUID())
	now.SetCreationTimestamp(was.GetCreationTimestamp())
	if was.GetDeletionTimestamp() != nil {
		now.SetDeletionTimestamp(was.GetDeletionTimestamp())
	}
	if now.GetDeletionGracePeriodSeconds() == nil {
		now.SetDeletionGracePeriodSeconds(was.GetDeletionGracePeriodSeconds())
	}
	now.SetGeneration(max(now.GetGeneration(), was.GetGeneration()))
}

// without returns the items of the first list that are not in the second.
func without(a, b []string) []string {
	var rest []string
	for _, s := range a {
		if !slices.Contains(b, s) {
			rest = append(rest, s)
		}
	}
	return rest
}

func (v verdict) String() string {
	return fmt.Sprintf("upstream: %q\nours: %q\nof %s", validationtest.Errors(v.theirs, true),
		validationtest.Errors(v.ours, true), object.AppendJSON(nil, v.input))
}
