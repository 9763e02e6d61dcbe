package crd

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/internal/webhook"
	"plinth/object"
	"plinth/schema"
)

// versionOf is a version of the kind of the tests, whose specs have these string fields.
func versionOf(t *testing.T, name string, fields ...string) *engine.Version {
	t.Helper()
	properties := object.MapOf()
	for _, field := range fields {
		properties = properties.With(field, object.Fields("type", object.StringOf("string")))
	}
	typ, err := schema.Structural(object.Fields("type", object.StringOf("object"), "properties", object.Fields(
		"spec", object.Fields("type", object.StringOf("object"), "properties", properties))),
		schema.StructuralOptions{Metadata: gotypes.Of[metav1.ObjectMeta]()})
	if err != nil {
		t.Fatal(err)
	}
	return &engine.Version{APIVersion: "g.example.com/" + name, Schema: func() *schema.Type { return typ }}
}

func gadgets(t *testing.T, version string, names ...string) (all []object.Value) {
	for _, name := range names {
		all = append(all, parse(t, fmt.Sprintf(`{"apiVersion":"g.example.com/%s","kind":"Gadget",
			"metadata":{"name":%q,"namespace":"n","uid":"u-%s","generation":3,"labels":{"a":"b"},"annotations":{"c":"d"}},"spec":{"old":"x","both":"y"}}`, version, name, name)))
	}
	return all
}

// SPEC: EXT-1
func TestConversionNone(t *testing.T) {
	convert := (&Definitions{}).conversion(parse(t, `{"spec":{"conversion":{"strategy":"None"}}}`))
	objects := append(gadgets(t, "v1", "a"), gadgets(t, "v2", "b")...)
	made, err := convert(t.Context(), objects, versionOf(t, "v2", "both"))
	if err != nil {
		t.Fatal(err)
	}
	if got := text(made[0]); !strings.HasPrefix(got, `{"apiVersion":"g.example.com/v2"`) || !strings.HasSuffix(got,
		`"spec":{"both":"y"}}`) {
		t.Errorf("converted: %s", got)
	}
	if made[1] != objects[1] {
		t.Errorf("what has the version already is touched: %s", text(made[1]))
	}
}

// hookServer responds to ConversionReviews with the function respond.
func hookServer(t *testing.T, respond func(review object.Value) string) (d *Definitions, config string) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		parsed, err := object.ParseJSON(body)
		if err != nil {
			t.Errorf("a request that is no JSON: %v", err)
		}
		_, _ = io.WriteString(w, respond(parsed.Value))
	}))
	t.Cleanup(s.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	config = fmt.Sprintf(`{"url":%q,"caBundle":%q}`, s.URL+"/convert", base64.StdEncoding.EncodeToString(bundle))
	return &Definitions{Call: (&webhook.Clients{}).Call}, config
}

func byWebhook(t *testing.T, config string, versions string) object.Value {
	return parse(t,
		fmt.Sprintf(
			`{"spec":{"conversion":{"strategy":"Webhook","webhook":{"clientConfig":%s,"conversionReviewVersions":%s}}}}`,
			config, versions))
}

// answer is a response of success with these objects.
func answer(review object.Value, version string, objects ...string) string {
	return fmt.Sprintf(
		`{"apiVersion":"apiextensions.k8s.io/%s","kind":"ConversionReview","response":{"uid":%q,"convertedObjects":[%s],"result":{"status":"Success"}}}`,
		version, review.At("request", "uid").Str(), strings.Join(objects, ","))
}

// renamed converts an object as a correct webhook does: spec.old is spec.new in v2.
func renamed(obj object.Value) object.Value {
	return obj.With("apiVersion", object.StringOf("g.example.com/v2")).WithAt(obj.At("spec", "old"), "spec", "new").
		WithAt(object.StringOf("seen"), "metadata", "labels", "hook")
}

// SPEC: EXT-1
func TestConversionByWebhook(t *testing.T) {
	for given, version := range map[string]string{`["v9","v1","v1beta1"]`: "v1", `["v1beta1","v1"]`: "v1beta1"} {
		calls := 0
		d, config := hookServer(t, func(review object.Value) string {
			calls++
			if is := review.At("apiVersion").Str() + review.At("request",
				"desiredAPIVersion").Str(); is != "apiextensions.k8s.io/"+version+"g.example.com/v2" {
				t.Errorf("asked for %s", is)
			}
			var made []string
			for _, obj := range review.At("request", "objects").Items() {
				// It also changes metadata that it may not change.
				made = append(made, text(renamed(obj).WithAt(object.IntOf(99), "metadata",
					"generation").WithoutAt("metadata", "annotations").WithAt(object.StringOf("z"), "spec", "unknown")))
			}
			return answer(review, version, made...)
		})
		convert := d.conversion(byWebhook(t, config, given))
		objects := append(append(gadgets(t, "v1", "a"), gadgets(t, "v2", "b")...), gadgets(t, "v1", "c")...)
		made, err := convert(t.Context(), objects, versionOf(t, "v2", "new", "both"))
		if err != nil || calls != 1 {
			t.Fatalf("%d calls, %v", calls, err)
		}
		for i, name := range []string{"a", "", "c"} {
			want := fmt.Sprintf(
				`{"apiVersion":"g.example.com/v2","kind":"Gadget","metadata":{"generation":3,"labels":{"a":"b","hook":"seen"},"name":%q,"namespace":"n","uid":"u-%s"},"spec":{"both":"y","new":"x"}}`, name, name)
			if name == "" {
				want = text(objects[1])
			}
			if got := text(made[i]); got != want {
				t.Errorf("object %d:\nhave %s\nwant %s", i, got, want)
			}
		}
		if _, err := convert(t.Context(), gadgets(t, "v2", "b"), versionOf(t, "v2")); err != nil || calls != 1 {
			t.Errorf("nothing to convert: %d calls, %v", calls, err)
		}
	}
}

// Responses that the reference refuses are refused with its message, and the error names the object.
//
// SPEC: EXT-1
func TestAnswersOfWebhooks(t *testing.T) {
	const failed = "conversion webhook for g.example.com/v1, Kind=Gadget failed: "
	const returned = "conversion webhook for g.example.com/v1, Kind=Gadget returned "
	// of is a webhook whose response has two objects, the second of them altered.
	of := func(change func(obj object.Value) object.Value) func(object.Value) string {
		return func(review object.Value) string {
			objects := review.At("request", "objects").Items()
			return answer(review, "v1", text(renamed(objects[0])), text(change(renamed(objects[1]))))
		}
	}
	set := func(value string, path ...string) func(object.Value) object.Value {
		return func(obj object.Value) object.Value { return obj.WithAt(parse(t, value), path...) }
	}
	for name, c := range map[string]struct {
		respond func(review object.Value) string
		want    string
		index   int // of the object in the error; -1: it names none
	}{
		"garbage": {func(object.Value) string { return "<html>" },
			failed + "couldn't get version/kind; json parse error: ", -1},
		"nothing": {func(object.Value) string { return "" },
			failed + "couldn't get version/kind; json parse error: ", -1},
		"another kind": {func(object.Value) string { return `{"apiVersion":"v1","kind":"Pod"}` },
			failed + "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /v1, Kind=Pod",
			-1},
		"v1beta1": {func(r object.Value) string { return answer(r, "v1beta1") },
			failed +
				"expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1beta1, Kind=ConversionReview", -1},
		"no response": {func(object.Value) string { return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}` }, failed + "no response provided", -1},
		"a text": {func(object.Value) string { return `"x"` },
			failed + "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=", -1},
		"another uid": {func(r object.Value) string {
			return strings.Replace(answer(r, "v1"), r.At("request", "uid").Str(), "liar", 1)
		}, failed + "expected response.uid=", -1},
		"no result": {func(r object.Value) string { return strings.Replace(answer(r, "v1"), `"Success"`, `""`, 1) },
			failed + "response.result.status was '', not 'Success'", -1},
		"a failure": {func(r object.Value) string {
			return strings.Replace(answer(r, "v1"), `"Success"`, `"Failed","message":"I will not"`, 1)
		}, failed + "I will not", -1},
		"too many": {func(r object.Value) string { return answer(r, "v1", "{}", "{}", "{}") },
			returned + "3 objects, expected 1", -1},
		"none": {func(r object.Value) string { return answer(r, "v1") }, returned + "0 objects, expected 1",
			-1},
		"a null": {of(func(object.Value) object.Value { return object.Nil }),
			returned + "invalid converted object at index 1: Object 'Kind' is missing in 'null'", 1},
		"an empty one": {of(func(object.Value) object.Value { return object.MapOf() }),
			returned + "invalid converted object at index 1: Object 'Kind' is missing in '{}'", 1},
		"old version": {of(set(`"g.example.com/v1"`, "apiVersion")),
			returned + "invalid object at index 1: invalid groupVersion (expected g.example.com/v2, received g.example.com/v1)",
			1},
		"odd version": {of(set(`"a/b/c"`, "apiVersion")),
			returned + "invalid object at index 1: invalid groupVersion (expected g.example.com/v2, received )", 1},
		"other kind": {of(set(`"Widget"`, "kind")),
			returned + "invalid object at index 1: invalid kind (expected Gadget, received Widget)", 1},
		"other name": {of(set(`"z"`, "metadata", "name")),
			returned + "invalid object: must have the same name: b != z", 1},
		"no namespace": {of(func(o object.Value) object.Value { return o.WithoutAt("metadata", "namespace") }),
			returned + "invalid object: must have the same namespace: n != ", 1},
		"other uid": {of(set(`7`, "metadata", "uid")),
			returned + "invalid object: must have the same UID: u-b != ", 1},
		"labels": {of(set(`["x"]`, "metadata", "labels")),
			returned + "invalid metadata: invalid metadata.labels of type []interface {} in converted object", 1},
		"a label": {of(set(`1`, "metadata", "labels", "n")),
			returned + "invalid metadata: metadata.labels[n] must be a string, but is int64 in converted object", 1},
		"a bad label": {of(set(`"-"`, "metadata", "labels", "n")),
			returned + `invalid metadata: metadata.labels: Invalid value: "-": `, 1},
		"bad annotation": {of(set(`"x"`, "metadata", "annotations", "a b")),
			returned + `invalid metadata: metadata.annotation: Invalid value: "a b": `, 1},
		"no metadata": {of(func(o object.Value) object.Value { return o.Without("metadata") }),
			returned + "invalid object: must have the same name: b != ", 1},
		// the schema is for validation to enforce
		"a wrong type": {of(set(`{"name":"b","namespace":"n","uid":"u-b"}`, "spec")), "", 1},
	} {
		d, config := hookServer(t, c.respond)
		convert := d.conversion(byWebhook(t, config, `["v1"]`))
		_, err := convert(t.Context(), gadgets(t, "v1", "a", "b"), versionOf(t, "v2", "new", "both"))
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s:\nhave %v\nwant %s", name, err, c.want)
			continue
		}
		var one *engine.ConversionError
		if index := -1; errors.As(err, &one) != (c.index >= 0) || one != nil && one.Index != c.index {
			if one != nil {
				index = one.Index
			}
			t.Errorf("%s is about object %d, not %d", name, index, c.index)
		}
	}
}

// A webhook that only works for reviews of one object, as those of the reference are, works here, too: the objects of
// its answer may have another order, or be fewer than those that were sent. Of two states of one object each has its
// own answer.
//
// SPEC: EXT-1
func TestAnswersOfWebhooksForOneObject(t *testing.T) {
	for name, c := range map[string]struct {
		respond func(made []string) []string
		calls   int
	}{
		"in order":     {func(made []string) []string { return made }, 2},
		"backwards":    {func(made []string) []string { slices.Reverse(made); return made }, 2},
		"of the first": {func(made []string) []string { return made[:1] }, 1 + 3 + 1},
	} {
		calls := 0
		d, config := hookServer(t, func(review object.Value) string {
			calls++
			var made []string
			for _, obj := range review.At("request", "objects").Items() {
				made = append(made, text(renamed(obj)))
			}
			return answer(review, "v1", c.respond(made)...)
		})
		convert := d.conversion(byWebhook(t, config, `["v1"]`))
		objects := gadgets(t, "v1", "a", "b", "a", "c")
		objects[2] = objects[2].WithAt(object.StringOf("later"), "spec", "old")
		made, err := convert(t.Context(), objects, versionOf(t, "v2", "new", "both"))
		if err != nil || calls != c.calls {
			t.Errorf("%s: %d calls, %v", name, calls, err)
			continue
		}
		for i, obj := range objects {
			for is, want := range map[string]string{
				made[i].At("metadata", "name").Str(): obj.At("metadata", "name").Str(),
				made[i].At("spec", "new").Str():      obj.At("spec", "old").Str(),
			} {
				if is != want {
					t.Errorf("%s: object %d: have %q, want %q", name, i, is, want)
				}
			}
		}
	}
}

// The error of a webhook that answers is not, or not certainly, about all objects of a review alike.
//
// SPEC: EXT-1
func TestErrorsOfAnswersAreNotAboutEveryObject(t *testing.T) {
	broken := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(broken.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: broken.Certificate().Raw})
	failing, config := hookServer(t, func(review object.Value) string {
		return strings.Replace(answer(review, "v1"), `"Success"`, `"Failed","message":"I will not"`, 1)
	})
	for _, config := range []string{config,
		fmt.Sprintf(`{"url":%q,"caBundle":%q}`, broken.URL, base64.StdEncoding.EncodeToString(bundle))} {
		_, err := failing.conversion(byWebhook(t, config, `["v1"]`))(t.Context(), gadgets(t, "v1", "a", "b"),
			versionOf(t, "v2"))
		if _, all := errors.AsType[*engine.ConversionError](err); err == nil || all {
			t.Errorf("have %v", err)
		}
	}
}

// SPEC: EXT-1
func TestWebhooksThatCannotBeCalled(t *testing.T) {
	to := versionOf(t, "v2")
	gone := httptest.NewTLSServer(http.NotFoundHandler())
	config := fmt.Sprintf(`{"url":%q}`, gone.URL)
	gone.Close()
	call := (&webhook.Clients{}).Call
	for _, c := range []struct {
		d        *Definitions
		versions string
		want     string
	}{
		{&Definitions{Call: call}, `["v1"]`, "connection refused"},
		{&Definitions{Call: call}, `["v7"]`, "failed: no supported conversion review versions"},
		{&Definitions{}, `["v1"]`, "failed: this server calls no webhooks"},
	} {
		convert := c.d.conversion(byWebhook(t, config, c.versions))
		if _, err := convert(t.Context(), gadgets(t, "v1", "a"), to); err == nil || !strings.HasSuffix(err.Error(),
			c.want) ||
			!strings.HasPrefix(err.Error(), "conversion webhook for g.example.com/v1, Kind=Gadget failed: ") {
			t.Errorf("have %v, want %s", err, c.want)
		} else if all, ok := errors.AsType[*engine.ConversionError](err); !ok || all.Index != engine.EveryObject {
			t.Errorf("%v is not about every object", err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	convert := (&Definitions{Call: call}).conversion(byWebhook(t, config, `["v1"]`))
	if _, err := convert(ended, gadgets(t, "v1", "a"), to); !errors.Is(err, context.Canceled) {
		t.Errorf("the request is over, and the error is %v", err)
	}
}
