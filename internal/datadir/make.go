package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"plinth/internal/durable"
)

// unfinished is the folder in which a data directory is put together. Only an interrupted Make leaves it behind.
const unfinished = ".unfinished"

// Make makes a data directory of what build puts into made; scratch is a folder for what is not part of it. The
// directory does not exist, or is empty. After an error it is as it was.
//
// What is made is put together in a folder in the directory, which may be a volume of its own, and moved to its place
// file by file: first PARTS, by which a start fails as long as parts are missing, and the store last. So a directory
// without the folder is complete, and with it no server starts. What a killed process has left behind is removed: a
// file that was moved already is not, and Make says that the directory is not empty.
func Make(ctx context.Context, dir string, build func(made, scratch string) error) (err error) {
	m := making{dir: dir, folder: filepath.Join(dir, unfinished)}
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.undo())
		}
		m.release()
	}()
	made, scratch := filepath.Join(m.folder, "new"), filepath.Join(m.folder, "scratch")
	for _, dir := range []string{made, scratch} {
		if err := durable.MkdirAll(durable.FS, dir); err != nil {
			return err
		}
	}
	if err := build(made, scratch); err != nil {
		return err
	}
	return m.move(made)
}

// making is a data directory that is being made.
type making struct {
	dir, folder string
	isNew       bool // the directory was not there
	moved       []string
	release     func()
}

// begin makes the directory, if it is not there, and locks it.
func (m *making) begin(ctx context.Context) (err error) {
	if _, err := os.Lstat(m.dir); errors.Is(err, fs.ErrNotExist) {
		m.isNew = true
		if err := durable.MkdirAll(durable.FS, m.dir); err != nil {
			return err
		}
	}
	if m.release, err = lock(ctx, m.dir); err != nil {
		return fmt.Errorf("%s: %w", m.dir, err)
	}
	entries, err := os.ReadDir(m.dir)
	for _, entry := range entries {
		if entry.Name() != "lost+found" && entry.Name() != unfinished { // lost+found is of a volume
			err = fmt.Errorf("%s is not empty: it has %s; name a directory that is new", m.dir, entry.Name())
			break
		}
	}
	if err == nil {
		err = os.RemoveAll(m.folder)
	}
	if err != nil {
		m.release()
	}
	return err
}

// move moves what was made to its place.
func (m *making) move(made string) error {
	entries, err := os.ReadDir(made)
	if err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return rank(a.Name()) - rank(b.Name()) })
	for _, entry := range entries {
		to := filepath.Join(m.dir, entry.Name())
		if err := os.Rename(filepath.Join(made, entry.Name()), to); err != nil {
			return err
		}
		m.moved = append(m.moved, to)
		if err := durable.SyncDir(durable.FS, m.dir); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(m.folder); err != nil {
		return err
	}
	return durable.SyncDir(durable.FS, m.dir)
}

// rank says what is moved first.
func rank(name string) int {
	switch name {
	case recordFile:
		return 0
	case "store":
		return 2
	}
	return 1
}

// undo removes what was made.
func (m *making) undo() error {
	if m.isNew {
		return os.RemoveAll(m.dir)
	}
	var err error
	for _, path := range slices.Backward(m.moved) { // PARTS last
		err = errors.Join(err, os.RemoveAll(path))
	}
	return errors.Join(err, os.RemoveAll(m.folder))
}
