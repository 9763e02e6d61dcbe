package engine

import (
	"context"
	"fmt"

	"plinth/merge"
	"plinth/object"
)

// Ownership returns which managers own which fields of an object (BEY-1): as a document, and as YAML of the object with
// the owners of each line behind it.
//
// The document lists the managers, and each field that has owners, or that has none although it could have. A field
// names its owners by their index in the list of managers. goesWithIt of a manager lists the fields that an apply of
// nothing under its name would remove: those that it alone keeps. Managers of updates have none.
//
// goesWithIt is computed by making that apply, whose cost is linear in the size of the object. A client may write any
// number of managers into managedFields, so computing it for all of them would cost managers × size: minutes for an
// object of the maximum size. It is therefore computed for the first maxGoesWith managers that apply; if there are
// more, the document says so (incomplete).
func (e *Engine) Ownership(ctx context.Context, rq *Request) (document object.Value, text string, err error) {
	v, _, err := e.of(rq.Resource).store.Live(ctx, rq.key(), true)
	if err != nil {
		return object.Nil, "", commitFailed(err)
	}
	if v == nil {
		return object.Nil, "", rq.notFound()
	}
	obj, _, err := rq.Resource.live(ctx, v)
	if err != nil {
		return object.Nil, "", err
	}
	owned, err := merge.Owners(obj, rq.Resource.Schema())
	if err != nil {
		return object.Nil, "", err
	}
	managers := make([]object.Value, len(owned.Managers))
	appliers := 0
	for i := range owned.Managers {
		m := &owned.Managers[i]
		var gone merge.Set
		if m.Operation == merge.OperationApply {
			if appliers++; appliers <= maxGoesWith {
				if gone, err = rq.merging(ctx).RemovedWithout(obj, *m); err != nil {
					return object.Nil, "", err
				}
			}
		}
		managers[i] = managerOf(m, gone)
	}
	var fields []object.Value
	for i := range owned.Locations {
		if p := &owned.Locations[i]; len(p.Owners) > 0 || p.Orphan() {
			fields = append(fields, locationOf(p))
		}
	}
	meta := obj.At("metadata")
	subject := []object.Member{
		{Key: "apiVersion", Value: obj.At("apiVersion")}, {Key: "kind", Value: obj.At("kind")},
		{Key: "name", Value: meta.At("name")},
	}
	for _, key := range []string{"namespace", "uid"} {
		if value, ok := meta.Get(key); ok {
			subject = append(subject, object.Member{Key: key, Value: value})
		}
	}
	document = object.Fields(
		"apiVersion", object.StringOf("plinth/v1"), "kind", object.StringOf("Ownership"), "object", object.MapOf(subject...),
		"managers", object.ListOf(managers...), "fields", object.ListOf(fields...),
	)
	if appliers > maxGoesWith {
		document = document.With("incomplete", object.StringOf(fmt.Sprintf(
			"goesWithIt is computed for the first %d of %d managers that apply", maxGoesWith, appliers)))
	}
	return document, owned.YAML(), nil
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
	owners := make([]object.Value, len(p.Owners))
	for i, owner := range p.Owners {
		owners[i] = object.IntOf(int64(owner))
	}
	members := []object.Member{
		{Key: "path", Value: object.StringOf(p.Path.String())}, {Key: "owners", Value: object.ListOf(owners...)},
	}
	if p.Leaf {
		members = append(members, object.Member{Key: "value", Value: p.Value})
	}
	return object.MapOf(members...)
}
