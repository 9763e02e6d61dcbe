package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/store"
	"plinth/object"
)

// writers are processes that write to the store, too: what they have written arrives when somebody wants to be sure.
type writers struct {
	arrive  func()
	current bool // what is here is known to be current, whether the caller wants to be sure or not
	failure error
	asked   []bool // whether the caller wanted to be sure
}

func (o *writers) Fresh(_ context.Context, _ store.Key, sure bool) (bool, error) {
	o.asked = append(o.asked, sure)
	if sure && o.arrive != nil {
		o.arrive()
	}
	return sure || o.current, o.failure
}

func (o *writers) Atomic(store.Key, store.Key) bool { return true }

// An object that is not there is asked for again, as another process may have written it; one that is there is not.
//
// SPEC: AUTH-3
func TestObjectsOfOtherProcesses(t *testing.T) {
	const account = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":%q,"labels":{"a":%q}}}`
	kind := kindOf{"", "v1", "serviceaccounts"}
	s := newStage(t, "AlwaysAdmit")
	s.put(t, "v1", "serviceaccounts", "ns", fmt.Sprintf(account, "there", "x"))
	others := &writers{}
	s.store.Others = others
	objects := newObjects(s.store, s.registry)
	read := func(name, want, asked string) {
		t.Helper()
		others.asked = nil
		obj, err := objects.get(t.Context(), kind, "ns", name)
		if have := fmt.Sprintf("%s %v", obj.At("metadata", "name").Str(), err); have != want {
			t.Errorf("read %q, want %q", have, want)
		}
		if have := fmt.Sprint(others.asked); have != asked {
			t.Errorf("%s: asked %s, want %s", name, have, asked)
		}
	}
	read("there", "there <nil>", "[false]")
	read("other", " <nil>", "[false true]")
	others.arrive = func() {
		others.arrive = nil
		s.put(t, "v1", "serviceaccounts", "ns", fmt.Sprintf(account, "other", "y"))
	}
	read("other", "other <nil>", "[false true]")
	others.current = true
	read("none", " <nil>", "[false]")
	others.failure = errors.New("they are gone")
	read("other", " they are gone", "[false]")
}

// What is read has its resourceVersion, and of the objects of a namespace only those that are selected are read.
//
// SPEC: AUTH-3
func TestObjectsOfNamespaces(t *testing.T) {
	const account = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":%q,"labels":{"a":%q}}}`
	kind := kindOf{"", "v1", "serviceaccounts"}
	s := newStage(t, "AlwaysAdmit")
	for _, at := range []string{"ns/b/x", "ns/a/x", "ns/c/y", "ns2/a/x", "m/a/x"} {
		part := strings.Split(at, "/")
		s.put(t, "v1", "serviceaccounts", part[0], fmt.Sprintf(account, part[1], part[2]))
	}
	s.write(t, "v1", "serviceaccounts", "ns", "d", []byte(`{"metadata":{"labels":{"a":"z"}`))
	s.put(t, "v1", "serviceaccounts", "ns", fmt.Sprintf(account, "e", "w")) // behind the one that cannot be read
	objects := newObjects(s.store, s.registry)
	versions := map[string]bool{}
	list := func(namespace, selector string) string {
		t.Helper()
		selects, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		all, err := objects.List(t.Context(), objects.resource(kind), namespace, selects)
		var names []string
		for _, obj := range all {
			names = append(names, obj.At("metadata", "name").Str())
			versions[obj.At("metadata", "resourceVersion").Str()] = true
		}
		if err != nil {
			names = append(names, "error")
		}
		return strings.Join(names, " ")
	}
	for _, c := range [][3]string{
		{"ns", "a=x", "a b"}, {"ns", "a=y", "c"}, {"ns", "", "a b c error"}, {"ns2", "", "a"}, {"n", "", ""},
		{"", "a=x", "a a b a"},
	} {
		for range 2 {
			if have := list(c[0], c[1]); have != c[2] {
				t.Errorf("in %q by %q: %q, want %q", c[0], c[1], have, c[2])
			}
		}
	}
	if len(versions) != 5 || versions[""] {
		t.Errorf("the resourceVersions are %v", versions)
	}
	for range 10 { // so that the revision has two digits
		s.put(t, "v1", "serviceaccounts", "ns", fmt.Sprintf(account, "a", "x"))
	}
	v, _ := s.store.Get(objects.resource(kind).Key("ns", "a"))
	obj, err := objects.get(t.Context(), kind, "ns", "a")
	if want := fmt.Sprint(v.Revision); err != nil || obj.At("metadata", "resourceVersion").Str() != want {
		t.Errorf("%v, %s, want %s", err, obj.At("metadata", "resourceVersion").Str(), want)
	}
}

// A type that is switched off has no objects, and an object that cannot be read is not waited for.
//
// SPEC: AUTH-3
func TestObjectsThatAreAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "AlwaysAdmit", "/serviceaccounts")
		objects, kind := newObjects(s.store, s.registry), kindOf{"", "v1", "serviceaccounts"}
		began := time.Now()
		obj, err := objects.await(t.Context(), kind, "ns", "a", time.Hour)
		all, failed := objects.list(t.Context(), kind, "ns")
		if err != nil || !obj.IsNull() || failed != nil || all != nil || time.Since(began) > 0 {
			t.Errorf("%v %v, %v %v after %v", obj, err, all, failed, time.Since(began))
		}
		s = newStage(t, "AlwaysAdmit")
		objects = newObjects(s.store, s.registry)
		s.write(t, "v1", "serviceaccounts", "ns", "bad", []byte("{"))
		if _, err := objects.await(t.Context(), kind, "ns", "bad", time.Hour); err == nil || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		// One that is made after a minute is there after a minute, and one that is never made is none after an hour.
		go func() {
			time.Sleep(time.Minute)
			s.put(t, "v1", "serviceaccounts", "ns", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"late"}}`)
		}()
		obj, err = objects.await(t.Context(), kind, "ns", "late", time.Hour)
		if name := obj.At("metadata", "name").Str(); err != nil || name != "late" || time.Since(began) != time.Minute {
			t.Errorf("%q %v after %v", name, err, time.Since(began))
		}
		obj, err = objects.await(t.Context(), kind, "ns", "never", time.Hour)
		if err != nil || !obj.IsNull() || time.Since(began) != time.Minute+time.Hour {
			t.Errorf("%v %v after %v", obj, err, time.Since(began))
		}
		// A request whose own time ends first has an error.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if obj, err = objects.await(ctx, kind, "ns", "never", time.Hour); err == nil || !object.Equal(obj, object.Nil) {
			t.Errorf("%v %v", obj, err)
		}
		// So has one that waits when the store is closed, and one that comes later.
		go func() {
			time.Sleep(time.Minute)
			if err := s.store.Close(); err != nil {
				t.Error(err)
			}
		}()
		for range 2 {
			if obj, err = objects.await(t.Context(), kind, "ns", "never", time.Hour); err == nil {
				t.Errorf("%v is found in a closed store", obj)
			}
		}
	})
}
