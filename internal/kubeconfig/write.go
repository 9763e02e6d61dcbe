package kubeconfig

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"plinth/internal/durable"
	"plinth/object"
)

func base64Of(data []byte) object.Value {
	return object.StringOf(base64.StdEncoding.EncodeToString(data))
}

// maxBytes bounds a kubeconfig that is merged into.
const maxBytes = 16 << 20

// Write merges an entry into a file, which is created if it does not exist. A file that cannot be parsed stays as it
// is. Nothing is written if the file has the entry.
//
// It takes the lock by which client-go's programs change kubeconfigs: FILE.lock, which must not exist. A symbolic link
// stays one: what it leads to is replaced, as a whole, and keeps its mode and its owner.
func Write(ctx context.Context, path string, e *Entry) error {
	return write(ctx, path, func(text []byte) ([]byte, error) { return Merge(text, e) })
}

// Replace puts an entry in the place of another one, as Write does. A file that does not have the other one as it is,
// but for which context is the current one, stays as it is; replaced is false then.
func Replace(ctx context.Context, path string, old, next *Entry) (replaced bool, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	before, after := *old, *next
	before.Use, after.Use = false, false
	err = write(ctx, path, func(text []byte) ([]byte, error) {
		replaced = false
		if same, err := Merge(text, &before); err != nil || len(text) == 0 || string(same) != string(text) {
			return text, nil
		}
		replaced = true
		return Merge(text, &after)
	})
	return replaced && err == nil, err
}

// Remove removes from a file what [Cut] does, in the way of Write. A file that does not exist is not created.
func Remove(ctx context.Context, path, name, server string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return write(ctx, path, func(text []byte) ([]byte, error) { return Cut(text, name, server) })
}

// write writes what edit makes of a file.
func write(ctx context.Context, path string, edit func(text []byte) ([]byte, error)) error {
	if err := writeLocked(ctx, path, edit); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return nil
}

func writeLocked(ctx context.Context, path string, edit func(text []byte) ([]byte, error)) (err error) {
	if text, _, err := read(path); err == nil { // the usual case of a restart
		if merged, err := edit(text); err == nil && string(merged) == string(text) {
			return nil
		}
	}
	if err := durable.MkdirAll(durable.FS, filepath.Dir(path)); err != nil {
		return err
	}
	release, err := lock(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	target, err := follow(path)
	if err != nil {
		return err
	}
	if target != path { // others may name the file itself
		if err := durable.MkdirAll(durable.FS, filepath.Dir(target)); err != nil {
			return err
		}
		again, err := lock(ctx, target)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, again()) }()
	}
	text, info, err := read(target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	merged, err := edit(text)
	if err != nil || info != nil && string(merged) == string(text) {
		return err
	}
	return durable.ReplaceFile(target, merged, info)
}

// read reads a file that may be written.
func read(path string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, errors.New("it is no regular file")
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = fmt.Errorf("it has more than %d bytes", maxBytes)
	}
	return text, info, err
}

// follow returns the file to which a path leads by symbolic links. It need not exist.
func follow(path string) (string, error) {
	const maxLinks = 40
	for range maxLinks {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return "", errors.New("too many symbolic links")
}

// How long a lock is waited for, and how often it is tried. client-go's programs hold it for milliseconds.
const (
	lockWait   = 5 * time.Second
	lockPeriod = 10 * time.Millisecond
)

// lock takes the lock of a kubeconfig, and returns what releases it.
func lock(ctx context.Context, path string) (release func() error, err error) {
	name := path + ".lock"
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			if err := hold(file); err != nil {
				return nil, errors.Join(err, os.Remove(name), file.Close())
			}
			return func() error { return errors.Join(os.Remove(name), file.Close()) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		removeAbandoned(name)
		select {
		case <-time.After(lockPeriod):
		case <-ctx.Done():
			return nil, fmt.Errorf("another program changes it: %s exists; if no program does, remove that file", name)
		}
	}
}
