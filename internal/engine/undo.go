package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/merge"
	"plinth/object"
	"plinth/patch"
)

// UndoOptions say what is taken back.
type UndoOptions struct {
	// Change is the resourceVersion that a change of the object has made; "": the newest one. To is the resourceVersion
	// as of which the object shall be again; "": Change counts.
	Change, To string
	// Force gives fields that have changed since the value that they had before the change.
	Force bool
}

// undo is what a document says.
type undo struct {
	rq      *Request
	write   string // "update", "create", or "" if the object is already as it should be
	subject []object.Member
	object  object.Value
	live    object.Value
	all     []merge.Disagreement
	notes   []string
	// dependents are the objects that had the object as their owner, if it was deleted.
	dependents []object.Value
}

// Undo returns how a change is taken back, as a document with the object that is to be written. It writes nothing: the
// client sends that object, an update with the resourceVersion of the live version, or a create. So admission, quota,
// authorization and dry run are those of any write.
//
// What a change has done is taken back by paths (merge.Revert). Fields that have changed since are disagreements. Never
// taken back is what the server and finalizing controllers say of an object (keptByUndo).
func (e *Engine) Undo(ctx context.Context, rq *Request, o UndoOptions) (object.Value, error) {
	e = e.of(rq.Resource)
	if err := e.fresh(ctx); err != nil {
		return object.Nil, err
	}
	live, _, err := e.store.Live(ctx, rq.key(), true)
	if err != nil {
		return object.Nil, commitFailed(err)
	}
	u := undo{rq: rq}
	if u.live, err = rq.pastObject(ctx, live); err != nil {
		return object.Nil, err
	}
	if o.To != "" {
		err = e.undoTo(ctx, &u, o)
	} else {
		err = e.undoChange(ctx, &u, o)
	}
	if err != nil {
		return object.Nil, err
	}
	if live != nil && !u.object.IsNull() {
		u.object = u.object.WithAt(object.StringOf(strconv.FormatInt(live.Revision, 10)), "metadata", "resourceVersion")
	}
	return u.document()
}

// undoTo makes the object what it was as of a resourceVersion.
func (e *Engine) undoTo(ctx context.Context, u *undo, o UndoOptions) error {
	v, err := e.versionAt(ctx, u.rq, o.To)
	if err != nil && apierr.Is(err, apierr.NotFound) {
		return apierr.NewBadRequest(fmt.Sprintf("to: Invalid value: %q: the object was not there; an undo deletes nothing",
			o.To))
	}
	if err != nil {
		return err
	}
	before, err := u.rq.pastObject(ctx, v)
	if err != nil {
		return err
	}
	u.subject = []object.Member{{Key: "to", Value: object.StringOf(o.To)}}
	if u.live.IsNull() {
		u.create(ctx, e, before, v.Revision)
		return nil
	}
	u.revert(before, u.live, o.Force)
	return nil
}

// undoChange takes one change back.
func (e *Engine) undoChange(ctx context.Context, u *undo, o UndoOptions) error {
	revision := e.store.Revision()
	if o.Change != "" {
		var err error
		if revision, err = parseVersion(o.Change); err != nil {
			return err
		}
	}
	var change *store.PastChange
	err := e.store.Changes(ctx, u.rq.key(), revision+1, func(p *store.PastChange) bool { change = p; return false })
	if err != nil {
		return pastFailed(err)
	}
	switch {
	case change == nil && o.Change == "":
		return u.rq.notFound()
	case change == nil, o.Change != "" && change.Revision != revision:
		return apierr.NewBadRequest(fmt.Sprintf("undo: Invalid value: %q: none of the changes of the object that are "+
			"known has this resourceVersion", o.Change))
	case change.Purged:
		return u.rq.Resource.purged(&store.PurgedError{Key: u.rq.key(), Revision: change.Revision})
	case change.Old == nil:
		return apierr.NewBadRequest("undo: Forbidden: the change has created the object; an undo deletes nothing")
	case !change.Deleted && u.live.IsNull():
		return apierr.NewBadRequest("undo: Forbidden: the object was deleted since; undo that first")
	case change.Deleted && !u.live.IsNull():
		return apierr.NewBadRequest("undo: Forbidden: the object was deleted, and created anew since; to takes it back to " +
			"what it was before")
	}
	u.subject = []object.Member{{Key: "change", Value: object.MapOf(attributionOf(change)...)}}
	before, err := u.rq.pastObject(ctx, change.Old)
	if err != nil {
		return err
	}
	if change.Deleted {
		u.create(ctx, e, before, change.Revision-1)
		return nil
	}
	v, err := e.asOf(ctx, u.rq, change.Revision)
	if err != nil {
		return err
	}
	after, err := u.rq.pastObject(ctx, v)
	if err != nil {
		return err
	}
	u.revert(before, after, o.Force)
	return nil
}

// The fields that an undo leaves as they are. namedBy say which object it is; keptByUndo say how it is, or whether it
// may go: they are no client's configuration, and an object that is created anew begins without them.
var (
	namedBy    = [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}}
	keptByUndo = [][]string{
		{"status"}, {"metadata", "generateName"}, {"metadata", "uid"}, {"metadata", "generation"},
		{"metadata", "creationTimestamp"}, {"metadata", "selfLink"}, {"metadata", "deletionTimestamp"},
		{"metadata", "deletionGracePeriodSeconds"}, {"metadata", "finalizers"},
	}
)

// revert takes the change from before to after back.
func (u *undo) revert(before, after object.Value, force bool) {
	for _, at := range slices.Concat(namedBy, keptByUndo) {
		if v, ok := u.live.At(at[:len(at)-1]...).Get(at[len(at)-1]); ok {
			before, after = before.WithAt(v, at...), after.WithAt(v, at...)
		} else {
			before, after = before.WithoutAt(at...), after.WithoutAt(at...)
		}
	}
	u.object, u.all = merge.Revert(before, after, u.live, u.rq.Resource.Schema(), force)
	if !object.Equal(u.object, u.live) {
		u.write = "update"
	}
}

// create makes the object of before anew. It will have another UID, so references to the old one lead nowhere: those of
// its dependents, which are named, and its own to owners that are gone, which would have it collected at once.
func (u *undo) create(ctx context.Context, e *Engine, before object.Value, revision int64) {
	u.write, u.object = "create", before
	for _, at := range keptByUndo {
		u.object = u.object.WithoutAt(at...)
	}
	var owners []object.Value
	for _, owner := range before.At("metadata", "ownerReferences").Items() {
		if e.owns(owner, u.rq.Namespace) {
			owners = append(owners, owner)
			continue
		}
		u.notes = append(u.notes, fmt.Sprintf("without the owner %s %s, which is not there any more",
			owner.At("kind").Str(), owner.At("name").Str()))
	}
	u.object = u.object.WithoutAt("metadata", "ownerReferences")
	if owners != nil {
		u.object = u.object.WithAt(object.ListOf(owners...), "metadata", "ownerReferences")
	}
	u.dependsOn(ctx, e, before.At("metadata", "uid").Str(), revision)
}

// owns says whether the owner that a reference names is there.
func (e *Engine) owns(owner object.Value, namespace string) bool {
	r := e.registry.Now().OfKind(owner.At("apiVersion").Str(), owner.At("kind").Str())
	if r == nil || r.Virtual() {
		return false
	}
	v, ok := e.of(r).store.Get(r.key(namespace, owner.At("name").Str()))
	return ok && v.Sidecar.UID == owner.At("uid").Str()
}

// maxDependents is how many dependents a document names.
const maxDependents = 100

// dependsOn names the objects that had an owner as of a revision, or have it now, and that the user may read.
func (u *undo) dependsOn(ctx context.Context, e *Engine, uid string, revision int64) {
	more := 0
	add := func(r *Resource, v *store.Version, gone bool) {
		namespace, name := splitKey(v.Key.Name)
		a := access.Attributes{Verb: "get", IsResource: true, Group: r.Group, Version: r.Version, Resource: r.Name,
			Namespace: namespace, Name: name}
		if ok, _, _ := u.rq.Allowed(ctx, a); !ok {
			return
		}
		if len(u.dependents) == maxDependents {
			more++
			return
		}
		members := []object.Member{{Key: "apiVersion", Value: object.StringOf(r.APIVersion())},
			{Key: "kind", Value: object.StringOf(r.Kind)}, {Key: "name", Value: object.StringOf(name)}}
		if namespace != "" {
			members = append(members, object.Member{Key: "namespace", Value: object.StringOf(namespace)})
		}
		u.dependents = append(u.dependents, object.MapOf(append(members,
			object.Member{Key: "deleted", Value: object.BoolOf(gone)})...))
	}
	types := e.registry.Now()
	e.store.Dependents(uid, func(v *store.Version) bool {
		if r := types.OfPath(v.Key.Resource); r != nil {
			add(r, v, false)
		}
		return ctx.Err() == nil
	})
	for r := range types.All() {
		if r.Virtual() || r != types.OfPath(r.Stored.Path) || e.of(r) != e {
			continue
		}
		err := e.store.Gone(ctx, r.Stored.Path, revision, func(v *store.Version) {
			if slices.Contains(v.Sidecar.Owners, uid) {
				add(r, v, true)
			}
		})
		if errors.Is(err, store.ErrNoPast) {
			u.notes = append(u.notes, "what had it as its owner and was deleted is not known without a past")
			break
		}
		if err != nil && !errors.Is(err, store.ErrCompacted) {
			u.notes = append(u.notes, fmt.Sprintf("which %s have depended on it is not known: %v", r.Name, err))
		}
	}
	if more > 0 {
		u.notes = append(u.notes, fmt.Sprintf("%d more objects have depended on it", more))
	}
}

// document says what is to be written, and what that changes. An object that is to be written is without managedFields:
// an update keeps those of the live one.
func (u *undo) document() (object.Value, error) {
	members := append([]object.Member{{Key: "apiVersion", Value: object.StringOf("plinth/v1")},
		{Key: "kind", Value: object.StringOf("Undo")}, {Key: "metadata", Value: object.MapOf()}}, u.subject...)
	members = append(members, object.Member{Key: "write", Value: object.StringOf(cmp.Or(u.write, "none"))})
	if u.write != "" {
		difference, err := patch.Between(u.live, u.object.WithoutAt("metadata", "resourceVersion"))
		if err != nil {
			return object.Nil, err
		}
		members = append(members, object.Member{Key: "object", Value: u.object}, object.Member{Key: "patch",
			Value: difference})
	}
	if u.all != nil {
		members = append(members, object.Member{Key: "disagreements", Value: object.ListOf(disagreements(u.all)...)})
	}
	if u.dependents != nil {
		members = append(members, object.Member{Key: "dependents", Value: object.ListOf(u.dependents...)})
	}
	if u.notes != nil {
		members = append(members, object.Member{Key: "notes", Value: object.Strings(u.notes...)})
	}
	return object.MapOf(members...), nil
}

// disagreements lists the fields that have changed since, with what they were, became and are; a value that is not
// there is left out.
func disagreements(all []merge.Disagreement) []object.Value {
	var values []object.Value
	for _, d := range all {
		members := []object.Member{{Key: "path", Value: object.StringOf(d.Path.String())}}
		for _, v := range []struct {
			key   string
			value *object.Value
		}{{"before", d.Before}, {"after", d.After}, {"live", d.Live}} {
			if v.value != nil {
				members = append(members, object.Member{Key: v.key, Value: *v.value})
			}
		}
		values = append(values, object.MapOf(members...))
	}
	return values
}
