package builtin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/addresses"
	"plinth/internal/authz"
	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/validation"
	"plinth/internal/builtin/warnings"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/store"
	"plinth/object"
	"plinth/schema"
)

// Config has the settings of the server on which the built-in types depend.
type Config struct {
	EventTTL time.Duration    // how long Events live; 0: one hour
	Now      func() time.Time // nil: time.Now
	// Features are the feature gates; the zero Set is the defaults.
	Features features.Set
	// Authenticate returns the user of a token, for TokenReviews.
	Authenticate Authenticate
	// Tokens answers TokenRequests. With NoTokens they are not served.
	Tokens   Tokens
	NoTokens bool
	// Addresses allocates the addresses and ports of Services; nil: an allocator with the reference's defaults.
	Addresses *addresses.Allocator
	// Authority decides what users may do, for reviews and for writes of roles and bindings. Nil: reviews deny everything,
	// and roles and bindings are not restricted.
	Authority *authz.Authority
	// Definitions adds the behaviour of custom resource definitions to their type; nil: they are stored, and do not
	// define types.
	Definitions func(r *engine.Resource)
	// DisabledAdmission are the names of admission plugins that are off.
	DisabledAdmission []string
}

// validation returns the options of the validation.
func (c *Config) validation() validation.Options {
	return validation.Options{SloppyAddresses: !c.Features.On(features.StrictIPCIDRValidation), Now: c.Now}
}

// groups lists the built-in API groups, in the order in which the reference's discovery has them.
func groups(c Config) []group {
	return []group{
		core(c), apps(), events(c), authentication(c), authorization(c), autoscalingV2(), autoscalingV1(), batch(),
		certificates(c), networking(), policy(), rbac(c), storage(), admissionregistration(), apiextensions(c),
		scheduling(),
		coordination(), nodes(), discovery(), resources(c), flowcontrol(), storagemigration(),
	}
}

// Resources lists the built-in types, in the order in which the reference's discovery has them.
func Resources(c Config) []*engine.Resource {
	if c.EventTTL == 0 {
		c.EventTTL = time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	var all []*engine.Resource
	var rows []*kind
	stored := map[string]*engine.Kind{}
	for _, g := range groups(c) {
		for i := range g.kinds {
			row := &g.kinds[i]
			r := row.resource(g.name, g.version, c)
			if !r.Virtual() {
				row.store(r, stored)
			}
			all, rows = append(all, r), append(rows, row)
		}
	}
	c.completeServices(all)
	for i, r := range all { // now that each knows all its versions
		r.Resets = rows[i].resets(r, "")
		for _, s := range r.Subresources {
			s.Resets = rows[i].resets(r, s.Name)
		}
	}
	return all
}

// Release is the release of Kubernetes that these types belong to. The stored form of an object may differ between
// releases.
const Release = "1.37"

// store sets the kind of a type. The first row of a kind is the version in which it is stored.
func (k *kind) store(r *engine.Resource, kinds map[string]*engine.Kind) {
	path := cmp.Or(k.path, r.Group+"/"+r.Name)
	r.Stored = kinds[path]
	if r.Stored == nil {
		r.StoredAlone(path, "Kubernetes "+Release)
		r.Stored.TTL, r.Stored.ReferenceStorage = k.ttl, k.referenceStorage
		kinds[path] = r.Stored
		return
	}
	r.Served = engine.VersionOf(r)
	r.Stored.Versions = append(r.Stored.Versions, r.Served)
	storage, toStorage, fromStorage := r.Stored.Storage, k.toStorage, k.fromStorage
	r.Stored.Convert = func(_ context.Context, objects []object.Value, to *engine.Version) ([]object.Value, error) {
		converted := make([]object.Value, len(objects))
		for i, obj := range objects {
			convert := fromStorage
			if to == storage {
				convert = toStorage
			}
			if converted[i] = obj; obj.At("apiVersion").Str() == to.APIVersion {
				continue
			}
			var err error
			if converted[i], err = convert(obj); err != nil {
				return nil, err
			}
		}
		return converted, nil
	}
}

// group is one API group in one version.
type group struct {
	name, version string
	kinds         []kind
}

// kind is one row of the table. The zero value of each field is what most types have: they are namespaced, with all
// verbs, with names that are DNS subdomains, and accept updates without a resourceVersion.
type kind struct {
	name, kind string // "deployments", "Deployment"
	short      string // short names, separated by spaces
	categories []string
	schema     func() *schema.Type
	list       func() *schema.Type // of several objects; nil if objects are never listed

	// defaults sets the reference's defaults, and timed those that depend on the time of the request; nil: the kind has
	// no defaults.
	defaults func(obj object.Value) object.Value
	timed    func(obj object.Value, now time.Time) object.Value
	rules    validation.Kind
	warnings warnings.Rules

	path string        // of the kind in the store; "": that of its group and name
	ttl  time.Duration // how long an object lives; 0: until it is deleted
	// toStorage and fromStorage convert between this version and the one that is stored; nil in the stored version.
	toStorage, fromStorage func(obj object.Value) (object.Value, error)
	// referenceStorage is the version in which the reference stores the kind, if it does not serve that version.
	referenceStorage string

	cluster     bool     // not in a namespace
	verbs       []string // nil: all
	deprecated  string   // the warning for requests (engine.Resource)
	putCreates  bool     // a PUT to a free name creates (URI-4)
	conditional bool     // an update must say which version it replaces (WRITE-1)
	naming      func(name string, prefix bool) []string

	// alias makes fields with the same meaning equal, before the defaults are set. Nil: the kind has no aliases.
	alias func(obj object.Value) object.Value

	// status says which metadata a write to the status may change; noStatus: the kind has no such subresource.
	status statusRule
	// untouched has, by endpoint, the fields that a write there cannot change, and so does not own (SSA-14): paths,
	// separated by spaces; the endpoint "" is the main URL. A write to any other endpoint owns every field that it
	// changes.
	untouched map[string]string
	// plainStatus: the status is not shown as a Table, as for some kinds of the reference.
	plainStatus bool
	// initial returns the status of a new object, given the empty one; nil: the empty one.
	initial func(obj, empty object.Value) object.Value
	// onStatus changes the object of a write to the status, as the last step; nil: no change.
	onStatus func(obj, old object.Value) object.Value
	// onCreate and onUpdate prepare the fields that are specific to the kind, after the status was reset.
	onCreate func(obj object.Value) object.Value
	onUpdate func(obj, old object.Value) object.Value
	// gated are the fields of the main URL, gatedStatus those of the status, that are dropped while the gate of their
	// feature is off.
	gated, gatedStatus []gated
	features           features.Set // the same for all rows
	// generation returns the part of an object whose change makes a new generation; nil: the kind has none.
	generation func(obj object.Value) object.Value

	fields []selectable
	// unknownField is the error for a field that is not among them (engine.Resource).
	unknownField func(name string) string
	// blank returns the object of bookmarks (engine.Resource).
	blank func(zero object.Value) object.Value
	table columns.Table
	// scale returns the label selector of an object as text; nil: the kind has no scale subresource.
	scale func(obj object.Value) (string, error)
	more  []*engine.Subresource // besides status and scale

	// propagation decides what happens to the dependents of a deleted object; nil:
	// engine.PropagationOr(engine.Background).
	propagation func(obj object.Value, o engine.DeleteOptions) engine.Propagation
	// special sets behaviours that only few kinds have.
	special func(r *engine.Resource)
	// answersDeleted makes a completed delete answer with the object instead of a Status, as for some kinds of the
	// reference.
	answersDeleted bool
	// confidential keeps values of the objects out of error messages.
	confidential bool
}

// orphans is the propagation of kinds whose dependents are orphaned by default.
func orphans(obj object.Value, o engine.DeleteOptions) engine.Propagation {
	return engine.PropagationOr(engine.Orphan, obj, o)
}

// collects is the propagation of kinds that never wait for their dependents.
func collects(object.Value, engine.DeleteOptions) engine.Propagation { return engine.Background }

// All verbs, in the order of discovery.
var allVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

var createOnly = []string{"create"}

// resource converts the row to an engine.Resource.
func (k *kind) resource(group, version string, c Config) *engine.Resource {
	r := &engine.Resource{
		Naming: engine.Naming{
			Group: group, Version: version, Name: k.name, Singular: strings.ToLower(k.kind), Kind: k.kind,
			ListKind: k.kind + "List", ShortNames: strings.Fields(k.short), Categories: k.categories,
			Namespaced: !k.cluster, Verbs: k.verbs, Deprecated: k.deprecated,
		},
		Writing: engine.Writing{
			CreateOnUpdate: k.putCreates, UnconditionalUpdate: !k.conditional, ValidateName: k.naming,
			DeleteReturnsObject: k.answersDeleted, Confidential: k.confidential,
			Propagation: k.propagation,
			Default:     k.defaulting(c.Now), Generation: k.generation,
		},
		Reading: engine.Reading{
			UnknownField: k.unknownField, Blank: k.blank, Columns: k.table.Columns, Cells: k.table.Cells,
			IsDefault: k.table.IsDefault, RowOrder: k.table.RowOrder,
		},
		Schema: k.schema,
		Model:  modelName(group, version, k.kind),
	}
	if r.Verbs == nil {
		r.Verbs = allVerbs
	}
	if k.naming == nil {
		r.ValidateName = subdomain
	}
	if len(k.fields) > 0 {
		r.Fields = func(obj object.Value) []store.Pair { return selected(k.fields, obj) }
	}
	rules := k.rules.Rules(c.validation())
	k.features = c.Features
	r.Validate, r.ValidateUpdate = rules.Create, rules.Update
	r.WarnCreate, r.WarnUpdate, r.WarnDelete = k.warnings.Create, k.warnings.Update, k.warnings.Delete
	r.PrepareCreate, r.PrepareUpdate = k.prepareCreate, k.prepareUpdate
	if k.status != noStatus {
		r.Subresources = append(r.Subresources, k.statusOf(r, rules.Status, k.warnings.Status))
	}
	if k.scale != nil {
		r.Subresources = append(r.Subresources, scaled(k.scale, r.APIVersion()))
	}
	r.Subresources = append(r.Subresources, k.more...)
	if k.special != nil {
		k.special(r)
	}
	for _, s := range r.Subresources {
		if s.Schema != nil {
			s.Model = modelName(s.Group, s.Version, s.Kind)
		}
	}
	slices.SortFunc(r.Subresources, func(a, b *engine.Subresource) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// defaulting returns the function that sets the aliases of a kind, and then its defaults.
func (k *kind) defaulting(now func() time.Time) func(object.Value) object.Value {
	fill := k.defaults
	if k.timed != nil {
		fill = func(obj object.Value) object.Value { return k.timed(obj, now()) }
	}
	switch {
	case k.alias == nil:
		return fill
	case fill == nil:
		return k.alias
	}
	return func(obj object.Value) object.Value { return fill(k.alias(obj)) }
}

// prepareCreate resets the fields that a client may not set on a new object.
func (k *kind) prepareCreate(obj object.Value, _ access.User) object.Value {
	if k.status != noStatus && k.status != statusOnCreate {
		empty := k.emptyStatus()
		if k.initial != nil {
			empty = k.initial(obj, empty)
		}
		obj = obj.With("status", empty)
	}
	obj = dropGated(obj, object.Nil, k.gated, k.features)
	if k.onCreate != nil {
		obj = k.onCreate(obj)
	}
	return obj
}

// prepareUpdate keeps the fields that a client may not change.
func (k *kind) prepareUpdate(obj, old object.Value) object.Value {
	if k.status != noStatus {
		obj = keep(obj, old, "status")
	}
	obj = dropGated(obj, old, k.gated, k.features)
	if k.onUpdate != nil {
		obj = k.onUpdate(obj, old)
	}
	return obj
}

// emptyStatus is the zero value of the status as Go encodes it.
func (k *kind) emptyStatus() object.Value {
	if status := k.schema().Zero().At("status"); !status.IsNull() {
		return status
	}
	return object.MapOf()
}

// keep sets a member of obj to that of old.
func keep(obj, old object.Value, key string) object.Value {
	if v, ok := old.Get(key); ok {
		return obj.With(key, v)
	}
	return obj.Without(key)
}

// spec is the generation of most kinds: a change of the spec counts.
func spec(obj object.Value) object.Value { return obj.At("spec") }

// once is the generation of a kind that has the generation 1 from its creation on.
func once(object.Value) object.Value { return object.Nil }

// uncounted is for kinds whose generations are counted from the first update on.
func uncounted(obj object.Value) object.Value { return obj.WithoutAt("metadata", "generation") }
