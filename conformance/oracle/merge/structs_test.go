package merge

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/kubernetes/scheme"

	"plinth/object"
)

// structs is upstream with built-in objects as Go structs, which is what they are in the API server.
type structs struct{ upstream }

// typedConvertor converts unstructured objects to Go structs, as the scheme of the API server does.
type typedConvertor struct{ *upstreamKind }

// ConvertToVersion converts within the only version.
func (typedConvertor) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	if to, ok := target.KindForGroupVersionKinds([]gvk.GroupVersionKind{from}); !ok || to != from {
		return nil, runtime.NewNotRegisteredErrForTarget(from.Kind, reflect.TypeOf(in), target)
	}
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	return structOf(u)
}

// New makes the Go struct of a kind.
func (typedConvertor) New(of gvk.GroupVersionKind) (runtime.Object, error) {
	out, err := scheme.Scheme.New(of)
	if err == nil {
		out.GetObjectKind().SetGroupVersionKind(of)
	}
	return out, err
}

func (structs) manager(w write) (*managedfields.FieldManager, error) {
	k := typedConvertor{w.kind.forUpstream()}
	gv, err := gvk.ParseGroupVersion(w.apiVersion())
	if err != nil {
		return nil, err
	}
	return managedfields.NewDefaultCRDFieldManager(k.types, k, k, k, gv.WithKind(k.name), gv, w.subresource,
		k.filters(w.subresource))
}

func structOf(u *unstructured.Unstructured) (runtime.Object, error) {
	out, err := scheme.Scheme.New(u.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}

func valueOfStruct(o runtime.Object) (object.Value, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return object.Nil, err
	}
	return valueOfObject(&unstructured.Unstructured{Object: fields}), nil
}

// ready returns a field manager and the live object for it.
func (e structs) ready(w write, live object.Value) (*managedfields.FieldManager, runtime.Object, error) {
	m, err := e.manager(w)
	if err != nil {
		return nil, nil, err
	}
	there, err := structOf(w.orEmpty(live))
	return m, there, err
}

// Apply implements engine.
func (e structs) Apply(w write, live, intent object.Value) (object.Value, error) {
	m, there, err := e.ready(w, live)
	if err != nil {
		return object.Nil, err
	}
	result, err := m.Apply(there, objectOf(intent), w.manager, w.force)
	if err != nil {
		return object.Nil, refusalOf(err)
	}
	return valueOfStruct(result)
}

// Update implements engine.
func (e structs) Update(w write, live, updated object.Value) (object.Value, error) {
	m, there, err := e.ready(w, live)
	if err != nil {
		return object.Nil, err
	}
	asked, err := structOf(objectOf(updated))
	if err != nil {
		return object.Nil, err
	}
	return valueOfStruct(m.UpdateNoErrors(there, asked, w.manager))
}

// TestGoStructs compares upstream with itself: its results are the same for Go structs and unstructured objects.
func TestGoStructs(t *testing.T) {
	builtinKinds()
	ran := 0
	for number := uint64(1); ran < 20; number++ {
		synctest.Test(t, func(t *testing.T) {
			h, _ := newGenerator(*seed, number).history(*length, time.Now)
			if !h.kind.builtin {
				return
			}
			ran++
			d := h.difference(structs{}, func(name string) { t.Errorf("history %d: %s", number, name) })
			if d != nil && !d.moody {
				t.Errorf("history %d:\n%s", number, h.scenario(fmt.Sprint("Go structs make a difference at ", d.at), d))
			}
		})
	}
}
