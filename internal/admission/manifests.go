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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"plinth/internal/configfile"
	"plinth/internal/engine"
	"plinth/internal/objectmeta"
	"plinth/object"
)

// manifests is a directory of files that configure a plugin (staticManifestsDir): their objects are there before the
// first request, and no request can change them.
type manifests struct {
	plugin, dir string
	kinds       []*engine.Resource // that the files may have
	// check refuses an object of one of the kinds that needs something of the API; whole refuses all objects of each of
	// the kinds together.
	check func(kind, file string, obj object.Value) error
	whole func(of [][]object.Value) error
	// apply replaces what was loaded before: a list for each of the kinds, by name.
	apply  func(of [][]object.Value)
	logger *slog.Logger
	last   string          // the hash of what was loaded last
	loaded func(err error) // is told of each attempt
	kept   *Manifests
	// failure is why the last attempt has failed, and has been logged; "": it has not.
	failure string
}

// Manifests are the objects that were loaded last for each plugin of a process. A plane that begins takes these if the
// files cannot be read at that moment, as the planes that are there already go on with what they have. The zero value
// has none.
type Manifests struct {
	mu       sync.Mutex
	byPlugin map[string][][]object.Value
}

// keep takes what was loaded. A nil receiver keeps nothing.
func (k *Manifests) keep(plugin string, all [][]object.Value) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byPlugin == nil {
		k.byPlugin = map[string][][]object.Value{}
	}
	k.byPlugin[plugin] = all
}

// of returns what was loaded last; nil if nothing was.
func (k *Manifests) of(plugin string) [][]object.Value {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byPlugin[plugin]
}

// loadManifests gives a plugin the objects of a directory, and follows that.
func (c *Config) loadManifests(m *manifests) error {
	m.loaded = func(err error) { c.Metrics.Loaded(m.plugin, m.last, err) }
	if m.logger = c.Logger; m.logger == nil {
		m.logger = slog.New(slog.DiscardHandler)
	}
	m.kept = c.Manifests
	all, err := m.load()
	switch before := m.kept.of(m.plugin); {
	case err == nil:
		m.kept.keep(m.plugin, all)
	case before == nil:
		return fmt.Errorf("failed to load static manifests from %q: %w", m.dir, err)
	default:
		all, m.failure = before, err.Error()
		m.logger.Error("static manifests are those that were loaded before", "plugin", m.plugin, "error", err)
	}
	m.loaded(err)
	m.apply(all)
	if c.Follow != nil {
		c.Follow(m.follow)
	}
	return nil
}

// staticSuffix ends the names of all static configurations, and of no others.
const staticSuffix = ".static.k8s.io"

// document is a document of a file.
type document struct {
	file string
	text []byte
	item bool // it is an item of a List, in the document
}

// follow loads the directory again whenever it has changed, until ctx ends. What cannot be read changes nothing.
func (m *manifests) follow(ctx context.Context) {
	ticker := time.NewTicker(configfile.Interval)
	defer ticker.Stop()
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
		case err != nil && err.Error() != m.failure:
			m.failure = err.Error()
			m.logger.Error("static manifests stay as they were", "plugin", m.plugin, "error", err)
		case err == nil && (m.last != before || m.failure != ""):
			m.failure = ""
			m.kept.keep(m.plugin, all)
			m.apply(all)
			m.logger.Info("static manifests were loaded again", "plugin", m.plugin, "objects", len(slices.Concat(all...)))
		}
	}
}

// load reads the objects of all files, in the order of their names.
func (m *manifests) load() ([][]object.Value, error) {
	documents, hash, err := m.read()
	if err != nil {
		return nil, err
	}
	all := make([][]object.Value, len(m.kinds))
	seen := map[string]string{}
	for _, d := range documents {
		if err := m.parse(d, seen, all); err != nil {
			return nil, fmt.Errorf("error loading %s: %w", d.file, err)
		}
	}
	if m.whole != nil {
		if err := m.whole(all); err != nil {
			return nil, err
		}
	}
	m.last = hash
	name := func(obj object.Value) string { return obj.At("metadata", "name").Str() }
	for _, of := range all {
		slices.SortFunc(of, func(a, b object.Value) int { return strings.Compare(name(a), name(b)) })
	}
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
				all = append(all, document{file: file, text: text})
			}
		}
	}
	if empty {
		return nil, "", nil
	}
	return all, fmt.Sprintf("sha256:%x", h.Sum(nil)), nil
}

// parse reads the objects of a document into the lists of their kinds. seen has the file of each kind and name.
func (m *manifests) parse(d document, seen map[string]string, into [][]object.Value) error {
	asJSON, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return err
	}
	parsed, err := object.ParseJSON(asJSON)
	if err != nil {
		return err
	}
	return m.accept(parsed.Value, d, seen, into)
}

// accept takes an object of a document, or those of a list.
func (m *manifests) accept(obj object.Value, in document, seen map[string]string, into [][]object.Value) error {
	version, kind := obj.At("apiVersion").Str(), obj.At("kind").Str()
	// As in the reference, a List may be of any version, as long as it has one.
	if _, err := schema.ParseGroupVersion(version); kind == "List" && version != "" && err == nil {
		items, err := itemsOf(obj, kind, "runtime.RawExtension")
		if err != nil {
			return err
		}
		in.item = true
		for _, item := range items {
			if err := m.accept(item, in, seen, into); err != nil {
				return err
			}
		}
		return nil
	}
	for i, own := range m.kinds {
		switch {
		case version != own.APIVersion():
		case kind == own.Kind:
			one, err := m.one(own, obj, in, seen)
			into[i] = append(into[i], one)
			return err
		case kind == own.Kind+"List":
			items, err := itemsOf(obj, kind, "v1."+own.Kind)
			if err != nil {
				return in.undecodable(err)
			}
			for _, item := range items {
				item = item.With("apiVersion", object.StringOf(version)).With("kind", object.StringOf(own.Kind))
				if err := m.accept(item, in, seen, into); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return fmt.Errorf("unsupported resource type %s of %s", kind, version)
}

// itemsOf are the items of a list, which has no fields of its own but its metadata. of is the Go type of the items.
func itemsOf(list object.Value, kind, of string) ([]object.Value, error) {
	var unknown []string
	for _, member := range list.Members() {
		switch member.Key {
		case "apiVersion", "kind", "metadata":
		case "items":
			if v := member.Value; !v.IsNull() && v.Kind() != object.List {
				return nil, fmt.Errorf("json: cannot unmarshal %s into Go struct field %s.items of type []%s", v.Kind(), kind, of)
			}
		default:
			unknown = append(unknown, member.Key)
		}
	}
	return list.At("items").Items(), strict(unknown)
}

// strict is the error for unknown fields; nil if there are none.
func strict(unknown []string) error {
	errs := make([]error, len(unknown))
	for i, name := range unknown {
		errs[i] = fmt.Errorf("unknown field %q", name)
	}
	return configfile.Strict(errs)
}

// undecodable is the error of something in the document that cannot be decoded.
func (d document) undecodable(err error) error {
	if d.item {
		return fmt.Errorf("failed to decode list item: %w", err)
	}
	return err
}

// one checks an object as a create would, and that it needs nothing of the API.
func (m *manifests) one(kind *engine.Resource, obj object.Value, in document, seen map[string]string) (object.Value,
	error) {
	decoded, err := kind.Schema().Decode(obj)
	if err == nil {
		err = strict(decoded.Unknown)
	}
	if err != nil {
		return object.Nil, in.undecodable(err)
	}
	obj = decoded.Value
	if kind.Default != nil {
		obj = kind.Default(obj)
	}
	name := obj.At("metadata", "name").Str()
	// The rules refuse the suffix, which is reserved for these files.
	checked := obj.WithAt(object.StringOf(strings.TrimSuffix(name, staticSuffix)), "metadata", "name")
	errs := objectmeta.ObjectMeta(checked.At("metadata"), false, kind.ValidateName, field.NewPath("metadata"))
	errs = append(errs, kind.Validate(context.Background(), checked)...)
	if len(errs) > 0 {
		return object.Nil, fmt.Errorf("%s %q: %w", kind.Kind, name, errs.ToAggregate())
	}
	at := kind.Kind + "/" + name
	switch { // the rules demand a name
	case !strings.HasSuffix(name, staticSuffix):
		return object.Nil, fmt.Errorf("%q in file %q must have a name ending with %q", name, in.file, staticSuffix)
	case seen[at] != "":
		return object.Nil, fmt.Errorf("duplicate name %q found in file %q (previously seen in %q)", name, in.file, seen[at])
	}
	seen[at] = in.file
	return obj, m.check(kind.Kind, in.file, obj)
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
