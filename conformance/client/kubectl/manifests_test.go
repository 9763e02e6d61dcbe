package kubectl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"plinth/conformance/internal/harness"
)

// manifests are collections of real manifests inside Go modules, at pinned versions.
var manifests = []struct {
	name, module, version string
	under                 []string // folders or files
	least                 int      // of objects, so that a moved folder is noticed
}{
	{"addons", "k8s.io/kubernetes", "v1.37.1", []string{"cluster/addons"}, 50},
	{"examples", "k8s.io/kubernetes", "v1.37.1",
		[]string{"test/e2e/testing-manifests/guestbook", "test/e2e/testing-manifests/statefulset"}, 15},
	{"ingress-nginx", "k8s.io/ingress-nginx", "v0.0.0-20240708192948-52c50467d67d",
		[]string{"deploy/static/provider/cloud/deploy.yaml"}, 19},
}

// refused are objects that Plinth is known to refuse, with the reason. The test fails if one of them is accepted.
var refused = map[string]string{}

// preRelease matches versions that the reference does not serve by default.
var preRelease = regexp.MustCompile(`v\d+(alpha|beta)\d+$`)

// TestManifests creates the real manifests with kubectl, document by document as they are in one file, reads every
// object back, and deletes them with the same file.
func TestManifests(t *testing.T) {
	if *rewrite {
		return
	}
	for _, m := range manifests {
		t.Run(m.name, func(t *testing.T) {
			server := harness.RunTarget(t)
			r, err := newRunner(server, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			objects := collect(t, m.module, m.version, m.under)
			if len(objects) < m.least {
				t.Fatalf("%s@%s holds %d objects, at least %d are expected", m.module, m.version, len(objects), m.least)
			}
			var file bytes.Buffer
			var names []string
			objects = slices.DeleteFunc(objects, func(o object) bool {
				return server.Kind == harness.Plinth &&
					isRefused(t, r, o)
			})
			for _, o := range objects {
				file.WriteString("---\n")
				file.Write(o.text)
				file.WriteString("\n")
				if o.Metadata.Namespace != "" && !slices.Contains(names, o.Metadata.Namespace) &&
					o.Metadata.Namespace != "kube-system" {
					names = append(names, o.Metadata.Namespace)
				}
			}
			for _, namespace := range names {
				if !slices.ContainsFunc(objects, func(o object) bool {
					return o.Kind == "Namespace" &&
						o.Metadata.Name == namespace
				}) {
					complain(t, "create namespace", r.run("kubectl create namespace "+namespace, ""))
				}
			}
			if err := os.WriteFile(filepath.Join(r.home, "all.yaml"), file.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			created := r.run("kubectl create -f all.yaml", "")
			complain(t, "create", created)
			read := r.run("kubectl get -f all.yaml -o name", "")
			if got := len(strings.Split(read, "\n")); got < len(objects) || strings.Contains(read, "! ") {
				t.Errorf("of %d objects, these can be read:\n%s", len(objects), read)
			}
			complain(t, "get", r.run("kubectl get -f all.yaml", ""))
			complain(t, "delete", r.run("kubectl delete -f all.yaml --wait=false --ignore-not-found", ""))
		})
	}
}

// isRefused says whether an object is a known difference, and that it still is one.
func isRefused(t *testing.T, r *runner, o object) bool {
	t.Helper()
	reason, known := refused[o.Kind+"/"+o.Metadata.Name]
	if known {
		printed := r.run("kubectl create -n default --dry-run=server -f -",
			strings.ReplaceAll(string(o.text), "namespace: "+o.Metadata.Namespace, ""))
		if !strings.Contains(printed, "is invalid") {
			t.Errorf("%s %s: the known difference no longer occurs: %s\n%s", o.Kind, o.Metadata.Name, reason, printed)
		}
	}
	return known
}

// complain fails the test if a command has printed anything but warnings to its standard error.
func complain(t *testing.T, command, printed string) {
	t.Helper()
	for line := range strings.SplitSeq(printed, "\n") {
		if strings.HasPrefix(line, "!") && !strings.Contains(line, "Warning:") {
			t.Errorf("%s: %s", command, line)
		}
	}
}

// object is one document of a manifest.
type object struct {
	APIVersion, Kind string
	Metadata         struct{ Name, GenerateName, Namespace string }
	text             []byte
}

// collect reads the manifests of a module, in the order of their files, each object once.
func collect(t *testing.T, module, version string, under []string) []object {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", module+"@"+version).Output()
	if err != nil {
		t.Fatalf("go mod download %s@%s: %v\n%s", module, version, err, out)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var objects []object
	for _, folder := range under {
		err := filepath.WalkDir(filepath.Join(downloaded.Dir, filepath.FromSlash(folder)),
			func(file string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || filepath.Ext(file) != ".yaml" {
					return err
				}
				found, err := documents(file)
				if err != nil {
					t.Logf("%s is no plain manifest: %v", file, err)
					return nil
				}
				for _, o := range found {
					key := o.Kind + "/" + o.Metadata.Name
					if !seen[key] && o.Metadata.Name != "" && !preRelease.MatchString(o.APIVersion) {
						seen[key] = true
						objects = append(objects, o)
					}
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	return objects
}

func documents(file string) ([]object, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var objects []object
	reader := yaml.NewYAMLReader(bufio.NewReader(f))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if bytes.Contains(text, []byte("{{")) {
			return nil, errors.New("a template")
		}
		o := object{text: bytes.TrimSpace(text)}
		if err := yaml.Unmarshal(text, &o); err != nil {
			return nil, err
		}
		if o.Kind != "" {
			objects = append(objects, o)
		}
	}
}
