package builtin

import (
	"strings"
	"testing"
	"time"

	"plinth/internal/access"
	"plinth/object"
)

// The errors of APIServices are those that the reference was seen to return.
//
// SPEC: EXT-2, VAL-1
func TestAPIServiceErrors(t *testing.T) {
	const (
		label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, " +
			"and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is " +
			"'[a-z]([-a-z0-9]*[a-z0-9])?')"
		domain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and " +
			"end with an alphanumeric character (e.g. 'example.com', regex used for validation is " +
			"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
		group, priority = `spec.groupPriorityMinimum: Invalid value: `, `spec.versionPriority: Invalid value: `
	)
	rules := FunctionsOf("apiregistration.k8s.io", "v1", "APIService").Rules
	for _, c := range []struct{ body, want string }{
		{`{metadata: {name: v2.x.example.com}, spec: {group: x.example.com, version: v1, groupPriorityMinimum: 0,
			versionPriority: 1001, service: {port: 70000}, insecureSkipTLSVerify: true, caBundle: YWJj}}`,
			"metadata.name: Invalid value: \"v2.x.example.com\": must be `spec.version+\".\"+spec.group`: \"v1.x.example.com\"\n" +
				group + "0: must be positive and less than 20000\n" + priority + "1001: must be positive and less than 1000\n" +
				"spec.service.namespace: Required value\nspec.service.name: Required value\n" +
				"spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive\n" +
				"spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present"},
		{`{metadata: {name: a}, spec: {}}`,
			"metadata.name: Invalid value: \"a\": must be `spec.version+\".\"+spec.group`: \".\"\n" +
				"spec.group: Required value: only v1 may have an empty group and it better be legacy kube\n" +
				"spec.version: Invalid value: \"\": " + label + "\n" + group + "0: must be positive and less than 20000\n" +
				priority + "0: must be positive and less than 1000"},
		{`{metadata: {generateName: a, name: afq8rs}, spec: {group: A_b, version: V1, groupPriorityMinimum: 20001,
			versionPriority: -1, caBundle: YWJj, insecureSkipTLSVerify: true}}`,
			"metadata.generateName: Invalid value: \"a\": must be `spec.version+\".\"+spec.group`: \"V1.A_b\"\n" +
				"metadata.name: Invalid value: \"afq8rs\": must be `spec.version+\".\"+spec.group`: \"V1.A_b\"\n" +
				"spec.group: Invalid value: \"A_b\": " + domain + "\nspec.version: Invalid value: \"V1\": " + label + "\n" + group +
				"20001: must be positive and less than 20000\n" + priority + "-1: must be positive and less than 1000\n" +
				"spec.caBundle: Invalid value: \"3 bytes\": local APIServices may not have a caBundle\n" +
				"spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify"},
		{`{metadata: {name: v1.x.example.com}, spec: {group: x.example.com, version: v1, groupPriorityMinimum: 20000,
			versionPriority: 1000, service: {namespace: a, name: b, port: 65535}, caBundle: YWJj}}`, ""},
		{`{metadata: {name: v1.}, spec: {version: v1, groupPriorityMinimum: 1, versionPriority: 1}}`, ""},
	} {
		obj, err := object.ParseYAML([]byte(c.body))
		if err != nil {
			t.Fatal(err)
		}
		for _, errs := range [][]string{texts(rules.Create(obj.Value)), texts(rules.Update(obj.Value, obj.Value))} {
			if got := strings.Join(errs, "\n"); got != c.want {
				t.Errorf("%s:\n%s\nwant\n%s", c.body, got, c.want)
			}
		}
	}
	status, err := object.ParseYAML([]byte(`{status: {conditions: [{type: A, status: Unknown}, {type: B, status: Maybe}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(texts(rules.Status(status.Value, status.Value)), "\n"); got !=
		`status.conditions[1].status: Unsupported value: "Maybe": supported values: "True", "False", "Unknown"` {
		t.Error(got)
	}
}

func texts[E error](errs []E) (all []string) {
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

// A new APIService of this server itself is available from the beginning; one with a service is not.
//
// SPEC: EXT-2
func TestNewAPIServices(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, r := range Resources(Config{Now: func() time.Time { return now }}) {
		if r.Name != "apiservices" {
			continue
		}
		service := object.Fields("service", object.Fields("name", object.StringOf("a")))
		for _, c := range []struct {
			spec object.Value
			want string
		}{
			{object.MapOf(), `{"conditions":[{"lastTransitionTime":"2026-01-02T03:04:05Z","message":"Local APIServices are ` +
				`always available","reason":"Local","status":"True","type":"Available"}]}`},
			{service, `{}`},
		} {
			obj := r.PrepareCreate(object.Fields("spec", c.spec, "status", object.StringOf("forged")), access.User{})
			if got := string(object.AppendJSON(nil, obj.At("status"))); got != c.want {
				t.Errorf("%s", got)
			}
		}
		if port := r.Default(object.Fields("spec", service)).At("spec", "service", "port").Int(); port != 443 {
			t.Errorf("the default port is %d", port)
		}
		return
	}
	t.Error("there are no APIServices")
}
