package store

import (
	"fmt"
	"strconv"
)

// Precondition demands something of one key. It is judged when the commit is sequenced, and so against the live version as
// of all commits before it: what is durable, and what is pending. It is of one of three sorts.
type Precondition struct {
	Key  Key
	Sort Sort

	// Revision is that of the live version; 0: there is none. (ThisRevision)
	Revision int64

	// UID and Form are those of the live version's sidecar, which is not Deleting. (ThisFence)
	UID  string
	Form uint64

	// Add is added to the counter unless it is positive and the sum would be above Limit. (ThisCounter)
	Add, Limit int64
}

// Sort is what a precondition demands.
type Sort uint8

const (
	// ThisRevision demands that nobody has changed the key: for what is read, changed and written back.
	ThisRevision Sort = iota
	// ThisFence demands that the object is still the one that it was, and is not being deleted. Changes of its labels,
	// annotations and status do not matter: a namespace that is annotated again and again does not make the creates in it
	// begin again.
	ThisFence
	// ThisCounter adds to a number, up to a limit. Unlike with a number that is read and written under ThisRevision,
	// any number of commits that are pending at once may add to one counter, and share one sync of the log.
	ThisCounter
)

// At demands that a version is still the live one.
func At(v *Version) Precondition { return Precondition{Key: v.Key, Revision: v.Revision} }

// Absent demands that a key has no live version.
func Absent(k Key) Precondition { return Precondition{Key: k} }

// Fence demands that the object of a version is still there, in the same form, and not being deleted.
func Fence(v *Version) Precondition {
	return Precondition{Key: v.Key, Sort: ThisFence, UID: v.Sidecar.UID, Form: v.Sidecar.Form}
}

// Count adds to a counter, whose name is the caller's. Unless add is negative or 0, it is refused when the counter would be
// above the limit then. A counter that nobody has added to is 0.
func Count(name string, add, limit int64) Precondition {
	return Precondition{Key: Key{Resource: Counters, Name: name}, Sort: ThisCounter, Add: add, Limit: limit}
}

// Counters is the resource of counters. They are versions like all others, so that they are durable, in snapshots and in
// the history:
//
//	live number of a counter = sum of Add over all commits with a precondition on it
//
// Their bytes are the number in decimal. Nothing else may be written there.
const Counters = "plinth/counters"

// Number is what a version of a counter stands for; that of no version is 0.
func (v *Version) Number() int64 {
	if v == nil {
		return 0
	}
	n, err := strconv.ParseInt(string(v.Data), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("store: %s holds %q, which is no number", v.Key, v.Data))
	}
	return n
}

// Holds says why a precondition does not hold for a live version, nil where there is none; it returns nil if it does.
func (p *Precondition) Holds(live *Version) error {
	have := int64(0)
	if live != nil {
		have = live.Revision
	}
	switch p.Sort {
	case ThisFence:
		if live == nil || live.Sidecar.Deleting || live.Sidecar.UID != p.UID || live.Sidecar.Form != p.Form {
			return &ConflictError{Key: p.Key, Sort: p.Sort, Have: have}
		}
	case ThisCounter:
		if n := live.Number(); p.Add > 0 && n > p.Limit-p.Add {
			return &LimitError{Key: p.Key, Have: n, Add: p.Add, Limit: p.Limit}
		}
	default:
		if have != p.Revision {
			return &ConflictError{Key: p.Key, Want: p.Revision, Have: have}
		}
	}
	return nil
}

// ConflictError says which precondition of a commit did not hold. Nothing was written.
type ConflictError struct {
	Key  Key
	Sort Sort
	Want int64 // the revision demanded, of ThisRevision
	Have int64 // the live one; 0 when there is none
}

func (e *ConflictError) Error() string {
	if e.Sort == ThisFence {
		return fmt.Sprintf("%s is gone, has another form, or is being deleted (revision %d)", e.Key, e.Have)
	}
	return fmt.Sprintf("%s is at revision %d, not %d", e.Key, e.Have, e.Want)
}

// LimitError says which counter of a commit would be above its limit. Nothing was written.
type LimitError struct {
	Key              Key
	Have, Add, Limit int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s is %d, and %d more would be above %d", e.Key, e.Have, e.Add, e.Limit)
}
