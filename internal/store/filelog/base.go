package filelog

import (
	"fmt"
	"io"
	"iter"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// writeBase writes the state as of a revision.
func (l *Log) writeBase(revision int64, base iter.Seq2[[]byte, error]) error {
	name := baseName(revision)
	file, err := l.fs.Create(l.path(name+tmpSuffix), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	// Written out steadily, so that the last sync is short and does not hold up those of the commits.
	f := vfs.NewSyncingFile(file, vfs.SyncingFileOptions{BytesPerSync: 512 << 10})
	w := newWriter(f)
	err = w.frame(frameBase, 0, revision, appendFileHeader(nil, baseMagic, revision))
	count := int64(0)
	if err == nil {
		for payload, failed := range base {
			if err = failed; err == nil {
				err = w.frame(frameState, 0, revision, payload)
			}
			if err != nil {
				break
			}
			count++
		}
	}
	if err == nil {
		err = w.frame(frameEnd, count, revision, nil)
	}
	if err == nil {
		err = w.records.Flush()
	}
	return l.install(f, name, err)
}

// readBase yields the payloads of a base.
func (l *Log) readBase(revision int64, yield func([]byte) error) error {
	file := l.path(baseName(revision))
	f, err := l.fs.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	r := newReader(f, 0, info.Size())
	for count := int64(-1); ; count++ {
		fr, err := r.next()
		if err == io.EOF || err == errBroken {
			return &DamageError{File: file, Offset: fr.offset, Reason: "a frame does not read back"}
		}
		if err != nil {
			return err
		}
		switch {
		case count < 0:
			var says int64
			if err := parseFileHeader(file, fr.payload, baseMagic, &says); err != nil {
				return err
			}
			if says != revision {
				return &DamageError{File: file, Reason: fmt.Sprintf("its header says that it is of revision %d", says)}
			}
		case fr.kind == frameEnd:
			if fr.promise != count {
				return &DamageError{File: file, Offset: fr.offset, Reason: fmt.Sprintf("it should hold %d parts and has %d", fr.promise, count)}
			}
			return nil
		case fr.kind != frameState:
			return &DamageError{File: file, Offset: fr.offset, Reason: fmt.Sprintf("a frame of type %d does not belong there", fr.kind)}
		default:
			if err := yield(fr.payload); err != nil {
				return err
			}
		}
	}
}
