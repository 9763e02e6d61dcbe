package store

import (
	"bytes"
	"sync/atomic"

	"plinth/internal/store/delta"
)

// Version is one stored state of one object. It is immutable once it is committed, and shared by the state, snapshots,
// records and all readers; it stays in memory as long as any of them has it.
type Version struct {
	Key      Key
	Revision int64 // of the change that wrote it
	Sidecar  *Sidecar

	// The bytes: data if base is nil, otherwise data is their delta from those of base (packer).
	data []byte
	base *base

	charge atomic.Pointer[Charge] // State.charge; nil: not computed
}

// NewVersion returns a version with these bytes, which nothing changes from now on. revision is 0 until a commit gives
// it one.
func NewVersion(key Key, revision int64, data []byte, sidecar *Sidecar) *Version {
	return &Version{Key: key, Revision: revision, data: data, Sidecar: sidecar}
}

// Lend makes v another version, whose bytes the caller goes on to use. It is for logs, which lend the versions that
// they read; nobody else may have v.
func (v *Version) Lend(key Key, revision int64, data []byte, sidecar *Sidecar) {
	*v = Version{Key: key, Revision: revision, data: data, Sidecar: sidecar}
}

// At returns the version as if it had been written at another revision.
func (v *Version) At(revision int64) *Version {
	return &Version{Key: v.Key, Revision: revision, Sidecar: v.Sidecar, data: v.data, base: v.base}
}

// Data returns the bytes, which the caller may not change. It may have to put them together: callers that need their
// length or only copy them use Len and Append.
func (v *Version) Data() []byte {
	if v.base == nil {
		return v.data
	}
	return v.Append(make([]byte, 0, v.Len()), 0, v.Len())
}

// DataIn is Data for callers that have a buffer: if the bytes have to be put together, they are appended to buffer,
// which is empty. Callers that use the buffer again may not keep the bytes.
func (v *Version) DataIn(buffer []byte) []byte {
	if v.base == nil {
		return v.data
	}
	return v.Append(buffer, 0, v.Len())
}

// Equal says whether two versions have the same bytes. Each write asks it of the version that it replaces, so it puts
// the bytes of one version together at most.
func (v *Version) Equal(other *Version) bool {
	if v.base == nil {
		v, other = other, v
	}
	switch {
	case v.Len() != other.Len():
		return false
	case v.base == nil:
		return bytes.Equal(v.data, other.data)
	}
	return delta.Equal(v.base.bytes, v.data, other.Data())
}

// Len is the number of bytes.
func (v *Version) Len() int {
	if v.base == nil {
		return len(v.data)
	}
	return delta.Len(v.data)
}

// Append appends the bytes from one offset to another.
func (v *Version) Append(dst []byte, from, to int) []byte {
	if v.base == nil {
		return append(dst, v.data[from:to]...)
	}
	return delta.AppendRange(dst, v.base.bytes, v.data, from, to)
}
