package admission

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"plinth/internal/admission/hooks"
	"plinth/internal/admission/webhooks"
	"plinth/internal/configfile"
	"plinth/internal/engine"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// manifests is a directory of files with configurations of webhooks (staticManifestsDir): they are there before the
// first request, and no request can change them.
type manifests struct {
	dir    string
	kind   *engine.Resource
	logger *slog.Logger
	last   string          // the hash of what was loaded last
	loaded func(err error) // is told of each attempt
}

// staticSuffix ends the names of all static configurations, and of no others.
const staticSuffix = ".static.k8s.io"

// document is a document of a file.
type document struct {
	file string
	text []byte
}

// follow loads the directory again whenever it has changed, until ctx ends. What cannot be read changes nothing.
func (m *manifests) follow(ctx context.Context, into *webhooks.Plugin) {
	ticker := time.NewTicker(configfile.Interval)
	defer ticker.Stop()
	failure := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		before := m.last
		all, err := m.load()
		if err != nil || m.last != before {
			m.loaded(err)
		}
		switch {
		case err != nil && err.Error() != failure:
			failure = err.Error()
			m.logger.Error("static webhook configurations stay as they were", "kind", m.kind.Kind, "error", err)
		case err == nil && (m.last != before || failure != ""):
			failure = ""
			into.SetStatic(all)
			m.logger.Info("static webhook configurations were loaded again", "kind", m.kind.Kind, "configurations", len(all))
		}
	}
}

// load reads the configurations of all files, in the order of their names.
func (m *manifests) load() ([]object.Value, error) {
	documents, hash, err := m.read()
	if err != nil {
		return nil, err
	}
	var all []object.Value
	seen := map[string]string{}
	for _, d := range documents {
		found, err := m.parse(d, seen)
		if err != nil {
			return nil, fmt.Errorf("error loading %s: %w", d.file, err)
		}
		all = append(all, found...)
	}
	m.last = hash
	name := func(obj object.Value) string { return obj.At("metadata", "name").Str() }
	slices.SortFunc(all, func(a, b object.Value) int { return strings.Compare(name(a), name(b)) })
	return all, nil
}

// read reads the documents of the files, in the order of the names of the files, and their hash: "" if there is nothing
// in them.
func (m *manifests) read() (all []document, hash string, err error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, "", fmt.Errorf("failed to read manifest directory %q: %w", m.dir, err)
	}
	h, empty := sha256.New(), true
	for _, entry := range entries {
		switch strings.ToLower(filepath.Ext(entry.Name())) {
		case ".yaml", ".yml", ".json":
		default:
			continue
		}
		if entry.IsDir() {
			continue
		}
		file := filepath.Join(m.dir, entry.Name())
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, "", fmt.Errorf("failed to read file %q: %w", file, err)
		}
		if len(text) > 0 {
			h.Write(append(text, 0))
			empty = false
		}
		split := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			text, err := split.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, "", fmt.Errorf("failed to split YAML documents in file %q: %w", file, err)
			}
			if text = bytes.TrimSpace(text); len(text) > 0 {
				all = append(all, document{file, text})
			}
		}
	}
	if empty {
		return nil, "", nil
	}
	return all, fmt.Sprintf("sha256:%x", h.Sum(nil)), nil
}

// parse reads the configurations of a document: one, or those of a list. seen has the file of each name.
func (m *manifests) parse(d document, seen map[string]string) ([]object.Value, error) {
	asJSON, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return nil, err
	}
	parsed, err := object.ParseJSON(asJSON)
	if err != nil {
		return nil, err
	}
	return m.accept(parsed.Value, d.file, seen)
}

func (m *manifests) accept(obj object.Value, file string, seen map[string]string) ([]object.Value, error) {
	version, kind := obj.At("apiVersion").Str(), obj.At("kind").Str()
	own := version == hooks.Group+"/v1"
	switch {
	case version == "v1" && kind == "List":
	case own && kind == m.kind.Kind+"List":
		var all []object.Value
		for _, item := range obj.At("items").Items() {
			item = item.With("apiVersion", object.StringOf(version)).With("kind", object.StringOf(m.kind.Kind))
			found, err := m.accept(item, file, seen)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	case own && kind == m.kind.Kind:
		one, err := m.configuration(obj, file, seen)
		return []object.Value{one}, err
	default:
		return nil, fmt.Errorf("unsupported resource type %s of %s", kind, version)
	}
	var all []object.Value
	for _, item := range obj.At("items").Items() {
		found, err := m.accept(item, file, seen)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// configuration checks one configuration as a create would, and that it needs nothing of the API: its hooks have URLs.
func (m *manifests) configuration(obj object.Value, file string, seen map[string]string) (object.Value, error) {
	decoded, err := m.kind.Schema().Decode(obj)
	if err != nil {
		return object.Nil, err
	}
	if len(decoded.Unknown) > 0 {
		return object.Nil, fmt.Errorf("strict decoding error: unknown field %q", decoded.Unknown[0])
	}
	obj = decoded.Value
	if m.kind.Default != nil {
		obj = m.kind.Default(obj)
	}
	name := obj.At("metadata", "name").Str()
	// The rules refuse the suffix, which is reserved for these files.
	checked := obj.WithAt(object.StringOf(strings.TrimSuffix(name, staticSuffix)), "metadata", "name")
	errs := objectmeta.ObjectMeta(checked.At("metadata"), false, m.kind.ValidateName, field.NewPath("metadata"))
	errs = append(errs, m.kind.Validate(context.Background(), checked)...)
	if len(errs) > 0 {
		return object.Nil, fmt.Errorf("%s %q: %w", m.kind.Kind, name, errs.ToAggregate())
	}
	switch {
	case name == "":
		return object.Nil, fmt.Errorf("resource in file %q must have a name", file)
	case !strings.HasSuffix(name, staticSuffix):
		return object.Nil, fmt.Errorf("%q in file %q must have a name ending with %q", name, file, staticSuffix)
	case seen[name] != "":
		return object.Nil, fmt.Errorf("duplicate name %q found in file %q (previously seen in %q)", name, file, seen[name])
	}
	seen[name] = file
	for _, hook := range obj.At("webhooks").Items() {
		at := fmt.Sprintf("webhook %q in %q (file %q)", hook.At("name").Str(), name, file)
		switch client := hook.At("clientConfig"); {
		case !client.At("service").IsNull():
			return object.Nil, errors.New(at + ": clientConfig.service is not supported for static manifests; " +
				"use clientConfig.url instead")
		case client.At("url").Str() == "":
			return object.Nil, errors.New(at + ": clientConfig.url is required for static manifests")
		}
	}
	return obj, nil
}

// checkManifestsDir checks the setting staticManifestsDir.
func checkManifestsDir(dir string, on bool) error {
	refuse := func(why string) error { return fmt.Errorf("staticManifestsDir: Invalid value: %q: %s", dir, why) }
	if !on {
		return errors.New("staticManifestsDir: Forbidden: staticManifestsDir requires the " +
			"ManifestBasedAdmissionControlConfig feature gate to be enabled")
	}
	if !filepath.IsAbs(dir) {
		return refuse("must be an absolute file path")
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return refuse(fmt.Sprintf("unable to read: %v", err))
	case !info.IsDir():
		return refuse("must be a directory")
	}
	return nil
}
