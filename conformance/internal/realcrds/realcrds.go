// Package realcrds provides the CustomResourceDefinitions of widely used projects, from their Go modules at pinned
// versions.
package realcrds

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"plinth/conformance/internal/modules"
)

// Project is a module that contains definitions.
type Project struct {
	Name, Module, Version string
	Files                 []string // patterns
	Least                 int      // of definitions, so that a moved folder is noticed
}

// Projects are the modules.
var Projects = []Project{
	{"gateway-api", "sigs.k8s.io/gateway-api", "v1.5.1",
		[]string{"config/crd/standard/*.yaml", "config/crd/experimental/*.yaml"}, 20},
	{"cert-manager", "github.com/cert-manager/cert-manager", "v1.21.2", []string{"deploy/crds/*.yaml"}, 6},
	{"prometheus-operator", "github.com/prometheus-operator/prometheus-operator", "v0.85.0",
		[]string{"example/prometheus-operator-crd/*.yaml"}, 10},
	{"argo-cd", "github.com/argoproj/argo-cd/v3", "v3.5.0", []string{"manifests/crds/*-crd.yaml"}, 3},
	{"istio", "istio.io/istio", "v0.0.0-20260827124520-eed52ebb66ad",
		[]string{"manifests/charts/base/files/crd-all.gen.yaml"}, 10},
}

// Definition is one definition as JSON.
type Definition struct {
	Project, Name string // the name in metadata
	JSON          []byte
}

// All reads the definitions of all projects. It downloads the modules if necessary, and does not compile them.
func All(t testing.TB) (all []Definition) {
	t.Helper()
	for _, p := range Projects {
		all = append(all, p.Definitions(t)...)
	}
	return all
}

// Dir returns the folder with the module's files.
func (p *Project) Dir(t testing.TB) string {
	t.Helper()
	dir, err := modules.Folder(p.Module + "@" + p.Version)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Definitions reads the definitions of the project, in the order of their files.
func (p *Project) Definitions(t testing.TB) (found []Definition) {
	t.Helper()
	dir := p.Dir(t)
	for _, pattern := range p.Files {
		files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(files)
		for _, file := range files {
			found = append(found, p.read(t, file)...)
		}
	}
	if len(found) < p.Least {
		t.Fatalf("%s@%s has %d definitions, at least %d are expected", p.Module, p.Version, len(found), p.Least)
	}
	return found
}

func (p *Project) read(t testing.TB, file string) (found []Definition) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		converted, err := yaml.ToJSON(part)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := json.Unmarshal(converted, &head); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if head.Kind == "CustomResourceDefinition" {
			found = append(found, Definition{p.Name, head.Metadata.Name, converted})
		}
	}
}
