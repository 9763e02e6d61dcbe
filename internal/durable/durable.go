// Package durable makes directories and files that a loss of power does not take away again.
//
// A sync of a file makes its content durable, and not its name: that is an entry of its directory, which has to be
// synced, too, and the name of that directory is an entry of another one.
//
//	a function returned nil  ⇒  after any loss of power the name is there, with the whole content
//
// Files can be read by their owner only: they hold keys and Secrets.
package durable

import (
	"errors"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is the file system of the operating system. The files that it creates have the mode 0600.
var FS vfs.FS = privateFS{vfs.Default}

// MkdirAll creates a directory, and those above it, unless they exist. They have the mode 0700.
func MkdirAll(fsys vfs.FS, dir string) error {
	var made []string
	for d := dir; ; d = fsys.PathDir(d) {
		// The loop ends at the first directory that exists, or at the root.
		if _, err := fsys.Stat(d); err == nil || !errors.Is(err, fs.ErrNotExist) || d == fsys.PathDir(d) {
			break
		}
		made = append(made, d)
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, d := range made {
		if err := SyncDir(fsys, fsys.PathDir(d)); err != nil {
			return err
		}
	}
	return nil
}

// SyncDir makes the names that were created, renamed or removed in a directory durable.
func SyncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// WriteFile writes a file, or replaces it as a whole: at any time, and after a loss of power, it has the old content or
// the new one.
//
//	content synced  →  renamed  →  directory synced
func WriteFile(fsys vfs.FS, path string, data []byte) error {
	return writeFile(fsys, path, data, func(string) error { return nil })
}

// ReplaceFile writes a file of the operating system as WriteFile does, with the mode and the owner of the one that it
// replaces; nil: there is none.
func ReplaceFile(path string, data []byte, old fs.FileInfo) error {
	return writeFile(FS, path, data, func(unfinished string) error {
		if old == nil {
			return nil
		}
		return errors.Join(keepOwner(unfinished, old), os.Chmod(unfinished, old.Mode().Perm()))
	})
}

// writeFile calls finish with the name of the file before it gets its own.
func writeFile(fsys vfs.FS, path string, data []byte, finish func(unfinished string) error) error {
	dir := fsys.PathDir(path)
	// One name for each file, so that a crash leaves at most one copy of a private key, which the next write replaces.
	unfinished := fsys.PathJoin(dir, "."+fsys.PathBase(path)+".unfinished")
	f, err := fsys.Create(unfinished, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = finish(unfinished)
	}
	if err == nil {
		err = fsys.Rename(unfinished, path)
	}
	if err != nil {
		return errors.Join(err, fsys.Remove(unfinished))
	}
	return SyncDir(fsys, dir)
}

// privateFS creates files that only their owner may read. The vfs creates them with the mode 0666 and the umask of the
// process, so others could open a file before its mode is changed, and read later what is written to it. So it is made
// here, empty, and opened by the vfs.
type privateFS struct{ vfs.FS }

// Create implements vfs.FS.
func (p privateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return p.OpenReadWrite(name, category)
}

// IgnoreMissing is the error of an operation that need not find its file.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
