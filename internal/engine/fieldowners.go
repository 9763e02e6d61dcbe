package engine

import (
	"context"
	"fmt"

	"plinth/merge"
	"plinth/object"
)

// Ownership is who owns which fields of an object (BEY-1).
type Ownership struct {
	*merge.Ownership
	subject    object.Value
	managers   object.Value
	incomplete string
}

// Ownership returns which managers own which fields of an object, as it was at a resourceVersion; "": as it is.
func (e *Engine) Ownership(ctx context.Context, rq *Request, resourceVersion string) (*Ownership, error) {
	v, err := e.versionOf(ctx, rq, resourceVersion)
	if err != nil {
		return nil, err
	}
	if resourceVersion != "" {
		ctx = asWas(ctx)
	}
	obj, _, err := rq.Resource.live(ctx, v)
	if err != nil {
		return nil, err
	}
	return rq.ownership(ctx, obj, v.Revision)
}

// OwnershipOf returns which managers own which fields of the object that a write has returned: what it stored, or what
// it would have stored, if it was a dry run.
func (e *Engine) OwnershipOf(ctx context.Context, rq *Request, result *Result) (*Ownership, error) {
	parsed, err := object.ParseJSON(result.Object.Data())
	if err != nil {
		return nil, err
	}
	return rq.ownership(ctx, parsed.Value, result.Object.Revision)
}

// Intent returns the intent by which the request's manager makes the object what the body is: what an apply of it would
// have to say (merge.Kind.Intent). Nothing is written. The body has been read from the object that is there now, if it
// has a resourceVersion.
func (e *Engine) Intent(ctx context.Context, rq *Request, body object.Parsed) (object.Value, error) {
	d := e.draft(rq, OperationUpdate)
	edited, err := d.intent(body)
	if err != nil {
		return object.Nil, err
	}
	n, err := d.onto(ctx, true)
	if err != nil {
		return object.Nil, err
	}
	if err := rq.met(n.revision()); err != nil {
		return object.Nil, err
	}
	if n.live == nil {
		if edited.At("metadata", "uid").Str() != "" { // it has been deleted meanwhile
			return object.Nil, rq.notFound()
		}
	} else if err := rq.fits(n.live, edited, true); err != nil {
		return object.Nil, err
	}
	intent, err := rq.merging(ctx).Intent(n.old, edited, n.writer())
	if err != nil {
		return object.Nil, rq.applyFailed(n.old, edited, err)
	}
	return intent, nil
}

// ownership is who owns which fields of an object.
//
// goesWithIt is computed by making that apply, whose cost is linear in the size of the object. A client may write any
// number of managers into managedFields, so computing it for all of them would cost managers × size: minutes for an
// object of the maximum size. It is therefore computed for the first maxGoesWith managers that apply; if there are
// more, the document says so (incomplete).
func (rq *Request) ownership(ctx context.Context, obj object.Value, revision int64) (*Ownership, error) {
	owned, err := merge.Owners(obj, rq.Resource.Schema())
	if err != nil {
		return nil, err
	}
	managers := make([]object.Value, len(owned.Managers))
	appliers := 0
	for i := range owned.Managers {
		m := &owned.Managers[i]
		var gone merge.Set
		if m.Operation == merge.OperationApply {
			if appliers++; appliers <= maxGoesWith {
				if gone, err = rq.merging(ctx).RemovedWithout(obj, *m); err != nil {
					return nil, err
				}
			}
		}
		managers[i] = managerOf(m, gone)
	}
	o := &Ownership{Ownership: owned, managers: object.ListOf(managers...), subject: subjectOf(obj, revision)}
	if appliers > maxGoesWith {
		o.incomplete = fmt.Sprintf("goesWithIt is computed for the first %d of %d managers that apply", maxGoesWith, appliers)
	}
	return o, nil
}

// Document lists the managers, and each field that has owners, or that has none although it could have. A field names
// its owners by their index in the list of managers. goesWithIt of a manager lists the fields that an apply of nothing
// under its name would remove: those that it alone keeps. Managers of updates have none.
func (o *Ownership) Document() object.Value {
	var fields []object.Value
	for i := range o.Locations {
		if p := &o.Locations[i]; len(p.Owners) > 0 || p.Orphan() {
			fields = append(fields, locationOf(p))
		}
	}
	return o.document("Ownership", "fields", fields)
}

// LinesDocument lists the managers, as Document does, and each line of the object's YAML with its owners. A line
// without owners is the server's (system), or that of a map or list that has none itself (structural), or nobody's.
func (o *Ownership) LinesDocument() object.Value {
	lines := o.Lines()
	values := make([]object.Value, len(lines))
	for i, l := range lines {
		members := []object.Member{
			{Key: "text", Value: object.StringOf(l.Text)}, {Key: "path", Value: object.StringOf(l.At.Path.String())},
		}
		switch {
		case len(l.At.Owners) > 0:
			members = append(members, object.Member{Key: "owners", Value: indexes(l.At.Owners)})
		case l.At.System:
			members = append(members, object.Member{Key: "system", Value: object.BoolOf(true)})
		case !l.At.Orphan():
			members = append(members, object.Member{Key: "structural", Value: object.BoolOf(true)})
		}
		if l.Item != nil {
			members = append(members, object.Member{Key: "itemOwners", Value: indexes(l.Item.Owners)})
		}
		values[i] = object.MapOf(members...)
	}
	return o.document("OwnershipLines", "lines", values)
}

// document is a document of a kind, with a list of its own.
func (o *Ownership) document(kind, key string, list []object.Value) object.Value {
	document := object.Fields(
		"apiVersion", object.StringOf("plinth/v1"), "kind", object.StringOf(kind), "object", o.subject,
		"managers", o.managers, key, object.ListOf(list...),
	)
	if o.incomplete != "" {
		document = document.With("incomplete", object.StringOf(o.incomplete))
	}
	return document
}

// maxGoesWith is for how many managers goesWithIt is computed. Objects of real clusters have fewer than ten.
const maxGoesWith = 100

// managerOf is a manager in the document, with the fields that would be removed if it gave up what it owns.
func managerOf(m *merge.Entry, gone merge.Set) object.Value {
	members := []object.Member{
		{Key: "manager", Value: object.StringOf(m.Manager)}, {Key: "operation", Value: object.StringOf(m.Operation)},
		{Key: "apiVersion", Value: object.StringOf(m.APIVersion)},
	}
	if m.Subresource != "" {
		members = append(members, object.Member{Key: "subresource", Value: object.StringOf(m.Subresource)})
	}
	if m.Time != "" {
		members = append(members, object.Member{Key: "time", Value: object.StringOf(m.Time)})
	}
	var paths []string
	gone.Each(func(p merge.Path) { paths = append(paths, p.String()) })
	if len(paths) > 0 {
		members = append(members, object.Member{Key: "goesWithIt", Value: object.Strings(paths...)})
	}
	return object.MapOf(members...)
}

// locationOf is a field in the document, with its owners as indexes of the managers, and with its value if it is a
// leaf.
func locationOf(p *merge.Location) object.Value {
	members := []object.Member{
		{Key: "path", Value: object.StringOf(p.Path.String())}, {Key: "owners", Value: indexes(p.Owners)},
	}
	if p.Leaf {
		members = append(members, object.Member{Key: "value", Value: p.Value})
	}
	return object.MapOf(members...)
}

// indexes are the owners of a place, as indexes of the managers.
func indexes(owners []int) object.Value {
	values := make([]object.Value, len(owners))
	for i, owner := range owners {
		values[i] = object.IntOf(int64(owner))
	}
	return object.ListOf(values...)
}
