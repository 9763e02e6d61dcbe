package validation_test

import (
	"fmt"
	"strings"
	"testing"

	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/validation/validationtest"
	"plinth/internal/features"
	"plinth/object"
)

// What new expressions may use depends on the releases that must be able to read them
// (--min-compatibility-version): 1.37 has brought includes, and 1.36 lists in the attributes of devices.
func TestExpressionsOfReleases(t *testing.T) {
	parsed := func(format string, expression string) object.Value {
		t.Helper()
		p, err := object.ParseJSON(fmt.Appendf(nil, format, expression))
		if err != nil {
			t.Fatal(err)
		}
		return p.Value
	}
	const class = `{"metadata":{"name":"a"},"spec":{"selectors":[{"cel":{"expression":%q}}]}}`
	const webhook = `{"metadata":{"name":"a"},"webhooks":[{"name":"a.example.com","clientConfig":{"url":"https://a"},
		"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"],"scope":"*"}],
		"sideEffects":"None","admissionReviewVersions":["v1"],"failurePolicy":"Fail","matchPolicy":"Equivalent",
		"timeoutSeconds":1,"matchConditions":[{"name":"a","expression":%q}]}]}`
	latest := validation.Options{LatestExpressions: true}
	lists := features.Set{}.With(features.DRAListTypeAttributes, true)
	for _, test := range []struct {
		name       string
		kind       validation.Kind
		options    validation.Options
		text       string
		expression string
		want       string // a part of the error; "" if it is valid
	}{
		{"includes, of a device", validation.DeviceClass, latest, class, "device.attributes['a'].b.includes('x')", ""},
		{"includes, of a device, in 1.36", validation.DeviceClass, validation.Options{}, class,
			"device.attributes['a'].b.includes('x')", "undeclared reference to 'includes'"},
		{"includes", validation.ValidatingWebhookConfiguration, latest, webhook, "['a'].includes('a')", ""},
		{"includes, in 1.36", validation.ValidatingWebhookConfiguration, validation.Options{}, webhook,
			"['a'].includes('a')", "undeclared reference to 'includes'"},
		{"lists", validation.DeviceClass, validation.Options{Features: lists}, class, "device.driver == 'a'", ""},
		{"lists, in 1.35", validation.DeviceClass, validation.Options{Features: lists, DevicesUnlisted: true}, class,
			"device.driver == 'a'", "undeclared reference to 'device'"},
	} {
		got := validationtest.Lines(test.kind.Rules(test.options).Create(parsed(test.text, test.expression)))
		if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)) {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}
