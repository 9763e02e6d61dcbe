package engine

import (
	"context"
	"errors"
	"fmt"

	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
)

// Admission is what may change or refuse a write after it was authorized and before it is stored (AUTH-3). Package
// admission makes one of the reference's plugins; the engine knows no plugin. Nil functions admit everything.
type Admission struct {
	// Admit is mutating admission: it may replace Object, or refuse the request. For one create it is called once, for
	// an update, a patch or a delete once in each attempt.
	Admit func(ctx context.Context, a *Attributes) error
	// Validate is validating admission. It sees the object as it would be stored, after validation, and changes
	// nothing. For a create it is called for each name that the server generates.
	Validate func(ctx context.Context, a *Attributes) error
}

// Operation is the operation that admission sees. A POST to a subresource is a create, as in the reference, even where
// it changes an object that exists.
type Operation uint8

// The operations.
const (
	OperationUpdate Operation = iota
	OperationCreate
	OperationDelete
	OperationConnect

	Operations = int(iota) // how many there are
)

var operationNames = [...]string{"UPDATE", "CREATE", "DELETE", "CONNECT"}

// String is the operation as an AdmissionReview has it.
func (o Operation) String() string { return operationNames[o] }

// Attributes are what admission knows of a request. Request has the resource, the subresource, the user and whether
// it is a dry run by its query.
type Attributes struct {
	Operation Operation
	Request   *Request
	// Name is the name of the object; "" if the server generates it, and for the items of a deletecollection.
	Name string
	// Object is the body of a write, in the version of the URL: the object, or what a subresource takes (a Scale, a
	// Binding). It is null for a delete. Old is the live object in the same form, null if there is none or if an
	// operation does not read it (a Binding).
	Object, Old object.Value
	// DryRun is set by the query, or by the body of a delete.
	DryRun bool

	draft *draft
}

// Annotator keeps annotations for the audit log (AUTH-4).
type Annotator interface {
	Annotate(key, value string)
	// AnnotateRequest is Annotate for what the log has only if it has the bodies of requests, too.
	AnnotateRequest(key, value string)
}

// Attributes returns the attributes of a write that is not made, for what asks admission outside of the verbs: the
// tests of plugins. Warned returns the warnings that it gets.
func (e *Engine) Attributes(rq *Request, operation Operation, obj, old object.Value) *Attributes {
	d := e.draft(rq, operation)
	d.asked, d.deletion = obj, &DeleteOptions{}
	return d.attributes(obj, old)
}

// Warned returns the warnings so far.
func (a *Attributes) Warned() []string { return a.draft.warnings.texts }

// Warn adds warnings to the answer.
func (a *Attributes) Warn(texts ...string) { a.draft.warn(texts...) }

// Annotate adds an annotation to the audit event of the request.
func (a *Attributes) Annotate(key, value string) {
	if to := a.Request.Annotations; to != nil {
		to.Annotate(key, value)
	}
}

// AnnotateRequest adds an annotation that tells of the body: the audit event has it only if it has the body.
func (a *Attributes) AnnotateRequest(key, value string) {
	if to := a.Request.Annotations; to != nil {
		to.AnnotateRequest(key, value)
	}
}

// RequireNamespace refuses the request unless its namespace exists and is not being deleted, and makes the commit
// depend on that (draft.requireNamespace). It may be called more than once.
func (a *Attributes) RequireNamespace(ctx context.Context) error {
	a.draft.effects.inNamespace = true
	return a.draft.requireNamespace(ctx)
}

// Limits are what a commit has to stay within.
type Limits struct {
	*store.Limits
	// Record returns the statuses in which the commit records what it adds. They are written before the object, or with
	// it, where other processes write to the store: no sequencer there judges sums, and servers agree by the objects
	// alone. A status that another server has changed meanwhile makes the commit fail, and the limits are judged again.
	// What was recorded for a commit that then failed counts until it is counted anew. Of is the type of their objects.
	Record func() []StatusOfOther
	Of     *Resource
}

// Limit makes the commit depend on limits: of returns them, nil if there are none. A request that would pass them is
// refused at once, also in a dry run; if the sums or the rules change before the commit, they are judged again.
//
// Where something is recorded before the object is written, somebody may take it for left over in between, and take it
// back. Whoever does so moves a guard (Move), and the object is not written:
//
//	an object is committed  ⇒  what was recorded for it before had not been taken back
func (a *Attributes) Limit(ctx context.Context, guard string, of func(context.Context) (*Limits, error)) error {
	e := &a.draft.effects
	e.limit, e.limitGuard = of, guard
	return a.draft.stayWithin(ctx)
}

// Move makes the commit write a guard, so that a later commit fails which depends on the guard (Limit) and has read it
// before; "": it writes none. A type with a status of the server writes that status's guard (ServerStatus) instead.
func (a *Attributes) Move(ctx context.Context, guard string) (err error) {
	e := &a.draft.effects
	if e.guard = nil; guard != "" {
		e.guard, err = readGuard(ctx, a.draft.store, guard, false)
	}
	return err
}

// stayWithin judges the limits of the draft against what is stored (Attributes.Limit). A rule that changes between the
// two steps makes other limits.
func (d *draft) stayWithin(ctx context.Context) error {
	e := &d.effects
	e.limits, e.records, e.unmoved = nil, nil, nil
	for e.limit != nil {
		// It is read before what the limits are computed of.
		unmoved, err := d.limitGuard(ctx)
		if err != nil {
			return err
		}
		limits, err := e.limit(ctx)
		if err != nil || limits == nil {
			return err
		}
		err = d.main().store.Within(limits.Limits)
		if _, other := lost(err); other && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return refused(err)
		}
		if d.store.Others == nil {
			e.limits = limits.Limits
			break
		}
		for _, status := range limits.Record() {
			n, err := d.otherStatus(ctx, limits.Of, status)
			if err != nil {
				return err
			}
			e.records = append(e.records, n)
		}
		e.unmoved = unmoved
		break
	}
	return nil
}

// limitGuard is the condition that the guard of the limits does not move; nil: there is none, as nothing is recorded,
// or as the object is in another store than what is.
func (d *draft) limitGuard(ctx context.Context) (*store.Precondition, error) {
	if d.store.Others == nil || d.first != nil {
		return nil, nil
	}
	g, err := readGuard(ctx, d.store, d.effects.limitGuard, false)
	if err != nil {
		return nil, err
	}
	return &g.pre, nil
}

// refused is the API error for a commit or a dry run that would pass limits.
func refused(err error) error {
	var over *store.OverError
	if errors.As(err, &over) {
		return over.Limits.Refuse(over.Over)
	}
	return commitFailed(err)
}

// Options are the options of the request as an AdmissionReview has them: CreateOptions, UpdateOptions (of a patch,
// too) or DeleteOptions of meta.k8s.io/v1; null for a connection.
func (a *Attributes) Options() object.Value {
	set := []object.Member{{Key: "apiVersion", Value: object.StringOf("meta.k8s.io/v1")}}
	add := func(key string, value object.Value) { set = append(set, object.Member{Key: key, Value: value}) }
	if a.DryRun {
		add("dryRun", object.Strings("All"))
	}
	switch a.Operation {
	case OperationConnect:
		return object.Nil
	case OperationDelete:
		add("kind", object.StringOf("DeleteOptions"))
		a.draft.deletion.describe(add)
		return object.MapOf(set...)
	case OperationCreate:
		add("kind", object.StringOf("CreateOptions"))
	case OperationUpdate:
		add("kind", object.StringOf("UpdateOptions"))
	}
	if manager := a.Request.FieldManager; manager != "" {
		add("fieldManager", object.StringOf(manager))
	}
	if level := a.Request.Validation; level != "" {
		add("fieldValidation", object.StringOf(string(level)))
	}
	return object.MapOf(set...)
}

// describe adds the members of the options other than dryRun.
func (o *DeleteOptions) describe(add func(key string, value object.Value)) {
	if o.GracePeriodSeconds != nil {
		add("gracePeriodSeconds", object.IntOf(*o.GracePeriodSeconds))
	}
	if o.IgnoreReadError {
		add("ignoreStoreReadErrorWithClusterBreakingPotential", object.BoolOf(true))
	}
	if o.OrphanDependents != nil {
		add("orphanDependents", object.BoolOf(*o.OrphanDependents))
	}
	var preconditions []object.Member
	if o.PreconditionUID != "" {
		preconditions = append(preconditions, object.Member{Key: "uid", Value: object.StringOf(o.PreconditionUID)})
	}
	if o.PreconditionRV != "" {
		preconditions = append(preconditions,
			object.Member{Key: "resourceVersion", Value: object.StringOf(o.PreconditionRV)})
	}
	if len(preconditions) > 0 {
		add("preconditions", object.MapOf(preconditions...))
	}
	if o.PropagationPolicy != "" {
		add("propagationPolicy", object.StringOf(o.PropagationPolicy))
	}
}

// attributes are the attributes of the draft, with obj in the place of old.
func (d *draft) attributes(obj, old object.Value) *Attributes {
	a := &Attributes{
		Operation: d.operation, Request: d.rq, Name: d.rq.Name, Object: obj, Old: old, DryRun: d.dry, draft: d,
	}
	switch {
	case d.admitted != nil:
		a.Request = d.admitted
	case d.unnamed:
		a.Name = ""
	case a.Name == "":
		a.Name = obj.At("metadata", "name").Str()
	}
	return a
}

// admit is mutating admission. What the server relies on afterwards is restored, as in the reference: managedFields
// that cannot be read are put back, duplicate owner references are dropped, and defaults are filled in again, so that
// a field that a plugin has added looks as it will when it is read.
//
// Ownership is not computed again: nobody owns the fields that admission adds (SSA-19).
func (d *draft) admit(ctx context.Context) error {
	if d.operation == OperationCreate {
		if err := d.requireDefinition(ctx); err != nil {
			return err
		}
	}
	admit := d.admission.Admit
	if admit == nil {
		return nil
	}
	var old object.Value
	if d.operation != OperationCreate {
		var err error
		if old, err = d.oldBody(); err != nil {
			return err
		}
	}
	a := d.attributes(d.body, old)
	if err := admit(ctx, a); err != nil {
		return err
	}
	if a.Object == d.body {
		return nil
	}
	if before := d.body.At("metadata", "managedFields"); a.Object.At("metadata", "managedFields") != before {
		if _, err := merge.ParseManagedFields(a.Object.At("metadata", "managedFields")); err != nil {
			a.Object = withManagers(a.Object, before)
			d.warn(fmt.Sprintf(".metadata.managedFields was in an invalid state after admission; this could be caused by "+
				"an outdated mutating admission controller; please fix your requests: %v", err))
		}
	}
	d.body = d.dedupOwners(a.Object, true)
	if err := d.restore(); err != nil {
		return err
	}
	d.fill()
	return nil
}

// restore undoes what admission has changed in the metadata that only the server sets (wipe, inherit).
func (d *draft) restore() error {
	switch {
	case d.rq.Subresource != nil || d.rq.Resource.Answer != nil: // prepare takes the metadata of the old object
	case d.operation == OperationUpdate:
		d.body = carry(d.body, d.old)
	case d.operation == OperationCreate:
		if err := d.rq.namespaceMatches(d.body); err != nil {
			return err
		}
		d.body = d.wiped(d.body)
	}
	return nil
}

// check is the last step that may refuse: validating admission. As in the reference, a PUT or an apply that creates is
// authorized as a create here, when the object is known to be valid (SSA-17).
//
// At the main URL and at status it sees the object; at scale the Scales of the old and the new object; for an operation
// (a Binding, an Eviction, a TokenRequest, a review) its body.
func (d *draft) check(ctx context.Context) error {
	if d.upserts {
		if err := d.rq.may(ctx, "create"); err != nil {
			return err
		}
	}
	validate := d.admission.Validate
	if validate == nil {
		return nil
	}
	var a *Attributes
	switch scale := d.rq.base(); {
	case d.rq.Resource.Answer != nil || d.rq.Subresource != nil && d.operation == OperationCreate:
		a = d.attributes(d.body, object.Nil)
	case d.operation == OperationDelete:
		a = d.attributes(object.Nil, d.old)
	case scale != nil:
		obj, err := scale(d.obj)
		if err != nil {
			return err
		}
		old, err := d.oldBody()
		if err != nil {
			return err
		}
		a = d.attributes(obj, old)
	default:
		a = d.attributes(d.obj, d.old)
	}
	return validate(ctx, a)
}

// oldBody is the live object in the form of the body: of a write to scale, its Scale.
func (d *draft) oldBody() (object.Value, error) {
	if represent := d.rq.base(); represent != nil {
		return represent(d.old)
	}
	return d.old, nil
}

// Connect is the admission of a connection to a Pod, a Node or a Service (exec, attach, portforward, proxy). options
// are those of the connection, such as PodExecOptions; null: none.
func (e *Engine) Connect(ctx context.Context, rq *Request, options object.Value) (result *Result, err error) {
	d := e.draft(rq, OperationConnect)
	defer d.addWarnings(&result)
	d.body = options
	if err := d.admit(ctx); err != nil {
		return nil, err
	}
	if validate := e.admission.Validate; validate != nil {
		return nil, validate(ctx, d.attributes(d.body, object.Nil))
	}
	return nil, nil
}
