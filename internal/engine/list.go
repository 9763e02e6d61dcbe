package engine

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"

	"plinth/internal/apierr"
	"plinth/internal/invariants"
	"plinth/internal/store"
)

// List reads a collection from one snapshot (LIST-3, LIST-4). The combinations of parameters that make no sense have
// been refused before; here stand those that need the state.
func (e *Engine) List(ctx context.Context, rq *Request, o ListOptions) (*Collection, error) {
	sel, err := rq.selects(o)
	if err != nil {
		return nil, err
	}
	exact, from, err := e.listFrom(ctx, rq, o)
	if err != nil {
		return nil, err
	}
	// A token may come from another server, and name a version that this one does not know of yet.
	if exact == 0 && o.ResourceVersion == "" || exact > e.store.Revision() {
		if err := e.fresh(ctx); err != nil {
			return nil, err
		}
	}
	snapshot, err := e.store.SnapshotContext(ctx, exact, rq.Resource.Stored.Path)
	if err != nil {
		return nil, e.snapshotFailed(err, exact, strings.TrimPrefix(from, rq.Resource.prefix(rq.Namespace)))
	}
	c := &Collection{Revision: snapshot.Revision(), Shard: o.Shard.String()}
	if invariants.Enabled {
		assert(exact == 0 || exact == c.Revision, "a list of revision %d reads %d", exact, c.Revision)
	}
	limit := o.Limit
	if limit < 0 || o.ResourceVersion == "0" && o.Continue == "" {
		limit = 0
	}
	within := rq.reach(&sel)
	if limit == 0 && rq.Resource.converts(snapshot, within) { // a conversion can fail, and has to before the answer begins
		limit = math.MaxInt64
	}
	if limit > 0 {
		return rq.page(ctx, c, snapshot, sel, within, from, limit)
	}
	c.Items = func(yield func(*Object) bool) {
		c.cut = ascend(ctx, snapshot, rq.Resource.Stored.Path, within, from, func(v *store.Version) bool {
			return !sel.matches(ctx, v) || yield(v)
		})
	}
	return c, rq.readable(ctx, snapshot, within, sel)
}

// askEvery is how many versions a loop goes through before it looks again whether anybody waits for its result.
const askEvery = 64

// ascend is Snapshot.Ascend that ends with the error of ctx, where that is over before.
func ascend(ctx context.Context, snapshot *store.Snapshot, resource, prefix, from string, yield func(*store.Version) bool) error {
	var over error
	steps := 0
	snapshot.Ascend(resource, prefix, from, func(v *store.Version) bool {
		if steps%askEvery == 0 {
			over = ctx.Err()
		}
		steps++
		return over == nil && yield(v)
	})
	return over
}

// converts says whether any object of a collection is to be converted, or brought into the form of today, before it is shown.
func (r *Resource) converts(snapshot *store.Snapshot, prefix string) bool {
	if r.Served != r.Stored.Storage {
		return true
	}
	old := false
	snapshot.Ascend(r.Stored.Path, prefix, "", func(v *store.Version) bool {
		old = !r.Stored.current(v) && v.Sidecar.Unreadable == nil
		return !old
	})
	return old
}

// listFrom says at which revision a list reads (0: the newest) and from which name on.
func (e *Engine) listFrom(ctx context.Context, rq *Request, o ListOptions) (exact int64, from string, err error) {
	if o.Continue != "" {
		exact, from, err = parseContinue(o.Continue, rq.Resource.prefix(rq.Namespace))
		if err == nil && o.ResourceVersion != "" && o.ResourceVersion != "0" {
			err = apierr.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		return exact, from, err
	}
	revision, err := parseVersion(o.ResourceVersion)
	if err != nil {
		return 0, "", err
	}
	if err := e.waitFor(ctx, revision); err != nil {
		return 0, "", err
	}
	if o.Match == "Exact" || o.Match == "" && o.Limit > 0 {
		return revision, "", nil
	}
	return 0, "", nil
}

// snapshotFailed words why a past state cannot be read. A continued list is told how to go on inconsistently (LIST-5); from
// is where, below the prefix of the request.
func (e *Engine) snapshotFailed(err error, revision int64, from string) error {
	if errors.Is(err, store.ErrFuture) { // a token of another life of the store, or a forged one
		return apierr.NewTooLargeVersion(revision, e.store.Revision())
	}
	if !errors.Is(err, store.ErrCompacted) {
		return err
	}
	if from == "" {
		return apierr.NewExpired("The resourceVersion for the provided list is too old.")
	}
	expired := apierr.NewExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	expired.Continue = formatContinue(-1, from)
	return expired
}

// page reads one chunk of what has this prefix.
func (rq *Request) page(
	ctx context.Context, c *Collection, snapshot *store.Snapshot, sel selection, within, from string, limit int64,
) (*Collection, error) {
	var items []*Object
	last, next := "", ""
	only := sel.name != "" && within != "" // the prefix is that name, and longer names are beside the point
	over := ascend(ctx, snapshot, rq.Resource.Stored.Path, within, from, func(v *store.Version) bool {
		full := int64(len(items)) == limit
		if (!full || only) && !sel.matches(ctx, v) {
			return true
		}
		if full { // what comes next may not be selected: that is for the next page to find out
			next = v.Key.Name
			return false
		}
		items = append(items, v)
		last = v.Key.Name
		return true
	})
	if over != nil {
		return nil, over
	}
	var failed readFailures
	for _, item := range items {
		if item.Sidecar.Unreadable != nil && failed.add(item) {
			break
		}
	}
	if err := failed.err(rq.Resource); err != nil {
		return nil, err
	}
	if err := rq.presentAll(ctx, items); err != nil {
		return nil, err
	}
	if next != "" {
		prefix := rq.Resource.prefix(rq.Namespace)
		c.Continue = formatContinue(c.Revision, strings.TrimPrefix(last, prefix)+"\x00")
		if invariants.Enabled {
			assertContinue(c.Continue, prefix, c.Revision, last, next)
		}
		if sel.all() {
			remaining := int64(snapshot.CountFrom(rq.Resource.Stored.Path, within, next))
			c.Remaining = &remaining
		}
	}
	if invariants.Enabled {
		c.assertPage(items, within, from, next, limit)
	}
	c.Items = func(yield func(*Object) bool) {
		c.cut = nil
		for i, item := range items {
			if i%askEvery == 0 {
				c.cut = ctx.Err()
			}
			if c.cut != nil || !yield(item) {
				return
			}
		}
	}
	return c, nil
}

// readable looks for an object that cannot be read before the first byte of a list goes out, so that the list fails by
// name (DEL-7) instead of breaking off.
func (rq *Request) readable(ctx context.Context, snapshot *store.Snapshot, prefix string, sel selection) error {
	var failed readFailures
	over := ascend(ctx, snapshot, rq.Resource.Stored.Path, prefix, "", func(v *store.Version) bool {
		return v.Sidecar.Unreadable == nil || !sel.matches(ctx, v) || !failed.add(v)
	})
	return cmp.Or(failed.err(rq.Resource), over)
}

// continueToken is the reference's: the version that the list reads, and the name below the request's own prefix at
// which it goes on (LIST-4).
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

const continueVersion = "meta.k8s.io/v1"

func formatContinue(revision int64, start string) string {
	text, err := json.Marshal(continueToken{APIVersion: continueVersion, ResourceVersion: revision, StartKey: start})
	if err != nil {
		panic("engine: a continue token cannot be printed: " + err.Error()) // strings and numbers always can
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseContinue reads a token. A negative revision goes on at the newest state.
func parseContinue(text, prefix string) (revision int64, from string, err error) {
	refuse := func(why string) (int64, string, error) {
		return 0, "", apierr.NewBadRequest("invalid continue token: continue key is not valid: " + why)
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return refuse(err.Error())
	}
	var token continueToken
	if err := json.Unmarshal(raw, &token); err != nil {
		return refuse(err.Error())
	}
	switch {
	case token.APIVersion != continueVersion:
		return refuse(fmt.Sprintf("server does not recognize this encoded version %s", token.APIVersion))
	case token.StartKey == "":
		return refuse("encoded start key empty (version " + continueVersion + ")")
	}
	from = strings.TrimPrefix(token.StartKey, "/")
	if path.Clean("/"+from) != "/"+from { // it leads elsewhere
		return refuse(token.StartKey)
	}
	switch {
	case token.ResourceVersion < 0:
		return 0, prefix + from, nil
	case token.ResourceVersion == 0:
		return refuse("incorrect encoded start resourceVersion (version " + continueVersion + ")")
	}
	return token.ResourceVersion, prefix + from, nil
}
