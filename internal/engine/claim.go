package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"plinth/internal/apierr"
	"plinth/internal/invariants"
	"plinth/internal/store"
	"plinth/object"
)

// This file is about values that several objects want and only one of them may have: the addresses and ports of
// Services.
//
// A claim is a key in the store. The commit that gives an object such a value writes the key, on the condition that
// it is absent; the commit that takes the value away, be it an update or the removal of the object, removes the key:
//
//	in every state: the claim c of object o is in the store  ⇔  o is in the store and c ∈ Claims(o)
//
// The obvious way, and that of the reference, is to reserve the value before the write and to release it if the write
// fails. A server that is killed between the two leaks the value, so a controller has to look for reserved values
// that no object has, and another one for values that two objects have. Here both are one commit, so neither can
// exist.
//
// Some claims are objects of the API (an IPAddress): companions. Others are known to the store alone (a node port).

// claims is the store resource of claims that are no API objects. Their bytes are the name of the object that holds
// them.
const claims = "plinth/claims"

// Claim is a value that an object has and no other one may have.
type Claim struct {
	Key store.Key
	// Companion is the type of the API object that stands for the claim, and Object is that object; nil: the key
	// stands alone.
	Companion *Resource
	Object    object.Value
}

// ClaimOf is a claim without an API object. The name includes the sort of value: "nodeports/30080".
func ClaimOf(name string) Claim { return Claim{Key: store.Key{Resource: claims, Name: name}} }

// CompanionClaim is a claim for which an object of another, cluster-scoped type stands.
func CompanionClaim(r *Resource, obj object.Value) Claim {
	return Claim{Key: r.key("", obj.At("metadata", "name").Str()), Companion: r, Object: obj}
}

// Allocation is the argument of Writing.Allocate, and what it may ask.
type Allocation struct {
	// Object is what is to take the place of Old; null: of nothing. A dry run takes nothing.
	Object, Old object.Value
	Dry         bool

	store    *store.Store
	free     map[store.Key]bool
	requires []store.Precondition
}

// Taken says whether a claim is in the store, whoever holds it. A claim that is not may become the object's.
func (a *Allocation) Taken(c *Claim) bool {
	if _, taken := a.store.Get(c.Key); taken {
		return true
	}
	a.free[c.Key] = true
	return false
}

// Require makes the commit depend on an object that the allocation was based on: it must still exist, undeleted.
func (a *Allocation) Require(v *store.Version) { a.requires = append(a.requires, store.Fence(v)) }

// allocate chooses the values that the type shares. A refusal is based on the newest state only.
func (d *draft) allocate(ctx context.Context) error {
	r := d.rq.Resource
	if r.Allocate == nil || d.rq.Subresource != nil {
		return nil
	}
	for sure := false; ; sure = true {
		current, err := d.store.Fresh(ctx, store.Key{}, sure)
		if err != nil {
			return commitFailed(err)
		}
		a := &Allocation{Object: d.obj, Old: d.old, Dry: d.dry, store: d.store, free: map[store.Key]bool{}}
		obj, err := r.Allocate(a)
		if err == nil {
			d.obj, d.allocation = obj, a
			return nil
		}
		if current || sure {
			return err
		}
	}
}

// claimed is what claims add to a commit.
type claimed struct {
	pre        []store.Precondition
	changes    []store.Change
	companions []*draft
}

// touches says whether claims made the commit depend on a key.
func (c *claimed) touches(key store.Key) bool {
	return c != nil && (slices.ContainsFunc(c.pre, func(p store.Precondition) bool { return p.Key == key }) ||
		slices.ContainsFunc(c.companions, func(o *draft) bool { return o.key() == key }))
}

// claim computes which claims the commit takes and gives back: the difference between those of the live object and
// those of the next one. A claim that the object keeps but that is not in the store is taken, too: the object was
// stored before there were claims.
func (d *draft) claim(ctx context.Context) error {
	d.claimed = nil
	r := d.rq.Resource
	if d.dry {
		return nil
	}
	if d.remove && r.Holder != nil {
		return d.renew(ctx)
	}
	if r.Claims == nil {
		return nil
	}
	d.claimed = &claimed{}
	var had, has []Claim
	if d.live != nil {
		had = r.Claims(d.old)
	}
	if !d.remove {
		has = r.Claims(d.obj)
	}
	if d.allocation != nil {
		d.claimed.pre = slices.Clone(d.allocation.requires)
	}
	before, after := keysOf(had), keysOf(has)
	for i := range has {
		if err := d.take(ctx, &has[i], before[has[i].Key]); err != nil {
			return err
		}
	}
	for i := range had {
		if !after[had[i].Key] {
			if err := d.giveBack(ctx, &had[i]); err != nil {
				return err
			}
		}
	}
	if invariants.Enabled {
		d.assertClaims(ctx, has)
	}
	return nil
}

func keysOf(list []Claim) map[store.Key]bool {
	keys := make(map[store.Key]bool, len(list))
	for i := range list {
		keys[list[i].Key] = true
	}
	return keys
}

// take makes the commit take a claim that is not in the store, on the condition that it is free. A claim that is new
// to the object has to have been found free by Allocate; otherwise the commit would fail again and again.
func (d *draft) take(ctx context.Context, c *Claim, kept bool) error {
	if kept {
		live, _, err := d.store.Live(ctx, c.Key, false)
		if err != nil {
			return commitFailed(err)
		}
		if live != nil {
			return nil
		}
	} else if d.allocation == nil || !d.allocation.free[c.Key] {
		return apierr.NewInternal(fmt.Errorf("%s was not allocated", c.Key))
	}
	if c.Companion == nil {
		d.claimed.pre = append(d.claimed.pre, store.Absent(c.Key))
		change := store.Change{Key: c.Key, Data: []byte(d.key().Name), Sidecar: &store.Sidecar{}}
		d.claimed.changes = append(d.claimed.changes, change)
		return nil
	}
	n, err := d.companion(ctx, c)
	if err == nil {
		d.claimed.companions = append(d.claimed.companions, n)
	}
	return err
}

// companion is the draft of the API object that stands for a claim. Its field manager is the server.
func (d *draft) companion(ctx context.Context, c *Claim) (*draft, error) {
	_, name := splitKey(c.Key.Name)
	rq := &Request{Resource: c.Companion, Name: name, FieldManager: reporter}
	n := &draft{Engine: d.Engine, rq: rq, now: d.now, told: d.told}
	n.obj = c.Object
	n.own(ctx)
	n.name()
	if err := n.prepare(); err != nil {
		return nil, err
	}
	n.settle()
	return n, n.print(ctx)
}

// giveBack makes the commit remove a claim if the object holds it. The claim of an object that was stored before
// there were claims may be held by another one. A companion with finalizers is marked as deleted instead; its value
// is free when they are gone.
func (d *draft) giveBack(ctx context.Context, c *Claim) error {
	live, _, err := d.store.Live(ctx, c.Key, false)
	if err != nil {
		return commitFailed(err)
	}
	if live == nil {
		return nil
	}
	if c.Companion == nil {
		if bytes.Equal(live.Data, []byte(d.key().Name)) {
			d.claimed.pre = append(d.claimed.pre, store.At(live))
			d.claimed.changes = append(d.claimed.changes, store.Change{Key: c.Key})
		}
		return nil
	}
	r := c.Companion
	_, name := splitKey(c.Key.Name)
	n := &draft{Engine: d.Engine, rq: &Request{Resource: r, Name: name}, now: d.now, told: d.told, live: live}
	if n.old, _, err = r.live(ctx, live); err != nil {
		return err
	}
	switch holder, key := r.Holder(n.old); {
	case holder != d.rq.Resource || key != d.key():
		return nil
	case len(finalizers(n.old)) == 0:
		n.remove = true
	case deleting(n.old):
		return nil
	default:
		n.obj = r.mark(n.old, 0, d.now)
		if n.next, err = d.version(ctx, r, live, n.obj, false, d.now); err != nil {
			return err
		}
	}
	d.claimed.companions = append(d.claimed.companions, n)
	return nil
}

// renew replaces a companion that is deleted while its holder still has the value: a new companion takes its place in
// the same commit. The reference has a loop that makes one within minutes, in which the address may be given to
// somebody else.
//
// The holder cannot lose the value before the commit: giving it back changes the companion, which the commit demands
// to be unchanged.
func (d *draft) renew(ctx context.Context) error {
	d.renewed = nil
	r, key := d.rq.Resource.Holder(d.old)
	if r == nil || r.Claims == nil {
		return nil
	}
	holder, _, err := d.store.Live(ctx, key, true)
	if err != nil {
		return commitFailed(err)
	}
	if holder == nil || holder.Sidecar.Unreadable != nil {
		return nil
	}
	obj, _, err := r.live(ctx, holder)
	if err != nil {
		return err
	}
	for _, c := range r.Claims(obj) {
		if c.Key != d.live.Key || c.Companion == nil {
			continue
		}
		n, err := d.companion(ctx, &c)
		if err != nil {
			return err
		}
		d.renewed = n.next
	}
	return nil
}

// none says whether claims add nothing to a commit.
func (c *claimed) none() bool { return c == nil || len(c.changes) == 0 && len(c.companions) == 0 }

// KeyOf is where an object of a type is stored.
func (r *Resource) KeyOf(namespace, name string) store.Key { return r.key(namespace, name) }
