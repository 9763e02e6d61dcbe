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
// the type has no special behaviour there. Functions take and return values of this Resource's own version, never
// change their arguments, and are safe to call concurrently. A Resource does not change after it was made, and
// Resources are compared by identity.
type Resource struct {
	Naming
	Writing
	Reading
	Answering

	// Schema compiles the type on first use. For a built-in type it always returns the same pointer; a custom one may
	// be freed and compiled again. Model is its OpenAPI name, for callers that need no schema.
	Schema func() *schema.Type
	Model  string

	// Written returns a version of a custom type as its definition has it, an item of spec.versions, from which the
	// OpenAPI documents are made; nil for built-in types. Each call parses it again.
	Written func() object.Value

	// Stored is the kind that is served here; nil: nothing is stored. Served is the version of it that is served here.
	Stored *Kind
	Served *Version

	Subresources []*Subresource
}

// Naming has the names of a type, and what URLs and discovery show of it.
type Naming struct {
	Group, Version string   // "" is the core group
	Name, Singular string   // "deployments", "deployment"
	Kind, ListKind string   // "Deployment", "DeploymentList"
	ShortNames     []string // "deploy"
	Categories     []string // "all"
	Namespaced     bool
	Verbs          []string // in the order of discovery documents
	// DiscoveryVerbs are the verbs that discovery lists, if they are not all of Verbs: the types of a definition that
	// is being deleted still serve writes, but discovery does not list these. Nil: Verbs.
	DiscoveryVerbs []string
	// Unlisted says that discovery and OpenAPI do not show the type although it is served: its definition is not
	// established.
	Unlisted bool

	// Deprecated is the warning that every request of a deprecated type gets; "": it is not deprecated.
	Deprecated string
	// NotFoundAs is the name of the type in the error for an object that does not exist; "": Name.
	NotFoundAs string
}

// Writing has the behaviours of creating, changing and deleting objects of a type.
type Writing struct {
	// CreateOnUpdate lets a PUT create the object (URI-4). UnconditionalUpdate lets a PUT without resourceVersion
	// replace it (WRITE-1).
	CreateOnUpdate, UnconditionalUpdate bool
	// GracefulDelete returns the grace period of a delete in seconds, and says whether the object waits for it at all;
	// asked is the period in the options of the delete, or nil. Nil: objects never wait.
	GracefulDelete func(obj object.Value, asked *int64) (seconds int64, graceful bool)

	// Propagation decides what happens to the dependents of a deleted object; nil: PropagationOr(Background).
	Propagation func(obj object.Value, o DeleteOptions) Propagation

	// Held says whether anything but finalizers holds a deleted object: a Namespace is held by its spec.finalizers.
	// MarkDeleted makes the other changes in an object that is marked as deleted: the phase of a Namespace.
	Held        func(obj object.Value) bool
	MarkDeleted func(obj object.Value) object.Value
	// DeleteReturnsObject makes a completed delete answer with the object instead of a Status. DeleteDocumentedAsStatus
	// makes OpenAPI describe a Status all the same.
	DeleteReturnsObject, DeleteDocumentedAsStatus bool
	// Confidential keeps values of the objects out of error messages.
	Confidential bool

	// ValidateName returns the errors of a name; with prefix set it is a generateName prefix. NameOf, if the valid
	// names depend on the rest of the object, returns the ValidateName for one object.
	ValidateName func(name string, prefix bool) []string
	NameOf       func(obj object.Value) func(name string, prefix bool) []string
	// Default fills in what the reference's defaulting functions fill in, markers included (VAL-4).
	Default func(obj object.Value) object.Value
	// PrepareCreate and PrepareUpdate reset the fields that a client may not set on the main URL (WRITE-4), such as
	// status. They leave metadata.generation alone, see Generation.
	PrepareCreate func(obj object.Value, by access.User) object.Value
	PrepareUpdate func(obj, old object.Value) object.Value
	// Permit refuses content that the user of a request may not write although the verb is allowed: a role that grants
	// rights that the user does not have. old is null for a new object. It is not called for requests of the server
	// itself.
	Permit func(ctx context.Context, rq *Request, obj, old object.Value) error
	// Validate and ValidateUpdate return the errors of the reference's validation (VAL-1), except those of metadata,
	// which the engine checks itself for every kind. ValidateUpdate includes the errors of Validate for the new object.
	// If ctx ends meanwhile, both may return early with any result.
	Validate       func(ctx context.Context, obj object.Value) field.ErrorList
	ValidateUpdate func(ctx context.Context, obj, old object.Value) field.ErrorList
	// Rules evaluates the validation rules in the definition of a custom type, on a new object or on the one that is to
	// replace old, through every subresource; found are the errors so far. It returns the errors of the rules, and
	// warnings.
	Rules func(ctx context.Context, obj, old object.Value, found field.ErrorList) (errs field.ErrorList, warnings []string)
	// WarnCreate and WarnUpdate return the warnings for an accepted object, WarnDelete those for the options of a
	// delete. body is the object before it was prepared.
	WarnCreate func(obj, body object.Value) []string
	WarnUpdate func(obj, old object.Value) []string
	WarnDelete func(o DeleteOptions) []string
	// Generation returns the parts of an object whose change raises metadata.generation; nil: the kind has no
	// generation.
	Generation func(obj object.Value) object.Value

	// ServerStatus returns the server's own part of the status of an object that a commit is about to store in the
	// place of old (null: there is no old object), or to remove if obj is null, and that of other objects. Except for
	// reading other objects, for which it names a guard, it is a pure function.
	ServerStatus func(obj, old object.Value, now time.Time) ServerStatus

	// Allocate gives an object the values that no other object of its type may have, or returns why it cannot have
	// them. It runs before PrepareCreate and PrepareUpdate, as in the reference. Claims are the values of that sort
	// that an object has in the end: the commit that stores or removes the object takes and gives back the difference
	// (claim.go).
	Allocate func(a *Allocation) (object.Value, error)
	Claims   func(obj object.Value) []Claim
	// Holder is for types whose objects are companions: it returns the object whose claim such an object represents;
	// the zero values: there is none.
	Holder func(obj object.Value) (*Resource, store.Key)

	// Begin returns the plane that begins with the commit which creates the object, for types whose objects stand for
	// planes.
	Begin func(ctx context.Context, created *store.Version) (*store.Begin, error)

	// Resets are, by API version, the fields that a write to the main URL cannot change, and so does not own (SSA-14).
	Resets map[string]merge.Set
}

// ServerStatus is the server's own part of the status of an object, in the commit that stores or removes it.
type ServerStatus struct {
	// Status is that of the object; null leaves it as it is.
	Status object.Value
	// Others are objects of the type whose status changes because of the write; they are stored in the same commit.
	Others []StatusOfOther
	// Guard names a key that all commits write whose status depends on each other, so that the second one of two
	// concurrent commits computes its status again (draft.setStatus). "": it depends on the object alone.
	Guard string
	// Refused says why the write must not be committed: the status cannot be computed. Nil: it may be.
	Refused error
}

// StatusOfOther is an object and its new status.
type StatusOfOther struct {
	Version *store.Version
	Status  object.Value
}

// Reading has the behaviours of selecting and showing objects of a type.
type Reading struct {
	// Fields returns the selectable fields other than metadata.name and metadata.namespace, sorted by name (LIST-7),
	// with their values in obj. Called with a null value it returns the names alone.
	Fields func(obj object.Value) []store.Pair
	// FieldPaths are the paths that Fields reads, so that a restart need not parse all of each object; nil: any.
	FieldPaths [][]string
	// OldFields maps deprecated names of some fields, which old clients use, to their current names.
	OldFields map[string]string
	// UnknownField returns the error text for a field that is not selectable; nil: the text of most types.
	UnknownField func(name string) string
	// Columns are the Table columns (MED-6), and Cells their values in the same order: string, int64, float64, bool,
	// Age or nil. Nil: Name and Created At. Cells depends on the object alone, so its result can be kept.
	Columns []Column
	Cells   func(obj object.Value) []any
	// IsDefault says whether a list's Table marks candidate, rather than current, as the default object. current is
	// null for the first object. Nil: the Table marks none.
	IsDefault func(candidate, current object.Value) bool
	// RowOrder compares objects in the order in which a list's Table shows them; nil: as every list does.
	RowOrder func(a, b object.Value) int

	// Made makes the objects of the type when they are read: that of a name, or all if it is "". Nil: they are stored.
	Made func(ctx context.Context, name string) []object.Value
	// Refresh brings objects up to date that follow from others, in a namespace or in all ("") of them: it is called
	// before the newest state is read. Nil: there are none.
	Refresh func(ctx context.Context, namespace string)

	// Blank makes the object of a bookmark from the kind's zero value; nil: it is the zero value.
	Blank func(zero object.Value) object.Value
}

// Answering is the behaviour of a virtual type (URI-1): no object of it is stored.
type Answering struct {
	// Through names the type and the subresource that a create of this virtual type means: a create of bindings means
	// the binding of Pods.
	Through func() (target apierr.Type, subresource string)
	// Answer makes the response to a create of a virtual type. Nothing is stored.
	Answer func(ctx context.Context, rq *Request, obj object.Value) (object.Value, error)
	// NoMessages says that the type has no protobuf message.
	NoMessages bool
}

// Subresource is one URL below an object: another representation of it, with its own verbs. The effect of each verb:
//
//	get            Represent(object)
//	put            Write(live object, body), which takes the steps of an update
//	patch, apply   the patch of Base(live object), or of Represent; then as put
//	post           Answer, Eviction, or as put
type Subresource struct {
	Name                 string   // "status"
	Group, Version, Kind string   // of the body: autoscaling/v1 Scale
	Verbs                []string // "get", "patch", "update"
	// OldVersion is another version in which the body may be sent, with equal content; "": there is none.
	OldVersion string
	// Schema and Model are of the body, as a Resource's; nil and "": those of the object.
	Schema func() *schema.Type
	Model  string
	// Represent makes the body of a response from the object; nil: it is the object.
	Represent func(obj object.Value) (object.Value, error)
	// Base makes the body that a patch or an apply changes; nil: what Represent makes.
	Base func(obj object.Value) (object.Value, error)
	// Write returns old with those fields of body that this subresource may change.
	Write func(old, body object.Value) (object.Value, error)
	// ValidateBody refuses the body of a POST, before the object is read.
	ValidateBody func(body object.Value) error
	// Permit returns errors for content of obj that the user of a request may not write although the verb is allowed;
	// nil permits everything. They are errors of validation, as in the reference. It is not called for requests of the
	// server.
	Permit func(ctx context.Context, rq *Request, obj, old object.Value) field.ErrorList
	// Validate returns the errors of a write: body is the decoded body, obj the object that it makes of old. ctx is as
	// for Resource.Validate.
	Validate func(ctx context.Context, body, obj, old object.Value) field.ErrorList
	// Warn returns the warnings for the writer of obj.
	Warn func(obj, old object.Value) []string
	// Committed is told of each change of old into obj that was committed; nil disables it.
	Committed func(obj, old object.Value)
	// Tables says that the body is shown as a Table to clients that request one (MED-6); Columns and Cells are those of
	// a body that is not the object, as a Resource's.
	Tables  bool
	Columns []Column
	Cells   func(obj object.Value) []any
	// Default fills in the defaults of the body.
	Default func(body object.Value) object.Value
	// Resets is as a Resource's.
	Resets map[string]merge.Set
	// Replicas translates ownership between the object and its Scale, if the body is a Scale; nil otherwise.
	Replicas merge.Replicas
	// Answer makes the response to a POST that stores nothing: a token for a ServiceAccount. live is the object as it
	// is stored.
	Answer func(ctx context.Context, rq *Request, live *Object, body object.Value) (answer object.Value,
		warnings []string, err error)
	// Eviction makes a POST delete the object, unless budgets forbid it, instead of writing it; nil for all other
	// subresources.
	Eviction *Eviction
	// Connection says that requests are sent on to a node, a Pod or a Service; nil: the engine answers them.
	Connection *Connection
}

// Connection is a subresource whose requests are sent on to a node, a Pod or a Service.
type Connection struct {
	// Options makes the options of a connection (PodExecOptions) from the query of its URL, and from the path below the
	// subresource. An error means that the query is invalid.
	Options func(query map[string][]string, below string) (object.Value, error)
	// Admitted says that admission sees a connection (OperationConnect).
	Admitted bool
	// Below says that there are URLs below that of the subresource, and that a request may have any HTTP method.
	Below bool
	// Creates says that the user needs the verb create, whatever the HTTP method is.
	Creates bool
}

// APIVersion is "apps/v1", or "v1" in the core group.
func (r *Resource) APIVersion() string { return apiVersion(r.Group, r.Version) }

func apiVersion(group, version string) string {
	if group == "" {
		return version
	}
	return group + "/" + version
}

// Type is the name of the type in most errors: its plural name and group.
func (r *Resource) Type() apierr.Type { return apierr.Type{Group: r.Group, Name: r.Name} }

// KindType is the name of the type in validation errors: its kind, and the group of its kind in the store, so that an
// Event is one of the core group by every path.
func (r *Resource) KindType() apierr.Type {
	group := r.Group
	if r.Stored != nil {
		group = r.Stored.Group()
	}
	return apierr.Type{Group: group, Name: r.Kind}
}

// Copy returns a copy whose behaviours, and those of its subresources, can be changed.
func (r *Resource) Copy() *Resource {
	other := *r
	other.Subresources = make([]*Subresource, len(r.Subresources))
	for i, s := range r.Subresources {
		copied := *s
		other.Subresources[i] = &copied
	}
	return &other
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

// Tables says whether a type, or its subresource if s is not nil, is shown as a Table to clients that request one
// (MED-6).
func (r *Resource) Tables(s *Subresource) bool {
	if s != nil {
		return s.Tables
	}
	return !r.Virtual()
}

// Virtual says whether the type represents an operation: no object of it is stored (URI-1).
func (r *Resource) Virtual() bool { return r.Answer != nil || r.Through != nil }

// ListedVerbs returns the verbs that discovery lists.
func (r *Resource) ListedVerbs() []string {
	if r.DiscoveryVerbs != nil {
		return r.DiscoveryVerbs
	}
	return r.Verbs
}

// Has says whether the type has a verb.
func (r *Resource) Has(verb string) bool {
	return slices.Contains(r.Verbs, verb)
}

// key is the key under which an object of this type is stored.
func (r *Resource) key(namespace, name string) store.Key {
	if r.Namespaced {
		name = namespace + "/" + name
	}
	return store.Key{Resource: r.Stored.Path, Name: name}
}

// prefix is what the names of all objects of a collection begin with in the store; "" for all namespaces.
func (r *Resource) prefix(namespace string) string {
	if r.Namespaced && namespace != "" {
		return namespace + "/"
	}
	return ""
}
