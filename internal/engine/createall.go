package engine

import (
	"context"

	"plinth/object"
)

// CreateAll creates objects with given names in one commit, all or none. The server uses it for the objects that must
// exist after its first start (namespaces, roles, priority classes …): more than a hundred objects share an fsync,
// where separate creates would take one each. It authorizes nothing, is not repeated after a lost race, and a taken
// name is an error.
//
// The steps are those of a create, without receive and permit, which are about users. An object in a namespace that the
// same call creates is refused: requireNamespace looks at the store, which does not have it yet.
func (e *Engine) CreateAll(ctx context.Context, requests []*Request, bodies []object.Value) error {
	all := &transaction{}
	drafts := make([]*draft, len(requests))
	for i, rq := range requests {
		d := e.draft(rq, OperationCreate)
		if err := d.decode(object.Parsed{Value: bodies[i]}); err != nil {
			return err
		}
		d.now = e.now()
		d.wipe()
		d.fill()
		d.own(ctx)
		if err := d.admit(ctx); err != nil {
			return err
		}
		if err := d.make(ctx); err != nil {
			return err
		}
		all.add(d)
		drafts[i] = d
	}
	err := e.commit(ctx, all)
	for _, d := range drafts {
		if key, raced := lost(err); raced && key == d.key() {
			return d.taken(ctx, false)
		}
	}
	return err
}
