package builtin

import (
	"slices"
	"strings"
	"testing"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"plinth/object"
)

// nameCases are names with the errors of the reference.
var nameCases = []struct {
	typ, name, want string // want is the beginning of the first error; "": the name is valid
}{
	{"pods", "a.b-c", ""},
	{"pods", "A", "a lowercase RFC 1123 subdomain"},
	{"pods", strings.Repeat("a", 64), ""},
	{"services", "1abc", ""},
	{"services", "a.b", "must not contain dots"},
	{"services", "Abc", "a lowercase RFC 1123 label"},
	{"namespaces", "a.b", "must not contain dots"},
	{"apps/v1 statefulsets", "a.b", "must not contain dots"},
	{"rbac.authorization.k8s.io/v1 roles", "A:b", ""},
	{"rbac.authorization.k8s.io/v1 roles", "a%b", "may not contain '%'"},
	{"rbac.authorization.k8s.io/v1 roles", "a/b", "may not contain '/'"},
	{"events", "A_b", ""},
	{"events.k8s.io/v1 events", "A_b", "a lowercase RFC 1123 subdomain"},
	{"policy/v1 poddisruptionbudgets", "A_b", ""},
	{"certificates.k8s.io/v1 certificatesigningrequests", "A_b", ""},
	{"networking.k8s.io/v1 ipaddresses", "10.0.0.1", ""},
	{"networking.k8s.io/v1 ipaddresses", "010.0.0.1", "must not have leading 0s"},
	{"networking.k8s.io/v1 ipaddresses", "x", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"},
}

// SPEC: VAL-1
func TestNames(t *testing.T) {
	all := types(t)
	for _, c := range nameCases {
		wrong := all[c.typ].ValidateName(c.name, false)
		switch {
		case c.want == "" && len(wrong) > 0:
			t.Errorf("%s %q: %v", c.typ, c.name, wrong)
		case c.want != "" && (len(wrong) == 0 || !strings.HasPrefix(wrong[0], c.want)):
			t.Errorf("%s %q: %v, want %s", c.typ, c.name, wrong, c.want)
		}
	}
}

// The fast checks of names agree with the slow ones of apimachinery.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{"a", "a-", "-a", "a.b", "A", "", "a_-", strings.Repeat("a", 63),
		strings.Repeat("a", 64), "é"} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, name string, prefix bool) {
		if got, want := subdomain(name, prefix), apivalidation.NameIsDNSSubdomain(name, prefix); !slices.Equal(got,
			want) {
			t.Errorf("%q is no subdomain: %v, want %v", name, got, want)
		}
		if got, want := label(name, prefix), apivalidation.NameIsDNSLabel(name, prefix); !slices.Equal(got, want) {
			t.Errorf("%q is no label: %v, want %v", name, got, want)
		}
	})
}

// SPEC: VAL-1
func TestBundleNames(t *testing.T) {
	validate := types(t)["certificates.k8s.io/v1 clustertrustbundles"].Validate
	for _, c := range []struct{ name, signer, want string }{
		{"a", "", ""},
		{"x:y:a", "x/y", ""},
		{"x:a", "", `ClusterTrustBundle without signer name must not have ":" in its name`},
		{"a", "x/y", "ClusterTrustBundle for signerName x/y must be named with prefix x:y:"},
		{"x:y:A", "x/y", "a lowercase RFC 1123 subdomain"},
	} {
		obj := object.Fields("metadata", object.Fields("name", object.StringOf(c.name)), "spec",
			object.Fields("signerName", object.StringOf(c.signer)))
		got := ""
		for _, fault := range validate(t.Context(), obj) {
			if fault.Field == "metadata.name" {
				got = fault.Detail
			}
		}
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s of %q: %q, want %q", c.name, c.signer, got, c.want)
		}
	}
}
