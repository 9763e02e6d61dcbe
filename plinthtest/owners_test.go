package plinthtest

import (
	"fmt"
	"strings"
	"testing"
)

// failures is a testing.TB that collects errors.
type failures struct {
	testing.TB
	texts []string
}

func (f *failures) Helper() {}
func (f *failures) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

func TestOwns(t *testing.T) {
	p := New(t)
	c := newClient(t, p)
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	c.apply(201, "team", deployments+"/web", `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
		"spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
		"spec": {"containers": [{"name": "c", "image": "i"}]}}}}`)
	c.do(200, "PATCH", deployments+"/web?fieldManager=scaler", `{"spec": {"replicas": 2}}`)
	web := Ref{"apps", "v1", "deployments", "default", "web"}
	p.Owns(t, web, "scaler", "spec.replicas")
	p.Owns(t, web, "team", "spec.selector", ".spec.template.metadata", `spec.template.spec.containers[name="c"].image`)
	for _, test := range []struct{ manager, path, want string }{
		{"team", "spec.replicas", "is owned by scaler"},
		{"team", "spec", "is owned by scaler"},
		{"scaler", "spec.paused", "there is no such field"},
		{"nobody", "spec.template", "is owned by team"},
		{"team", "spec.strategy.type", "nobody owns it"},
	} {
		f := &failures{TB: t}
		p.Owns(f, web, test.manager, test.path)
		if len(f.texts) != 1 || !strings.Contains(f.texts[0], test.want) {
			t.Errorf("%s, %s: %q, want %q", test.manager, test.path, f.texts, test.want)
		}
	}
	f := &failures{TB: t}
	p.Owns(f, Ref{"apps", "v1", "deployments", "default", "none"}, "team", "spec")
	if len(f.texts) != 1 {
		t.Errorf("an object that is not there: %q", f.texts)
	}
}

// Two managers that overwrite each other are a fight. One that corrects the other once is none, nor is one manager
// that changes its mind, nor are managers of different fields, nor of objects that follow each other under one name.
func TestNoFights(t *testing.T) {
	p := New(t)
	c := newClient(t, p)
	set := func(name, manager, field, value string) {
		t.Helper()
		c.do(200, "PATCH", configMaps+"/"+name+"?fieldManager="+manager, fmt.Sprintf(`{"data": {%q: %q}}`, field, value))
	}
	for _, name := range []string{"once", "mind", "fields", "again", "fight"} {
		c.do(201, "POST", configMaps+"?fieldManager=maker", configMap(name, "k", "0"))
	}
	set("once", "a", "k", "1")
	set("once", "maker", "k", "0")
	for i := range 6 {
		set("mind", "a", "k", fmt.Sprint("m", i))
		set("fields", "a", "x", fmt.Sprint("x", i))
		set("fields", "b", "y", fmt.Sprint("y", i))
		c.do(200, "DELETE", configMaps+"/again", "")
		c.do(201, "POST", configMaps+"?fieldManager="+[]string{"a", "b"}[i%2], configMap("again", "k", fmt.Sprint(i)))
	}
	p.NoFights(t)
	for range 2 {
		set("fight", "a", "k", "red")
		set("fight", "b", "k", "blue")
	}
	f := &failures{TB: t}
	p.NoFights(f)
	if len(f.texts) != 1 || !strings.Contains(f.texts[0], "default/fight") || !strings.Contains(f.texts[0], ".data.k") ||
		!strings.Contains(f.texts[0], `a sets "red", b sets "blue", a sets "red", b sets "blue"`) {
		t.Errorf("the fights are %q", f.texts)
	}
}

func TestHistory(t *testing.T) {
	p := New(t, Objects([]byte(configMap("a", "n", "0"))))
	c := newClient(t, p)
	a := Ref{Version: "v1", Resource: "configmaps", Namespace: "default", Name: "a"}
	if h := p.History(a); len(h) != 1 || !strings.Contains(string(h[0].Object), `"n":"0"`) {
		t.Errorf("at first %+v", h)
	}
	for i := range 3 {
		c.do(200, "PATCH", configMaps+"/a", fmt.Sprintf(`{"data": {"n": "%d"}}`, i+1))
	}
	c.do(200, "DELETE", configMaps+"/a", "")
	c.do(201, "POST", configMaps, configMap("a", "n", "9"))
	h := p.History(a)
	var got []string
	last := int64(0)
	for _, r := range h {
		got = append(got, between(string(r.Object), `"n":"`, `"`)+fmt.Sprint(r.Deleted))
		if r.ResourceVersion <= last {
			t.Errorf("%d follows %d", r.ResourceVersion, last)
		}
		last = r.ResourceVersion
	}
	if want := "0false 1false 2false 3false 3true 9false"; strings.Join(got, " ") != want {
		t.Errorf("the history is %s, want %s", got, want)
	}
	if h := p.History(Ref{Version: "v1", Resource: "nonsense", Name: "a"}); len(h) > 0 {
		t.Errorf("of no type: %+v", h)
	}
}
