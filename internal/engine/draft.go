package engine

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/invariants"
	"plinth/internal/objectmeta"
	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// draft is one attempt of a write: one object on its way from a request into the store. It carries everything that one
// step computes and a later one needs; no other state is passed between steps. The steps are the methods below; the
// package comment says which verb takes which. A draft whose commit loses a race is thrown away, and its verb begins
// again with a new one. A draft is used by one goroutine and needs no lock.
//
// In every state of a draft:
//
//	live = nil   ⇒  old is null: the draft replaces no object
//	live ≠ nil   ⇒  old = live, converted to the version of the request; null if live cannot be read (forceDelete)
//	sure         ⇒  current (onto)
//	committed ≠ 0  ⇒  committed > revision(live)
//
// The rules for the object that hold for every verb are asserted before every commit (assertCommit).
//
// The object takes four forms, each with a field of its own that no later group of steps changes:
//
//	asked   the body as it was decoded                                  decode; a patch or a merge in each attempt
//	body    asked with system metadata, defaults, owners and admission   inherit or wipe … allocate
//	obj     the object that body makes of old                           prepare, set status
//	stored  obj in the form in which it is stored                       settle, set status
//
// At the main URL body becomes obj; at a subresource body may be of another kind (a Scale, a Binding), and stays what
// validating admission sees. Both obj and stored are kept to the end, because validation and admission see obj (an
// empty list and an absent one differ), and the bytes are printed from stored. The values are immutable, so the forms
// share the parts that are equal in them, and a step that changes no field copies nothing.
type draft struct {
	*input

	operation Operation
	puts      bool // it is a PUT: the body is the whole object, as the client has it
	now       time.Time

	live    *store.Version // the version that the draft is to replace; nil: there is none
	current bool           // live is known to be the newest version, see again
	old     object.Value   // live in the version of the request; null: there is none
	// form is old if that is known to have the form that Decode and Settle return, else null: the parts of the new
	// object that are shared with it need not be decoded or settled again.
	form object.Value

	asked, body, obj, stored object.Value
	// clears: asked had an empty list of managedFields, which the decoded object no longer shows.
	clears bool
	// owned: asked is the result of a merge, so its managedFields already record the new owners.
	owned bool
	// upserts: a PUT or an apply that creates the object, for which the user needs the verb create, too.
	upserts bool
	// empty are the fields that asked had as empty lists or maps. Only the steps default, prepare and validate see
	// them, as all others see what would be encoded.
	empty []schema.EmptyField
	// stable: stored is known to have the form that Decode and Settle give.
	stable bool

	// next is the version that the commit stores in the place of live, and that the answer shows. With remove set the
	// commit removes live instead, and next is only shown.
	next   *store.Version
	remove bool
	// effects is what the commit consists of and depends on besides this object.
	effects effects
	// tried: the store was given the draft to commit, and checked it against the newest state. committed is the revision
	// of the commit; 0: there was none.
	tried     bool
	committed int64
}

// input is what the attempts of a verb share. It does not change, except that warnings are added.
type input struct {
	*Engine
	rq  *Request
	dry bool
	// unnamed: admission sees no name, as in the reference for the items of a deletecollection.
	unnamed bool
	// admitted is the request that admission sees, if not rq: that for the virtual resource which stands for rq
	// (through).
	admitted *Request
	// deletion are the options of a delete, for admission; nil for other verbs.
	deletion *DeleteOptions
	warnings *warnings
}

// warnings are sent to the client beside the answer. All drafts of a request share them, so a warning of an attempt
// that was repeated is not lost; httpapi sends equal ones once.
type warnings struct{ texts []string }

// warn adds warnings.
func (d *draft) warn(texts ...string) { d.warnings.texts = append(d.warnings.texts, texts...) }

// draft makes a draft for a request, without a live version.
func (e *Engine) draft(rq *Request, operation Operation) *draft {
	in := &input{Engine: e.of(rq.Resource), rq: rq, dry: rq.DryRun, warnings: &warnings{}}
	return &draft{input: in, operation: operation}
}

// beside makes a draft of another object that changes because of this one, with its time and its warnings.
func (d *draft) beside(rq *Request) *draft {
	return &draft{input: &input{Engine: d.of(rq.Resource), rq: rq, dry: d.dry, warnings: d.warnings}, now: d.now}
}

// onto begins an attempt: it copies the draft, and gives the copy the live version as it is now. With sure, the store
// has to return a version that it knows to be the newest; without, it may answer from a state that lags behind
// (draft.again).
//
// The copy has everything that does not depend on the live version, such as the decoded body. d itself is not changed,
// so the loops of the verbs call onto on the same draft again and again.
func (d *draft) onto(ctx context.Context, sure bool) (*draft, error) {
	if err := ctx.Err(); err != nil {
		return nil, commitFailed(err)
	}
	n := *d
	var err error
	if n.live, n.current, err = d.store.Live(ctx, d.rq.key(), sure); err != nil {
		return nil, commitFailed(err)
	}
	if invariants.Enabled {
		assert(!sure || n.current, "the store is sure of %s, and does not know whether it is current", d.rq.key())
	}
	n.now = d.Engine.now()
	if n.live == nil {
		return &n, nil
	}
	var settled bool
	if n.old, settled, err = d.rq.Resource.live(ctx, n.live); err != nil {
		// The object cannot be read, but the version may be outdated. The newest one may be readable.
		if !n.current {
			return d.onto(ctx, true)
		}
		return nil, err
	}
	if settled {
		n.form = n.old
	}
	return &n, nil
}

// decode checks the body against the type of the request: its kind, the types of its fields and, at the validation
// level of the request, unknown and duplicate fields (VAL-1, VAL-2). It sets asked.
func (d *draft) decode(body object.Parsed) error {
	group, version, kind, _ := d.rq.bodyType()
	sub, sent := d.rq.Subresource, body.Value.At("apiVersion").Str()
	// The body of a subresource may be of an older version that is equal but for its name (policy/v1beta1 Eviction).
	if sub != nil && sub.OldVersion != "" && sent == apiVersion(group, sub.OldVersion) {
		version = sub.OldVersion
	}
	if d.rq.custom() {
		if err := d.rq.checkCustomBody(body.Value); err != nil {
			return err
		}
	} else if err := checkKind(body.Value, group, version, kind); err != nil {
		return err
	}
	if err := d.decodeFields(body); err != nil {
		return cannotBeHandled(kind, version, kind, err.Error())
	}
	return nil
}

// receive gives the decoded body to the audit record. If the policy records bodies (Received.Whole), the defaults are
// filled in and it is brought into the stored form first, as in the reference; otherwise the record takes only its
// name, namespace and UID from it.
func (d *draft) receive() {
	received := d.rq.Received
	if received == nil {
		return
	}
	received.Object = d.asked
	if received.Whole {
		n := *d
		n.body = d.asked
		n.fill()
		_, _, _, typ := d.rq.bodyType()
		received.Object = typ.Settle(n.body)
	}
}

// wipe removes from a new object the metadata that only the server sets (WRITE-4), and sets the namespace of the URL.
func (d *draft) wipe() { d.body = d.wiped(d.asked) }

// wiped is a new object without that metadata, and with that namespace.
func (d *draft) wiped(obj object.Value) object.Value {
	drop := serverSet
	var set []object.Member
	if d.rq.Resource.Namespaced {
		set = []object.Member{{Key: "namespace", Value: object.StringOf(d.rq.Namespace)}}
	} else {
		// The capacity is cut, so that append copies the list, which all requests share.
		drop = append(drop[:len(drop):len(drop)], "namespace")
	}
	return obj.With("metadata", obj.At("metadata").Edit(set, drop...))
}

// inherit copies the system metadata of the old object into the new one. It runs before own, which compares the result
// with the old object. The body of a subresource may be of another kind; prepare copies the metadata there.
func (d *draft) inherit() {
	d.body = d.asked
	if d.rq.Subresource == nil {
		d.body = carry(d.asked, d.old)
	}
}

// fill is the step "default": with the defaults of the resource, or of the body of the subresource.
func (d *draft) fill() {
	fill := d.rq.Resource.Default
	if sub := d.rq.Subresource; sub != nil {
		fill = sub.Default
	}
	if fill != nil {
		d.body = schema.WithoutEmpty(fill(schema.WithEmpty(d.body, d.empty)), d.empty)
	}
}

// own records in metadata.managedFields which fields the writer owns from now on (SSA-1, SSA-6, SSA-19). It compares
// the object with the old one, so system metadata and defaults must be in it already: otherwise a field that the client
// left to be defaulted would look removed, and its owner would lose it.
//
//	own has run  ⇒  one entry per (manager, operation, subresource, version of an update), and none is empty
//
// For a merged object the merge has recorded the owners. The fields that an operation sets, such as the binding of a
// Pod, have no owner. If ownership cannot be computed, the write goes on with the managers as they were, as in the
// reference, and the client gets a warning.
func (d *draft) own(ctx context.Context) {
	sub := d.rq.Subresource
	var err error
	switch {
	case d.owned:
		return
	case d.rq.Resource.Answer != nil || sub != nil && sub.Answer != nil:
		_, _, _, typ := d.rq.bodyType()
		d.body, err = (&merge.Kind{Type: typ}).Update(object.Nil, d.body, d.writer())
	case sub != nil && sub.Replicas != nil:
		d.body, err = d.ownScale()
	case sub != nil && (sub.Kind != d.rq.Resource.Kind || !sub.does("update")):
		d.body = withManagers(d.body, d.old.At("metadata", "managedFields"))
	default:
		d.body, err = d.rq.merging(ctx).Update(d.old, d.body, d.writer())
	}
	switch {
	case err != nil:
		d.warn("metadata.managedFields is left as it was: " + err.Error())
	case invariants.Enabled:
		d.assertManagers()
	}
}

// name makes a new object unique: it sets the UID, the creation time, and the name if the client left that to the
// server. It runs after admission, as in the reference: a webhook sees an object without a name.
func (d *draft) name() {
	meta := d.body.At("metadata")
	name := meta.At("name").Str()
	if prefix := meta.At("generateName").Str(); name == "" && prefix != "" {
		name = generateName(prefix)
	}
	d.now = d.Engine.now()
	set := []object.Member{
		{Key: "creationTimestamp", Value: timeOf(d.now)},
		{Key: "uid", Value: object.StringOf(uuid.NewString())},
	}
	if name != "" {
		set = append(set, object.Member{Key: "name", Value: object.StringOf(name)})
	}
	if d.rq.Resource.Generation != nil {
		set = append(set, object.Member{Key: "generation", Value: object.IntOf(1)})
	}
	d.body = d.body.With("metadata", meta.Edit(set))
}

// key is the key under which the draft is stored. If there is a live version, its key is used: its strings are shared
// by all versions of the object, while those of the request point into its body or URL.
func (d *draft) key() store.Key {
	if d.live != nil {
		return d.live.Key
	}
	name := d.body.At("metadata", "name").Str()
	if !d.rq.Resource.Namespaced {
		// The store keeps the key, and must not keep the body of the request with it. A namespaced name is concatenated,
		// which copies it.
		name = strings.Clone(name)
	}
	return d.rq.Resource.key(d.rq.Namespace, name)
}

// prepare makes the object from the body. It resets the fields that a client may not set at this URL (WRITE-4): status
// on the main one, everything else at /status. A write to a subresource becomes a write of the object here: sub.Write
// copies the fields that the body may change into the old object.
//
// From here to validate obj has the empty fields, too.
func (d *draft) prepare() error {
	r, sub := d.rq.Resource, d.rq.Subresource
	body := schema.WithEmpty(d.body, d.empty)
	d.obj = body
	switch {
	case sub != nil:
		obj, err := sub.Write(d.old, body)
		if err != nil {
			return err
		}
		d.obj = withManagers(carry(obj, d.old), body.At("metadata", "managedFields"))
	case d.live == nil:
		if r.PrepareCreate != nil {
			d.obj = r.PrepareCreate(body, d.rq.User)
		}
	case r.PrepareUpdate != nil:
		d.obj = r.PrepareUpdate(body, d.old)
	}
	return nil
}

// settle brings the object into its stored form, and raises metadata.generation if the parts that count have changed.
// obj keeps the form before: validation distinguishes an empty list from an absent one, the stored form does not.
func (d *draft) settle() {
	d.stored, d.stable = d.rq.Resource.Schema().SettleFrom(d.obj, d.form)
	if d.owned {
		d.stored = d.withoutNulls(d.stored)
	}
	// The reference reads what it has stored, which has no empty fields, and fills in their defaults.
	if fill := d.rq.Resource.Default; fill != nil && len(d.empty) > 0 {
		d.stored = fill(d.stored)
	}
	if d.live == nil {
		return
	}
	// A status, or an operation such as a binding, does not change the desired state of the object.
	if sub := d.rq.Subresource; sub == nil || sub.Name != "status" && sub.does("update") {
		d.bump()
	}
}

// withoutNulls drops what only the result of an apply to a custom object can have: nulls that are not nullable
// (DecodeMerged). Validation sees them in obj. Where the schema has no type for the place, it admits them, and the next
// read would drop them, as in the reference.
func (d *draft) withoutNulls(v object.Value) object.Value {
	if !d.rq.Resource.Stored.Custom {
		return v
	}
	decoded, err := d.rq.Resource.Schema().DecodeFrom(v, d.form)
	if err != nil { // it was decoded before
		return v
	}
	return decoded.Value
}

// bump raises metadata.generation by one if the parts of the object that count (Resource.Generation) have changed. They
// have not if they are equal before settle or after it: an empty list that is stored as an absent one is not a change.
func (d *draft) bump() {
	generation := d.rq.Resource.Generation
	if generation == nil {
		return
	}
	before := generation(d.old)
	if object.Equal(generation(d.obj), before) || object.Equal(generation(d.stored), before) {
		return
	}
	next := object.IntOf(d.old.At("metadata", "generation").Int() + 1)
	// In most cases the two are one value, which then is edited once.
	same := d.stored == d.obj
	d.obj = d.obj.WithAt(next, "metadata", "generation")
	if same {
		d.stored = d.obj
	} else {
		d.stored = d.stored.WithAt(next, "metadata", "generation")
	}
}

// validate refuses what the reference's validation refuses (VAL-1, VAL-4), with all errors in one answer, and adds the
// reference's warnings. Rules, the CEL rules of a custom type, gets the errors so far: CEL rules are not evaluated on
// an object whose structure is wrong. Warnings are computed for valid objects only.
//
// Validation by a definition may take longer than the request may, and ends with its context.
func (d *draft) validate(ctx context.Context) error {
	r, sub := d.rq.Resource, d.rq.Subresource
	var errs field.ErrorList
	if path := field.NewPath("metadata"); d.live == nil {
		name := r.ValidateName
		if r.NameOf != nil {
			name = r.NameOf(d.obj)
		}
		errs = objectmeta.ObjectMeta(d.obj.At("metadata"), r.Namespaced, name, path)
	} else {
		errs = objectmeta.ObjectMetaUpdate(d.obj.At("metadata"), d.old.At("metadata"), path)
	}
	switch {
	case sub != nil:
		if sub.Permit != nil && d.rq.Authorizer != nil {
			errs = append(errs, sub.Permit(ctx, d.rq, d.obj, d.old)...)
		}
		if sub.Validate != nil {
			errs = append(errs, sub.Validate(ctx, d.body, d.obj, d.old)...)
		}
	case d.live == nil:
		if r.Validate != nil {
			errs = append(errs, r.Validate(ctx, d.obj)...)
		}
	case r.ValidateUpdate != nil:
		errs = append(errs, r.ValidateUpdate(ctx, d.obj, d.old)...)
	}
	if r.Rules != nil {
		refused, warnings := r.Rules(ctx, d.obj, d.old, errs)
		errs = append(errs, refused...)
		d.warn(warnings...)
	}
	if err := ctx.Err(); err != nil { // the errors mean nothing
		return commitFailed(err)
	}
	if len(errs) > 0 {
		return apierr.NewInvalid(r.KindType(), d.obj.At("metadata", "name").Str(), errs)
	}
	d.obj = schema.WithoutEmpty(d.obj, d.empty)
	switch {
	case d.live == nil && r.WarnCreate != nil:
		d.warn(r.WarnCreate(d.obj, d.body)...)
	case d.live != nil && sub != nil && !d.rq.otherKind(): // a Scale writes the object as its own URL does
		if sub.Warn != nil {
			d.warn(sub.Warn(d.obj, d.old)...)
		}
	case d.live != nil && r.WarnUpdate != nil:
		d.warn(r.WarnUpdate(d.obj, d.old)...)
	}
	return nil
}

// permit refuses content that the user may not write although the verb is allowed: a role with more rights than the
// user has. It sees the object after admission, so a webhook cannot add such rights either. Requests of the server
// itself have no Authorizer and may write everything.
func (d *draft) permit(ctx context.Context) error {
	if permit := d.rq.Resource.Permit; permit != nil && d.rq.Authorizer != nil && d.rq.Subresource == nil {
		return permit(ctx, d.rq, d.body, d.old)
	}
	return nil
}

// print makes the version that is to be stored. If the write takes away the last thing that held a deleting object, the
// object is removed instead (DEL-1). If only the times of managers have changed, the write counts as no change
// (SSA-16): without that rule a controller that applies the same object every second would write it every second.
func (d *draft) print(ctx context.Context) error {
	if d.live != nil && onlyTimes(d.obj, d.old) {
		d.obj, d.stored = d.old, d.old
	}
	d.remove = d.removes()
	// A new object has no version before it; version takes its key from an empty one.
	before := d.live
	if before == nil {
		before = &store.Version{Key: d.key(), Sidecar: &store.Sidecar{}}
	}
	var err error
	if d.remove { // a version that is only shown may be of any size
		d.next, err = d.version(ctx, d.rq.Resource, before, d.stored, false, d.now)
	} else {
		err = d.fit(ctx, before)
	}
	if err != nil {
		return err
	}
	d.next.Revision = d.revision()
	return nil
}

// removes says whether the write takes away the last thing that held a deleting object, see Engine.Delete.
func (d *draft) removes() bool {
	return d.live != nil && deleting(d.old) && d.rq.Resource.released(d.stored)
}

// released says whether nothing holds a deleting object any more, see Engine.Delete.
func (r *Resource) released(obj object.Value) bool {
	return len(finalizers(obj)) == 0 && obj.At("metadata", "deletionGracePeriodSeconds").Int() == 0 &&
		(r.Held == nil || !r.Held(obj))
}

// unchanged says whether the write would store the bytes that are stored, in the current form (WRITE-3). Then it is not
// committed: the resourceVersion stays, and no watch is woken. Bytes are canonical, so equal objects are equal bytes.
// An object in an old form, or encrypted with an old key, is written even if it did not change: that is how storage
// migration works.
func (d *draft) unchanged() bool {
	return d.live != nil && !d.remove && d.rq.Resource.Stored.current(d.live) && !d.store.Stale(d.live) &&
		d.next.Equal(d.live) && d.effects.claimed.none()
}

// answer is the response: the object as committed; for a dry run, as it would be, at the live revision; if the write
// removed it, as the write would have left it, at the revision that it had (DEL-3). An object that was not stored in
// this form has Variant 0, so that its encoding is not kept for other requests.
func (d *draft) answer(ctx context.Context) (*Result, error) {
	if d.committed > 0 && !d.remove {
		d.next.Revision = d.committed
	}
	result, err := d.rq.show(ctx, d.next)
	if err != nil {
		return nil, err
	}
	result.Created = d.live == nil
	if d.dry || d.remove {
		result.Variant = 0
	}
	return result, nil
}

// change takes the steps of a write to a live object or to one of its subresources: an update, a patch or an apply. All
// of them call it with the body decoded in asked. It returns an error of the first step that fails; the draft is not
// used any more then, so no step has to undo anything.
func (d *draft) change(ctx context.Context) (*Result, error) {
	d.inherit()
	d.fill()
	d.own(ctx)
	if err := d.admit(ctx); err != nil {
		return nil, err
	}
	return d.replace(ctx)
}

// replace is the second half of change, from the admitted body on.
func (d *draft) replace(ctx context.Context) (*Result, error) {
	if err := d.permit(ctx); err != nil {
		return nil, err
	}
	if err := d.allocate(ctx); err != nil {
		return nil, err
	}
	if err := d.prepare(); err != nil {
		return nil, err
	}
	d.settle()
	if err := d.validate(ctx); err != nil {
		return nil, err
	}
	// The body of an operation has been checked before the object was read (act).
	if d.operation == OperationUpdate {
		if err := d.check(ctx); err != nil {
			return nil, err
		}
	}
	if err := d.setStatus(ctx); err != nil {
		return nil, err
	}
	if err := d.print(ctx); err != nil {
		return nil, err
	}
	if err := d.claim(ctx); err != nil {
		return nil, err
	}
	if d.unchanged() {
		d.next = d.live
		return d.answer(ctx)
	}
	if err := d.commit(ctx, d.transaction()); err != nil {
		return nil, err
	}
	if sub := d.rq.Subresource; sub != nil && sub.Committed != nil && !d.dry {
		sub.Committed(d.obj, d.old)
	}
	return d.answer(ctx)
}

// addWarnings adds the warnings to a result, also if the verb failed. The verbs defer it, with a pointer to their
// result.
func (d *draft) addWarnings(result **Result) {
	if len(d.warnings.texts) == 0 {
		return
	}
	if *result == nil {
		*result = &Result{}
	}
	(*result).Warnings = d.warnings.texts
}

// writer is the field manager of the request, as package merge takes it. The fields of a Scale, or of the body of an
// operation with an answer, are recorded with the version of that body.
func (d *draft) writer() merge.Writer {
	w := merge.Writer{
		Manager: d.rq.manager(), APIVersion: d.rq.Resource.APIVersion(), Force: d.rq.Force, Clear: d.clears,
		Now: d.now.UTC().Format(time.RFC3339),
	}
	if sub := d.rq.Subresource; sub != nil {
		w.Subresource = sub.Name
		if sub.Replicas != nil || sub.Answer != nil {
			w.APIVersion = apiVersion(sub.Group, sub.Version)
		}
	}
	return w
}

// generated says whether the client left the name to the server.
func (d *draft) generated() bool {
	meta := d.asked.At("metadata")
	return meta.At("name").Str() == "" && meta.At("generateName").Str() != ""
}
