package planes

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/planes/kind"
	"plinth/internal/planes/kind/kindtest"
	"plinth/internal/store"
	"plinth/object"
)

// withObjects are planes of which there are only the objects: their store has no planes.
func withObjects(t *testing.T) *Planes {
	first := kindtest.New(t, &kind.Config{})
	return &Planes{config: Config{First: first, Now: time.Now, Logger: slog.New(slog.DiscardHandler)},
		open: map[string]*opened{}, begun: map[string]bool{}, records: map[string]*record{}, closing: context.Background()}
}

func (p *Planes) made(t *testing.T, name string) *store.Version {
	t.Helper()
	rq := &engine.Request{Resource: p.config.First.Registry.Builtin().Find(kind.Group, kind.Version, kind.Plural)}
	result, err := p.config.First.Engine.Create(t.Context(), rq, object.Parsed{
		Value: object.Fields("apiVersion", object.StringOf(kind.Group+"/"+kind.Version), "kind", object.StringOf(kind.Kind),
			"metadata", object.Fields("name", object.StringOf(name)))})
	if err != nil {
		t.Fatal(err)
	}
	return result.Object
}

// The time of a plane is over, and another one has its name by then: it stays.
//
// SPEC: BEY-10
func TestAnotherPlaneOfTheName(t *testing.T) {
	p := withObjects(t)
	uid := p.made(t, "a").Sidecar.UID
	over := time.Now().Add(-time.Hour)
	ends := map[string]ending{"a": {"of an earlier one", over}}
	if next := p.expire(ends); !next.IsZero() || len(ends) != 0 || p.find("a") == nil {
		t.Errorf("the next one is due at %s, %v are left, and the plane is there: %t", next, ends, p.find("a") != nil)
	}
	if p.expire(map[string]ending{"a": {uid, over}}); p.find("a") != nil {
		t.Error("a plane whose time is over is there")
	}
}

// A request that has found the object of a plane which ends at that moment leaves nothing behind.
//
// SPEC: BEY-11
func TestPlaneEndsWhileItIsFound(t *testing.T) {
	p := withObjects(t)
	if _, err := p.known(p.made(t, "a")); !apierr.Is(err, apierr.NotFound) {
		t.Errorf("a plane that has ended: %v", err)
	}
	if len(p.open) != 0 || len(p.records) != 0 {
		t.Errorf("%d entries and %d records are left of it", len(p.open), len(p.records))
	}
}

// What is copied of an object connects to nobody, is still an object that can be updated, and says what it was.
//
// SPEC: BEY-10
func TestCopies(t *testing.T) {
	for _, c := range []struct{ resource, obj, want, was string }{
		{"apiregistration.k8s.io/apiservices", `{"spec":{"group":"g"}}`, "", ""},
		{"apiregistration.k8s.io/apiservices", `{"spec":{"service":{"name":"s","namespace":"n","port":443}}}`,
			`{"spec":{"service":{"name":"copied-with-the-plane","namespace":"n","port":443}}}`,
			`{"name":"s","namespace":"n","port":443}`},
		{"apiextensions.k8s.io/customresourcedefinitions", `{"spec":{"conversion":{"strategy":"None"}}}`, "", ""},
		// One of service and url, and not both: a manifest with the other one could not be applied any more.
		{"apiextensions.k8s.io/customresourcedefinitions",
			`{"spec":{"conversion":{"webhook":{"clientConfig":{"service":{"name":"s","namespace":"n"}}}}}}`,
			`{"spec":{"conversion":{"webhook":{"clientConfig":{"service":{"name":"copied-with-the-plane","namespace":"n"}}}}}}`,
			`{"service":{"name":"s","namespace":"n"}}`},
		{"apiextensions.k8s.io/customresourcedefinitions",
			`{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":"Yg==","url":"https://h/"}}}}}`,
			`{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":"Yg==",` +
				`"url":"https://copied-with-the-plane.invalid/"}}}}}`,
			`{"caBundle":"Yg==","url":"https://h/"}`},
		{"admissionregistration.k8s.io/mutatingwebhookconfigurations", `{"webhooks":[{"name":"a","rules":[{}]},{"name":"b"}]}`,
			`{"webhooks":[{"name":"a"},{"name":"b"}]}`, `[{"name":"a","rules":[{}]},{"name":"b"}]`},
		{"/secrets", `{"data":{"token":"dA=="},"type":"Opaque"}`, "", ""},
		{"/secrets", `{"data":{"ca.crt":"Yw==","token":"dA=="},"type":"kubernetes.io/service-account-token"}`,
			`{"data":{"ca.crt":"Yw=="},"type":"kubernetes.io/service-account-token"}`, "a token of another plane"},
		{"/secrets", `{"data":{"token-id":"aQ==","token-secret":"cw=="},"type":"bootstrap.kubernetes.io/token"}`,
			`{"data":{"token-id":"aQ=="},"type":"bootstrap.kubernetes.io/token"}`, "a token of another plane"},
		{"admissionregistration.k8s.io/validatingwebhookconfigurations",
			`{"webhooks":[{"name":"` + strings.Repeat("a", longestOff) + `"}]}`,
			`{"webhooks":[{"name":"` + strings.Repeat("a", longestOff) + `"}]}`, "too long to be kept here"},
	} {
		parsed, err := object.ParseJSON([]byte(c.obj))
		if err != nil {
			t.Fatal(err)
		}
		changed, off := outwards[c.resource](parsed.Value)
		if c.was == "" {
			if !off.IsNull() || !object.Equal(changed, parsed.Value) {
				t.Errorf("%s: %s becomes %s", c.resource, c.obj, object.AppendJSON(nil, changed))
			}
			continue
		}
		changed = marked(changed, off)
		was := changed.At("metadata", "annotations", "plinth/off").Str()
		if have := string(object.AppendJSON(nil, changed.Without("metadata"))); have != c.want || was != c.was {
			t.Errorf("%s: %s becomes\n%s and was %s, should be\n%s and %s", c.resource, c.obj, have, was, c.want, c.was)
		}
	}
}
