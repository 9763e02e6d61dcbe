package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"plinth/internal/durable"
)

// Bucket is where a continuous backup goes: objects by name, which are there as a whole or not at all.
type Bucket interface {
	// Put writes an object, durably. With create it is an error (fs.ErrExist) if there is one of the name.
	Put(ctx context.Context, name string, content io.Reader, create bool) error
	// Get reads an object; fs.ErrNotExist: there is none.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the names that begin with a prefix, in order.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete removes an object.
	Delete(ctx context.Context, name string) error
}

// OpenBucket opens the bucket at a URL.
func OpenBucket(text string) (Bucket, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return nil, fmt.Errorf("%q is no URL of a backup, such as file:///var/backups/plinth", text)
	}
	if u.Scheme != "file" {
		return nil, fmt.Errorf("%s: a continuous backup goes to file:// URLs, which may be of a mounted file system, and not to %s",
			text, u.Scheme)
	}
	if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" {
		return nil, fmt.Errorf("%s is no URL of a directory: file:// is followed by an absolute path", text)
	}
	return directory(filepath.Clean(u.Path)), nil
}

// readSmall reads an object into memory that is a text of ours.
func readSmall(ctx context.Context, b Bucket, name string) ([]byte, error) {
	r, err := b.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxText))
}

// directory is a bucket in a file system. Its files are private, as those of a store.
type directory string

const unfinished = ".unfinished"

// Put implements Bucket: the file is synced before it has its name.
func (d directory) Put(_ context.Context, name string, content io.Reader, create bool) error {
	path := filepath.Join(string(d), filepath.FromSlash(name))
	if err := durable.MkdirAll(durable.FS, filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.OpenFile(path+unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil && create {
		err = os.Link(path+unfinished, path) // unlike a rename it fails if the name is there
		err = errors.Join(err, os.Remove(path+unfinished))
	} else if err == nil {
		err = os.Rename(path+unfinished, path)
	}
	if err != nil {
		return errors.Join(err, durable.IgnoreMissing(os.Remove(path+unfinished)))
	}
	return durable.SyncDir(durable.FS, filepath.Dir(path))
}

// Get implements Bucket.
func (d directory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(d), filepath.FromSlash(name)))
}

// List implements Bucket.
func (d directory) List(_ context.Context, prefix string) (names []string, err error) {
	err = filepath.WalkDir(string(d), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(path, unfinished) {
			return err
		}
		name, err := filepath.Rel(string(d), path)
		if name = filepath.ToSlash(name); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
		return err
	})
	slices.Sort(names)
	return names, durable.IgnoreMissing(err)
}

// Delete implements Bucket.
func (d directory) Delete(_ context.Context, name string) error {
	return durable.IgnoreMissing(os.Remove(filepath.Join(string(d), filepath.FromSlash(name))))
}
