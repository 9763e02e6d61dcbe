package store

import (
	"fmt"
)

// Precondition is a condition on the live version of one key. It is checked when the commit gets its revision, and so
// against the version that all commits before it have left, durable or pending. There are four types; each uses its
// own fields of the struct.
//
// Comparing and writing under a lock of the caller works in one process only, and holds the lock for the duration of a
// sync.
type Precondition struct {
	Key  Key
	Type PreconditionType

	// ThisRevision: the live version has this revision. 0: there is no live version.
	Revision int64

	// ThisFence: the live version's sidecar has this UID and Form, and is not Deleting. ThisObject: it has this UID.
	UID  string
	Form uint64

	// WithinLimits: the sums of a namespace stay within these limits.
	Limits *Limits
}

// PreconditionType is the type of a precondition.
type PreconditionType uint8

const (
	// ThisRevision requires that the key was not changed since it was read: for a read, change and write back.
	ThisRevision PreconditionType = iota
	// ThisFence requires that the object exists, is the same one in the same form, and is not being deleted. Other
	// changes do not matter: creates in a namespace whose annotations change all the time do not fail and begin again.
	ThisFence
	// ThisObject requires that the object exists and is the same one, in whatever form, also while it is being deleted.
	ThisObject
	// WithinLimits requires that the sums of charges of a namespace, with what the commit adds, stay within limits, and
	// that the rules of the namespace are those from which the limits were made. The key is none of a version.
	WithinLimits
)

// At requires that v is still the live version.
func At(v *Version) Precondition { return Precondition{Key: v.Key, Revision: v.Revision} }

// Absent requires that a key has no live version.
func Absent(k Key) Precondition { return Precondition{Key: k} }

// Fence requires that the object of v still exists, in the same form, and is not being deleted.
func Fence(v *Version) Precondition {
	return Precondition{Key: v.Key, Type: ThisFence, UID: v.Sidecar.UID, Form: v.Sidecar.Form}
}

// Identity requires that the object with this UID still exists under the key.
func Identity(k Key, uid string) Precondition {
	return Precondition{Key: k, Type: ThisObject, UID: uid}
}

// Within requires that the commit stays within limits.
func Within(p *Limits) Precondition {
	return Precondition{Key: p.key(), Type: WithinLimits, Limits: p}
}

// Holds returns nil if the precondition holds for the live version, which may be nil, and else a *ConflictError.
// Writers other than the sequencer call it, too.
func (p *Precondition) Holds(live *Version) error {
	have := int64(0)
	if live != nil {
		have = live.Revision
	}
	switch p.Type {
	case ThisFence:
		if live == nil || live.Sidecar.Deleting || live.Sidecar.UID != p.UID || live.Sidecar.Form != p.Form {
			return &ConflictError{Key: p.Key, Type: p.Type, Have: have}
		}
	case ThisObject:
		if live == nil || live.Sidecar.UID != p.UID {
			return &ConflictError{Key: p.Key, Type: p.Type, Have: have}
		}
	case WithinLimits:
		panic("store: limits are a condition on many versions, which the writer judges (State.Within)")
	default:
		if have != p.Revision {
			return &ConflictError{Key: p.Key, Want: p.Revision, Have: have}
		}
	}
	return nil
}

// ConflictError names the precondition of a commit that did not hold. No change was written.
type ConflictError struct {
	Key  Key
	Type PreconditionType
	Want int64 // the required revision, of ThisRevision
	Have int64 // the live one; 0 when there is none
}

func (e *ConflictError) Error() string {
	switch e.Type {
	case ThisFence:
		return fmt.Sprintf("%s is gone, has another form, or is being deleted (revision %d)", e.Key, e.Have)
	case ThisObject:
		return fmt.Sprintf("%s is gone, or is another object (revision %d)", e.Key, e.Have)
	}
	if e.Type == WithinLimits {
		return fmt.Sprintf("the limits of %s have changed", e.Key)
	}
	return fmt.Sprintf("%s is at revision %d, not %d", e.Key, e.Have, e.Want)
}
