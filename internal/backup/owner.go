package backup

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"plinth/internal/durable"
)

// owner says whose backup a bucket has. ID is that of the store, in its file idFile, and Session that of the process
// that writes: a copy of a data directory has the same ID.
type owner struct {
	ID        string `json:"id"`
	Session   string `json:"session"`
	Host      string `json:"host"`
	Directory string `json:"directory"`
}

// idFile is the name of the file with the ID, in the directory of the store. A restored store has none: it is another
// one.
const idFile = "backup.id"

// ForeignError means that a bucket has the backup of another server.
type ForeignError struct{ Reason string }

func (e *ForeignError) Error() string { return e.Reason }

func random() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // it never fails
	return hex.EncodeToString(b[:])
}

// idOf returns the ID of a store, which gets one if it has none.
func idOf(dir string) (string, error) {
	path := filepath.Join(dir, idFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		id := random()
		return id, durable.WriteFile(durable.FS, path, []byte(id+"\n"))
	}
	id := strings.TrimSpace(string(text))
	if err == nil && len(id) != 32 {
		err = &DamageError{path, "it has no ID of 32 digits"}
	}
	return id, err
}

func readOwner(ctx context.Context, b Bucket) (*owner, error) {
	text, err := readSmall(ctx, b, ownerName)
	if err != nil {
		return nil, err
	}
	var o owner
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, &DamageError{ownerName, err.Error()}
	}
	return &o, nil
}

// claim makes the bucket that of an owner. A bucket that has an owner is claimed by the same store alone; one that has
// objects and no owner is nobody's backup.
func claim(ctx context.Context, b Bucket, me *owner) error {
	text, err := json.MarshalIndent(me, "", "  ")
	if err != nil {
		return err
	}
	is, err := readOwner(ctx, b)
	if errors.Is(err, fs.ErrNotExist) {
		items, err := b.List(ctx, "")
		if err != nil {
			return err
		}
		if len(items) > 0 {
			return &ForeignError{fmt.Sprintf("it has %s and no %s: it is no backup of a Plinth", items[0].Name, ownerName)}
		}
		if err = b.Put(ctx, ownerName, bytes.NewReader(text), true); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// Another one was faster; or was not noticed, as some object storages ignore that the object is to be a new one.
		if is, err = readOwner(ctx, b); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if is.ID != me.ID {
		return &ForeignError{fmt.Sprintf("it is the backup of another server, of %s on %s; use another URL, such as a folder in it",
			is.Directory, is.Host)}
	}
	return b.Put(ctx, ownerName, bytes.NewReader(text), false)
}

// still returns an error if another process has claimed the bucket since.
func still(ctx context.Context, b Bucket, me *owner) error {
	is, err := readOwner(ctx, b)
	if err != nil {
		return err
	}
	if *is != *me {
		return &ForeignError{fmt.Sprintf("%s on %s writes to it now", is.Directory, is.Host)}
	}
	return nil
}
