package engine

import (
	"context"
	"errors"
	"sync"

	"plinth/object"
)

// CreateAll creates objects with given names in one commit, all or none. The server uses it for the objects that must
// exist after its first start (namespaces, roles, priority classes …): more than a hundred objects share an fsync,
// where separate creates would take one each. It authorizes nothing, is not repeated after a lost race, and a taken
// name is an error.
//
// On a store that several servers share each object is a commit of its own, as such a store may not commit two objects
// of one resource together. There a name that is taken is no error: another server that starts at the same time creates
// the same objects.
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
	if e.store.Others != nil {
		return e.commitEach(ctx, drafts)
	}
	err := e.commit(ctx, all)
	for _, d := range drafts {
		if key, raced := lost(err); raced && key == d.key() {
			return d.taken(ctx, false)
		}
	}
	return err
}

// commitEach commits drafts one by one, several at a time.
func (e *Engine) commitEach(ctx context.Context, drafts []*draft) error {
	errs := make([]error, len(drafts))
	places := make(chan struct{}, 16)
	var wait sync.WaitGroup
	for i, d := range drafts {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			err := e.commit(ctx, d.transaction())
			if key, raced := lost(err); raced && key == d.key() {
				err = nil
			}
			errs[i] = err
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
