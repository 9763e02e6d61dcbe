package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/generated/openapi"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"plinth/conformance/internal/native"
	"plinth/object"
)

// upstream is the field manager of Kubernetes, put together as the API server does it.
type upstream struct{}

// upstreamKind holds what upstream needs for a kind, made once. It also implements upstream's interfaces for
// conversion, defaulting and creation.
type upstreamKind struct {
	*kind
	types managedfields.TypeConverter
}

// models returns the OpenAPI definitions of the built-in types.
var models = sync.OnceValues(func() (map[string]*spec.Schema, error) {
	config := genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions,
		openapinamer.NewDefinitionNamer(scheme.Scheme))
	return builder3.BuildOpenAPIDefinitionsForResources(config, modelNames()...)
})

// modelNames returns the names of the built-in kinds' models.
func modelNames() []string {
	add := func(name string) string {
		model, err := scheme.Scheme.ToOpenAPIDefinitionName(gvkOf(name))
		if err != nil {
			panic(err)
		}
		return model
	}
	names := []string{add("autoscaling/v1/Scale")}
	for _, b := range builtins {
		names = append(names, add(b.name))
	}
	return names
}

var builtinTypes = sync.OnceValues(func() (managedfields.TypeConverter, error) {
	all, err := models()
	if err != nil {
		return nil, err
	}
	return managedfields.NewTypeConverter(all, false)
})

// metaModels returns the definitions that metadata refers to.
var metaModels = sync.OnceValues(func() (map[string]*spec.Schema, error) {
	all, err := models()
	if err != nil {
		return nil, err
	}
	const apis = "io.k8s.apimachinery.pkg.apis.meta.v1."
	out := map[string]*spec.Schema{}
	for _, name := range []string{"ObjectMeta", "OwnerReference", "ManagedFieldsEntry", "FieldsV1", "Time"} {
		if out[apis+name] = all[apis+name]; out[apis+name] == nil {
			return nil, errors.New("no model of " + name)
		}
	}
	return out, nil
})

func (k *kind) forUpstream() *upstreamKind {
	k.once.Do(func() {
		types, err := k.typeConverter()
		if err != nil {
			panic(fmt.Sprintf("upstream's types of %s: %v", k.name, err))
		}
		k.upstream = &upstreamKind{k, types}
	})
	return k.upstream
}

func (k *kind) typeConverter() (managedfields.TypeConverter, error) {
	if k.builtin {
		return builtinTypes()
	}
	if k.versions[0].root == nil {
		return managedfields.NewDeducedTypeConverter(), nil
	}
	meta, err := metaModels()
	if err != nil {
		return nil, err
	}
	all := map[string]*spec.Schema{}
	for name, model := range meta {
		all[name] = model
	}
	for _, v := range k.versions {
		text, err := json.Marshal(v.root)
		if err != nil {
			return nil, err
		}
		model := &spec.Schema{}
		if err := json.Unmarshal(text, model); err != nil {
			return nil, err
		}
		model.AddExtension("x-kubernetes-group-version-kind", []any{
			map[string]any{"group": k.group, "version": v.name, "kind": k.name},
		})
		all[k.group+"."+v.name+"."+k.name] = model
	}
	return managedfields.NewTypeConverter(all, false)
}

// Convert is not called by the field manager.
func (k *upstreamKind) Convert(_, _, _ any) error { return errors.New("not asked for") }

// ConvertFieldLabel is not called by the field manager.
func (k *upstreamKind) ConvertFieldLabel(gvk.GroupVersionKind, string, string) (string, string, error) {
	return "", "", errors.New("not asked for")
}

// ConvertToVersion converts through values, as a conversion webhook does through JSON.
func (k *upstreamKind) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	if from.Group == "autoscaling" && from.Kind == "Scale" && k.name != "Scale" {
		return in, nil
	}
	switch { // a scheme requires this of an unstructured object, the converter of custom resources does not
	case from.Kind == "" && !k.forgetful:
		return nil, runtime.NewMissingKindErr("")
	case from.Version == "" && !k.forgetful:
		return nil, runtime.NewMissingVersionErr("")
	}
	to, ok := target.KindForGroupVersionKinds([]gvk.GroupVersionKind{from})
	if !ok && k.forgetful {
		return nil, fmt.Errorf("%v is unstructured and is not suitable for converting to %q", from, target)
	}
	if !ok {
		return nil, runtime.NewNotRegisteredErrForTarget(k.name, reflect.TypeOf(in), target)
	}
	if to == from {
		return in, nil
	}
	if k.broken != nil {
		if err := k.broken(); err != nil {
			return nil, err
		}
	}
	converted, err := k.convert(valueOfObject(in), to.GroupVersion().String())
	missing := errNotServed{}
	if errors.As(err, &missing) && k.forgetful {
		return nil, fmt.Errorf("request to convert CR to an invalid group/version: %s", to.GroupVersion())
	}
	if errors.As(err, &missing) {
		return nil, runtime.NewNotRegisteredErrForKind(k.name, to)
	}
	if err != nil {
		return nil, err
	}
	return objectOf(converted), nil
}

// Default does nothing: defaulting is not part of the field manager.
func (k *upstreamKind) Default(runtime.Object) {}

// New makes an empty object: an unstructured one of a custom kind, the zero value of a built-in kind.
func (k *upstreamKind) New(of gvk.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	if k.builtin {
		zero, err := scheme.Scheme.New(of)
		if err != nil {
			return nil, err
		}
		if u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(zero); err != nil {
			return nil, err
		}
	}
	u.SetGroupVersionKind(of)
	return u, nil
}

func objectOf(v object.Value) *unstructured.Unstructured {
	m, ok := native.Of(v, nil).(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	return &unstructured.Unstructured{Object: m}
}

func valueOfObject(o runtime.Object) object.Value {
	text, err := json.Marshal(o.(*unstructured.Unstructured).Object)
	if err != nil {
		panic(err)
	}
	return parse(string(text))
}

// manager puts a field manager together. It has the filters of all versions of a kind, as in the API server.
func (upstream) manager(w write) (*managedfields.FieldManager, error) {
	k := w.kind.forUpstream()
	gv, err := gvk.ParseGroupVersion(w.apiVersion())
	if err != nil {
		return nil, err
	}
	return managedfields.NewDefaultCRDFieldManager(k.types, k, k, k, gv.WithKind(k.name), gv, w.subresource,
		k.filters(w.subresource))
}

// filters returns the fields that a write to a subresource does not own, in every version.
func (k *kind) filters(subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	filters := map[fieldpath.APIVersion]fieldpath.Filter{}
	if names := k.resets(subresource); len(names) > 0 {
		set := fieldpath.NewSet()
		for _, name := range names {
			set.Insert(fieldpath.MakePathOrDie(name))
		}
		for _, v := range k.versions {
			filters[fieldpath.APIVersion(k.apiVersion(v.name))] = fieldpath.NewExcludeSetFilter(set)
		}
	}
	return filters
}

// Apply implements engine.
func (u upstream) Apply(w write, live, intent object.Value) (object.Value, error) {
	m, err := u.manager(w)
	if err != nil {
		return object.Nil, err
	}
	result, err := recovered(func() (runtime.Object, error) {
		return m.Apply(w.orEmpty(live), objectOf(intent), w.manager, w.force)
	})
	if err != nil {
		return object.Nil, refusalOf(err)
	}
	return valueOfObject(result), nil
}

// recovered returns the internal error with which the API server responds after a panic.
func recovered(do func() (runtime.Object, error)) (o runtime.Object, err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("panic: %v\n%s", what, debug.Stack())
		}
	}()
	return do()
}

// Update implements engine. An update is never refused: after an error, the managedFields are those from before.
func (u upstream) Update(w write, live, updated object.Value) (object.Value, error) {
	m, err := u.manager(w)
	if err != nil {
		return object.Nil, err
	}
	asked := objectOf(updated)
	result, err := m.Update(w.orEmpty(live), asked, w.manager)
	if err != nil {
		asked.SetManagedFields(objectOf(live).GetManagedFields())
		return valueOfObject(asked), &refusal{kind: untracked, message: err.Error()}
	}
	return valueOfObject(result), nil
}

// orEmpty returns the live object, or the empty one that the API server begins with.
func (w write) orEmpty(live object.Value) *unstructured.Unstructured {
	if !live.IsNull() {
		return objectOf(live)
	}
	gv, err := gvk.ParseGroupVersion(w.apiVersion())
	if err != nil {
		panic(err)
	}
	o, err := w.kind.forUpstream().New(gv.WithKind(w.kind.name))
	if err != nil {
		panic(err)
	}
	return o.(*unstructured.Unstructured)
}

func refusalOf(err error) *refusal {
	status := apierrors.APIStatus(nil)
	switch {
	case apierrors.IsConflict(err) && errors.As(err, &status):
		r := &refusal{kind: "conflict", message: status.Status().Message}
		for _, c := range status.Status().Details.Causes {
			if c.Type != metav1.CauseTypeFieldManagerConflict {
				r.message += " (cause " + string(c.Type) + ")"
			}
			r.conflicts = append(r.conflicts, conflict{c.Field, c.Message})
		}
		return r
	case apierrors.IsBadRequest(err):
		return &refusal{kind: "bad request", message: err.Error()}
	}
	return &refusal{kind: "internal", message: err.Error()}
}

// scaleHandler maps between the managedFields of an object and those of its scale.
func (upstream) scaleHandler(w write, parent object.Value) (*managedfields.ScaleHandler, error) {
	entries, err := entriesOf(parent)
	if err != nil {
		return nil, err
	}
	mappings := managedfields.ResourcePathMappings{}
	for apiVersion, path := range w.kind.scale {
		mappings[apiVersion] = nil
		if path != "" {
			parts := []any{"spec"}
			for _, name := range strings.Split(path, ".") {
				parts = append(parts, name)
			}
			mappings[apiVersion] = fieldpath.MakePathOrDie(parts...)
		}
	}
	gv, err := gvk.ParseGroupVersion(w.apiVersion())
	if err != nil {
		return nil, err
	}
	return managedfields.NewScaleHandler(entries, gv, mappings), nil
}

// ToScale implements engine.
func (u upstream) ToScale(w write, parent object.Value) (object.Value, error) {
	h, err := u.scaleHandler(w, parent)
	if err != nil {
		return object.Nil, err
	}
	return valueOfEntries(h.ToSubresource())
}

// FromScale implements engine.
func (u upstream) FromScale(w write, parent, scale object.Value) (object.Value, error) {
	h, err := u.scaleHandler(w, parent)
	if err != nil {
		return object.Nil, err
	}
	entries, err := entriesOf(scale)
	if err != nil {
		return object.Nil, err
	}
	return valueOfEntries(h.ToParent(entries))
}

func entriesOf(managed object.Value) ([]metav1.ManagedFieldsEntry, error) {
	var entries []metav1.ManagedFieldsEntry
	err := json.Unmarshal(object.AppendJSON(nil, managed), &entries)
	return entries, err
}

func valueOfEntries(entries []metav1.ManagedFieldsEntry, err error) (object.Value, error) {
	if err != nil {
		return object.Nil, refusalOf(err)
	}
	if entries == nil {
		return object.Nil, nil
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return object.Nil, err
	}
	return parse(string(text)), nil
}
