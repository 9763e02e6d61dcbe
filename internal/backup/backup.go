// Package backup copies the store of a server that serves, and makes a data directory of such a copy.
//
//   - An archive is a file with one snapshot of the store (filelog.Frozen), which a server streams: [Write] writes one,
//     and [Read] checks it while it is read.
//   - The document of an archive says what is in it, and what a server needs besides.
//   - Keys are the files without which what is restored is of no use, or of less: authorities, the keys of tokens,
//     those of planes, the configuration of the encryption. They are in an archive only if somebody asks for it,
//     encrypted to a passphrase (keys.go).
//   - A continuous backup is objects in a [Bucket]: checkpoints, and chunks of commits (objects.go). A [Shipper]
//     uploads what a log gets.
//   - [Restore] makes a data directory of an archive, as of its newest revision or of an earlier one.
//
// What a copy promises is checked in one place, Read: it returns nil only if everything was there that its writer had.
//
//	Read returned nil  ⇒  each file has the bytes that Write was given, and none is missing
//
// Versions that are encrypted at rest are copied as they are. No key is needed to copy, to check or to restore them,
// and none that was not asked for is in a copy.
//
// Caveats. The past (package past) is not copied: watches and reads of old revisions end at a restore in any case, as
// the revisions of the lost server may have meant something else. A copy has no commits from before the checkpoint of
// its store, so it can be restored as of no earlier revision.
package backup

import (
	"errors"
	"fmt"
	"time"
)

// Document is the first file of an archive.
type Document struct {
	Format     int    `json:"format"`
	Product    string `json:"product"`    // which release has written it
	Kubernetes string `json:"kubernetes"` // the version of the API that it serves
	Storage    int    `json:"storage"`    // the format of the store
	// Revision is that of the newest commit, and Checkpoint the oldest revision as of which it can be restored.
	// Since is when the checkpoint was complete: what it has is the state as of all times from then on, up to that of
	// the first commit after it.
	Revision   int64     `json:"revision"`
	Checkpoint int64     `json:"checkpoint"`
	Since      time.Time `json:"since"`
	// Time is when the server has made the snapshot, by its clock.
	Time time.Time `json:"time"`
	// Parts are the files that the server has made in its data directory (package datadir): without one of them it does
	// not start. Directory is where that is, and Authority the SHA-256 of the certificate of its authority, in hex:
	// whoever collects the keys finds out by it whether it is the same directory.
	Parts     []string `json:"parts,omitempty"`
	Directory string   `json:"directory,omitempty"`
	Authority string   `json:"authority,omitempty"`
	// Supplied are the files that flags of the server name, and that are not in its data directory.
	Supplied []Supplied `json:"supplied,omitempty"`

	raw []byte // as it was read
	// known is the greatest revision that is known of the lost server, and seen when; zero: Revision and Time.
	known int64
	seen  time.Time
}

// Supplied is a file that a flag names.
type Supplied struct {
	Flag string `json:"flag"` // without dashes
	File string `json:"file"` // absolute
}

// formatVersion is that of archives; docs/formats.md specifies it.
const formatVersion = 1

// ErrNothing means that a server has no store of its own that could be copied.
var ErrNothing = errors.New("there is nothing to back up")

// DamageError says what is wrong with a copy.
type DamageError struct{ What, Reason string }

func (e *DamageError) Error() string { return fmt.Sprintf("%s: %s", e.What, e.Reason) }
