package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"plinth/internal/backup/remote"
	"plinth/internal/durable"
)

// Bucket is where a backup goes: objects by name, which are there as a whole or not at all.
type Bucket interface {
	// Put writes an object, durably. With create it is an error (fs.ErrExist) if there is one of the name.
	Put(ctx context.Context, name string, content io.Reader, create bool) error
	// Get reads an object; fs.ErrNotExist: there is none.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the objects whose names begin with a prefix, in order.
	List(ctx context.Context, prefix string) ([]remote.Item, error)
	// Delete removes an object. One that is not there is no error.
	Delete(ctx context.Context, name string) error
}

// OpenBucket opens the bucket at a URL: a directory, or below a path of an object storage. said gets what the program
// has to say that an object storage needs, line by line.
func OpenBucket(text string, said func(line string)) (Bucket, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return nil, fmt.Errorf("%q is no URL of a backup, such as file:///var/backups/plinth or s3://bucket/plinth", text)
	}
	if u.Scheme != "file" {
		return openStorage(u, said)
	}
	if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" {
		return nil, fmt.Errorf("%s is no URL of a directory: file:// is followed by an absolute path", text)
	}
	return directory(filepath.Clean(u.Path)), nil
}

// openStorage opens a bucket that the helper serves. Which schemes there are is known to that alone.
func openStorage(u *url.URL, said func(line string)) (Bucket, error) {
	switch {
	case u.User != nil: // not printed
		return nil, fmt.Errorf("a URL of a backup has no credentials; the program %s finds them as the tools of the cloud do",
			remote.Program)
	case u.Host == "" || u.Fragment != "":
		return nil, fmt.Errorf("%s is no URL of a backup, such as s3://bucket/plinth: it names no bucket, or has a #", u)
	}
	program, err := remote.Find()
	if err != nil {
		return nil, err
	}
	return remote.Open(remote.Options{Program: program, Args: []string{u.String()}, Said: func(line string) {
		said(remote.Program + ": " + line)
	}}), nil
}

// openObject opens the bucket of the object at a URL. Without a name the URL is one of a bucket.
func openObject(text string, said func(line string)) (b Bucket, name string, err error) {
	u, err := url.Parse(text)
	if err == nil {
		u.Path, name = path.Split(u.Path)
		u.RawPath = ""
		text = u.String()
	}
	b, err = OpenBucket(text, said)
	return b, name, err
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

// List implements Bucket. Folders that can have nothing of the prefix are not read.
func (d directory) List(_ context.Context, prefix string) (items []remote.Item, err error) {
	err = filepath.WalkDir(string(d), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(string(d), path)
		name = filepath.ToSlash(name)
		switch {
		case err != nil || name == ".":
			return err
		case entry.IsDir():
			if folder := name + "/"; !strings.HasPrefix(folder, prefix) && !strings.HasPrefix(prefix, folder) {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular() || !strings.HasPrefix(name, prefix) || strings.HasSuffix(name, unfinished):
			return nil
		}
		info, err := entry.Info()
		if err == nil {
			items = append(items, remote.Item{Name: name, Size: info.Size()})
		}
		return durable.IgnoreMissing(err) // it was removed since
	})
	slices.SortFunc(items, func(a, b remote.Item) int { return strings.Compare(a.Name, b.Name) })
	return items, durable.IgnoreMissing(err)
}

// Delete implements Bucket.
func (d directory) Delete(_ context.Context, name string) error {
	return durable.IgnoreMissing(os.Remove(filepath.Join(string(d), filepath.FromSlash(name))))
}
