package builtin

import (
	"context"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/gotypes"
	"plinth/object"
	compiled "plinth/schema"
)

// version is one version of a kind. A row lists its versions in the order of their priority; the first is the hub
// through which the others are converted.
//
// Since when there is a version, and when it is removed, is declared by its Go type (k8s.io/api,
// zz_generated.prerelease-lifecycle.go) and not repeated here. What follows from that:
//
//	there    ⇔  introduced ≤ emulated < removed, and the gates of the kind are on
//	served   ⇔  there, and turned on: by --runtime-config, or because it is stable (onByDefault)
//	stored      the rule of kind.storage
//
// A version that is not served has no engine.Resource, and its schema is not compiled. The kind in the store has all
// versions (engine.Kind.Versions), since objects may be stored in any: a kind that has just become stable is stored in
// its last beta version, so that the release before can read the objects after a rollback.
type version struct {
	name      string // "v1beta1": that of the Go package
	schema    func() *compiled.Type
	list      reflect.Type // the Go type of its lists; nil: there are none
	lifecycle any          // a nil pointer to the Go type, for its methods

	// toHub and fromHub convert an object to the hub and back. Nil: the versions differ in their apiVersion alone.
	toHub, fromHub func(obj object.Value) (object.Value, error)
	// adapt changes a copy of the row where this version differs from it; nil: it does not.
	adapt func(k *kind)
}

// of is the version that has a Go type and the type of its lists.
func of[T, L any]() version {
	v := unlisted[T]()
	v.list = reflect.TypeFor[L]()
	return v
}

// unlisted is the version that has a Go type of which there are no lists.
func unlisted[T any]() version {
	return version{name: path.Base(reflect.TypeFor[T]().PkgPath()), schema: gotypes.Of[T], lifecycle: (*T)(nil)}
}

// by is the version with its conversions to the hub and back.
func (v version) by(toHub, fromHub func(object.Value) (object.Value, error)) version {
	v.toHub, v.fromHub = toHub, fromHub
	return v
}

// but is the version with what is different in it.
func (v version) but(adapt func(k *kind)) version {
	v.adapt = adapt
	return v
}

// current is the release to which these types belong.
var current = features.Current.Emulated

func releaseOf(major, minor int) features.Release {
	return features.Release{Major: major, Minor: minor}
}

// introduced is the release that brought the version; none: every release has it.
func (v *version) introduced() features.Release {
	if t, ok := v.lifecycle.(interface{ APILifecycleIntroduced() (major, minor int) }); ok {
		return releaseOf(t.APILifecycleIntroduced())
	}
	return features.Release{}
}

// removed is the first release that does not serve the version; none: it is not known yet.
func (v *version) removed() features.Release {
	if t, ok := v.lifecycle.(interface{ APILifecycleRemoved() (major, minor int) }); ok {
		return releaseOf(t.APILifecycleRemoved())
	}
	return features.Release{}
}

// onByDefault says whether the version is served without --runtime-config: stable versions are, as in the reference.
func (v *version) onByDefault() bool {
	return !strings.Contains(v.name, "alpha") && !strings.Contains(v.name, "beta")
}

// there says whether a release serves the version, and later whether only a later one does.
func (v *version) there(emulated features.Release) (present, later bool) {
	if removed := v.removed(); removed != (features.Release{}) && !removed.After(emulated) {
		return false, false
	}
	later = v.introduced().After(emulated)
	return !later, later
}

// deprecated is the warning for requests in a version that is not stable, in the words of the reference
// (k8s.io/apiserver/pkg/endpoints/deprecation); "": it is not deprecated yet.
func (v *version) deprecated(apiVersion, kind string) string {
	t, ok := v.lifecycle.(interface{ APILifecycleDeprecated() (major, minor int) })
	if !ok {
		return ""
	}
	since := releaseOf(t.APILifecycleDeprecated())
	if since.After(current) {
		return ""
	}
	text := fmt.Sprintf("%s %s is deprecated in v%s+", apiVersion, kind, since)
	if removed := v.removed(); removed != (features.Release{}) {
		text += fmt.Sprintf(", unavailable in v%s+", removed)
	}
	if t, ok := v.lifecycle.(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		other := t.APILifecycleReplacement()
		text += fmt.Sprintf("; use %s %s", other.GroupVersion(), other.Kind)
	}
	return text
}

// storage returns the index of the version in which objects are stored, by the rule of the reference
// (k8s.io/apiserver/pkg/server/storage/resource_encoding_config.go): the version that the reference's list of
// exceptions names; else the first version, other than alpha ones, that the oldest compatible release knows; else the
// first that the emulated release knows.
func (k *kind) storage(v features.Versions) int {
	if len(k.versions) == 1 {
		return 0
	}
	if k.stored != "" {
		return slices.IndexFunc(k.versions, func(v version) bool { return v.name == k.stored })
	}
	for i := range k.versions {
		if !strings.Contains(k.versions[i].name, "alpha") && !k.versions[i].introduced().After(v.Compatible) {
			return i
		}
	}
	for i := range k.versions {
		if !k.versions[i].introduced().After(v.Emulated) {
			return i
		}
	}
	return 0
}

// in is the row as it is in one of its versions.
func (k *kind) in(v *version) *kind {
	row := *k
	row.version = v
	if v.adapt != nil {
		v.adapt(&row)
	}
	return &row
}

// on says whether the feature gates that the kind needs are on.
func (k *kind) on(set features.Set) bool {
	for _, gate := range k.gates {
		if !set.On(gate) {
			return false
		}
	}
	return true
}

// shapes converts the objects of a kind in the store between its versions, by way of the hub.
type shapes []shape

// shape is one version: how its objects differ from those of the hub.
type shape struct {
	apiVersion     string
	toHub, fromHub func(obj object.Value) (object.Value, error)
}

func (all *shapes) find(apiVersion string) *shape {
	for i := range *all {
		if s := &(*all)[i]; s.apiVersion == apiVersion {
			return s
		}
	}
	return nil
}

// convert is an engine.Kind.Convert.
func (all *shapes) convert(_ context.Context, objects []object.Value, to *engine.Version) ([]object.Value, error) {
	converted := make([]object.Value, len(objects))
	for i, obj := range objects {
		apiVersion := obj.At("apiVersion").Str()
		if apiVersion == to.APIVersion {
			converted[i] = obj
			continue
		}
		from, into := all.find(apiVersion), all.find(to.APIVersion)
		if from == nil || into == nil {
			return nil, fmt.Errorf("no conversion from %q to %q", apiVersion, to.APIVersion)
		}
		var err error
		for _, step := range [...]func(object.Value) (object.Value, error){from.toHub, into.fromHub} {
			if step == nil {
				continue
			}
			if obj, err = step(obj); err != nil {
				return nil, err
			}
		}
		if obj.At("apiVersion").Str() != to.APIVersion {
			obj = obj.With("apiVersion", object.StringOf(to.APIVersion))
		}
		converted[i] = obj
	}
	return converted, nil
}
