// Package transfer copies all objects from one store to another one: from a data directory, or the etcd of a Plinth or
// of a kube-apiserver, to a new data directory, or into an etcd. No server runs on the two meanwhile.
//
// An object is copied whole: its UID, managedFields, creation time and generation are parts of its bytes. Its form is
// that of the target: canonical JSON in files, Kubernetes' own values in etcd (package etcdform), encrypted as the
// target's configuration says. Not copied are the history, the past, and what a server makes again when it starts
// (bookkeeping): the keys by which the servers of an etcd know of each other, and the bitmap of node ports.
//
// A copy is right only if the target is read again, and has what the source had:
//
//	a copy has ended without an error  ⇔  the objects of the target are those of the source, each with the same bytes
//
// and the resourceVersions that the target gives out from then on are greater than all that the source has given out
// until it was read.
package transfer

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/addresses"
	"plinth/internal/builtin"
	"plinth/internal/crd"
	"plinth/internal/engine"
	"plinth/internal/gotypes"
	"plinth/internal/planes/kind"
	"plinth/internal/storage"
	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/object"
)

// Content is what a store has as of one revision.
type Content struct {
	// Revision is the newest one that the store has given out.
	Revision int64
	// Versions are the objects, ordered by key, with the claims of a data directory.
	Versions []*store.Version
	// Planes are the other planes of a data directory.
	Planes []*filelog.Plane
	// LeftOut counts the keys of an etcd that are no objects, by the first part of their path.
	LeftOut map[string]int
}

// Result is what a copy has made.
type Result struct {
	// Objects were copied, whose keys and bytes have this SHA-256, in hex. Those that were there already, as an earlier
	// copy was interrupted, are among them.
	Objects, Already int
	Sum              string
	// Revision is that above which the target gives out resourceVersions: at least that of the source.
	Revision int64
	// Plain is how many objects were encrypted in the source, and are not in the target, whose configuration has no keys.
	Plain int
}

// plain counts the objects that a target without keys has decrypted.
func (c *Content) plain(to storage.Encryption) (n int) {
	if to.ConfigFile != "" {
		return 0
	}
	for _, v := range c.Versions {
		if v.Sidecar.SealedBy != 0 && !v.Sidecar.Undecrypted {
			n++
		}
	}
	return n
}

// types are those of all objects that a store may have: also those of kinds that no server serves by default.
func types() (*engine.Registry, engine.Define) {
	definitions := crd.New(gotypes.Of[metav1.ObjectMeta])
	return engine.NewRegistry(builtin.Resources(builtin.Config{Now: time.Now}.Every())), definitions.Define
}

// own says whether the objects of a resource are a server's own bookkeeping, which is made again: claims, guards, the
// template of planes.
func own(resource string) bool {
	return strings.HasPrefix(resource, "plinth/") && resource != kind.Path
}

// count is how many of the versions are objects.
func count(versions []*store.Version) (n int) {
	for _, v := range versions {
		if !own(v.Key.Resource) {
			n++
		}
	}
	return n
}

// byKey is the order of versions.
func byKey(a, b *store.Version) int {
	return cmp.Or(cmp.Compare(a.Key.Resource, b.Key.Resource), cmp.Compare(a.Key.Name, b.Key.Name))
}

// sum is the SHA-256 of the keys and bytes of objects, in hex.
func sum(versions []*store.Version) string {
	hash := sha256.New()
	var length []byte
	write := func(part []byte) {
		length = binary.AppendUvarint(length[:0], uint64(len(part)))
		hash.Write(length)
		hash.Write(part)
	}
	for _, v := range versions {
		if own(v.Key.Resource) {
			continue
		}
		write([]byte(v.Key.Resource))
		write([]byte(v.Key.Name))
		write(v.Data())
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// mostNamed is how many objects an error names.
const mostNamed = 5

// named joins what was found, of which an error names a few.
func named(what string, all []string) error {
	more := ""
	if len(all) > mostNamed {
		more = fmt.Sprintf(", and %d more", len(all)-mostNamed)
		all = all[:mostNamed]
	}
	return fmt.Errorf("%s: %s%s", what, strings.Join(all, "; "), more)
}

// same returns an error that says how the objects of a target differ from those that were to be written. An object that
// has expired may be missing.
func same(want, have []*store.Version, now time.Time) error {
	var wrong []string
	gone := func(v *store.Version) bool { return !v.Sidecar.Expire.IsZero() && !now.Before(v.Sidecar.Expire) }
	for len(want)+len(have) > 0 {
		order := 0
		switch {
		case len(want) == 0:
			order = 1
		case len(have) == 0:
			order = -1
		default:
			order = byKey(want[0], have[0])
		}
		switch {
		case order < 0:
			if !gone(want[0]) {
				wrong = append(wrong, want[0].Key.String()+" is missing")
			}
			want = want[1:]
		case order > 0:
			wrong = append(wrong, have[0].Key.String()+" is not in the source")
			have = have[1:]
		default:
			switch a, b := want[0], have[0]; {
			case b.Sidecar.Unreadable != nil && !(a.Sidecar.Undecrypted && b.Sidecar.Undecrypted): // then it is as it was
				wrong = append(wrong, fmt.Sprintf("%s cannot be read: %v", b.Key, b.Sidecar.Unreadable))
			case !bytes.Equal(a.Data(), b.Data()):
				wrong = append(wrong, b.Key.String()+" differs")
			case a.Sidecar.Expire.IsZero() != b.Sidecar.Expire.IsZero():
				wrong = append(wrong, b.Key.String()+" does not expire as it did")
			}
			want, have = want[1:], have[1:]
		}
	}
	if len(wrong) > 0 {
		return named("the copy is not what was read", wrong)
	}
	return nil
}

// readable returns an error if some objects cannot be read.
func readable(versions []*store.Version) error {
	var wrong []string
	for _, v := range versions {
		if v.Sidecar.Unreadable != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", v.Key, v.Sidecar.Unreadable))
		}
	}
	if len(wrong) > 0 {
		return named("some objects cannot be read", wrong)
	}
	return nil
}

// claim adds the claims of node ports to the objects of an etcd, which has them in another form: as the bits of one
// key. The reserved ports of a directory are keys of their own, and no server looks for those that are missing when it
// starts there. Of two Services with one port, which cannot be but in a damaged etcd, the first one has it.
func claim(versions []*store.Version) ([]*store.Version, error) {
	taken := map[string]bool{}
	var claims []*store.Version
	for _, v := range versions {
		names, err := portsOf(v)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if taken[name] {
				continue
			}
			taken[name] = true
			claims = append(claims, store.NewVersion(store.Key{Resource: engine.Claims, Name: name}, v.Revision,
				[]byte(v.Key.Name), &store.Sidecar{}))
		}
	}
	versions = append(versions, claims...)
	slices.SortFunc(versions, byKey)
	return versions, nil
}

// portsOf are the names of the claims of the node ports of an object, if it is a Service.
func portsOf(v *store.Version) ([]string, error) {
	if v.Key.Resource != addresses.Services {
		return nil, nil
	}
	service, err := object.ParseJSON(v.Data())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.Key, err)
	}
	return addresses.PortNames(service.Value), nil
}
