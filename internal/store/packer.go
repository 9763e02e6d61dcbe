package store

import (
	"bytes"
	"strings"

	"plinth/internal/invariants"
	"plinth/internal/recent"
	"plinth/internal/store/delta"
)

// base is the bytes from which deltas were made. The versions that have it keep it in memory.
type base struct{ bytes []byte }

// packer makes the bytes of versions short.
//
// The problem: most of the memory of a server is the objects, and of that most is what they have in common with others:
// the Pods of a Deployment, their managedFields, the Leases of nodes. So a version keeps its delta from an earlier
// version of an object like it (package delta), its base. A Pod of 3,300 bytes takes 250 this way. All that reads it
// gets the bytes put together again (Version.Data, Version.Append), which for a list is nearly as fast as a copy.
//
// An object is like those whose names differ in the last part only, as the names do that one controller makes:
// default/web-5d59d67564-x2x7k and default/web-5d59d67564-k9zqd. The first of them is their base. It stays the base,
// even if its object is gone, until a version comes that has little in common with it: a Pod that runs has a status,
// which the first one had not. Then that version takes its place.
//
// In the worst case each base is kept by one delta alone, because all other objects like it are gone. Even then a
// version takes no more than two and a half times its bytes:
//
//	v.base ≠ nil  ⇒  256 ≤ v.Len() ≤ 32 KiB,  len(v.data) ≤ v.Len() / 2,  len(v.base.bytes) ≤ 2 × v.Len()
//	the bytes of a base never change, and are not packed themselves
//
// All planes share the bound of the bases, and no base: what one has deleted is not kept in memory by another.
type packer struct {
	bases recent.Cache[likeness, *base]
}

// likeness is what objects of a plane have in common that are like each other.
type likeness struct {
	plane string
	like  Key
}

func newPacker() *packer {
	return &packer{bases: recent.Cache[likeness, *base]{Limit: baseBytes / 2}}
}

const (
	// minPacked is the length below which a delta and its base save nothing.
	minPacked = 256
	// baseBytes bounds the bases that wait for more versions like them: for a thousand Deployments.
	baseBytes = 1 << 20
)

// NewVersion returns a version that the state may keep, with these bytes, of which it makes a delta if it can. Nothing
// changes them from now on.
func (s *State) NewVersion(key Key, revision int64, data []byte, sidecar *Sidecar) *Version {
	v := NewVersion(key, revision, nil, sidecar)
	s.packer.set(s.plane, v, data, false)
	return v
}

// set gives a version of a plane its bytes; lent says that the caller goes on to use them. It may be called
// concurrently.
func (p *packer) set(plane string, v *Version, data []byte, lent bool) {
	if len(data) >= minPacked && len(data) <= delta.MaxLength {
		like := likeness{plane, like(v.Key)}
		known, ok := p.bases.Get(like)
		if ok && len(known.bytes) <= 2*len(data) {
			var buffer [1 << 10]byte
			if packed, ok := delta.Append(buffer[:0], known.bytes, data, len(data)/2); ok {
				v.data, v.base = bytes.Clone(packed), known
				if invariants.Enabled && !bytes.Equal(v.Data(), data) {
					invariants.Fail("store: %s is packed as %s", data, v.Data())
				}
				return
			}
		}
		if lent {
			data, lent = bytes.Clone(data), false
		}
		p.bases.Set(like, &base{data}, len(data))
	}
	if lent {
		data = bytes.Clone(data)
	}
	v.data = data
}

// like is the part of a key that those of objects like it have in common: without what follows the last hyphen or
// slash.
func like(k Key) Key {
	return Key{Resource: k.Resource, Name: k.Name[:strings.LastIndexAny(k.Name, "-/")+1]}
}
