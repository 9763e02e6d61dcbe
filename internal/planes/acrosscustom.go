package planes

import (
	"context"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/crd"
	"plinth/internal/engine"
	"plinth/internal/planes/kind"
	"plinth/internal/store"
)

// A custom type in all planes, /clusters/*/apis/GROUP/VERSION/PLURAL, has the objects of each plane as the plane serves
// them itself: by its own definition, converted, with its defaults, and pruned. kcp has that for what an APIExport
// exports, of which all workspaces have one schema; here nobody says which definition is the right one. So:
//
//	a plane is in it  ⇔  it serves the version, and its kind and its scope are those of the type,
//	                     and no conversion webhook may have to be asked
//
// A list has one kind and one scope. They are those that most planes have when the type is first asked for, and stay
// until no plane has them. A webhook is not asked, because the owner of one plane could make all planes wait, or fail;
// a plane that has one is in it if its objects are stored in this version alone, as status.storedVersions says. An
// object that its plane cannot serve is left out.
//
// The definition is followed as the objects are: if it appears, changes the form of objects, or goes, these are ADDED,
// MODIFIED or DELETED with the revision of that change. The version of an object stays what it is in its plane.
//
// No plane is opened for it. What is needed is the compiled definition, and equal texts are compiled once
// (crd.Shared): in ten thousand planes with one definition that is a SHA-256 of its text for each, when the type is
// first asked for. The objects are converted then, and when they change: lists and watches copy bytes.

// customType is a custom type in all planes.
type customType struct {
	definitions            *crd.Shared
	group, version, plural string
}

func (c *customType) definition() store.Key {
	return store.Key{Resource: crd.Path, Name: c.plural + "." + c.group}
}

// serves is how a definition serves the type; nil: it does not.
func (c *customType) serves(definition *store.Version) *crd.Served {
	s := c.definitions.Serves(definition, c.version)
	if s == nil || s.Shown.Stored.Path != c.group+"/"+c.plural {
		return nil
	}
	return s
}

// custom shows the objects of a plane by its definition.
type custom struct{ *crd.Served }

// Present implements store.Presenter.
func (c custom) Present(_ store.Key, v *store.Version, plane string) ([]byte, *store.Sidecar, error) {
	if v.Sidecar.Unreadable != nil {
		return v.Data(), v.Sidecar, nil
	}
	obj, err := c.Resource.Value(context.Background(), v) // without a webhook it waits for nothing
	if err != nil {
		return nil, nil, nil // it is left out
	}
	data := named(obj, plane)
	sidecar := engine.DescribeAs(c.Shown.Stored, data)
	if sidecar.Unreadable != nil {
		return nil, nil, nil
	}
	sidecar.Expire = time.Time{}
	return data, sidecar, nil
}

// kindAndScope is what all planes have in common that are in a type.
type kindAndScope struct {
	kind       string
	namespaced bool
}

func kindAndScopeOf(s *crd.Served) kindAndScope {
	return kindAndScope{s.Shown.Kind, s.Shown.Namespaced}
}

// configure sets how planes show their objects: those of the same kind and scope as the chosen one.
func (c *customType) configure(a *store.AcrossConfig, chosen *crd.Served) {
	a.Resource, a.Definition = chosen.Shown.Stored.Path, c.definition()
	a.Presenter = func(definition *store.Version) store.Presenter {
		if s := c.serves(definition); s != nil && kindAndScopeOf(s) == kindAndScopeOf(chosen) {
			return custom{s}
		}
		return nil
	}
	a.Describe = func(_ store.Key, data []byte) *store.Sidecar { return engine.DescribeAs(chosen.Shown.Stored, data) }
}

// choose returns a definition that serves the type, of the kind and scope that most planes have, and of these the one
// that most have; of two the one whose plane is the first by name.
func (p *Planes) choose(c *customType) (*crd.Served, error) {
	sn, err := p.config.First.Store.Snapshot(0)
	if err != nil {
		return nil, err
	}
	var found []*crd.Served
	by, common := map[*crd.Served]int{}, map[kindAndScope]int{}
	sn.Ascend(kind.Path, "", "", func(v *store.Version) bool {
		of, err := p.config.First.Store.Plane(v.Sidecar.UID)
		if err != nil {
			return true // it has ended
		}
		if d, ok := of.Get(c.definition()); ok {
			if s := c.serves(d); s != nil {
				if by[s]++; by[s] == 1 {
					found = append(found, s)
				}
				common[kindAndScopeOf(s)]++
			}
		}
		return true
	})
	var best *crd.Served
	for _, s := range found {
		is, was := kindAndScopeOf(s), kindAndScope{}
		if best != nil {
			was = kindAndScopeOf(best)
		}
		if best == nil || common[is] > common[was] || is == was && by[s] > by[best] {
			best = s
		}
	}
	if best == nil {
		return nil, apierr.NewNoSuchPath()
	}
	return best, nil
}
