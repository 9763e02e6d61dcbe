package crd

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeversion "k8s.io/apimachinery/pkg/version"

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

	// Expressions bounds the compiled rules; nil: all are kept. It is set before the first use.
	Expressions *cel.Cache

	// Converted keeps what conversion webhooks have made; nil: they are asked at each read. New sets it.
	Converted *engine.Converted

	// LatestExpressions accepts new rules that older releases could not compile (--min-compatibility-version). It is set
	// before the first use.
	LatestExpressions bool

	// Texts has what other servers have read; nil: this server reads all definitions itself. It is set before the first
	// use.
	Texts *Texts

	// Shared has what definitions of other planes of the process have in common with those of this one; nil: nothing. It
	// has the Expressions, and is set before the first use.
	Shared *Shared

	types types
	names *view.View[*nameIndex]
}

// maxConverted is the memory for what conversion webhooks have made of stored objects.
const maxConverted = 64 << 20

// New returns Definitions. metadata is the type of metadata of every object.
func New(metadata func() *schema.Type) *Definitions {
	return &Definitions{types: types{metadata: metadata}, Converted: engine.NewConverted(maxConverted)}
}

// Open sets the collection of definitions. It is called before the first use.
func (d *Definitions) Open(collection *store.Collection) {
	d.names = view.New(collection, compileNameIndex)
}

// Complete sets the behaviours of the type customresourcedefinitions.
func (d *Definitions) Complete(r *engine.Resource) {
	r.ServerStatus = d.serverStatus
	r.MarkDeleted = terminating
	r.Propagation = definitionPropagation
	// The first delete only marks a definition, even if it has no objects: the controller removes it later.
	r.Held = func(obj object.Value) bool { return obj.At("metadata", "deletionTimestamp").IsNull() }
	prepareCreate, prepareUpdate := r.PrepareCreate, r.PrepareUpdate
	r.PrepareCreate = func(obj object.Value, by access.User) object.Value {
		return withStoredVersion(prepareCreate(obj, by))
	}
	r.PrepareUpdate = func(obj, old object.Value) object.Value { return withStoredVersion(prepareUpdate(obj, old)) }
	o := func(ctx context.Context) validation.Options {
		return validation.Options{
			Metadata: d.types.metadata(), Stop: ctx.Err, RuleBudget: cel.Budget,
			CheckRules: d.checkRules,
			CheckDefaultRules: func(t *schema.Type, path *field.Path, v object.Value, budget int64) (field.ErrorList, int64) {
				return cel.Compile(t).ValidateDefault(ctx, path, v, budget)
			},
		}
	}
	r.NameOf = validation.Names
	r.WarnCreate = func(obj, _ object.Value) []string { return definitionWarnings(obj, object.Nil) }
	r.WarnUpdate = definitionWarnings
	r.Validate = func(ctx context.Context, obj object.Value) field.ErrorList { return validation.Validate(obj, o(ctx)) }
	r.ValidateUpdate = func(ctx context.Context, obj, old object.Value) field.ErrorList {
		return validation.ValidateUpdate(obj, old, o(ctx))
	}
	r.Subresource("status").Validate = func(_ context.Context, _, obj, old object.Value) field.ErrorList {
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
func (d *Definitions) checkRules(t *schema.Type, path *field.Path, o validation.RuleOptions) field.ErrorList {
	if d.LatestExpressions { // then they are compiled like those that are stored
		o.Stored = func(string, bool) bool { return true }
	}
	return cel.Check(t, path, cel.CheckOptions(o))
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
	var previous *engine.Kind
	if len(before) > 0 {
		previous = before[0].Stored
	}
	if v == nil {
		d.end(previous)
		return nil
	}
	read := d.read(v)
	if read.outline.IsNull() || !served(read.outline) {
		d.end(previous)
		return nil
	}
	now := originOf(read)
	if previous != nil && previous.Origin.(*origin).equal(now) {
		return before
	}
	all, _ := d.kind(read, now)
	if len(all) == 0 {
		d.end(previous)
		return nil
	}
	if k := all[0].Stored; previous != nil && sameForm(previous, k) {
		k.Life = previous.Life
	} else {
		d.end(previous)
	}
	return all
}

// end ends the watches of a kind whose form has changed, or that is no longer served. What was converted in that form
// is dropped after that, as nothing of a life that has ended is kept.
func (d *Definitions) end(k *engine.Kind) {
	if k != nil {
		k.Life.End()
		d.Converted.Forget(k.Life)
	}
}

// origin has what determines the types of a definition.
type origin struct {
	uid         string // of the definition
	spec        uint64 // a hash of the spec, valid in this process
	conversion  uint64 // a hash of the conversion between its versions, valid in this process; 0: there is one version
	names       names
	terminating bool
	established bool
	types       []*lazyType // of all versions
}

var seed = maphash.MakeSeed()

func originOf(read *definitionText) *origin {
	obj := read.outline
	var conversion uint64
	if obj.At("spec", "versions").Len() > 1 {
		conversion = maphash.Bytes(seed, object.AppendJSON(nil, obj.At("spec", "conversion"))) | 1
	}
	return &origin{
		uid: read.version.Sidecar.UID, spec: read.spec, conversion: conversion,
		names: namesOf(obj.At("status", "acceptedNames")), terminating: isTrue(obj.At("status"), "Terminating"),
		established: isTrue(obj.At("status"), "Established"),
	}
}

func (o *origin) equal(other *origin) bool {
	return o.uid == other.uid && o.terminating == other.terminating && o.established == other.established &&
		o.spec == other.spec && o.names.equal(&other.names)
}

// sameForm says whether objects have the same form by two states of one definition. Then watches can continue: the
// objects that they have sent are still valid. Schemas are only compared when the spec of a definition changes, which
// is rare: its deletion does not change it. Another webhook may convert to something else, and even a new certificate
// of the same one ends them: they would go on to ask it with the old one.
func sameForm(before, now *engine.Kind) bool {
	a, b := before.Origin.(*origin), now.Origin.(*origin)
	return before.DefinitionUID == now.DefinitionUID && before.Path == now.Path && a.names.kind == b.names.kind &&
		before.Storage.APIVersion == now.Storage.APIVersion && (a.spec == b.spec || a.conversion == b.conversion &&
		slices.EqualFunc(a.types, b.types, func(x, y *lazyType) bool { return x.stamp() == y.stamp() }))
}

// Stored returns the type of a definition's objects in their storage version, even if that is not served; nil if the
// definition was never established.
func (d *Definitions) Stored(v *store.Version) *engine.Resource {
	read := d.read(v)
	if read.outline.IsNull() || !served(read.outline) {
		return nil
	}
	_, stored := d.kind(read, originOf(read))
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
func (d *Definitions) kind(read *definitionText, from *origin) (versions []*engine.Resource, stored *engine.Resource) {
	v, obj := read.version, read.outline
	spec := obj.At("spec")
	group := spec.At("group").Str()
	all := commonOf(obj)
	k := &engine.Kind{
		Path: group + "/" + from.names.plural, Definition: v.Key, DefinitionUID: v.Sidecar.UID,
		Life: engine.NewLife(v.Revision), Custom: true, Origin: from,
	}
	for i, version := range spec.At("versions").Items() {
		apiVersion := group + "/" + version.At("name").Str()
		c := &custom{
			group: group, apiVersion: apiVersion,
			typ:       read.lazy[i],
			hasStatus: !version.At("subresources", "status").IsNull(),

			scaleErrors: validateScale(version), scaleStatusErrors: validateScaleStatus(version),
		}
		if c.rules = c.typ.rules; c.rules == nil {
			c.rules = d.Expressions.Rules(c.typ.get)
		}
		from.types = append(from.types, c.typ)
		r := c.resource(obj, version, from, all)
		r.Stored, r.Served = k, engine.VersionOf(r)
		k.Versions = append(k.Versions, r.Served)
		if version.At("storage").Bool() {
			k.Storage, stored = r.Served, r
			k.StampOf = sync.OnceValue(c.typ.stamp)
		}
		if version.At("served").Bool() {
			versions = append(versions, r)
		}
	}
	if len(k.Versions) > 1 {
		k.Convert = d.conversion(obj)
		if hasWebhook(obj) {
			k.Converted = d.Converted
		}
	}
	return versions, stored
}

// common has what the versions of a definition share. It is made once: a definition may have thousands of versions.
type common struct {
	resets   map[string]merge.Set // of the status subresource, by apiVersion
	replicas merge.Replicas       // of the scale subresource
	newest   string               // the name of the newest served version that is not deprecated; "" if there is none
}

func commonOf(obj object.Value) *common {
	c := &common{resets: map[string]merge.Set{}, replicas: replicasOf(obj)}
	group := obj.At("spec", "group").Str()
	for _, version := range obj.At("spec", "versions").Items() {
		name := version.At("name").Str()
		if !version.At("subresources", "status").IsNull() {
			c.resets[group+"/"+name] = merge.Fields("metadata", "spec")
		}
		if version.At("served").Bool() && !version.At("deprecated").Bool() &&
			(c.newest == "" || kubeversion.CompareKubeAwareVersionStrings(c.newest, name) < 0) {
			c.newest = name
		}
	}
	return c
}

// The verbs of custom resources in discovery.
var (
	allVerbs         = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	terminatingVerbs = []string{"delete", "deletecollection", "get", "list", "watch"}
	subresourceVerbs = []string{"get", "patch", "update"}
)

// resource is the engine's row for one version.
func (c *custom) resource(definition, version object.Value, from *origin, all *common) *engine.Resource {
	spec, has := definition.At("spec"), &from.names
	r := &engine.Resource{
		Naming: engine.Naming{
			Group: c.group, Version: version.At("name").Str(), Name: has.plural, Singular: has.singular,
			Kind: has.kind, ListKind: has.listKind, ShortNames: has.short, Categories: has.categories,
			Namespaced: spec.At("scope").Str() == "Namespaced", Verbs: allVerbs, Unlisted: !from.established,
			Deprecated: deprecation(spec, version, all),
		},
		Schema:  c.typ.get,
		Written: c.typ.parse,
		Model:   modelName(c.group, version.At("name").Str(), has.kind),
	}
	if from.terminating {
		r.DiscoveryVerbs = terminatingVerbs
	}
	r.ValidateName = subdomain
	r.Default = func(obj object.Value) object.Value { return c.typ.get().Default(obj) }
	r.PrepareCreate, r.PrepareUpdate = c.prepareCreate, c.prepareUpdate
	r.Generation = c.generation
	r.Validate = func(ctx context.Context, obj object.Value) field.ErrorList { return c.validate(ctx, obj, object.Nil) }
	r.ValidateUpdate = c.validate
	r.Rules = c.rules.Validate
	r.WarnCreate = func(obj, _ object.Value) []string { return finalizerWarnings(obj, object.Nil) }
	r.WarnUpdate = finalizerWarnings
	r.Columns, r.Cells = columnsOf(version)
	r.Fields, r.UnknownField = selectableOf(version), unknownField
	r.FieldPaths = selectablePaths(version)
	if c.hasStatus {
		r.Resets = map[string]merge.Set{c.apiVersion: merge.Fields("status")}
		r.Subresources = append(r.Subresources, c.status(r, all))
	}
	if s := scaleOf(version, all, c.validate); s != nil {
		r.Subresources = append(r.Subresources, s)
	}
	return r
}

// deprecation is the warning for requests to a version; "" if it is not deprecated.
func deprecation(spec, v object.Value, all *common) string {
	if !v.At("deprecated").Bool() {
		return ""
	}
	if warning := v.At("deprecationWarning"); !warning.IsNull() {
		return warning.Str()
	}
	group, kind, name := spec.At("group").Str(), spec.At("names", "kind").Str(), v.At("name").Str()
	text := fmt.Sprintf("%s/%s %s is deprecated", group, name, kind)
	if all.newest != "" && kubeversion.CompareKubeAwareVersionStrings(name, all.newest) < 0 {
		text += fmt.Sprintf("; use %s/%s %s", group, all.newest, kind)
	}
	return text
}
