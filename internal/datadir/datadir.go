// Package datadir keeps the record of what was made in a data directory, so that what is gone is not made anew.
//
// A disk that is not mounted looks like a directory in which nothing was made yet. A server that began there with an
// empty store would answer clients that all objects are gone, and one that made a new certificate authority would lock
// them out. So a start that succeeds records the parts of the directory, in the file PARTS beside them:
//
//	a part is in PARTS  ⇒  it was there when a server had started
//
// and the next start refuses to begin if one is missing that it needs. A directory without that file, which is new or
// was made by an earlier release, is recorded as it is. The record is in the directory itself, so a directory that is
// gone as a whole is not noticed.
//
// A start that fails leaves a directory as it was: [Dir.Undo] removes what was not there at [Open]. Starts in one
// directory wait for each other, so that none removes what another one made.
package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"plinth/internal/durable"
)

// Part is something that a server makes in its data directory when it is not there.
type Part struct {
	File string // that the part has in any case, below the directory: store/FORMAT
	What string // for people
}

const (
	recordFile = "PARTS"
	version    = "plinth parts 1"
)

// Dir is a data directory while a server starts in it.
type Dir struct {
	path    string
	storage string
	parts   []Part
	record  record
	release func()
	made    []string            // directories, outermost first
	before  map[string][]string // the names in the directories of parts that were missing
}

// record is the content of the file.
type record struct {
	storage string // that the last server had: embedded, memory, etcd
	files   []string
}

// Open begins a start with a kind of storage and the parts that it needs. It is an error if one of them is recorded and
// missing. Keep or Undo ends the start.
func Open(ctx context.Context, path, storage string, parts []Part) (*Dir, error) {
	d := &Dir{path: path, storage: storage, parts: parts, before: map[string][]string{}}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", path, err), d.Undo())
	}
	return d, nil
}

func (d *Dir) open(ctx context.Context) (err error) {
	for at := d.path; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
		d.made = append([]string{at}, d.made...)
	}
	// What is in it is lost with its name, so a loss of power must not take that away.
	if err := durable.MkdirAll(durable.FS, d.path); err != nil {
		return err
	}
	if d.release, err = lock(ctx, d.path); err != nil {
		return err
	}
	if d.record, err = readRecord(filepath.Join(d.path, recordFile)); err != nil {
		return err
	}
	var gone []string
	for _, p := range d.parts {
		_, err := os.Stat(filepath.Join(d.path, filepath.FromSlash(p.File)))
		switch {
		case err == nil:
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case slices.Contains(d.record.files, p.File):
			gone = append(gone, fmt.Sprintf("%s (%s)", p.What, p.File))
		}
		if err := d.note(filepath.Join(d.path, filepath.FromSlash(filepath.Dir(p.File)))); err != nil {
			return err
		}
	}
	if len(gone) > 0 {
		return fmt.Errorf("missing here, though a server made it: %s. Is a disk not mounted? Put back what is missing; or, "+
			"to begin anew without it, remove %s, which lists what was made",
			strings.Join(gone, ", "), filepath.Join(d.path, recordFile))
	}
	return nil
}

// Recorded returns what the record of a directory says without a start: the kind of storage of the last server, "" if
// there is no record, and the parts that are recorded and gone.
func Recorded(path string) (storage string, gone []string, err error) {
	r, err := readRecord(filepath.Join(path, recordFile))
	if err != nil {
		return "", nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	for _, file := range r.files {
		if _, err := os.Stat(filepath.Join(path, filepath.FromSlash(file))); errors.Is(err, fs.ErrNotExist) {
			gone = append(gone, file)
		} else if err != nil {
			return "", nil, err
		}
	}
	return r.storage, gone, nil
}

// note remembers what is in the directory of a part.
func (d *Dir) note(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		d.made = append(d.made, dir)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	d.before[dir] = names
	return nil
}

// Missing says whether a part was not there at Open.
func (d *Dir) Missing(file string) bool {
	if d == nil {
		return false
	}
	_, missing := d.before[filepath.Join(d.path, filepath.FromSlash(filepath.Dir(file)))]
	return missing
}

// LastStorage is the kind of storage of the last server in the directory; "" if there was none that is recorded.
func (d *Dir) LastStorage() string {
	if d == nil {
		return ""
	}
	return d.record.storage
}

// Keep records the parts. The start is over: Undo does nothing anymore, unless Keep fails.
func (d *Dir) Keep() error {
	if d == nil {
		return nil
	}
	now := record{d.storage, slices.Clone(d.record.files)}
	for _, p := range d.parts {
		if !slices.Contains(now.files, p.File) {
			now.files = append(now.files, p.File)
		}
	}
	slices.Sort(now.files)
	if now.storage != d.record.storage || !slices.Equal(now.files, d.record.files) {
		if err := durable.WriteFile(durable.FS, filepath.Join(d.path, recordFile), now.text()); err != nil {
			return fmt.Errorf("data directory %s: %w", d.path, err)
		}
	}
	d.end()
	return nil
}

func (d *Dir) end() {
	d.before, d.made = nil, nil
	if d.release != nil {
		d.release()
		d.release = nil
	}
}

// Undo removes what a failed start has made.
func (d *Dir) Undo() error {
	if d == nil {
		return nil
	}
	defer d.end()
	if d.release == nil { // it was not this start that made it
		return nil
	}
	var errs []error
	for dir, before := range d.before {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, err)
		for _, e := range entries {
			if !slices.Contains(before, e.Name()) {
				errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	for _, dir := range slices.Backward(d.made) {
		// What others have put there stays, and its directory with it.
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 {
			errs = append(errs, os.Remove(dir))
		}
	}
	return errors.Join(errs...)
}

// Restore records in a directory what a server had made in another one, whose files are put back: until all of them are
// there, no server starts.
func Restore(path, storage string, files []string) error {
	r := record{storage, slices.Sorted(slices.Values(files))}
	return durable.WriteFile(durable.FS, filepath.Join(path, recordFile), r.text())
}

func readRecord(file string) (record, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if lines[0] != version {
		return record{}, fmt.Errorf("%s begins with %q, not with %q: it is damaged, or of a later release", recordFile,
			lines[0], version)
	}
	var r record
	for i, line := range lines[1:] {
		storage, ok := strings.CutPrefix(line, "storage ")
		switch {
		case i == 0 && ok:
			r.storage = storage
		case i > 0 && filepath.IsLocal(line):
			r.files = append(r.files, line)
		default:
			return record{}, fmt.Errorf("%s is damaged: line %d is %q", recordFile, i+2, line)
		}
	}
	return r, nil
}

func (r record) text() []byte {
	return []byte(strings.Join(append([]string{version, "storage " + r.storage}, r.files...), "\n") + "\n")
}

// How long a start waits for another one in the same directory, and how often it looks.
const (
	lockWait   = 10 * time.Second
	lockPeriod = 10 * time.Millisecond
)
