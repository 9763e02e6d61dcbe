package controller

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"plinth/internal/access"
	"plinth/internal/aggregation"
	"plinth/internal/engine"
	"plinth/object"
)

// migrated is a resource whose objects a migration writes again: one of this server, or one of an aggregated API
// server, of which the latter decides how its objects are stored. String names it as the reference does.
type migrated interface {
	fmt.Stringer
	// migratable says whether its objects can be listed, patched and updated.
	migratable() bool
	// latest returns the revision of the objects now.
	latest(ctx context.Context) (string, error)
	list(ctx context.Context) (*migratedList, error)
	// patch writes an object again, unless it has changed. It passes admission like any patch.
	patch(ctx context.Context, o migratedObject) error
}

// migratedList yields objects; err is for afterwards.
type migratedList struct {
	items iter.Seq[migratedObject]
	err   func() error
}

// migratedObject is an object as it was listed.
type migratedObject struct {
	key      engine.Key // Resource is empty if another server has it
	revision string
}

// resource finds what a migration is about; nil if there is no such resource.
func (m *migrator) resource(group, name string) migrated {
	if m.Aggregator != nil {
		for _, r := range m.Aggregator.Inventory(nil).Resources { // the version that clients prefer is first
			if r.Group == group && r.Name == name {
				metadata := m.Aggregator.Metadata(r, m.user)
				metadata.FieldManager = migrationController
				return &backendObjects{r, metadata}
			}
		}
	}
	if r := m.Registry.Now().Named(group, name); r != nil {
		return &storedObjects{m.Engine, r, m.user}
	}
	return nil
}

// asReference is a resource in the words of the reference.
func asReference(apiVersion, name string) string { return apiVersion + ", Resource=" + name }

// newIntent is the body of a patch that changes nothing, and fails if the object is no longer at a revision.
func newIntent(apiVersion, kind, revision string) object.Value {
	return object.Fields("apiVersion", object.StringOf(apiVersion), "kind", object.StringOf(kind),
		"metadata", object.Fields("resourceVersion", object.StringOf(revision)))
}

// storedObjects are those of this server.
type storedObjects struct {
	engine   *engine.Engine
	resource *engine.Resource
	user     access.User
}

func (s *storedObjects) String() string {
	return asReference(s.resource.Group+"/"+s.resource.Version, s.resource.Name)
}

func (s *storedObjects) migratable() bool {
	return !slices.ContainsFunc([]string{"update", "patch", "list"}, func(v string) bool { return !s.resource.Has(v) })
}

func (s *storedObjects) latest(ctx context.Context) (string, error) {
	list, err := s.engine.ListStored(ctx, s.resource)
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(list.Revision, 10), nil
}

func (s *storedObjects) list(ctx context.Context) (*migratedList, error) {
	list, err := s.engine.ListStored(ctx, s.resource)
	if err != nil {
		return nil, err
	}
	return &migratedList{err: list.Err, items: func(yield func(migratedObject) bool) {
		for o := range list.Items {
			if !yield(migratedObject{o.Key, strconv.FormatInt(o.Revision, 10)}) {
				return
			}
		}
	}}, nil
}

func (s *storedObjects) patch(ctx context.Context, o migratedObject) error {
	rq := s.resource.RequestFor(o.key)
	rq.User, rq.FieldManager = s.user, migrationController
	body := newIntent(s.resource.APIVersion(), s.resource.Kind, o.revision)
	_, err := s.engine.Patch(ctx, rq, engine.Patch{Type: engine.MergePatch, Body: object.AppendJSON(nil, body)})
	return err
}

// backendObjects are those of an aggregated API server.
type backendObjects struct {
	resource aggregation.Resource
	metadata *aggregation.Metadata
}

func (b *backendObjects) String() string {
	return asReference(b.resource.Group+"/"+b.resource.Version, b.resource.Name)
}

func (b *backendObjects) migratable() bool { return b.resource.Migratable }

func (b *backendObjects) latest(ctx context.Context) (string, error) { return b.metadata.Latest(ctx) }

func (b *backendObjects) list(ctx context.Context) (*migratedList, error) {
	var all []migratedObject
	_, err := b.metadata.List(ctx, func(obj object.Value) error {
		meta := obj.At("metadata")
		name := meta.At("name").Str()
		if b.resource.Namespaced {
			name = meta.At("namespace").Str() + "/" + name
		}
		all = append(all, migratedObject{engine.Key{Name: strings.Clone(name)},
			strings.Clone(meta.At("resourceVersion").Str())})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &migratedList{slices.Values(all), func() error { return nil }}, nil
}

func (b *backendObjects) patch(ctx context.Context, o migratedObject) error {
	namespace, name := "", o.key.Name
	if b.resource.Namespaced {
		namespace, name, _ = strings.Cut(name, "/")
	}
	_, err := b.metadata.Patch(ctx, namespace, name, newIntent(b.resource.APIVersion(), b.resource.Kind,
		o.revision))
	return err
}
