package validation_test

import (
	"strings"
	"testing"

	"plinth/internal/builtin/validation/validationtest"
)

// The error for a changed volume or claim shows what has changed, but no change that the rule ignores. The tables
// leave the difference out, because the reference prints its internal types there.
func TestChangesOfVolumesAreShown(t *testing.T) {
	documents, err := validationtest.Documents("testdata")
	if err != nil {
		t.Fatal(err)
	}
	type change struct{ path, value string }
	served := validationtest.NewServed()
	for _, test := range []struct {
		object  string
		changes []change
		want    string
	}{
		{"PersistentVolume/pv-attributes", []change{{"spec.csi", "null"}, {"spec.nfs", "{server: a, path: /b}"},
			{"spec.volumeAttributesClassName", "null"}}, `@@ -1,6 +1,6 @@
 {
- "csi": {
-  "driver": "a.b",
-  "volumeHandle": "x"
+ "nfs": {
+  "path": "/b",
+  "server": "a"
  }
 }
`},
		{"PersistentVolume/pv-nfs", []change{{"spec.nfs", "null"},
			{"spec.csi", "{driver: a.b, volumeHandle: x, controllerExpandSecretRef: {name: a, namespace: b}}"}}, `@@ -1,6 +1,10 @@
 {
- "nfs": {
-  "path": "/b",
-  "server": "a"
+ "csi": {
+  "controllerExpandSecretRef": {
+   "name": "a",
+   "namespace": "b"
+  },
+  "driver": "a.b",
+  "volumeHandle": "x"
  }
 }
`},
		{"PersistentVolumeClaim/minimal", []change{{"spec.accessModes", "[ReadWriteOnce]"}}, `@@ -1,6 +1,6 @@
 {
  "accessModes": [
-  "ReadWriteMany"
+  "ReadWriteOnce"
  ],
  "resources": {
   "requests": {
`},
	} {
		c := &validationtest.Case{Verb: "update", Object: test.object}
		for _, change := range test.changes {
			c.Change(false, change.path, change.value)
		}
		request, err := served.Request(c, documents)
		if err != nil {
			t.Fatal(err)
		}
		errs, err := request.Refuse()
		if err != nil || len(errs) == 0 {
			t.Fatalf("%s: %v, %v", c, errs, err)
		}
		if _, got, _ := strings.Cut(errs[0].Detail, "\n"); got != test.want {
			t.Errorf("%s: %s\nhave %s\nwant %s", c, errs[0].Field, got, test.want)
		}
	}
}
