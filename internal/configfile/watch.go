package configfile

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"
)

// Interval is the interval at which a server reads its files again.
const Interval = time.Second

// watched are files that belong together, as they were read last.
//
// A notification of the kernel (inotify) for a file would miss changes: files that are mounted from a ConfigMap or a
// Secret are symbolic links whose target is replaced.
type watched struct {
	files   []string
	last    [][]byte
	failure string // why they could not be read; "": they could
}

// look reads the files. changed says that one of them differs from what was read before; an error, that one cannot be
// read for another reason than before.
func (w *watched) look() (texts [][]byte, changed bool, err error) {
	for _, file := range w.files {
		text, err := os.ReadFile(file)
		if err != nil {
			if err.Error() == w.failure {
				return nil, false, nil
			}
			w.failure = err.Error()
			return nil, false, err
		}
		texts = append(texts, text)
	}
	w.failure = ""
	if slices.EqualFunc(texts, w.last, bytes.Equal) {
		return nil, false, nil
	}
	w.last = texts
	return texts, true, nil
}

// Watch reads a file at an interval until ctx ends. last is the content that is in use. It calls changed whenever the
// content differs from the one that was read before, or at first from last, and whenever the file cannot be read for
// another reason than before.
func Watch(ctx context.Context, file string, last []byte, interval time.Duration,
	changed func(text []byte, err error)) {
	w := &watched{files: []string{file}, last: [][]byte{last}}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch texts, is, err := w.look(); {
		case err != nil:
			changed(nil, err)
		case is:
			changed(texts[0], nil)
		}
	}
}

// Files are the files of a server of which parts of it are made, such as certificates and keys. The parts are made anew
// when a file changes; what is wrong leaves them as they are. The nil *Files reads files, and never again.
type Files struct {
	Logger *slog.Logger
	// Reloaded is told of each attempt to make a part anew; nil: nobody is.
	Reloaded func(flag string, err error)

	parts []*part
}

// part is made of files, by take.
type part struct {
	watched
	flag string // which names the files
	take func(texts [][]byte) error
}

// Use reads the files of a flag, and calls take with what they contain: now, and by Look after one of them has changed.
// The error is that of take, or of reading, and names the flag. What take is called with belongs together: a
// certificate and its key are replaced one after the other, and if only one of them is new when they are read, take
// has to refuse them; it is called again for the other one.
//
// Use must not be called concurrently with Look.
func (f *Files) Use(flag string, files []string, take func(texts [][]byte) error) error {
	p := &part{watched: watched{files: files}, flag: flag, take: take}
	texts, _, err := p.look()
	if err == nil {
		p.last = texts // that none of them has a byte is no reason to read nothing
		err = take(texts)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if f != nil {
		f.parts = append(f.parts, p)
	}
	return nil
}

// Look reads all files again, and has the parts made anew whose files have changed.
func (f *Files) Look() {
	for _, p := range f.parts {
		texts, changed, err := p.look()
		if changed {
			err = p.take(texts)
		}
		switch {
		case err != nil:
			f.Logger.Error("files that have changed are not used; what was read before is", "flag", p.flag, "files", p.files,
				"error", err)
		case changed:
			f.Logger.Info("files that have changed are used", "flag", p.flag, "files", p.files)
		default:
			continue
		}
		if f.Reloaded != nil {
			f.Reloaded(p.flag, err)
		}
	}
}
