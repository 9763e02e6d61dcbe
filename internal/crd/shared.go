package crd

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"weak"

	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/internal/recent"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// Shared has what the definitions of all planes of a process have in common: schemas and rules of equal texts are
// compiled once, within one bound for the process.
//
// The problem: thousands of planes have the same few definitions, each an object of its own with its own UID and times.
// Who finds what is compiled by the object compiles it for each plane. So it is found by the text of spec: by its
// SHA-256, as the owners of planes write the texts, and none may choose one that is taken for another's. What belongs
// to a plane, such as the names that were accepted and the life of the kind, is made for each.
type Shared struct {
	// Expressions bounds the compiled rules of all planes.
	Expressions *cel.Cache

	types       *types
	texts       *recent.Cache[textSum, *specText]
	definitions *Definitions // for Serves

	mu     sync.Mutex
	served map[textSum]weak.Pointer[Served]
	sweep  int // the number of entries in served from which on those are removed that nobody uses
}

type textSum [sha256.Size]byte

// specText is what depends on the text of spec alone.
type specText struct {
	written *written
	lazy    []*lazyType
}

// maxSharedText is the weight of the texts that are found, whether or not their schemas are compiled.
const maxSharedText = 8 << 20

// NewShared returns a Shared. metadata is as for New.
func NewShared(metadata func() *schema.Type, expressions *cel.Cache) *Shared {
	s := &Shared{Expressions: expressions, types: &types{metadata: metadata},
		texts: &recent.Cache[textSum, *specText]{Limit: maxSharedText}, definitions: New(metadata),
		served: map[textSum]weak.Pointer[Served]{}}
	s.definitions.Shared, s.definitions.Expressions = s, expressions
	return s
}

// of returns what is known of the text of a definition, whose versions make lists.
func (s *Shared) of(v *store.Version, lazyTypes func(*types, *written) []*lazyType) *specText {
	text := object.MemberText(v.Data(), "spec")
	sum := textSum(sha256.Sum256(text))
	if known, ok := s.texts.Get(sum); ok {
		return known
	}
	w := &written{version: v}
	t := &specText{written: w, lazy: lazyTypes(s.types, w)}
	for _, l := range t.lazy {
		l.rules = s.Expressions.Rules(l.get)
	}
	s.texts.Set(sum, t, len(text)+1)
	return t
}

// Served is how one version of a kind is served by definitions with an equal text. Equal pointers serve the same.
type Served struct {
	// Resource serves the objects of a plane with such a definition.
	Resource *engine.Resource
	// Shown serves them where they are stored in the form in which Resource serves them.
	Shown *engine.Resource
}

// shownStamp is the stamp of objects that are stored as they are served.
var shownStamp = engine.Stamp("as it is served")

// Serves returns how a definition serves a version of its kind, by itself: nil if it does not, or if a conversion
// webhook may have to be asked, because objects are stored in other versions, too.
func (s *Shared) Serves(v *store.Version, version string) *Served {
	if v == nil || v.Sidecar.Unreadable != nil {
		return nil
	}
	data := v.Data()
	status, err := object.ParseJSON(object.MemberText(data, "status"))
	if err != nil || !served(object.Fields("status", status.Value)) {
		return nil
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%t\x00%s", version, isTrue(status.Value, "Established"), object.AppendJSON(nil,
		object.ListOf(status.Value.At("acceptedNames"), status.Value.At("storedVersions"))))
	h.Write(object.MemberText(data, "spec"))
	sum := textSum(h.Sum(nil))
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.served[sum].Value(); known != nil {
		return known
	}
	made := s.serves(v, version)
	if made == nil {
		return nil
	}
	if len(s.served) >= s.sweep {
		for sum, w := range s.served {
			if w.Value() == nil {
				delete(s.served, sum)
			}
		}
		s.sweep = 2*len(s.served) + 16
	}
	s.served[sum] = weak.Make(made)
	return made
}

// serves is Serves for a text that is not known.
func (s *Shared) serves(v *store.Version, version string) *Served {
	read := s.definitions.read(v)
	if read.outline.IsNull() {
		return nil
	}
	versions, _ := s.definitions.kind(read, originOf(read))
	for _, r := range versions {
		if r.Version != version {
			continue
		}
		stored := read.outline.At("status", "storedVersions")
		if hasWebhook(read.outline) && (r.Served != r.Stored.Storage || stored.Len() != 1 ||
			stored.Items()[0].Str() != version) {
			return nil
		}
		return &Served{Resource: r, Shown: asShown(r)}
	}
	return nil
}

// asShown is a resource of objects that are stored as r serves them. It is for reads.
func asShown(r *engine.Resource) *engine.Resource {
	s := &engine.Resource{Naming: r.Naming, Schema: r.Schema, Written: r.Written, Model: r.Model}
	s.Verbs, s.DiscoveryVerbs = []string{"list", "watch"}, nil
	s.Columns, s.Cells = r.Columns, r.Cells
	s.Fields, s.UnknownField, s.FieldPaths = r.Fields, r.UnknownField, r.FieldPaths
	s.Served = engine.VersionOf(s)
	s.Stored = &engine.Kind{Path: r.Stored.Path, Storage: s.Served, Versions: []*engine.Version{s.Served},
		Stamp: shownStamp, Custom: true}
	return s
}
