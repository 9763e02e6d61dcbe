package crd

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"

	"plinth/internal/access"
	"plinth/internal/cel"
	"plinth/internal/crd/validation"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// Definitions creates types from custom resource definitions, and implements the behaviour of definitions themselves.
type Definitions struct {
	// Call posts JSON to the webhook of a client configuration (spec.conversion.webhook.clientConfig) and returns the
	// response. It is set before the first use. If it is nil, no webhook can be called.
	Call func(ctx context.Context, config object.Value, body []byte) ([]byte, error)

	types types
	rules cel.Cache
	names *view.View[*nameIndex]
}

// New returns Definitions. metadata is the type of metadata of every object.
func New(metadata func() *schema.Type) *Definitions {
	return &Definitions{types: types{metadata: metadata}}
}

// Open sets the collection of definitions. It is called before the first use.
func (d *Definitions) Open(collection *store.Collection) {
	d.names = view.New(collection, compileNameIndex)
}

// Complete sets the behaviours of the type customresourcedefinitions.
func (d *Definitions) Complete(r *engine.Resource) {
	r.Report = d.report
	r.MarkDeleted = terminating
	r.Propagation = definitionPropagation
	// The first delete only marks a definition, even if it has no objects: the controller removes it later.
	r.Held = func(obj object.Value) bool { return obj.At("metadata", "deletionTimestamp").IsNull() }
	prepareCreate, prepareUpdate := r.PrepareCreate, r.PrepareUpdate
	r.PrepareCreate = func(obj object.Value, by access.User) object.Value {
		return withStoredVersion(prepareCreate(obj, by))
	}
	r.PrepareUpdate = func(obj, old object.Value) object.Value { return withStoredVersion(prepareUpdate(obj, old)) }
	o := func() validation.Options {
		return validation.Options{Metadata: d.types.metadata(), CheckRules: checkRules,
			CheckDefaultRules: checkDefaultRules, RuleBudget: cel.Budget}
	}
	r.NameOf = validation.Names
	r.WarnCreate = func(obj, _ object.Value) []string { return definitionWarnings(obj, object.Nil) }
	r.WarnUpdate = definitionWarnings
	r.Validate = func(obj object.Value) field.ErrorList { return validation.Validate(obj, o()) }
	r.ValidateUpdate = func(obj, old object.Value) field.ErrorList { return validation.ValidateUpdate(obj, old, o()) }
	r.Subresource("status").Validate = func(_, obj,
		old object.Value) field.ErrorList {
		return validation.ValidateStatusUpdate(obj, old)
	}
}

// definitionPropagation is the propagation of most kinds, except that the first delete only adds the definition's own
// finalizer.
func definitionPropagation(obj object.Value, o engine.DeleteOptions) engine.Propagation {
	if obj.At("metadata", "deletionTimestamp").IsNull() {
		return engine.Unchanged
	}
	return engine.PropagationOr(engine.Background, obj, o)
}

// checkRules adapts cel.Check to validation.
func checkRules(t *schema.Type, path *field.Path, o validation.RuleOptions) field.ErrorList {
	return cel.Check(t, path, cel.CheckOptions(o))
}

// checkDefaultRules runs the rules of a schema node on its default.
func checkDefaultRules(t *schema.Type, path *field.Path, v object.Value, budget int64) (field.ErrorList, int64) {
	return cel.Compile(t).ValidateDefault(context.Background(), path, v, budget)
}

// withStoredVersion adds the storage version to status.storedVersions.
func withStoredVersion(obj object.Value) object.Value {
	for _, v := range obj.At("spec", "versions").Items() {
		if !v.At("storage").Bool() {
			continue
		}
		stored := obj.At("status", "storedVersions")
		name := v.At("name")
		if !slices.ContainsFunc(stored.Items(), func(s object.Value) bool { return object.Equal(s, name) }) {
			obj = obj.WithAt(object.ListOf(append(slices.Clone(stored.Items()), name)...), "status", "storedVersions")
		}
		break
	}
	return obj
}

// Define returns the types that a definition defines (engine.Define). If a change of the definition does not concern
// them (an annotation, say), it returns the same types as before.
func (d *Definitions) Define(v *store.Version, before []*engine.Resource) []*engine.Resource {
	var was *engine.Kind
	if len(before) > 0 {
		was = before[0].Stored
	}
	if v == nil {
		end(was)
		return nil
	}
	obj := outline(v)
	if obj.IsNull() || !served(obj) {
		end(was)
		return nil
	}
	is := originOf(v, obj)
	if was != nil && was.Origin.(*origin).equal(is) {
		return before
	}
	all, _ := d.kind(v, obj, is)
	if len(all) == 0 {
		end(was)
		return nil
	}
	if k := all[0].Stored; was != nil && sameForm(was, k) {
		k.Life = was.Life
	} else {
		end(was)
	}
	return all
}

// end ends the watches of a kind whose form has changed, or that is no longer served.
func end(k *engine.Kind) {
	if k != nil {
		k.Life.End()
	}
}

// origin has what determines the types of a definition.
type origin struct {
	spec        uint64 // a hash of the spec, valid in this process
	names       names
	terminating bool
	types       []*lazyType // of all versions
}

var seed = maphash.MakeSeed()

func originOf(v *store.Version, obj object.Value) *origin {
	return &origin{
		spec: maphash.Bytes(seed, object.MemberText(v.Data, "spec")), names: namesOf(obj.At("status", "acceptedNames")),
		terminating: isTrue(obj.At("status"), "Terminating"),
	}
}

func (o *origin) equal(other *origin) bool {
	return o.terminating == other.terminating && o.spec == other.spec && o.names.equal(&other.names)
}

// sameForm says whether objects have the same form by two states of a definition. Then watches can continue: the
// objects that they have sent are still valid. Schemas are only compared when a definition changes, which is rare.
func sameForm(was, is *engine.Kind) bool {
	a, b := was.Origin.(*origin), is.Origin.(*origin)
	return was.Path == is.Path && a.names.kind == b.names.kind && was.Storage.APIVersion == is.Storage.APIVersion &&
		slices.EqualFunc(a.types, b.types, func(x, y *lazyType) bool { return x.stamp() == y.stamp() })
}

// Stored returns the type of a definition's objects in their storage version, even if that is not served; nil if the
// definition was never established.
func (d *Definitions) Stored(v *store.Version) *engine.Resource {
	obj := outline(v)
	if obj.IsNull() || !served(obj) {
		return nil
	}
	_, stored := d.kind(v, obj, originOf(v, obj))
	return stored
}

// custom is one version of a kind.
type custom struct {
	group, apiVersion string
	typ               *lazyType
	rules             *cel.Rules
	hasStatus         bool
	// scaleErrors and scaleStatusErrors are validateScale and validateScaleStatus of the version; nil if it has no
	// scale subresource.
	scaleErrors, scaleStatusErrors func(obj object.Value) field.ErrorList
}

// kind creates the types of a definition. It returns the Resource of each served version, and that of the storage
// version, which need not be served.
func (d *Definitions) kind(v *store.Version, obj object.Value, from *origin) (all []*engine.Resource,
	stored *engine.Resource) {
	spec := obj.At("spec")
	group := spec.At("group").Str()
	k := &engine.Kind{
		Path: group + "/" + from.names.plural, Definition: v.Key, Life: engine.NewLife(v.Revision), Custom: true,
		Origin: from,
	}
	for i, version := range spec.At("versions").Items() {
		apiVersion := group + "/" + version.At("name").Str()
		c := &custom{
			group: group, apiVersion: apiVersion,
			typ:       &lazyType{of: &d.types, version: v, index: i, apiVersion: apiVersion},
			hasStatus: !version.At("subresources", "status").IsNull(),

			scaleErrors: validateScale(version), scaleStatusErrors: validateScaleStatus(version),
		}
		c.rules = d.rules.Rules(c.typ.get)
		from.types = append(from.types, c.typ)
		r := c.resource(obj, version, from)
		r.Stored, r.Served = k, engine.VersionOf(r)
		k.Versions = append(k.Versions, r.Served)
		if version.At("storage").Bool() {
			k.Storage, stored = r.Served, r
			k.StampOf = sync.OnceValue(c.typ.stamp)
		}
		if version.At("served").Bool() {
			all = append(all, r)
		}
	}
	if len(k.Versions) > 1 {
		k.Convert = d.conversion(obj)
	}
	return all, stored
}

// The verbs of custom resources in discovery.
var (
	allVerbs         = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	terminatingVerbs = []string{"delete", "deletecollection", "get", "list", "watch"}
	subresourceVerbs = []string{"get", "patch", "update"}
)

// resource is the engine's row for one version.
func (c *custom) resource(definition, version object.Value, from *origin) *engine.Resource {
	spec, has := definition.At("spec"), &from.names
	r := &engine.Resource{
		Naming: engine.Naming{
			Group: c.group, Version: version.At("name").Str(), Name: has.plural, Singular: has.singular,
			Kind: has.kind, ListKind: has.listKind, ShortNames: has.short, Categories: has.categories,
			Namespaced: spec.At("scope").Str() == "Namespaced", Verbs: allVerbs, Deprecated: deprecation(spec, version),
		},
		Schema:  c.typ.get,
		Written: c.typ.written,
		Model:   modelName(c.group, version.At("name").Str(), has.kind),
	}
	if from.terminating {
		r.DiscoveryVerbs = terminatingVerbs
	}
	r.ValidateName = subdomain
	r.Default = func(obj object.Value) object.Value { return c.typ.get().Default(obj) }
	r.PrepareCreate, r.PrepareUpdate = c.prepareCreate, c.prepareUpdate
	r.Generation = c.generation
	r.Validate = func(obj object.Value) field.ErrorList { return c.validate(obj, object.Nil) }
	r.ValidateUpdate = c.validate
	r.Rules = c.rules.Validate
	r.WarnCreate = func(obj, _ object.Value) []string { return finalizerWarnings(obj, object.Nil) }
	r.WarnUpdate = finalizerWarnings
	r.Columns, r.Cells = columnsOf(version)
	r.Fields, r.UnknownField = selectableOf(version), unknownField
	if s := scaleOf(definition, version, c.validate); s != nil {
		r.Subresources = append(r.Subresources, s)
	}
	if c.hasStatus {
		r.Resets = map[string]merge.Set{c.apiVersion: merge.Fields("status")}
		r.Subresources = append(r.Subresources, c.status(r, spec))
	}
	return r
}

// deprecation is the warning for requests to a version; "" if it is not deprecated.
func deprecation(spec, v object.Value) string {
	if !v.At("deprecated").Bool() {
		return ""
	}
	if warning := v.At("deprecationWarning"); !warning.IsNull() {
		return warning.Str()
	}
	group, kind, name := spec.At("group").Str(), spec.At("names", "kind").Str(), v.At("name").Str()
	text := fmt.Sprintf("%s/%s %s is deprecated", group, name, kind)
	newest := ""
	for _, o := range spec.At("versions").Items() {
		other := o.At("name").Str()
		if o.At("served").Bool() && !o.At("deprecated").Bool() && version.CompareKubeAwareVersionStrings(name,
			other) < 0 &&
			(newest == "" || version.CompareKubeAwareVersionStrings(newest, other) < 0) {
			newest = other
		}
	}
	if newest != "" {
		text += fmt.Sprintf("; use %s/%s %s", group, newest, kind)
	}
	return text
}
