package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const widgetCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
            x-kubernetes-validations:
            - {rule: "self.size != 13", message: "not 13"}
`

// policy needs a parameter that comes after it.
const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: labels}
spec:
  failurePolicy: Fail
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]
  validations:
  - expression: "params.data.label in object.metadata.labels"
    message: a label is needed
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: labels}
spec:
  policyName: labels
  paramRef: {name: label, namespace: default, parameterNotFoundAction: Deny}
  validationActions: [Deny]
---
apiVersion: v1
kind: Secret
metadata: {name: good, labels: {team: a}}
---
apiVersion: v1
kind: Secret
metadata: {name: bad, labels: {x: z}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: label, namespace: default}
data: {label: team}
`

const web = `# two comments
# before the object
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  replicas: -1
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - name: web
        image: nginx
        imagePolicy: Always
        ports:
        - containerPort: 99999
---
apiVersion: v1
kind: List
items:
- apiVersion: example.com/v1
  kind: Widget
  metadata: {name: w}
  spec:
    size: big
- apiVersion: example.com/v1
  kind: Widget
  metadata: {name: unlucky}
  spec: {size: 13}
---
apiVersion: nope.example.com/v1
kind: Gone
metadata: {name: g}
`

// validated validates files in a directory and returns what is printed.
func validated(t *testing.T, files map[string]string, flags ...string) (string, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, name, text)
	}
	return plinth(append([]string{"validate", "."}, flags...)...)
}

// All that is wrong is found at its line, by the definitions and policies among the manifests; what is right is
// accepted.
//
// SPEC: RUN-14
func TestValidate(t *testing.T) {
	files := map[string]string{"a/web.yaml": web, "widgets.yaml": widgetCRD, "policy.yaml": policy,
		"broken.yaml": "a: b\nc: [\n",
		"notes.txt":   "no manifest",
		"hook.json": `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"h"},
  "webhooks":[{"name":"a.b.c","clientConfig":{"url":"https://127.0.0.1:1/"},"sideEffects":"None","admissionReviewVersions":["v1"],
  "rules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]}]}`}
	text, err := validated(t, files)
	if codeOf(err) != exitFound {
		t.Errorf("%v", err)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, want := range []string{
		"a/web.yaml:9: Deployment web: spec.replicas: ",
		"a/web.yaml:17: Deployment web: unknown field spec.template.spec.containers[0].imagePolicy",
		"a/web.yaml:19: Deployment web: spec.template.spec.containers[0].ports[0].containerPort: ",
		"a/web.yaml:28: Widget w: spec.size: ",
		"a/web.yaml:32: Widget unlucky: spec: ",
		"a/web.yaml:35: Gone g: nope.example.com/v1 is not served",
		"broken.yaml:",
		"policy.yaml:25: Secret bad: ",
		"objects: 11, refused: 5, reasons: 8",
	} {
		if len(lines) == 0 || !strings.HasPrefix(lines[0], want) {
			t.Errorf("not %q:\n%s", want, text)
			break
		}
		lines = lines[1:]
	}
	if len(lines) > 0 {
		t.Errorf("there is more: %q", lines)
	}
	text, err = validated(t, map[string]string{"widgets.yaml": widgetCRD,
		"w.yaml": "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: team}\nspec: {size: 1}\n"})
	if err != nil || text != "objects: 2, refused: 0, reasons: 0\n" {
		t.Errorf("%v\n%s", err, text)
	}
	text, err = validated(t, map[string]string{"a.yaml": "kind: X\n---\napiVersion: v1\nkind: X\n"}, "-o", "json")
	if codeOf(err) != exitFound || !strings.Contains(text, `"line": 4`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// Programs read the other forms.
//
// SPEC: RUN-14
func TestValidateReports(t *testing.T) {
	files := map[string]string{"web.yaml": web, "widgets.yaml": widgetCRD}
	text, _ := validated(t, files, "-o", "json")
	var report struct {
		Objects, Refused int
		Refusals         []refusal
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil || report.Objects != 5 || report.Refused != 4 ||
		len(report.Refusals) != 6 || report.Refusals[0].Field != "spec.replicas" || report.Refusals[0].Reason != "Invalid" {
		t.Errorf("%v\n%s", err, text)
	}
	text, _ = validated(t, files, "-o", "junit")
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Cases    []struct {
			Name     string     `xml:"name,attr"`
			Failures []struct{} `xml:"failure"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal([]byte(text), &suite); err != nil || suite.Tests != 5 || suite.Failures != 4 ||
		len(suite.Cases) != 5 || suite.Cases[0].Name != "Deployment web" || len(suite.Cases[0].Failures) != 3 {
		t.Errorf("%v\n%s", err, text)
	}
	text, _ = validated(t, files, "-o", "sarif")
	var sarif struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID    string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &sarif); err != nil || sarif.Version != "2.1.0" || len(sarif.Runs) != 1 ||
		len(sarif.Runs[0].Results) != 6 || len(sarif.Runs[0].Tool.Driver.Rules) != 3 ||
		sarif.Runs[0].Results[0].Locations[0].PhysicalLocation.Region.StartLine != 9 ||
		sarif.Runs[0].Results[0].Locations[0].PhysicalLocation.ArtifactLocation.URI != "web.yaml" {
		t.Errorf("%v\n%s", err, text)
	}
}

// A kustomization is rendered by kubectl, and is not read as manifests.
//
// SPEC: RUN-14
func TestValidateKustomizations(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = kustomize ] || { echo \"bad: $*\" >&2; exit 1; }\n" +
		"echo 'apiVersion: v1'; echo 'kind: ConfigMap'; echo 'metadata: {name: c}'; echo 'bad: 1'\n"
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+"/bin:/usr/bin")
	files := map[string]string{"k/kustomization.yaml": "resources: [r.yaml]\n", "k/r.yaml": "x: 1\n"}
	text, err := validated(t, files)
	if codeOf(err) != exitFound || !strings.HasPrefix(text, "k:4: ConfigMap c: unknown field bad\nobjects: 1,") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := plinth("validate", "./k/."); codeOf(err) != exitFound {
		t.Errorf("the directory itself: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = plinth("validate", "k")
	if codeOf(err) != exitFailed || !strings.Contains(err.Error(), "pipe what it renders") {
		t.Errorf("without kubectl: %v", err)
	}
}

// Every line of a text is in one of its documents.
func TestSplitDocuments(t *testing.T) {
	for text, want := range map[string]int{
		"": 1, "a": 1, "---\na": 1, "a\n---\nb": 2, "a\n---\nb\n---\n": 3, "--- a\n--- b": 2,
	} {
		all := splitDocuments([]byte(text))
		joined := ""
		for _, d := range all {
			joined += string(d)
		}
		if len(all) != want || joined != text {
			t.Errorf("%q: %q", text, all)
		}
	}
}
