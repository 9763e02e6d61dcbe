package validation_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/builtin/validation/validationtest"
)

// The error for a changed spec shows the difference. The tables leave it out: the reference prints the fields of its
// internal types there.
func TestDifference(t *testing.T) {
	for _, test := range []struct{ path, value, want string }{
		{"spec.terminationGracePeriodSeconds", "31", `@@ -14,5 +14,5 @@
  "restartPolicy": "Always",
  "schedulerName": "default-scheduler",
  "securityContext": {},
- "terminationGracePeriodSeconds": 30
+ "terminationGracePeriodSeconds": 31
 }
`},
		{"spec.containers[0].env", "[{name: A}]", `@@ -1,6 +1,11 @@
 {
  "containers": [
   {
+   "env": [
+    {
+     "name": "A"
+    }
+   ],
    "image": "a",
    "imagePullPolicy": "Always",
    "name": "a",
`},
	} {
		c := &validationtest.Case{Verb: "update", Object: "Pod/plain"}
		c.Change(false, test.path, test.value)
		errs := errorsOf(t, c)
		if len(errs) != 1 {
			t.Fatal(errs)
		}
		if _, got, _ := strings.Cut(errs[0].Detail, "\n"); got != test.want {
			t.Errorf("%s: %s\nhave %s\nwant %s", c, errs[0].Field, got, test.want)
		}
	}
}

// The reference reports some errors of a Pod twice. The tables have each error once.
func TestRepeatedErrors(t *testing.T) {
	ended := "{name: a, image: a, imageID: a, ready: false, restartCount: 0, state: {terminated: {exitCode: 0}}}"
	running := strings.Replace(ended, "terminated: {exitCode: 0}", "running: {}", 1)
	stays := func(list string) *validationtest.Case {
		c := &validationtest.Case{Verb: "status", Object: "Pod/plain"}
		c.Change(true, "spec.restartPolicy", "Never")
		c.Change(true, "status."+list, "["+ended+"]")
		c.Change(false, "status."+list, "["+running+", "+running+"]")
		return c
	}
	image := func(value string) *validationtest.Case {
		c := &validationtest.Case{Verb: "update", Object: "Pod/plain"}
		c.Change(false, "spec.containers[0].image", value)
		return c
	}
	for _, test := range []struct {
		*validationtest.Case
		want field.Error
		n    int
	}{
		{image(`""`), field.Error{Type: field.ErrorTypeRequired, Field: "spec.containers[0].image"}, 2},
		{image(`" a"`), field.Error{Type: field.ErrorTypeInvalid, Field: "spec.containers[0].image"}, 2},
		{stays("containerStatuses"),
			field.Error{Type: field.ErrorTypeForbidden, Field: "status.containerStatuses[0].state"}, 1},
		{stays("ephemeralContainerStatuses"),
			field.Error{Type: field.ErrorTypeForbidden, Field: "status.ephemeralContainerStatuses[0].state"}, 2},
	} {
		errs := errorsOf(t, test.Case)
		for _, err := range errs {
			if err.Type != test.want.Type || err.Field != test.want.Field {
				t.Errorf("%s: %v", test.Case, err)
			}
		}
		if len(errs) != test.n {
			t.Errorf("%s: there are %d errors, not %d: %v", test.Case, len(errs), test.n, errs)
		}
	}
}

func errorsOf(t *testing.T, c *validationtest.Case) field.ErrorList {
	t.Helper()
	documents, err := validationtest.Documents("testdata")
	if err != nil {
		t.Fatal(err)
	}
	request, err := validationtest.NewServed().Request(c, documents)
	if err != nil {
		t.Fatal(err)
	}
	errs, err := request.Refuse()
	if err != nil {
		t.Fatal(err)
	}
	return errs
}
