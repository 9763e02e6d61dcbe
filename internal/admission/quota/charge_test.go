package quota

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// newStore is a store with charges, and a function that writes an object ("": deletes it) and returns its version.
func newStore(t *testing.T) (*Charges, *store.Store, func(resource, name, text string) *store.Version) {
	t.Helper()
	registry := engine.NewRegistry(builtin.Resources(builtin.Config{}))
	charges := &Charges{}
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(registry), Charge: charges.Of,
		Rules: Quotas})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return charges, s, func(resource, name, text string) *store.Version {
		t.Helper()
		change := store.Change{Key: store.Key{Resource: resource, Name: name}}
		if parsed, err := object.ParseJSON([]byte(text)); err == nil {
			obj := parsed.Value.WithAt(object.StringOf("u"), "metadata", "uid")
			change.Data = object.AppendObject(nil,
				obj.WithAt(object.StringOf("2024-01-01T00:00:00Z"), "metadata", "creationTimestamp"))
		} else if text != "" {
			change.Data = []byte(text)
		}
		if _, err := s.Commit(t.Context(), nil, []store.Change{change}); err != nil {
			t.Fatal(err)
		}
		v, _ := s.Get(change.Key)
		return v
	}
}

// amountsOf is a charge as text.
func amountsOf(list []store.Amount) string {
	var all []string
	for i := range list {
		all = append(all, list[i].Name+"="+list[i].Value.String())
	}
	return strings.Join(all, " ")
}

const (
	podText = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"ns"%s},"spec":{"containers":[` +
		`{"name":"c","image":"i","resources":{"requests":{"cpu":"%s"}}}]%s}}`
	claimText = `{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"r","namespace":"ns"%s},` +
		`"spec":{"devices":{"requests":[{"name":"r",%s}]}}}`
)

// Charges of objects that are alike are one, but those that depend on more than class and amounts are not.
//
// SPEC: AUTH-5
func TestSharedCharges(t *testing.T) {
	charges, _, put := newStore(t)
	of := func(resource, text string) *store.Charge { return charges.Of(put(resource, "ns/x", text)) }
	pod := func(meta, cpu, spec string) *store.Charge { return of(pods, fmt.Sprintf(podText, meta, cpu, spec)) }
	first := pod("", "1", "")
	for name, other := range map[string]*store.Charge{
		"amounts": pod("", "2", ""), "class": pod("", "1", `,"priorityClassName":"high"`),
		"end": pod(`,"deletionGracePeriodSeconds":5,"deletionTimestamp":"2024-01-01T00:00:00Z"`, "1", ""),
	} {
		if other == first {
			t.Errorf("charges that differ in their %s are one", name)
		}
	}
	if pod("", "1", "") != first {
		t.Error("charges that are alike are two")
	}
	if one, two := of("/configmaps", `{}`), of("/configmaps", `{}`); one != two {
		t.Error("the charges of what only counts are two")
	}
	quota := `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q","namespace":"ns"},` +
		`"spec":{"hard":{"pods":"%d"}}}`
	one, two := of(Quotas, fmt.Sprintf(quota, 1)), of(Quotas, fmt.Sprintf(quota, 2))
	if one == two || one.Rule != "x\x00"+`{"hard":{"pods":"1"}}` || two.Rule != "x\x00"+`{"hard":{"pods":"2"}}` {
		t.Errorf("the rules are %q and %q", one.Rule, two.Rule)
	}
	claim := func(owner string) *store.Charge {
		return of(resourceClaims, fmt.Sprintf(claimText, `,"annotations":{`+
			`"resource.kubernetes.io/extended-resource-claim":"true"},"ownerReferences":[{"apiVersion":"v1","kind":"Pod",`+
			`"name":"p","uid":"`+owner+`","controller":true}]`,
			`"exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":1}`))
	}
	if a, b := claim("a"), claim("b"); a.Note == b.Note {
		t.Errorf("the notes are %v and %v", a.Note, b.Note)
	}
}

// What is charged for each stored object, and for those that cannot be read.
//
// SPEC: AUTH-5
func TestCharges(t *testing.T) {
	charges, _, put := newStore(t)
	gpus := `"deviceClassName":"gpu","allocationMode":"ExactCount","count":2`
	for _, c := range []struct{ resource, text, want string }{
		{"/configmaps", `{"metadata":{"name":"x","namespace":"ns"}}`, "configmaps=1 count/configmaps=1"},
		{"apps/deployments", `{"metadata":{"name":"x","namespace":"ns"}}`, "count/deployments.apps=1"},
		{pods, fmt.Sprintf(podText, "", "2", ""), "count/pods=1 cpu=2 pods=1 requests.cpu=2"},
		{pods, "{", "count/pods=1"},
		{pods, `{"spec":{"containers":[{"name":"c"}]}}`, "count/pods=1 pods=1"},
		{resourceClaims, strings.Replace(fmt.Sprintf(claimText, "", `"exactly":{`+gpus+`}`), "/v1", "/v1beta2", 1),
			"count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=2"},
		{Quotas, "{", "count/resourcequotas=1 resourcequotas=1"},
		{resourceClaims, fmt.Sprintf(claimText, "", `"exactly":{`+gpus+`}`),
			"count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=2"},
		{resourceClaims, fmt.Sprintf(claimText, "", `"exactly":{"deviceClassName":"gpu",`+
			`"allocationMode":"ExactCount","count":3000}`),
			"count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=3k"},
		{resourceClaims, fmt.Sprintf(claimText, "", `"newer":{}`), "count/resourceclaims.resource.k8s.io=1"},
		{services, `{"spec":{"type":"LoadBalancer","ports":[{"port":1},{"port":2}]}}`,
			"count/services=1 services=1 services.loadbalancers=1 services.nodeports=2"},
		{claims, `{"spec":{"resources":{"requests":{"storage":"1Gi"}}},` +
			`"status":{"allocatedResources":{"storage":"1073741824"}}}`,
			"count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=1Gi"},
		{resourceClaims, fmt.Sprintf(claimText, "", gpus), // of v1beta1
			"count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=2"},
		{resourceClaims, "{", "count/resourceclaims.resource.k8s.io=1"},
	} {
		for range 2 {
			if have := amountsOf(charges.Of(put(c.resource, "ns/x", c.text)).Amounts); have != c.want {
				t.Errorf("%s %s\nis charged %q\nwant %q", c.resource, c.text, have, c.want)
			}
		}
	}
	sum := one
	sum.Add(number(999))
	if sum.String() != "1k" {
		t.Errorf("a thousand objects are %s", sum.String())
	}
	for _, resource := range []string{"/events", "events.k8s.io/events", internal + "x"} {
		if charge := charges.Of(&store.Version{Key: store.Key{Resource: resource, Name: "ns/x"}}); charge != nil {
			t.Errorf("%s is charged %v", resource, charge)
		}
	}
}

// A Pod that is deleted counts as an object alone, after its grace.
//
// SPEC: AUTH-5
func TestEndOfPods(t *testing.T) {
	end := time.Date(2024, 1, 1, 0, 0, 5, 0, time.UTC)
	parsed, err := object.ParseJSON(fmt.Appendf(nil, podText,
		`,"deletionGracePeriodSeconds":5,"deletionTimestamp":"2024-01-01T00:00:00Z"`, "2", ""))
	if err != nil {
		t.Fatal(err)
	}
	charge := Use(pods, parsed.Value)
	if !charge.Until.Equal(end) {
		t.Errorf("it counts until %v", charge.Until)
	}
	for at, want := range map[time.Time]string{end: "count/pods=1 cpu=2 pods=1 requests.cpu=2",
		end.Add(1): "count/pods=1"} {
		if have := amountsOf(AmountsAt(charge, at)); have != want {
			t.Errorf("at %v it counts %q, want %q", at, have, want)
		}
	}
	if parsed, err = object.ParseJSON(fmt.Appendf(nil, podText,
		`,"deletionGracePeriodSeconds":5,"deletionTimestamp":"tomorrow"`, "2", "")); err != nil {
		t.Fatal(err)
	}
	if charge := Use(pods, parsed.Value); !charge.Until.IsZero() {
		t.Errorf("without a time, it counts until %v", charge.Until)
	}
}

// Rules are read from their text.
//
// SPEC: AUTH-5
func TestParseRule(t *testing.T) {
	parsed, err := object.ParseJSON([]byte(`{"hard":{"pods":2},"scopes":["Terminating"],` +
		`"scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["high"]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRule(ruleText("ns/q", parsed.Value))
	if err != nil {
		t.Fatal(err)
	}
	if most := r.Hard["pods"]; r.Name != "q" || len(r.Hard) != 1 || most.Value() != 2 || len(r.Scopes) != 2 ||
		r.Scopes[0].Operator != corev1.ScopeSelectorOpExists {
		t.Errorf("%+v", r)
	}
	for class, want := range map[string]bool{"Pynnhigh": true, "Pnnnhigh": false, "Pynnlow": false, "C": false,
		"": false} {
		if have := r.Counts(class); have != want {
			t.Errorf("%q counts: %t", class, have)
		}
	}
	if _, err := ParseRule("q\x00{"); err == nil ||
		err.Error() != "resource quota q: unexpected end of JSON input" {
		t.Errorf("%v", err)
	}
}

// The classes of objects, by which their charges are told apart.
//
// SPEC: AUTH-5
func TestClassesOfObjects(t *testing.T) {
	for _, c := range []struct{ path, text, want string }{
		{pods, `{}`, "Pnnn"},
		{pods, `{"spec":{"activeDeadlineSeconds":1,"priorityClassName":"high"},"status":{"qosClass":"BestEffort"}}`,
			"Pyynhigh"},
		{claims, `{}`, "C"},
		{claims, `{"spec":{"volumeAttributesClassName":"b"},"status":{"currentVolumeAttributesClassName":"a",` +
			`"modifyVolumeStatus":{"targetVolumeAttributesClassName":"b"}}}`, "Ca,b"},
		{services, `{}`, ""},
	} {
		parsed, err := object.ParseJSON([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if have := Use(c.path, parsed.Value).Class; have != c.want {
			t.Errorf("%s %s has the class %q, want %q", c.path, c.text, have, c.want)
		}
	}
}

// Quantities are texts or numbers.
func TestQuantity(t *testing.T) {
	for text, want := range map[string]string{`"1500m"`: "1500m", `2`: "2", `0.5`: "500m", `"x"`: "0", `true`: "0"} {
		parsed, err := object.ParseJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if q := Quantity(parsed.Value); q.String() != want {
			t.Errorf("%s is %s, want %s", text, q.String(), want)
		}
	}
}

// The classes of the store as they change.
//
// SPEC: AUTH-5
func TestClasses(t *testing.T) {
	_, s, put := newStore(t)
	view := ClassesOf(s)
	class := func(name, extended string) string {
		return fmt.Sprintf(`{"apiVersion":"resource.k8s.io/v1","kind":"DeviceClass","metadata":{"name":%q},`+
			`"spec":{%s}}`, name, extended)
	}
	const gpu, nic = "requests.example.com/gpu", "requests.example.com/nic"
	const made = "requests.deviceclass.resource.kubernetes.io/a"
	var none *Classes
	if none.Concern(gpu) || none.Concern(made) {
		t.Error("limits are on no class")
	}
	for _, step := range []struct{ name, text, want string }{
		{"a", class("a", `"extendedResourceName":"example.com/gpu"`), "true true false false"},
		{"b", class("b", `"extendedResourceName":"example.com/nic"`), "true true true true"},
		{"a", class("a", ``), "false true true true"},
		{"b", "{", "false true false false"},
		{"a", "", "false false false false"},
	} {
		put(ClassesPath, step.name, step.text)
		classes, _ := view.Now()
		have := fmt.Sprint(classes.Concern(gpu), classes.Concern(made), classes.Concern(nic),
			classes.Concern("requests.deviceclass.resource.kubernetes.io/b"))
		if have != step.want || classes.Concern("requests.") || classes.Concern("example.com/nic") {
			t.Errorf("after %s %s: %s, want %s", step.name, step.text, have, step.want)
		}
	}
}

// What a claim counts as extended resources, besides its devices: under the name of each class, and of the resource
// that the class is.
//
// SPEC: AUTH-5
func TestExtendedAmounts(t *testing.T) {
	parsed, err := object.ParseJSON([]byte(`{"spec":{"devices":{"requests":[` +
		`{"name":"a","exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":2}},` +
		`{"name":"b","exactly":{"deviceClassName":"nic","allocationMode":"ExactCount","count":1}}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	const start = "count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=2 " +
		"nic.deviceclass.resource.k8s.io/devices=1 requests.deviceclass.resource.kubernetes.io/gpu=2 " +
		"requests.deviceclass.resource.kubernetes.io/nic=1"
	charge := Use(resourceClaims, parsed.Value)
	var none *Classes
	if have := amountsOf(none.Extend("r", charge, nil)); have != start {
		t.Errorf("without classes: %s", have)
	}
	classes := &Classes{map[string]string{"gpu": "example.com/gpu", "nic": ""}}
	if have := amountsOf(classes.Extend("r", charge, nil)); have != start+" requests.example.com/gpu=2" {
		t.Errorf("with classes: %s", have)
	}
}
