package main

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"plinth/object"
)

// manifest is an object of a file, which is to be applied.
type manifest struct {
	file  string
	value object.Value
}

// String names the object in errors.
func (m *manifest) String() string {
	name := m.value.At("metadata", "name").Str()
	if namespace := m.value.At("metadata", "namespace").Str(); namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprintf("%s: %s %s", m.file, m.value.At("kind").Str(), name)
}

// wave says when a manifest is applied: definitions and namespaces before the objects that need them, and what decides
// on writes after all objects, as it would decide on these, too.
func (m *manifest) wave() int {
	switch m.value.At("kind").Str() {
	case "CustomResourceDefinition":
		return 0
	case "Namespace":
		return 1
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "MutatingAdmissionPolicyBinding",
		"ValidatingAdmissionPolicyBinding":
		return lastWave
	}
	return 2
}

const lastWave = 3

// readManifests reads the objects of files and of directories, in the order in which they are to be applied. Of a
// directory, and of those in it, all files are read whose names end in .yaml, .yml or .json, in the order of their
// paths.
func readManifests(paths []string) ([]manifest, error) {
	var all []manifest
	for _, path := range paths {
		count := 0
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			named := slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file))
			if err != nil {
				return fileError(file, err)
			}
			if entry.IsDir() || !named && file != path {
				return nil
			}
			count++
			read, err := readManifestFile(file)
			all = append(all, read...)
			return err
		})
		if err != nil {
			return nil, err
		}
		if count == 0 {
			return nil, fmt.Errorf("%s has no files of YAML or JSON; name a directory with manifests, or a file", path)
		}
	}
	slices.SortStableFunc(all, func(a, b manifest) int { return a.wave() - b.wave() })
	return all, nil
}

// readManifestFile reads the objects of a file.
func readManifestFile(file string) (all []manifest, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fileError(file, err)
	}
	objects, err := object.Documents(text)
	if err != nil {
		return nil, fileError(file, err)
	}
	for _, v := range objects {
		if v.At("metadata", "name").Str() == "" {
			return nil, fmt.Errorf("%s: a %s without metadata.name cannot be applied; give it a name", file, v.At("kind").Str())
		}
		all = append(all, manifest{file, v})
	}
	return all, nil
}

// apply applies the manifests, as `kubectl apply --server-side --force-conflicts` does.
func (c *remote) apply(manifests []manifest) error {
	served := map[string][]object.Value{}
	for i := range manifests {
		m := &manifests[i]
		path, err := c.pathOf(m.value, served)
		if err == nil {
			_, err = c.send(http.MethodPatch, path+"?fieldManager=plinth&force=true&fieldValidation=Strict",
				object.AppendObject(nil, m.value), http.Header{"Content-Type": {"application/apply-patch+yaml"}})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}

// pathOf returns the path of an object. The resources of each version of a group are read once, into served: a
// definition, which adds some, is applied before the objects of its kind.
func (c *remote) pathOf(v object.Value, served map[string][]object.Value) (string, error) {
	version := v.At("apiVersion").Str()
	path := "/apis/" + version
	if !strings.Contains(version, "/") {
		path = "/api/" + version
	}
	resources, known := served[path]
	if !known {
		text, err := c.get(path)
		if err != nil {
			return "", fmt.Errorf("%s is not served; is the definition of it missing? %w", version, err)
		}
		parsed, err := object.ParseJSON(text)
		if err != nil {
			return "", err
		}
		resources = parsed.Value.At("resources").Items()
		served[path] = resources
	}
	i := slices.IndexFunc(resources, func(r object.Value) bool {
		return r.At("kind").Str() == v.At("kind").Str() && !strings.Contains(r.At("name").Str(), "/")
	})
	if i < 0 {
		return "", fmt.Errorf("%s has no such kind; is the definition of it missing?", version)
	}
	if resources[i].At("namespaced").Bool() {
		namespace := v.At("metadata", "namespace").Str()
		if namespace == "" {
			namespace = c.namespace
		}
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	return path + "/" + resources[i].At("name").Str() + "/" + url.PathEscape(v.At("metadata", "name").Str()), nil
}
