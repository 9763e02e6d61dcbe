package backup

import (
	"bytes"
	"io"
)

// Copy copies an archive, checks it, and adds keys, if collect is not nil: it returns them encrypted. What was written
// is whole only if Copy returns nil; else it has no list, so that nobody takes it for an archive.
func Copy(from io.Reader, to io.Writer, collect func(*Document) ([]byte, error)) (*Document, error) {
	var w *archiveWriter
	begin := func(d *Document) error {
		if w != nil {
			return nil
		}
		w = newArchiveWriter(to, d.Time)
		return w.file(documentName, int64(len(d.raw)), bytes.NewReader(d.raw))
	}
	d, err := Read(from, func(d *Document, name string, size int64, content io.Reader) error {
		if err := begin(d); err != nil {
			return err
		}
		if name == keysName && collect != nil { // others take their place
			return nil
		}
		return w.file(name, size, content)
	})
	if err != nil {
		return nil, err
	}
	if collect != nil {
		sealed, err := collect(d)
		if err == nil {
			err = w.file(keysName, int64(len(sealed)), bytes.NewReader(sealed))
		}
		if err != nil {
			return nil, err
		}
	}
	return d, w.finish()
}
