package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"plinth/internal/store/filelog"
)

// An archive is a tar file, in this order:
//
//	backup.json       the Document
//	store/…           the files of the store, as they are
//	keys.age          optional: keys (keys.go)
//	SHA256SUMS        the SHA-256 of each file before it, as sha256sum prints it
//
// The problem: whoever reads an archive has to notice whatever is missing, wherever it was cut off and whichever file
// is gone. A tar file does not say how many files it has, and one that ends between two files, even without the zeros
// at its end, is as good as one that was written like that. So the list is the last file, and an archive without it is
// none:
//
//	an archive is whole  ⇔  SHA256SUMS is its last file, and names exactly the files before it, with their sums
//
// The list is not signed. Who can write an archive can write another one; the sums are against accidents.
//
// All files have names of less than 100 bytes and a header of one block, so the size of an archive is known before it
// is written, and the progress of a copy, too.
const (
	documentName = "backup.json"
	storePrefix  = "store/"
	keysName     = "keys.age"
	sumsName     = "SHA256SUMS"

	block = 512
	// maxText bounds what is read into memory of a file that is damaged, or of somebody else.
	maxText = 16 << 20
)

// archiveWriter writes the files of an archive, and notes their sums.
type archiveWriter struct {
	tar  *tar.Writer
	sums bytes.Buffer
	time time.Time
}

func newArchiveWriter(w io.Writer, at time.Time) *archiveWriter {
	return &archiveWriter{tar: tar.NewWriter(w), time: at.Truncate(time.Second)}
}

// file writes a file.
func (w *archiveWriter) file(name string, size int64, content io.Reader) error {
	sum := sha256.New()
	if err := w.entry(name, size, io.TeeReader(content, sum)); err != nil {
		return err
	}
	fmt.Fprintf(&w.sums, "%x  %s\n", sum.Sum(nil), name)
	return nil
}

func (w *archiveWriter) entry(name string, size int64, content io.Reader) error {
	// The format of GNU has sizes beyond 8 GiB without a header of their own.
	if err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: w.time,
		Format: tar.FormatGNU}); err != nil {
		return err
	}
	n, err := io.Copy(w.tar, content)
	if err == nil && n < size {
		err = fmt.Errorf("%s: %w", name, io.ErrUnexpectedEOF)
	}
	return err
}

// finish writes the list, which makes it an archive.
func (w *archiveWriter) finish() error {
	if err := w.entry(sumsName, int64(w.sums.Len()), &w.sums); err != nil {
		return err
	}
	return w.tar.Close()
}

// text is the document as it is written.
func (d *Document) text() ([]byte, error) {
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// Archive is one that is about to be written.
type Archive struct {
	document Document
	text     []byte
	store    *filelog.Frozen
}

// New makes an archive of a snapshot. The document has what the snapshot does not.
func New(d Document, of *filelog.Frozen) (*Archive, error) {
	d.Format, d.Storage, d.Revision, d.Checkpoint = formatVersion, of.Format, of.Revision, of.Checkpoint
	d.Since = of.Since.UTC()
	text, err := d.text()
	return &Archive{document: d, text: text, store: of}, err
}

// Size is the size of what Write writes.
func (a *Archive) Size() int64 {
	padded := func(n int64) int64 { return block + (n+block-1)/block*block }
	line := func(name string) int64 { return 2*sha256.Size + 2 + int64(len(name)) + 1 }
	size, sums := padded(int64(len(a.text))), line(documentName)
	for _, f := range a.store.Files {
		size += padded(f.Size)
		sums += line(storePrefix + f.Name)
	}
	return size + padded(sums) + 2*block
}

// Write writes the archive.
func (a *Archive) Write(to io.Writer) error {
	w := newArchiveWriter(to, a.document.Time)
	if err := w.file(documentName, int64(len(a.text)), bytes.NewReader(a.text)); err != nil {
		return err
	}
	for i := range a.store.Files {
		f := &a.store.Files[i]
		if err := w.file(storePrefix+f.Name, f.Size, f.Open()); err != nil {
			return err
		}
	}
	return w.finish()
}

// visitor is called with each file of an archive.
type visitor = func(d *Document, name string, size int64, content io.Reader) error

// Read reads an archive and checks it. visit is called with each file between the document and the list, in their
// order, and reads as much of it as it likes. What it has got is not to be relied upon before Read has returned nil.
func Read(from io.Reader, visit visitor) (*Document, error) {
	r := archiveReader{tar: tar.NewReader(from), sums: map[string]string{}}
	d, err := r.document()
	for err == nil {
		var h *tar.Header
		if h, err = r.next(); err != nil {
			break
		}
		if h.Name == sumsName {
			return d, r.finish()
		}
		err = r.file(h.Name, func(content io.Reader) error { return visit(d, h.Name, h.Size, content) })
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = &DamageError{"the archive", "it is cut off: its end is missing"}
	} else if errors.Is(err, tar.ErrHeader) {
		err = &DamageError{"the archive", "it is damaged, or no archive of plinth backup: " + err.Error()}
	}
	return nil, err
}

// archiveReader reads an archive.
type archiveReader struct {
	tar   *tar.Reader
	sums  map[string]string
	files []string
}

// next goes to the next file.
func (r *archiveReader) next() (*tar.Header, error) {
	h, err := r.tar.Next()
	switch {
	case err != nil:
		return nil, err
	case h.Typeflag != tar.TypeReg || !known(h.Name) || r.sums[h.Name] != "":
		return nil, &DamageError{h.Name, "it does not belong into the archive"}
	}
	return h, nil
}

// known says whether a file of this name may be in an archive. Nothing else is written to a disk.
func known(name string) bool {
	if rest, ok := strings.CutPrefix(name, storePrefix); ok {
		return filelog.IsFile(rest)
	}
	return name == documentName || name == keysName || name == sumsName
}

// file reads the file at which the archive is, and notes its sum.
func (r *archiveReader) file(name string, read func(io.Reader) error) error {
	sum := sha256.New()
	content := io.TeeReader(r.tar, sum)
	if err := read(content); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return err
	}
	r.note(name, sum)
	return nil
}

func (r *archiveReader) note(name string, sum hash.Hash) {
	r.sums[name] = hex.EncodeToString(sum.Sum(nil))
	r.files = append(r.files, name)
}

// document reads the first file.
func (r *archiveReader) document() (*Document, error) {
	h, err := r.next()
	if err != nil {
		return nil, err
	}
	if h.Name != documentName {
		return nil, &DamageError{h.Name, "it is the first file, and " + documentName + " should be"}
	}
	var d Document
	return &d, r.file(h.Name, func(content io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(content, maxText))
		if err != nil {
			return err
		}
		return d.parse(text)
	})
}

// parse parses a document.
func (d *Document) parse(text []byte) error {
	if err := json.Unmarshal(text, d); err != nil {
		return &DamageError{documentName, err.Error()}
	}
	if d.Format != formatVersion {
		return fmt.Errorf("the backup has format %d, and this program reads format %d: %s has written it", d.Format,
			formatVersion, d.Product)
	}
	d.raw = text
	return nil
}

// finish compares the list with what was read.
func (r *archiveReader) finish() error {
	text, err := io.ReadAll(io.LimitReader(r.tar, maxText))
	if err != nil {
		return &DamageError{"the archive", "it is cut off: its end is missing"}
	}
	var want strings.Builder
	for _, name := range r.files {
		fmt.Fprintf(&want, "%s  %s\n", r.sums[name], name)
	}
	if want.String() != string(text) {
		return &DamageError{"the archive", r.difference(string(text))}
	}
	// What follows the list is the end of the tar file, as far as it is there.
	if h, err := r.tar.Next(); err == nil {
		return &DamageError{h.Name, "it follows " + sumsName}
	}
	return nil
}

// difference says which file is not as the list says.
func (r *archiveReader) difference(list string) string {
	for line := range strings.Lines(list) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		switch have := r.sums[name]; {
		case !ok:
			return sumsName + " is damaged"
		case have == "":
			return name + " is missing"
		case have != sum:
			return name + " is damaged: its SHA-256 is not the one of the list"
		}
	}
	return "it has files that " + sumsName + " does not name, or in another order"
}
