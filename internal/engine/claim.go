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

// Claims: values that only one object at a time may have, such as the cluster IPs and node ports of Services.
//
// A claim is a key in the store. The commit that gives an object such a value writes the key, on the condition that
// it is absent; the commit that takes the value away, be it an update or the removal of the object, removes the key:
//
//	in every state: the claim c of object o is in the store  ⇔  o is in the store and c ∈ Claims(o)
//
// The reference reserves the value before the write and releases it if the write fails. A server that is killed between
// the two leaks the value, so the reference needs controllers that repair the reservations: they find reserved values
// that no object has, and values that two objects have. Here both are one commit, so neither can exist.
//
// A write takes three steps. allocate lets the type choose values, and records which keys it found free. claim compares
// the claims of the live object with those of the next one, and adds the difference to the commit: an Absent
// precondition and a change for each key that is taken, the removal of each key that is given back. The commit then
// decides. If two servers, or two requests, choose the same free port, both try to commit it, and the second one loses
// the race at the key of the claim; it allocates again and finds the key taken.
//
// Some claims are objects of the API (an IPAddress), called companions: their key is that of the object, and a change
// of the key is a draft of its own in the same commit. Others exist in the store alone (a node port).
//
// Objects that were stored before claims were introduced have none. Any write of such an object takes those that are
// free (take); until then another object may have taken them.
//
// A store that other processes write to (store.Others) may have claims whose holder it does not know: on etcd, node
// ports are a bitmap that kube-apiservers change, too. They reserve a value in a commit of its own, before that of the
// object, and release it after that. So there
//
//	in every state: o is in the store and c ∈ Claims(o)  ⇒  the claim c is in the store
//
// and a claim that no object has is about to be used, was just released, or is left over. Controllers repair those that
// are left over, and claims that are missing (internal/controller, ServicePorts and ServiceAddresses).

// claims is the store resource of claims that are not API objects. Their bytes are the name of the object that holds
// them; empty: it is not known.
const claims = "plinth/claims"

// Claims is the store resource of claims that are not API objects, for stores that keep them in another form.
const Claims = claims

// Claim is a value that only one object at a time may have.
type Claim struct {
	Key store.Key
	// Companion is the type of the API object that represents the claim, and Object is that object; nil: the key has no
	// API object.
	Companion *Resource
	Object    object.Value
}

// ClaimOf is a claim without an API object. The name includes the sort of value: "nodeports/30080".
func ClaimOf(name string) Claim { return Claim{Key: store.Key{Resource: claims, Name: name}} }

// CompanionClaim is a claim that is represented by an object of another, cluster-scoped type.
func CompanionClaim(r *Resource, obj object.Value) Claim {
	return Claim{Key: r.key("", obj.At("metadata", "name").Str()), Companion: r, Object: obj}
}

// Allocation is the argument of Writing.Allocate: the object, and the queries that the function may make while it
// chooses.
type Allocation struct {
	// Object is to replace Old, which is null for a new object. A dry run takes no values.
	Object, Old object.Value
	Dry         bool

	// free has the keys that Taken found free: only these may become claims of the object. requires has fences of the
	// objects that the choice depends on.
	store    *store.Store
	free     map[store.Key]bool
	requires []store.Precondition
}

// Taken says whether a claim is in the store, whichever object holds it. If it is not, the claim may become one of the
// object's. The state that it reads may be outdated; the commit is made on the condition that the key is absent, so a
// wrong result costs another attempt and never gives a value to two objects.
func (a *Allocation) Taken(c *Claim) bool {
	if _, taken := a.store.Get(c.Key); taken {
		return true
	}
	a.free[c.Key] = true
	return false
}

// Require makes the commit depend on an object that the allocation was based on, such as the ServiceCIDR of an address:
// the object must still exist, undeleted, when the commit is sequenced.
func (a *Allocation) Require(v *store.Version) { a.requires = append(a.requires, store.Fence(v)) }

// allocate lets the type choose the values of the object that no other object may have. It runs after admission, which
// may still change what the object requests, and before validation, which sees the values.
//
// A refusal (the range is full, the port is taken) must be based on the newest state: the port may have been released
// since an older one. So allocation is tried with the state at hand, and again with one that is known to be the newest.
// A success needs no such proof, since the commit checks it.
func (d *draft) allocate(ctx context.Context) error {
	r := d.rq.Resource
	if r.Allocate == nil || d.rq.Subresource != nil {
		return nil
	}
	// Two rounds at most: the second one is sure, and its refusal is the answer.
	for sure := false; ; sure = true {
		current, err := d.store.Fresh(ctx, store.Key{}, sure)
		if err != nil {
			return commitFailed(err)
		}
		a := &Allocation{Object: d.body, Old: d.old, Dry: d.dry, store: d.store, free: map[store.Key]bool{}}
		obj, err := r.Allocate(a)
		if err == nil {
			d.body, d.effects.allocation = obj, a
			return nil
		}
		if current || sure {
			return err
		}
	}
}

// claimed is the part of a commit that claims add: preconditions and changes of keys without an API object, and the
// drafts of companions, whose preconditions and changes are made by commit as for every draft.
type claimed struct {
	pre        []store.Precondition
	changes    []store.Change
	companions []*draft
}

// touches says whether claims made the commit depend on a key. If the race was lost at such a key, the allocation is
// outdated, and the object is not.
func (c *claimed) touches(key store.Key) bool {
	return c != nil && (slices.ContainsFunc(c.pre, func(p store.Precondition) bool { return p.Key == key }) ||
		slices.ContainsFunc(c.companions, func(o *draft) bool { return o.key() == key }))
}

// claim computes which claims the commit takes and gives back: the difference between those of the live object and
// those of the next one. A claim that the object keeps but that is not in the store is taken, too: the object was
// stored before claims were introduced. A dry run takes and gives back no claims.
//
// It is the last step before the commit, since validation and print still decide whether the object is removed.
func (d *draft) claim(ctx context.Context) error {
	d.effects.claimed = nil
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
	d.effects.claimed = &claimed{}
	var had, has []Claim
	if d.live != nil {
		had = r.Claims(d.old)
	}
	if !d.remove {
		has = r.Claims(d.obj)
	}
	// The commit fails if the range that an address was allocated from is deleted meanwhile.
	if d.effects.allocation != nil {
		d.effects.claimed.pre = slices.Clone(d.effects.allocation.requires)
	}
	// before and after are sets, since an object may have many claims: a Service has up to two addresses and a port for
	// each of its ports.
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

// keysOf is the set of the keys of claims.
func keysOf(list []Claim) map[store.Key]bool {
	keys := make(map[store.Key]bool, len(list))
	for i := range list {
		keys[list[i].Key] = true
	}
	return keys
}

// take adds a claim to the commit, on the condition that its key is absent, unless the object already holds it. kept
// says that the live object claims it, too. If such a claim is missing in a store that others write to, that is left to
// those who repair it: they know whether it can be taken, and what the others would find.
//
// A claim that is new to the object must have been found free by Allocate. If it was not, the key may be taken, the
// commit would lose the race at it, and so would every further attempt; an internal error prevents that endless loop.
func (d *draft) take(ctx context.Context, c *Claim, kept bool) error {
	if kept {
		live, _, err := d.store.Live(ctx, c.Key, false)
		if err != nil {
			return commitFailed(err)
		}
		if live != nil || c.Companion == nil && d.store.Others != nil {
			return nil
		}
	} else if d.effects.allocation == nil || !d.effects.allocation.free[c.Key] {
		return apierr.NewInternal(fmt.Errorf("%s was not allocated", c.Key))
	}
	if c.Companion == nil {
		d.effects.claimed.pre = append(d.effects.claimed.pre, store.Absent(c.Key))
		change := store.Change{Key: c.Key, Data: []byte(d.key().Name), Sidecar: &store.Sidecar{}}
		d.effects.claimed.changes = append(d.effects.claimed.changes, change)
		return nil
	}
	n, err := d.companion(ctx, c)
	if err == nil {
		d.effects.claimed.companions = append(d.effects.claimed.companions, n)
	}
	return err
}

// companion is the draft of the API object that represents a claim. No client requested this object, so it takes only
// the steps that set its managers (the server is the field manager), its name and UID, and its stored form.
func (d *draft) companion(ctx context.Context, c *Claim) (*draft, error) {
	_, name := splitKey(c.Key.Name)
	rq := &Request{Resource: c.Companion, Name: name, FieldManager: serverManager}
	n := d.beside(rq)
	n.body = c.Object
	n.own(ctx)
	n.name()
	if err := n.prepare(); err != nil {
		return nil, err
	}
	n.settle()
	return n, n.print(ctx)
}

// giveBack makes the commit remove a claim, provided that this object holds it: the bytes of the key, or the holder
// that the companion names, must be this object, or not known. Otherwise the object was stored before claims were
// introduced, and another object has taken the value since. A companion with finalizers is marked as deleted instead of
// removed; its value is free once the finalizers are removed.
func (d *draft) giveBack(ctx context.Context, c *Claim) error {
	live, _, err := d.store.Live(ctx, c.Key, false)
	if err != nil {
		return commitFailed(err)
	}
	if live == nil {
		return nil
	}
	if c.Companion == nil {
		// The bytes of a claim name its holder. If they do not, the object is the holder: it has the value. If they do not
		// decrypt, no other object can have taken the value since.
		if live.Len() == 0 || live.Sidecar.Undecrypted || bytes.Equal(live.Data(), []byte(d.key().Name)) {
			d.effects.claimed.pre = append(d.effects.claimed.pre, store.At(live))
			d.effects.claimed.changes = append(d.effects.claimed.changes, store.Change{Key: c.Key})
		}
		return nil
	}
	r := c.Companion
	_, name := splitKey(c.Key.Name)
	n := d.beside(&Request{Resource: r, Name: name})
	n.live = live
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
	d.effects.claimed.companions = append(d.effects.claimed.companions, n)
	return nil
}

// renew replaces a companion that is deleted while its holder still has the value: a new companion, with a new UID,
// replaces it in the same commit. Removing it would break the invariant above. The reference removes it and has a loop
// that makes a new one within minutes; in between the address may be given to another Service.
//
// A holder that has the value cannot lose it before the commit: giving it back changes the companion, and the commit
// has the precondition that the companion is unchanged. One that does not have it may get it where companions are
// committed before their holders (split): so that it is as it was read is a precondition, too.
func (d *draft) renew(ctx context.Context) error {
	d.effects.renewed, d.effects.holder = nil, nil
	r, key := d.rq.Resource.Holder(d.old)
	if r == nil || r.Claims == nil {
		return nil
	}
	holder, _, err := d.store.Live(ctx, key, true)
	if err != nil {
		return commitFailed(err)
	}
	d.effects.holder = &store.Precondition{Key: key, Revision: revisionOf(holder)}
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
		d.effects.renewed, d.effects.holder = n.next, nil
	}
	return nil
}

// none says whether claims add nothing to a commit, so that an object whose bytes are unchanged need not be committed.
func (c *claimed) none() bool { return c == nil || len(c.changes) == 0 && len(c.companions) == 0 }
