package validation

import (
	"plinth/internal/fielderrors"
	"plinth/object"
)

// This file has what the rules that are generated in the reference have in common.

// revised is a value that generated rules check, with the value that it replaces. They do not check a value that an
// update leaves as it is:
//
//	checked  ⇔  !update, or value ≠ old, or the value is in an item of a list that the old list did not have
type revised struct {
	value, old object.Value
	update     bool // of an object that was there
	known      bool // there is an old value, which may be null
}

func created(v object.Value) revised { return revised{value: v} }

func changedFrom(v, old object.Value) revised {
	return revised{value: v, old: old, update: true, known: true}
}

// unchanged says whether an update leaves the value as it was.
func (r revised) unchanged() bool {
	return r.known && (same(r.value, r.old) || hollow(r.value) && hollow(r.old))
}

// member is a member of the value. One of an item that is new has no old value.
func (r revised) member(key string) revised {
	return revised{r.value.At(key), r.old.At(key), r.update, !r.old.IsNull()}
}

// item is an item of a list whose items are identified by their name.
func (r revised) item(i int) revised {
	item := revised{value: r.value.Items()[i], update: r.update}
	for _, old := range r.old.Items() {
		if named(old) == named(item.value) {
			item.old, item.known = old, true
			break
		}
	}
	return item
}

// immutableMember says whether an immutable member is set and must be checked: on a create. A change is an error.
func (f *errorList) immutableMember(r revised, p *fielderrors.Location) bool {
	if r.unchanged() {
		return false
	}
	if r.update {
		f.changed(p)
		return false
	}
	return !r.value.IsNull()
}

// gatedMember is immutableMember for a member that is forbidden while a feature is off; fixed says that it is immutable
// even then. It was set when the feature was on.
func (f *errorList) gatedMember(r revised, on, fixed bool, p *fielderrors.Location) bool {
	if on {
		return f.immutableMember(r, p)
	}
	if r.unchanged() {
		return false
	}
	if !r.value.IsNull() {
		f.Forbidden(p, "")
	}
	if r.update && fixed {
		f.changed(p)
	}
	return false
}

// choice demands that exactly one of several members is set. An update that sets the same ones as before is not
// checked. Empty lists are not set.
func (f *errorList) choice(r revised, of []string, p *fielderrors.Location) {
	differ := r.old.IsNull()
	for _, key := range of {
		differ = differ || hollow(r.value.At(key)) != hollow(r.old.At(key))
		if hollow(r.value.At(key)) {
			r.value = r.value.Without(key)
		}
	}
	if differ {
		f.union(r.value, of, p)
	}
}
