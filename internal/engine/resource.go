package engine

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// Resource is one served resource type: a compiled schema and a short table of behaviours. A nil function means that
// the type has nothing to say there. Functions take and return values of this Resource's own version, never change
// their arguments, and are safe to call at the same time.
type Resource struct {
	Naming
	Writing
	Reading
	Operation

	// Schema is compiled on first use and the same pointer ever after. Model is its OpenAPI name, for who needs no
	// more.
	Schema func() *schema.Type
	Model  string

	// Written is a version of a custom type as its definition has it, an item of spec.versions, for documents that
	// tell of its schema in the words of the definition; nil for built-in types. It is read anew by each call.
	Written func() object.Value

	// Stored is the kind of which this is served; nil: nothing is stored. Served is the version of it that is served
	// here.
	Stored *Kind
	Served *Version

	Subresources []*Subresource
}

// Naming is what a type is called, and what URLs and discovery say of it.
type Naming struct {
	Group, Version string   // "" is the core group
	Name, Singular string   // "deployments", "deployment"
	Kind, ListKind string   // "Deployment", "DeploymentList"
	ShortNames     []string // "deploy"
	Categories     []string // "all"
	Namespaced     bool
	Verbs          []string // in the order in which discovery tells them
	// ToldVerbs are those that discovery tells of, where they are not all: a definition that is being deleted; nil:
	// they are.
	ToldVerbs []string

	// Deprecated is what every request is told where the type is going away; "": it is here to stay.
	Deprecated string
	// NotFoundAs is what an error calls the type when there is no object of a name; "": Name.
	NotFoundAs string
}

// Writing is how objects of a type are made, changed and deleted.
type Writing struct {
	// CreateOnUpdate lets a PUT make the object (URI-4). UnconditionalUpdate lets one without resourceVersion replace
	// it (WRITE-1).
	CreateOnUpdate, UnconditionalUpdate bool
	// GracefulDelete gives the grace period in seconds that deleting this object takes when the client names none, and
	// says whether the object waits for it at all; nil: it never does. asked is the client's wish or nil.
	GracefulDelete func(obj object.Value, asked *int64) (seconds int64, graceful bool)

	// Propagation says what becomes of the dependents of a deleted object; nil: PropagationOr(Background).
	Propagation func(obj object.Value, o DeleteOptions) Propagation

	// Held says whether something else than finalizers keeps a deleted object: a Namespace its spec.finalizers.
	// MarkDeleted is what else changes in an object when it is marked as deleted: a Namespace's phase.
	Held        func(obj object.Value) bool
	MarkDeleted func(obj object.Value) object.Value
	// Undeletable says why an object of this name may not be deleted; "": it may.
	Undeletable func(name string) string
	// DeleteReturnsObject makes a completed delete answer the object instead of a Status. DeleteToldAsStatus makes
	// OpenAPI describe a Status all the same.
	DeleteReturnsObject, DeleteToldAsStatus bool
	// Confidential keeps values of the objects out of error messages.
	Confidential bool

	// ValidateName returns what is wrong with a name; with prefix set it is a generateName prefix. NameOf, where the
	// name follows from the rest of the object, gives the ValidateName for one object; nil: it does not.
	ValidateName func(name string, prefix bool) []string
	NameOf       func(obj object.Value) func(name string, prefix bool) []string
	// Default fills in what the reference's defaulting functions fill in, markers included (VAL-4).
	Default func(obj object.Value) object.Value
	// PrepareCreate and PrepareUpdate reset what a client may not set on the main URL (WRITE-4): status, for one.
	// Generation is the engine's, see Generation below.
	PrepareCreate func(obj object.Value, by access.User) object.Value
	PrepareUpdate func(obj, old object.Value) object.Value
	// Permit refuses what the user of a request may not write although the verb is theirs: a role that gives others
	// what they have not. old is null for a new object. It is not asked about what the server itself writes. Nil:
	// there is no such thing.
	Permit func(ctx context.Context, rq *Request, obj, old object.Value) error
	// Check refuses a valid object, on the main URL or a subresource, for who writes it or what it asks for: what a
	// built-in plugin of validating admission refuses in the reference. old is null for a new object. Nil: there is no
	// such thing.
	Check func(ctx context.Context, rq *Request, obj, old object.Value) error
	// Validate and ValidateUpdate return what the reference's validation refuses (VAL-1), metadata excepted, which the
	// engine checks itself for every kind. ValidateUpdate includes what Validate says of the new object.
	Validate       func(obj object.Value) field.ErrorList
	ValidateUpdate func(obj, old object.Value) field.ErrorList
	// Rules runs the rules that the definition of the type has for an object, on a new one or on what is to replace
	// old, through every subresource; found is what else is wrong. It returns what they refuse, and what its writer
	// is warned of. Nil: there are none.
	Rules func(ctx context.Context, obj, old object.Value, found field.ErrorList) (errs field.ErrorList, warnings []string)
	// WarnCreate and WarnUpdate return what an accepted object lets its writer be warned of, WarnDelete what these
	// options of a delete do. sent is the object before it was prepared.
	WarnCreate func(obj, sent object.Value) []string
	WarnUpdate func(obj, old object.Value) []string
	WarnDelete func(o DeleteOptions) []string
	// Generation returns the parts of an object whose change bumps metadata.generation; nil: the kind has none.
	Generation func(obj object.Value) object.Value

	// Report is what the server itself says of an object that a commit is about to store in the place of old (null:
	// of nothing), or, where obj is null, to remove: its status, and that of others. Nil: it says nothing.
	Report func(obj, old object.Value, now time.Time) Report

	// Allocate gives an object what it shares with others of its type, or says why it cannot be had; nil: there is
	// nothing. It comes before PrepareCreate and PrepareUpdate, as in the reference. Claims are what an object has of
	// that, in the end: the commit that stores or removes the object takes and gives back what changes (claim.go).
	Allocate func(a *Allocation) (object.Value, error)
	Claims   func(obj object.Value) []Claim
	// Holder is, for a type whose objects stand for claims, which object of which type such an object stands for a
	// claim of; the zero values: of none.
	Holder func(obj object.Value) (*Resource, store.Key)

	// Resets is, by API version, what a write to the main URL cannot touch, and so does not own (SSA-14).
	Resets map[string]merge.Set
}

// Report is what the server itself says of an object, in the commit that stores or removes it.
type Report struct {
	// Status is that of the object; null leaves it as it is.
	Status object.Value
	// Others are objects of the type whose status changes because of that: the commit stores them, too.
	Others []ReportedOther
	// Guard names what the commit shares with others that must not come between the reading of what the report
	// depends on and the commit: the one that comes second begins again. "": it depends on nothing but the object.
	Guard string
}

// ReportedOther is an object and the status that it gets.
type ReportedOther struct {
	Version *store.Version
	Status  object.Value
}

// Reading is how objects of a type are selected and shown.
type Reading struct {
	// Fields lists the selectable fields other than metadata.name and metadata.namespace, sorted by name (LIST-7), with
	// their values in obj. Called with a null value it gives the names alone.
	Fields func(obj object.Value) []store.Pair
	// OldFields are names that old clients have for some of them, and those that they stand for.
	OldFields map[string]string
	// UnknownField words that a field is not among them; nil: as most types do.
	UnknownField func(name string) string
	// Columns are the Table columns (MED-6), and Cells their values in the same order: string, int64, float64, bool,
	// Age or nil. Nil: Name and Created At. What Cells makes of an object depends on nothing else, so it can be kept.
	Columns []Column
	Cells   func(obj object.Value) []any
	// IsDefault says whether candidate, rather than current, is the object that a list's Table marks as the default
	// one. current is null for the first object. Nil: the Table marks none.
	IsDefault func(candidate, current object.Value) bool
	// RowOrder compares objects in the order in which a list's Table shows them; nil: as every list does.
	RowOrder func(a, b object.Value) int

	// Blank makes the object of a bookmark from the kind's zero value, where the reference shows something else; nil:
	// it is that.
	Blank func(zero object.Value) object.Value
}

// Operation is what a virtual type does (URI-1): nothing of it is stored.
type Operation struct {
	// Through names the type and the subresource that a create of this virtual type is a POST to: bindings are the
	// binding of Pods.
	Through func() (target apierr.Type, subresource string)
	// Answer makes the response of a virtual type that stands for an operation (URI-1): create only, nothing is stored.
	Answer func(ctx context.Context, rq *Request, obj object.Value) (object.Value, error)
}

// Subresource is one URL below an object: another view of it, with its own verbs.
type Subresource struct {
	Name                 string   // "status"
	Group, Version, Kind string   // of the body: autoscaling/v1 Scale
	Verbs                []string // "get", "patch", "update"
	OldVersion           string   // one in which the body may come, too, and is the same; "": there is none
	// Schema and Model are of the body, as a Resource's; nil and "": those of the object.
	Schema func() *schema.Type
	Model  string
	// View makes the body from the object; nil: it is the object.
	View func(obj object.Value) (object.Value, error)
	// Base makes the body that a patch or an apply is a change of; nil: what View makes.
	Base func(obj object.Value) (object.Value, error)
	// Write returns old with what body may change of it.
	Write func(old, body object.Value) (object.Value, error)
	// Validate returns what is wrong with a write: body as sent, and the object it makes.
	Validate func(body, obj, old object.Value) field.ErrorList
	// Warn returns what the writer of obj is warned of.
	Warn func(obj, old object.Value) []string
	// Tables says that the body is shown as a Table where a client asks for one (MED-6); Columns and Cells are those
	// of a body that is not the object, as a Resource's.
	Tables  bool
	Columns []Column
	Cells   func(obj object.Value) []any
	// Default fills in the body.
	Default func(body object.Value) object.Value
	// Resets is as a Resource's.
	Resets map[string]merge.Set
	// Replicas says how ownership here and ownership of the object go together, where the body is a Scale; nil
	// elsewhere.
	Replicas merge.Replicas
	// Answer makes the response to a POST that stores nothing: a token for a ServiceAccount. live is the object below
	// which the subresource is, in the version of its kind that is stored.
	Answer func(ctx context.Context, rq *Request, live *Object, body object.Value) (answer object.Value,
		warnings []string, err error)
	// Eviction makes a POST delete the object, unless something holds that back, instead of writing it; nil elsewhere.
	Eviction *Eviction
}

// APIVersion is "apps/v1", or "v1" in the core group.
func (r *Resource) APIVersion() string { return apiVersion(r.Group, r.Version) }

func apiVersion(group, version string) string {
	if group == "" {
		return version
	}
	return group + "/" + version
}

// Type is what most errors call the type: its plural name and group.
func (r *Resource) Type() apierr.Type { return apierr.Type{Group: r.Group, Name: r.Name} }

// KindType is what validation errors call it: its kind and the group of its kind in the store, so that an Event is
// one of the core group by every path.
func (r *Resource) KindType() apierr.Type {
	group := r.Group
	if r.Stored != nil {
		group = r.Stored.Group()
	}
	return apierr.Type{Group: group, Name: r.Kind}
}

// Subresource finds a subresource by name; nil if there is none.
func (r *Resource) Subresource(name string) *Subresource {
	for _, s := range r.Subresources {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// does says whether the subresource has a verb.
func (s *Subresource) does(verb string) bool { return slices.Contains(s.Verbs, verb) }

// Tables says whether a type, or its subresource if there is one, is shown as a Table where a client asks for one
// (MED-6).
func (r *Resource) Tables(s *Subresource) bool {
	if s != nil {
		return s.Tables
	}
	return !r.Virtual()
}

// Virtual says whether the type stands for an operation: nothing of it is stored (URI-1).
func (r *Resource) Virtual() bool { return r.Answer != nil || r.Through != nil }

// Told is the verbs that discovery tells of.
func (r *Resource) Told() []string {
	if r.ToldVerbs != nil {
		return r.ToldVerbs
	}
	return r.Verbs
}

// Has says whether the type has a verb.
func (r *Resource) Has(verb string) bool {
	return slices.Contains(r.Verbs, verb)
}

// key is where an object of this type is stored.
func (r *Resource) key(namespace, name string) store.Key {
	if r.Namespaced {
		name = namespace + "/" + name
	}
	return store.Key{Resource: r.Stored.Path, Name: name}
}

// prefix is what all names of a collection begin with in the store.
func (r *Resource) prefix(namespace string) string {
	if r.Namespaced && namespace != "" {
		return namespace + "/"
	}
	return ""
}
