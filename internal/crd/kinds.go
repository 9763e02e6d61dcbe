package crd

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// Definitions is what custom resource definitions do.
type Definitions struct {
	types  types
	claims *view.View[*claims]
}

// New makes Definitions. metadata is the type of the metadata of every object.
func New(metadata func() *schema.Type) *Definitions {
	return &Definitions{types: types{metadata: metadata}}
}

// Open gives the definitions the table that they are in; it is called before anybody asks for a type.
func (d *Definitions) Open(table *store.Table) { d.claims = view.New(table, compileClaims) }

// Complete gives the type of definitions what they do when they are written and deleted.
func (d *Definitions) Complete(r *engine.Resource) {
	r.Report = d.report
	r.MarkDeleted = terminating
	// A definition that is not yet marked waits for its objects, whether there are any or not.
	r.Held = func(obj object.Value) bool { return obj.At("metadata", "deletionTimestamp").IsNull() }
	prepareCreate, prepareUpdate := r.PrepareCreate, r.PrepareUpdate
	r.PrepareCreate = func(obj object.Value, by access.User) object.Value { return withStoredVersion(prepareCreate(obj, by)) }
	r.PrepareUpdate = func(obj, old object.Value) object.Value { return withStoredVersion(prepareUpdate(obj, old)) }
}

// withStoredVersion notes in the status that objects may from now on be stored in the version that the spec says.
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

// Define says which types a definition defines (engine.Define). Those that a change of the definition does not concern, such as
// one of its annotations, are the same ones as before.
func (d *Definitions) Define(v *store.Version, before []*engine.Resource) []*engine.Resource {
	obj := read(v)
	if obj.IsNull() || !served(obj) {
		return nil
	}
	says := sayingOf(obj)
	if len(before) > 0 {
		if was, ok := before[0].Stored.Origin.(*saying); ok && was.equal(says) {
			return before
		}
	}
	all, _ := d.kind(v, obj, says)
	return all
}

// saying is what of a definition decides the types that it defines.
type saying struct {
	spec, names object.Value
	terminating bool
}

func sayingOf(obj object.Value) *saying {
	return &saying{
		spec: obj.At("spec"), names: obj.At("status", "acceptedNames"),
		terminating: isTrue(obj.At("status"), "Terminating"),
	}
}

func (s *saying) equal(o *saying) bool {
	return s.terminating == o.terminating && object.Equal(s.names, o.names) && object.Equal(s.spec, o.spec)
}

// Stored is the type of the objects that a definition defines, in the version that they are stored in, served or not; nil: it
// was never established.
func (d *Definitions) Stored(v *store.Version) *engine.Resource {
	obj := read(v)
	if obj.IsNull() || !served(obj) {
		return nil
	}
	_, stored := d.kind(v, obj, sayingOf(obj))
	return stored
}

// custom is one version of a kind that is being made.
type custom struct {
	definition object.Value
	version    object.Value // the item of spec.versions
	apiVersion string
	typ        *lazyType
	hasStatus  bool
	// scaleErrors and scaleStatusErrors are validateScale and validateScaleStatus of the version; nil where it has no Scale.
	scaleErrors, scaleStatusErrors func(obj object.Value) field.ErrorList
}

// kind makes the types of a definition: a Version for each of its versions, and a Resource for each that is served.
func (d *Definitions) kind(v *store.Version, obj object.Value, says *saying) (all []*engine.Resource, stored *engine.Resource) {
	spec, has := obj.At("spec"), namesOf(obj.At("status", "acceptedNames"))
	group := spec.At("group").Str()
	k := &engine.Kind{Path: group + "/" + has.plural, Definition: v.Key, Custom: true, Origin: says}
	for i, version := range spec.At("versions").Items() {
		c := &custom{
			definition: obj, version: version, apiVersion: group + "/" + version.At("name").Str(),
			typ:       &lazyType{of: &d.types, version: v, index: i},
			hasStatus: !version.At("subresources", "status").IsNull(),

			scaleErrors: validateScale(version), scaleStatusErrors: validateScaleStatus(version),
		}
		r := c.resource(&has, says.terminating)
		r.Stored, r.Served = k, engine.VersionOf(r)
		k.Versions = append(k.Versions, r.Served)
		if version.At("storage").Bool() {
			k.Storage, stored = r.Served, r
			k.StampOf = sync.OnceValue(func() uint64 { return c.typ.stamp(c.apiVersion) })
		}
		if version.At("served").Bool() {
			all = append(all, r)
		}
	}
	if len(k.Versions) > 1 {
		k.Convert = convertNone
	}
	return all, stored
}

// convertNone is the conversion that changes nothing but the version (ConversionStrategy None); what the schema of the other version
// does not have goes.
func convertNone(objects []object.Value, to *engine.Version) ([]object.Value, error) {
	converted := make([]object.Value, len(objects))
	for i, obj := range objects {
		if converted[i] = obj; obj.At("apiVersion").Str() == to.APIVersion {
			continue
		}
		decoded, err := to.Schema().Decode(obj.With("apiVersion", object.StringOf(to.APIVersion)))
		if err != nil {
			return nil, err
		}
		converted[i] = decoded.Value
	}
	return converted, nil
}

// The verbs of a custom resource, as discovery lists them.
var (
	allVerbs         = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	terminatingVerbs = []string{"delete", "deletecollection", "get", "list", "watch"}
	subresourceVerbs = []string{"get", "patch", "update"}
)

// resource is the row of one version.
func (c *custom) resource(has *names, terminating bool) *engine.Resource {
	spec := c.definition.At("spec")
	r := &engine.Resource{
		Naming: engine.Naming{
			Group: spec.At("group").Str(), Version: c.version.At("name").Str(), Name: has.plural, Singular: has.singular,
			Kind: has.kind, ListKind: has.listKind, ShortNames: has.short, Categories: has.categories,
			Namespaced: spec.At("scope").Str() == "Namespaced", Verbs: allVerbs, Deprecated: c.deprecated(),
		},
		Schema: c.typ.get,
		Model:  modelName(spec.At("group").Str(), c.version.At("name").Str(), has.kind),
	}
	if terminating {
		r.ToldVerbs = terminatingVerbs
	}
	r.ValidateName = subdomain
	r.Default = func(obj object.Value) object.Value { return c.typ.get().Default(obj) }
	r.PrepareCreate, r.PrepareUpdate = c.prepareCreate, c.prepareUpdate
	r.Generation = c.generation
	r.Validate = func(obj object.Value) field.ErrorList { return c.validate(obj, object.Nil) }
	r.ValidateUpdate = c.validate
	r.WarnCreate = func(obj, _ object.Value) []string { return finalizerWarnings(obj, object.Nil) }
	r.WarnUpdate = finalizerWarnings
	r.Columns, r.Cells = columnsOf(c.version)
	r.Fields, r.UnknownField = selectableOf(c.version), unknownField
	if s := scaleOf(c.definition, c.version, c.validate); s != nil {
		r.Subresources = append(r.Subresources, s)
	}
	if c.hasStatus {
		r.Resets = map[string]merge.Set{c.apiVersion: merge.Fields("status")}
		r.Subresources = append(r.Subresources, c.status(r))
	}
	return r
}

// deprecated is what requests for the version are warned with; "": it is not deprecated.
func (c *custom) deprecated() string {
	if !c.version.At("deprecated").Bool() {
		return ""
	}
	if warning := c.version.At("deprecationWarning"); !warning.IsNull() {
		return warning.Str()
	}
	spec := c.definition.At("spec")
	kind, name := spec.At("names", "kind").Str(), c.version.At("name").Str()
	text := fmt.Sprintf("%s %s is deprecated", c.apiVersion, kind)
	newest := ""
	for _, v := range spec.At("versions").Items() {
		other := v.At("name").Str()
		if v.At("served").Bool() && !v.At("deprecated").Bool() && version.CompareKubeAwareVersionStrings(name, other) < 0 &&
			(newest == "" || version.CompareKubeAwareVersionStrings(newest, other) < 0) {
			newest = other
		}
	}
	if newest != "" {
		text += fmt.Sprintf("; use %s/%s %s", spec.At("group").Str(), newest, kind)
	}
	return text
}
