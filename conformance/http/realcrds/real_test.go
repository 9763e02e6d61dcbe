// Package realcrds installs the definitions of real projects, as their users do, and creates the examples of these
// projects, valid and invalid ones. The responses are compared with those of the reference, which are recorded in
// testdata.
package realcrds

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/linediff"
	"plinth/conformance/internal/realcrds"
)

var rewrite = flag.Bool("rewrite", false, "ask the reference and record its answers in testdata")

func TestMain(m *testing.M) { harness.Main(m) }

// examples are the folders with example objects, by project.
var examples = map[string][]string{
	"gateway-api":         {"examples", "hack/invalid-examples"},
	"cert-manager":        {"test", "deploy", "make", "hack"},
	"prometheus-operator": {"example", "test"},
	"argo-cd":             {"docs", "examples", "test/e2e"},
	"istio":               {"samples"},
}

const answersFile = "testdata/answers.txt"

// The definitions of real projects are established, their valid examples are accepted, and the invalid ones are refused
// with the reference's causes.
//
// SPEC: EXT-1 VAL-1
func TestRealProjects(t *testing.T) {
	kind := harness.Target()
	if *rewrite || harness.WantReference() {
		kind = harness.Reference
	}
	client := &client{t: t, server: harness.Run(t, harness.Options{Kind: kind})}
	client.http = client.server.Client()
	served := map[string]string{} // resource by group, version and kind
	for i := range realcrds.Projects {
		p := &realcrds.Projects[i]
		for _, d := range p.Definitions(t) {
			client.define(d, served)
		}
	}
	var lines []string
	for i := range realcrds.Projects {
		p := &realcrds.Projects[i]
		for _, o := range objectsOf(t, p.Dir(t), examples[p.Name]) {
			if resource := served[o.APIVersion+" "+o.Kind]; resource != "" {
				lines = append(lines, p.Name+" "+o.where+": "+client.create(resource, &o))
			}
		}
	}
	text := strings.Join(lines, "\n") + "\n"
	if *rewrite {
		if err := os.WriteFile(answersFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := os.ReadFile(answersFile)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(recorded) {
		t.Errorf("--- reference\n+++ here\n%s", linediff.Diff(string(recorded), text))
	}
	taken, refused := strings.Count(text, ": 201"), strings.Count(text, ": 422")
	t.Logf("%d objects were taken and %d refused", taken, refused)
	if taken < 200 || refused < 30 {
		t.Errorf("%d objects were taken and %d refused: examples have moved away", taken, refused)
	}
}

// example is an object from a file.
type example struct {
	APIVersion, Kind string
	Metadata         struct{ Name, GenerateName, Namespace string }

	where string // the file and the number of the document
	json  []byte
}

// objectsOf reads the objects of the files in these folders that can be read as YAML: some are templates.
func objectsOf(t *testing.T, dir string, folders []string) (found []example) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(dir, filepath.FromSlash(folder)),
			func(file string, d fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				if err != nil || d.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) {
					return err
				}
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				name, err := filepath.Rel(dir, file)
				reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
				for i := 0; ; i++ {
					part, err := reader.Read()
					if err != nil { // the end, or a document that is not YAML
						return nil
					}
					o := example{where: fmt.Sprintf("%s#%d", filepath.ToSlash(name), i)}
					if o.json, err = yaml.ToJSON(part); err != nil || json.Unmarshal(o.json, &o) != nil {
						continue
					}
					found = append(found, o)
				}
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// client speaks to one server.
type client struct {
	t          *testing.T
	server     *harness.Server
	http       *http.Client
	serial     int
	namespaces map[string]bool
}

// status is the part of a response that is read.
type status struct {
	Message string
	Details struct {
		Causes []struct{ Reason, Message, Field string }
	}
	Status struct {
		Conditions []struct{ Type, Status string }
	}
}

func (c *client) do(method, path string, body []byte) (int, status) {
	c.t.Helper()
	rq, err := http.NewRequestWithContext(c.t.Context(), method, c.server.URL+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	rq.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	rq.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		rq.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	rs, err := c.http.Do(rq)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rs.Body.Close()
	text, err := io.ReadAll(rs.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var s struct {
		status
		Status json.RawMessage
	}
	json.Unmarshal(text, &s) //nolint:errcheck // a body that is not JSON leaves it empty
	json.Unmarshal(s.Status, &s.status.Status)
	return rs.StatusCode, s.status
}

// define applies a definition and waits until it is served; then served has its versions.
func (c *client) define(d realcrds.Definition, served map[string]string) {
	c.t.Helper()
	var crd struct {
		Spec struct {
			Group, Scope string
			Names        struct{ Plural, Kind string }
			Versions     []struct {
				Name   string
				Served bool
			}
		}
	}
	if err := json.Unmarshal(d.JSON, &crd); err != nil {
		c.t.Fatal(err)
	}
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + d.Name
	// a project has two versions of some: the first is the general one
	if code, _ := c.do(http.MethodGet, path, nil); code == 200 {
		return
	}
	if code, s := c.do(http.MethodPatch, path+"?fieldManager=conformance&force=true", d.JSON); code != 200 && code != 201 {
		c.t.Errorf("%s: %d %.500s", d.Name, code, s.Message)
		return
	}
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		base := "/apis/" + crd.Spec.Group + "/" + v.Name + "/"
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if code, _ := c.do(http.MethodGet, base+crd.Spec.Names.Plural+"?limit=1", nil); code == 200 {
				break
			}
			if time.Now().After(end) {
				c.t.Fatalf("%s of %s is not served", v.Name, d.Name)
			}
		}
		if crd.Spec.Scope == "Namespaced" {
			base += "namespaces/%s/"
		}
		served[crd.Spec.Group+"/"+v.Name+" "+crd.Spec.Names.Kind] = base + crd.Spec.Names.Plural
	}
}

// create creates an object with a unique name, and formats the response.
func (c *client) create(resource string, o *example) string {
	c.t.Helper()
	namespace := o.Metadata.Namespace
	if namespace == "" {
		namespace = "default"
	}
	if c.namespaces == nil {
		c.namespaces = map[string]bool{}
	}
	if !c.namespaces[namespace] && strings.Contains(resource, "%s") {
		c.namespaces[namespace] = true
		c.do(http.MethodPost, "/api/v1/namespaces", fmt.Appendf(nil, `{"metadata":{"name":%q}}`, namespace))
	}
	if strings.Contains(resource, "%s") {
		resource = fmt.Sprintf(resource, namespace)
	}
	var obj map[string]any
	if err := json.Unmarshal(o.json, &obj); err != nil {
		c.t.Fatal(err)
	}
	c.serial++
	if meta, ok := obj["metadata"].(map[string]any); ok { // many files have objects with the same name
		meta["name"] = fmt.Sprintf("e%d", c.serial)
	}
	body, err := json.Marshal(obj)
	if err != nil {
		c.t.Fatal(err)
	}
	code, s := c.do(http.MethodPost, resource+"?fieldValidation=Strict", body)
	if len(s.Details.Causes) == 0 && code != 201 {
		return fmt.Sprintf("%d %.300s", code, s.Message)
	}
	causes := []string{fmt.Sprint(code)}
	for _, cause := range s.Details.Causes {
		causes = append(causes, fmt.Sprintf("\n\t%s %s %.300s", cause.Field, cause.Reason, cause.Message))
	}
	slices.Sort(causes[1:]) // their order in the reference is that of a Go map
	return strings.Join(causes, "")
}
