package transfer

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"plinth/internal/datadir"
	"plinth/internal/planes"
	"plinth/internal/planes/kind"
	"plinth/internal/storage"
	"plinth/internal/store"
	"plinth/internal/store/filelog"
)

// FromDirectory is the content of a data directory whose store was inspected. It must not be damaged.
func FromDirectory(in *filelog.Inspection) (*Content, error) {
	for i := range in.Findings {
		if f := &in.Findings[i]; !f.Minor {
			return nil, errors.New("the source is damaged: " + f.String())
		}
	}
	return &Content{Revision: max(in.Revision, 1), Versions: in.Versions, Planes: in.Planes}, nil
}

// Only leaves the objects of one plane, of those that the content has: versions are its own. In the place of the copy
// it is the first plane.
func (c *Content) Only(versions []*store.Version) error {
	if err := readable(versions); err != nil { // what is encrypted is bound to its plane
		return err
	}
	c.Planes = nil
	c.Versions = slices.DeleteFunc(slices.Clone(versions), func(v *store.Version) bool {
		return v.Key.Resource == kind.Path || v.Key.Resource == planes.Templates // the objects of other planes
	})
	return nil
}

// Directory is a data directory to make.
type Directory struct {
	Path       string // it is new or empty
	Encryption storage.Encryption
	// Bump is by how much resourceVersions go on above those of the source.
	Bump int64
	// Rest puts what a data directory has besides the store into the new one; nil: nothing.
	Rest   func(dir string) error
	Logger *slog.Logger
}

// ToDirectory makes a data directory. Objects keep their resourceVersions, which are those of the source. Versions that
// did not decrypt are written as they are.
func (c *Content) ToDirectory(ctx context.Context, to Directory) (r *Result, err error) {
	all := &filelog.Inspection{Revision: c.Revision, Versions: c.Versions, Planes: c.Planes}
	err = datadir.Make(ctx, to.Path, func(made, _ string) error {
		if to.Rest != nil {
			if err := to.Rest(made); err != nil {
				return err
			}
		}
		dir := filepath.Join(made, "store")
		o, end, err := storage.Options(to.Encryption, to.Logger)
		if err != nil {
			return err
		}
		defer end()
		if err := all.Restore(dir, o, c.Revision+to.Bump); err != nil {
			return err
		}
		if r, err = c.check(dir, o); err == nil {
			r.Plain = c.plain(to.Encryption)
		}
		return err
	})
	return r, err
}

// check reads what was written.
func (c *Content) check(dir string, o filelog.Options) (*Result, error) {
	in, err := filelog.Inspect(dir, o)
	if err != nil {
		return nil, err
	}
	if in.Damaged() || len(in.Planes) != len(c.Planes) {
		return nil, errors.New("the copy is not what was written")
	}
	now := time.Now()
	if err := same(c.Versions, in.Versions, now); err != nil {
		return nil, err
	}
	r := &Result{Objects: count(in.Versions), Sum: sum(in.Versions), Revision: in.Revision}
	for i, p := range in.Planes {
		if err := same(c.Planes[i].Versions(), p.Versions(), now); err != nil {
			return nil, err
		}
	}
	return r, nil
}
