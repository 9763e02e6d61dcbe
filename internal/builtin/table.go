package builtin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

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
)

// Config has the settings of the server on which the built-in types depend.
type Config struct {
	EventTTL time.Duration    // how long Events live; 0: one hour
	Now      func() time.Time // nil: time.Now
	// Features are the feature gates; the zero Set is the defaults of this release.
	Features features.Set
	// Versions are the releases that the server behaves like; the zero Versions: its own.
	Versions features.Versions
	// Issued is told of each certificate that was issued for a CertificateSigningRequest with a duration, and whether it
	// is valid for about that duration; nil disables it.
	Issued func(signer string, honored bool)
	// Serves says whether a version of a resource is served, given whether it is by default. It is asked once about each
	// that the emulated release has and no feature gate hides. Nil: those are served that are by default.
	Serves func(group, version, resource string, byDefault bool) bool
	// Later says the same of a version that a later release than the emulated one has brought; lower means that a
	// version below it is served that is no alpha. Nil: none is served.
	Later func(group, version, resource string, since features.Release, lower bool) bool
	// everyKind makes kinds whose feature gates are off, too ([Config.Every]).
	everyKind bool
}

// Parts are the parts of one control plane that its types act through. All else of a type depends on the Config alone,
// so that control planes with equal settings share it ([Types]).
type Parts struct {
	// Authenticate returns the user of a token, for TokenReviews.
	Authenticate Authenticate
	// Tokens answers TokenRequests. With NoTokens they are not served.
	Tokens   Tokens
	NoTokens bool
	// Addresses allocates the addresses and ports of Services; nil: an allocator with the reference's defaults.
	Addresses *addresses.Allocator
	// Authority decides what users may do, for reviews and for writes of roles and bindings. Nil: reviews deny
	// everything, and roles and bindings are not restricted.
	Authority *authz.Authority
	// NamespaceLabel returns the value of a label of a namespace, "" without one, for content that only namespaces with
	// a label may have; nil: all may.
	NamespaceLabel func(ctx context.Context, namespace, label string) (string, error)
	// Components says how the components of the control plane are: that of a name, or all if it is "". Nil: there are
	// none.
	Components func(ctx context.Context, name string) []Component
	// CountQuotas brings the status of the ResourceQuotas of a namespace, or of all (""), up to date before they are
	// read; nil: it is as up to date as it is.
	CountQuotas func(ctx context.Context, namespace string)
	// Definitions adds the behaviour of custom resource definitions to their type; nil: they are stored, and do not
	// define types.
	Definitions func(r *engine.Resource)
}

// validation returns the options of the validation.
func (c *Config) validation() validation.Options {
	return validation.Options{
		Features:          c.Features,
		LatestExpressions: c.Versions.LatestExpressions(),
		DevicesUnlisted:   releaseOf(1, 36).After(c.Versions.Compatible),
		Now:               c.Now,
	}
}

// groups lists the built-in API groups, in the order in which the reference's discovery has them.
func groups(c Config) []group {
	return []group{
		core(c), apiregistration(c), apps(), events(c), authentication(c), authorization(), autoscaling(c), batch(),
		certificates(c), networking(c), policy(), rbac(), storage(c), admissionregistration(), apiextensions(),
		scheduling(c),
		coordination(), nodes(), discovery(), resources(c), flowcontrol(), apiserverinternal(),
		storagemigration(), lifecycle(),
	}
}

// Types are the built-in types with given settings, of which each control plane gets a list. The types that do not
// act through its Parts are the same values in all lists.
type Types struct {
	config Config
	served []*engine.Resource // in the order in which the reference's discovery has them
	rows   []*kind            // of served, each in its version
	// services and addresses (IPAddresses) are in the version in which they are stored, which may not be served: the
	// server itself may write them.
	services, addresses *engine.Resource
}

// New makes the types.
func New(c Config) *Types {
	if c.EventTTL == 0 {
		c.EventTTL = time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Versions == (features.Versions{}) {
		c.Versions = features.Current
	}
	if c.Later == nil {
		c.Later = func(_, _, _ string, _ features.Release, _ bool) bool { return false }
	}
	if c.Serves == nil {
		c.Serves = func(_, _, _ string, byDefault bool) bool { return byDefault }
	}
	b := builder{Types: &Types{config: c}, stored: map[string]*storedKind{}}
	for _, g := range groups(c) {
		for i := range g.kinds {
			if k := &g.kinds[i]; c.everyKind || k.on(c.Features) {
				b.add(g.name, k)
			}
		}
	}
	for i, r := range b.served { // now that each knows all its versions
		r.Resets = b.rows[i].resets(r, "")
		for _, s := range r.Subresources {
			s.Resets = b.rows[i].resets(r, s.Name)
		}
	}
	all := slices.Concat(b.served, b.hidden)
	b.services, b.addresses = find(all, "services"), find(all, "ipaddresses")
	return b.Types
}

// For lists the types that are served, for a control plane with these parts, in the order in which the reference's
// discovery has them.
func (t *Types) For(parts Parts) []*engine.Resource {
	served, services, ips := slices.Clone(t.served), t.services.Copy(), t.addresses.Copy()
	for i, row := range t.rows {
		switch r := t.served[i]; {
		case r == t.services:
			served[i] = services
		case r == t.addresses:
			served[i] = ips
		case row.acts != nil:
			served[i] = r.Copy()
			row.acts(served[i], &parts)
		}
	}
	if parts.Addresses == nil {
		parts.Addresses = addresses.New(addresses.Config{})
	}
	parts.Addresses.Complete(services, ips, t.config.validation().ClusterIPs)
	return served
}

// find returns the type of a name that has a version v1.
func find(all []*engine.Resource, name string) *engine.Resource {
	return all[slices.IndexFunc(all, func(r *engine.Resource) bool { return r.Name == name && r.Version == "v1" })]
}

// Resources lists the types that are served for a control plane without parts.
func Resources(c Config) []*engine.Resource { return New(c).For(Parts{}) }

// Release is the release of Kubernetes that these types belong to. The stored form of an object may differ between
// releases.
const Release = "1.37" // current, as text

// builder turns rows into resources.
type builder struct {
	*Types
	hidden []*engine.Resource // the versions in which kinds are stored, of those that are not served
	stored map[string]*storedKind
}

// storedKind is a kind in the store, with the conversions between its versions.
type storedKind struct {
	*engine.Kind
	shapes shapes
}

// add adds the versions of a kind that are served. A kind without such a version and without a stable one is left out.
func (b *builder) add(group string, k *kind) {
	served, stable := make([]*engine.Resource, len(k.versions)), false
	rows, virtual := make([]*kind, len(k.versions)), false
	wanted := b.wanted(group, k)
	for i := range k.versions {
		v := &k.versions[i]
		rows[i], stable = k.in(v), stable || v.onByDefault()
		if !wanted[i] {
			continue
		}
		served[i] = rows[i].resource(group, b.config)
		virtual = virtual || rows[i].virtual(served[i])
		b.served, b.rows = append(b.served, served[i]), append(b.rows, rows[i])
	}
	found := slices.ContainsFunc(served, func(r *engine.Resource) bool { return r != nil })
	if virtual || !found && !stable {
		return
	}
	if i := k.storage(b.config.Versions); served[i] == nil {
		served[i] = rows[i].resource(group, b.config)
		b.hidden = append(b.hidden, served[i])
	}
	b.store(group, k, rows, served)
}

// virtual says whether the type of the row, or what acts makes of it, is not stored.
func (k *kind) virtual(r *engine.Resource) bool {
	if k.acts != nil {
		r = r.Copy()
		k.acts(r, &Parts{})
	}
	return r.Virtual()
}

// wanted says which versions of a kind are served. The lower ones are first, as a higher one may depend on them.
func (b *builder) wanted(group string, k *kind) []bool {
	wanted, lower := make([]bool, len(k.versions)), false
	for i, v := range slices.Backward(k.versions) {
		switch present, later := v.there(b.config.Versions.Emulated); {
		case present:
			wanted[i] = b.config.Serves(group, v.name, k.name, v.onByDefault())
		case later:
			wanted[i] = b.config.Later(group, v.name, k.name, v.introduced(), lower)
		}
		lower = lower || wanted[i] && !strings.Contains(v.name, "alpha")
	}
	return wanted
}

// store sets the kind in the store of the versions of a row. A row whose path is that of one before it adds its
// versions to that kind, which is stored in a version of the first row.
func (b *builder) store(group string, k *kind, rows []*kind, served []*engine.Resource) {
	versions := make([]*engine.Version, len(rows))
	for i, row := range rows {
		r := served[i]
		if r == nil {
			r = row.unserved(group, b.config)
		}
		versions[i] = engine.VersionOf(r)
		if i > 0 && sameList(row.fields, rows[0].fields) {
			versions[i].SelectsAs(versions[0])
		}
	}
	path := cmp.Or(k.path, group+"/"+k.name)
	in := b.stored[path]
	if in == nil {
		in = &storedKind{Kind: engine.NewKind(path, versions[k.storage(b.config.Versions):], "Kubernetes "+Release)}
		in.Versions, in.TTL, in.ReferenceStorage = nil, k.ttl, k.referenceStorage
		b.stored[path] = in
	}
	in.Versions = append(in.Versions, versions...)
	for i, r := range served {
		in.shapes = append(in.shapes, shape{versions[i].APIVersion, k.versions[i].toHub, k.versions[i].fromHub})
		if r != nil {
			r.Stored, r.Served = in.Kind, versions[i]
		}
	}
	if len(in.Versions) > 1 {
		in.Convert = in.shapes.convert
	}
}

// sameList says whether two lists are one: a row that adapt has not changed shares those of the others.
func sameList(a, b []selectable) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// group is one API group.
type group struct {
	name  string
	kinds []kind
}

// kind is one row of the table. The zero value of each field is what most types have: they are namespaced, with all
// verbs, with names that are DNS subdomains, and accept updates without a resourceVersion.
type kind struct {
	name, kind string // "deployments", "Deployment"
	short      string // short names, separated by spaces
	categories []string
	versions   []version
	stored     string          // the version in which objects are stored; "": the one of the rule (kind.storage)
	version    *version        // one of them, of which this copy of the row is (in)
	gates      []features.Gate // that must be on

	// defaults sets the reference's defaults, and timed those that depend on the time of the request; nil: the kind has
	// no defaults.
	defaults func(obj object.Value) object.Value
	timed    func(obj object.Value, now time.Time) object.Value
	rules    validation.Kind
	warnings warnings.Rules

	path string        // of the kind in the store; "": that of its group and name
	ttl  time.Duration // how long an object lives; 0: until it is deleted
	// referenceStorage is the version in which the reference stores the kind, if that is none of versions.
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
	// freeStatus says that writes to the main URL can change the status, too.
	freeStatus bool
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
	// acts sets the behaviours of a copy of the type that act through the parts of a control plane; nil: none do.
	acts func(r *engine.Resource, parts *Parts)
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

// unserved is what is known of a version of the row that is not served: enough to read objects that are stored in it.
func (k *kind) unserved(group string, c Config) *engine.Resource {
	r := &engine.Resource{Naming: engine.Naming{Group: group, Version: k.version.name}, Schema: k.version.schema}
	r.Default = k.defaulting(c.Now)
	if len(k.fields) > 0 {
		r.Fields = func(obj object.Value) []store.Pair { return selected(k.fields, obj) }
		r.FieldPaths = pathsOf(k.fields)
	}
	return r
}

// resource converts the row to an engine.Resource.
func (k *kind) resource(group string, c Config) *engine.Resource {
	r := k.unserved(group, c)
	r.Naming = engine.Naming{
		Group: group, Version: k.version.name, Name: k.name, Singular: strings.ToLower(k.kind), Kind: k.kind,
		ListKind: k.kind + "List", ShortNames: strings.Fields(k.short), Categories: k.categories,
		Namespaced: !k.cluster, Verbs: k.verbs, Deprecated: k.deprecated,
	}
	r.Writing = engine.Writing{
		CreateOnUpdate: k.putCreates, UnconditionalUpdate: !k.conditional, ValidateName: k.naming,
		DeleteReturnsObject: k.answersDeleted, Confidential: k.confidential,
		Propagation: k.propagation,
		Default:     r.Default, Generation: k.generation,
	}
	r.Reading = engine.Reading{
		Fields: r.Fields, FieldPaths: r.FieldPaths, UnknownField: k.unknownField, Blank: k.blank,
		Columns: k.table.Columns, Cells: k.table.Cells, IsDefault: k.table.IsDefault, RowOrder: k.table.RowOrder,
	}
	r.Model = modelName(group, r.Version, k.kind)
	if !k.version.onByDefault() {
		r.Deprecated = k.version.deprecated(r.APIVersion(), k.kind)
	}
	if r.Verbs == nil {
		r.Verbs = allVerbs
	}
	if k.naming == nil {
		r.ValidateName = subdomain
	}
	rules := k.rules.Rules(c.validation())
	k.features = c.Features
	if create := rules.Create; create != nil {
		r.Validate = func(_ context.Context, obj object.Value) field.ErrorList { return create(obj) }
	}
	if update := rules.Update; update != nil {
		r.ValidateUpdate = func(_ context.Context, obj, old object.Value) field.ErrorList { return update(obj, old) }
	}
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
	if k.status != noStatus && k.status != statusOnCreate && !k.freeStatus {
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
	if k.status != noStatus && !k.freeStatus {
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
	if status := k.version.schema().Zero().At("status"); !status.IsNull() {
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
