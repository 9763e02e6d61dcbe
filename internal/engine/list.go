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
	"strconv"
	"strings"

	"plinth/internal/apierr"
	"plinth/internal/execution"
	"plinth/internal/invariants"
	"plinth/internal/store"
)

// List reads a collection from one snapshot (LIST-3, LIST-4). httpapi has refused parameters that contradict each
// other; List refuses those that depend on the state.
//
// A list without limit is read while it is written out (Collection.Items): a collection of any size costs the memory of
// one version at a time. Two errors must not happen after the first byte is sent, because they would cut the answer
// off: an unreadable object, for which the sidecars are searched first (readable), and a conversion that fails, because
// of which a list that needs one is read as one page.
//
// The snapshot never changes and needs no lock, so a client that reads slowly does not hold up writers; it only keeps
// the versions of the snapshot in memory.
func (e *Engine) List(ctx context.Context, rq *Request, o ListOptions) (*Collection, error) {
	e = e.of(rq.Resource)
	sel, err := rq.selects(o)
	if err != nil {
		return nil, err
	}
	if rq.Resource.Made != nil {
		return rq.listMade(ctx, &sel), nil
	}
	exact, from, err := e.listFrom(ctx, rq, o)
	if err != nil {
		return nil, err
	}
	if refresh := rq.Resource.Refresh; refresh != nil && exact == 0 && o.ResourceVersion == "" {
		refresh(ctx, rq.Namespace)
	}
	// A continue token may come from another server, and name a revision that this one has not received yet.
	if exact == 0 && o.ResourceVersion == "" || exact > e.store.Revision() {
		if err := e.fresh(ctx); err != nil {
			return nil, err
		}
	}
	snapshot, err := e.store.SnapshotContext(ctx, exact, rq.Resource.Stored.Path)
	if err != nil {
		return nil, e.snapshotFailed(err, exact, strings.TrimPrefix(from, rq.Resource.prefix(rq.Namespace)))
	}
	if exact != 0 {
		ctx = asWas(ctx)
	}
	c := &Collection{Revision: snapshot.Revision(), Shard: o.Shard.String()}
	if invariants.Enabled {
		assert(exact == 0 || exact == c.Revision, "a list of revision %d reads %d", exact, c.Revision)
	}
	// A list at resourceVersion 0 ignores the limit, as the reference's watch cache does.
	limit := o.Limit
	if limit < 0 || o.ResourceVersion == "0" && o.Continue == "" {
		limit = 0
	}
	// within is a prefix of the names of all objects that can be selected.
	within := rq.reach(&sel)
	if limit == 0 && rq.Resource.converts(snapshot, within) {
		limit = math.MaxInt64
	}
	if limit > 0 {
		return rq.page(ctx, c, snapshot, sel, within, from, limit)
	}
	c.Items = func(yield func(*Object) bool) {
		c.cut = nil
		over := ascend(ctx, snapshot, rq.Resource.Stored.Path, within, from, func(v *store.Version) bool {
			selected, err := sel.matches(ctx, v)
			if err != nil {
				c.cut = err
			}
			return err == nil && (!selected || yield(v))
		})
		c.cut = cmp.Or(c.cut, over)
	}
	return c, rq.readable(ctx, snapshot, within, sel)
}

// ListStored reads the versions of all objects of a type as they are stored, from a snapshot that is as new as the
// newest write: none is converted, and those that cannot be read are among them.
func (e *Engine) ListStored(ctx context.Context, r *Resource) (*Collection, error) {
	e = e.of(r)
	if err := e.fresh(ctx); err != nil {
		return nil, err
	}
	snapshot, err := e.store.Snapshot(0)
	if err != nil {
		return nil, err
	}
	c := &Collection{Revision: snapshot.Revision()}
	c.Items = func(yield func(*Object) bool) { c.cut = ascend(ctx, snapshot, r.Stored.Path, "", "", yield) }
	return c, nil
}

// askEvery is how many versions a loop reads before it checks again whether the request was cancelled: such a check
// takes longer than reading a version.
const askEvery = 64

// ascend is Snapshot.Ascend that stops when ctx ends, and returns its error. Without it, a selector that matches rarely
// could read all versions of a collection for a client that has disconnected. Others are let go first on the way.
func ascend(
	ctx context.Context, snapshot *store.Snapshot, resource, prefix, from string, yield func(*store.Version) bool,
) error {
	var over error
	steps := 0
	snapshot.Ascend(resource, prefix, from, func(v *store.Version) bool {
		if steps%askEvery == 0 {
			if over = ctx.Err(); over == nil && steps > 0 {
				over = execution.From(ctx).Yield(ctx)
			}
		}
		steps++
		return over == nil && yield(v)
	})
	return over
}

// converts says whether any object of a collection has to be converted, or brought from an old stored form into the
// current one, before it is sent. It stops at the first; in the usual case, without such an object, it compares one
// number for each object.
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

// listFrom returns the revision that a list reads, 0 for the newest, and the name at which it begins.
//
//	resourceVersion   resourceVersionMatch            revision
//	none, 0           –                               newest
//	n                 Exact, or none with a limit     n
//	n                 NotOlderThan, or none           newest, which is at least n (waitFor)
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
	if err := e.waitFor(ctx, revision, o.ResourceVersion); err != nil {
		return 0, "", err
	}
	if o.Match == "Exact" || o.Match == "" && o.Limit > 0 {
		return revision, "", nil
	}
	return 0, "", nil
}

// snapshotFailed is the error for a revision that cannot be read. For a continued list it includes a token with which
// the client can go on in the newest state (LIST-5); from is the position, below the prefix of the request.
func (e *Engine) snapshotFailed(err error, revision int64, from string) error {
	if errors.Is(err, store.ErrFuture) { // a token of another life of the store, or a forged one
		return apierr.NewTooLargeVersion(strconv.FormatInt(revision, 10), e.store.Revision())
	}
	if !errors.Is(err, store.ErrCompacted) {
		return err
	}
	if from == "" {
		return apierr.NewExpired("The resourceVersion for the provided list is too old.")
	}
	expired := apierr.NewExpired(
		"The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	expired.Continue = formatContinue(-1, from)
	return expired
}

// page reads one page: up to limit selected objects whose names have the prefix within, from the name from on.
//
// One object more than the page is read, to decide whether to return a token. It need not be selected: finding out
// whether a selected one follows would mean searching the rest of the collection for a selector that matches rarely. So
// the last page of a selection may be empty, as in the reference. If the selection is one name, only that object is
// searched for.
//
// The items of a page are kept in memory and converted together before the answer begins, so an error can still be sent
// as one.
func (rq *Request) page(
	ctx context.Context, c *Collection, snapshot *store.Snapshot, sel selection, within, from string, limit int64,
) (*Collection, error) {
	var items []*Object
	last, next := "", ""
	// The prefix is the selected name itself. Longer names with that prefix do not count as following objects.
	only := sel.name != "" && within != ""
	ahead := rq.lookAhead(&sel, snapshot, within)
	var undecided error
	over := ascend(ctx, snapshot, rq.Resource.Stored.Path, within, from, func(v *store.Version) bool {
		full := int64(len(items)) == limit
		if !full || only {
			selected, err := ahead.matches(ctx, v)
			if undecided = err; err != nil || !selected {
				return err == nil
			}
		}
		if full {
			// Whether this object is selected is decided by the next page.
			next = v.Key.Name
			return false
		}
		items = append(items, v)
		last = v.Key.Name
		return true
	})
	if err := cmp.Or(undecided, over); err != nil {
		return nil, err
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
	var err error
	if c.Made, err = rq.presentAll(ctx, items); err != nil {
		return nil, err
	}
	if next != "" {
		prefix := rq.Resource.prefix(rq.Namespace)
		c.Continue = formatContinue(c.Revision, strings.TrimPrefix(last, prefix)+"\x00")
		if invariants.Enabled {
			assertContinue(c.Continue, prefix, c.Revision, items[len(items)-1].Key.Name, next)
		}
		// As in the reference, remainingItemCount is set only for lists without selectors. Counting takes logarithmic time.
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

// readable searches the sidecars of a collection for an unreadable object before the first byte of a list is sent, so
// that the list fails with an error that names it (DEL-7) instead of being cut off.
func (rq *Request) readable(ctx context.Context, snapshot *store.Snapshot, prefix string, sel selection) error {
	var failed readFailures
	over := ascend(ctx, snapshot, rq.Resource.Stored.Path, prefix, "", func(v *store.Version) bool {
		if v.Sidecar.Unreadable == nil {
			return true
		}
		selected, _ := sel.matchesStored(v) // which decides about unreadable versions
		return !selected || !failed.add(v)
	})
	return cmp.Or(failed.err(rq.Resource), over)
}

// continueToken is the position at which a chunked list continues (LIST-4). The format is the reference's, since
// clients parse it.
//
// Together, the pages must be one snapshot, regardless of the writes between them:
//
//	the items of all pages, in order = the selected objects at ResourceVersion, each once
//	StartKey = the name of the last item, below the prefix of the request, + "\x00"
//
// With "\x00" the key is the smallest one after the last item. A count of items does not work: every page would have to
// skip all items before it, which is quadratic for the whole list. Nor does the name of the next item: when the
// snapshot has expired and the client continues in the newest state, objects that were created between the two names
// would be skipped.
//
// The server keeps no state for a token. The snapshot is found again by its revision as long as the history reaches
// back to it; after that the list is answered with 410 and a token with revision -1, which means the newest state
// (LIST-5). A client can send any text as a token, so parseContinue accepts no key outside the prefix of the request.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

const continueVersion = "meta.k8s.io/v1"

// formatContinue prints a token.
func formatContinue(revision int64, start string) string {
	text, err := json.Marshal(continueToken{APIVersion: continueVersion, ResourceVersion: revision, StartKey: start})
	if err != nil {
		panic("engine: a continue token cannot be printed: " + err.Error()) // strings and numbers always can
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseContinue reads a token; revision 0 means the newest state.
//
//	parseContinue(formatContinue(r, start), prefix) = (max(r, 0), prefix + start)
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
	// A key such as "../other/a" points outside the prefix.
	if path.Clean("/"+from) != "/"+from {
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
