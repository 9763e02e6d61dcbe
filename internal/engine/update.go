package engine

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/store"
	"plinth/object"
)

// modified is the reference's message for a lost update. Clients search for it, to read the object again and retry.
const modified = "the object has been modified; please apply your changes to the latest version and try again"

// Update replaces an object (PUT to a name, WRITE-1). If the type allows it, a PUT to a free name creates the object.
//
// A body with a resourceVersion is an update of that version: after a lost race the next attempt finds another live
// version and answers 409 (stale). A body without one replaces whatever is live, so it is repeated until it does.
func (e *Engine) Update(ctx context.Context, rq *Request, body object.Parsed) (result *Result, err error) {
	d := e.draft(rq, OperationUpdate)
	d.puts = true
	defer d.addWarnings(&result)
	if err := d.decode(body); err != nil {
		return nil, err
	}
	d.receive()
	if err := rq.namesMatch(d.asked); err != nil {
		return nil, err
	}
	d.asked = d.dedupOwners(d.asked, false)
	for sure := false; ; {
		n, err := d.onto(ctx, sure)
		if err != nil {
			return nil, err
		}
		result, err := n.update(ctx)
		if !n.again(ctx, err, &sure) && !n.madeMeanwhile(err) {
			return result, err
		}
	}
}

// update is one attempt of a PUT.
func (d *draft) update(ctx context.Context) (*Result, error) {
	if d.live == nil {
		return d.createOnUpdate(ctx)
	}
	if err := d.rq.met(d.revision()); err != nil {
		return nil, err
	}
	// seen is the version that the client has read; 0: the body has none.
	seen, err := parseVersion(d.asked.At("metadata", "resourceVersion").Str())
	if err != nil {
		return nil, err
	}
	if err := d.rq.stale(d.live, seen, d.asked); err != nil {
		return nil, err
	}
	return d.change(ctx)
}

// createOnUpdate is a PUT to a name that no object has (URI-4). A uid in the body means an object that existed before,
// so the create is refused; a resourceVersion is dropped, as in the reference.
func (d *draft) createOnUpdate(ctx context.Context) (*Result, error) {
	rq := d.rq
	if !rq.Resource.CreateOnUpdate || rq.Subresource != nil {
		return nil, rq.notFound()
	}
	if uid := d.asked.At("metadata", "uid").Str(); uid != "" {
		return nil, apierr.NewConflict(rq.Resource.Type(), rq.Name,
			fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: ", uid))
	}
	if _, err := parseVersion(d.asked.At("metadata", "resourceVersion").Str()); err != nil {
		return nil, err
	}
	d.upserts = true
	if err := rq.met(0); err != nil {
		return nil, err
	}
	return d.create(ctx)
}

// madeMeanwhile says whether an attempt to create the object failed because another request had created it since the
// read. The verb is then repeated, as a write to that object.
func (d *draft) madeMeanwhile(err error) bool {
	return d.live == nil && apierr.Is(err, apierr.AlreadyExists)
}

// namesMatch refuses a body whose name or namespace is not that of the URL.
func (rq *Request) namesMatch(obj object.Value) error {
	if err := rq.namespaceMatches(obj); err != nil {
		return err
	}
	name := obj.At("metadata", "name").Str()
	if name == "" {
		return apierr.NewBadRequest(fmt.Sprintf(
			"the name of the object (%s based on URL) was undeterminable: name must be provided", rq.Name))
	}
	if name != rq.Name {
		return apierr.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)",
			name, rq.Name))
	}
	return nil
}

// stale refuses a write that names a revision (seen; 0: none) or a UID that the live object does not have. The UID is
// checked first: an object that was deleted and created again has another one, and then "modified" would be wrong. A
// write without a revision is refused for types that do not allow it, such as a CustomResourceDefinition: there,
// overwriting a concurrent change does more harm than an error.
func (rq *Request) stale(live *store.Version, seen int64, obj object.Value) error {
	if uid := obj.At("metadata", "uid").Str(); uid != "" && live.Sidecar.UID != "" && uid != live.Sidecar.UID {
		return apierr.NewConflict(rq.Resource.Type(), rq.Name,
			fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, live.Sidecar.UID))
	}
	if seen == 0 && !rq.unconditional() {
		return apierr.NewInvalid(rq.Resource.Type(), rq.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update"),
		})
	}
	if seen != 0 && seen != live.Revision {
		return apierr.NewConflict(rq.Resource.Type(), rq.Name, modified)
	}
	return nil
}

// unconditional says whether a write may leave out the resourceVersion. A body of another kind, a Scale, always may.
func (rq *Request) unconditional() bool {
	return rq.Resource.UnconditionalUpdate || rq.otherKind()
}

// otherKind says whether the body has another kind than the object: a Scale.
func (rq *Request) otherKind() bool {
	return rq.Subresource != nil && rq.Subresource.Kind != rq.Resource.Kind
}
