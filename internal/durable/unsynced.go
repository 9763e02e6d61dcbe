package durable

import "github.com/cockroachdb/pebble/v2/vfs"

// Unsynced is a file system on which a sync does nothing: the operating system decides when files reach the disk. All
// other operations, and their order, are the same, so what was written without syncs has the same format. It replaces
// the file system instead of adding a condition at each sync, so that no sync can be forgotten, and tests run the code
// of releases.
type Unsynced struct{ vfs.FS }

// Create implements vfs.FS.
func (u Unsynced) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return withoutSync(u.FS.Create(name, category))
}

// OpenReadWrite implements vfs.FS.
func (u Unsynced) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File,
	error) {
	return withoutSync(u.FS.OpenReadWrite(name, category, options...))
}

// OpenDir implements vfs.FS.
func (u Unsynced) OpenDir(name string) (vfs.File, error) { return withoutSync(u.FS.OpenDir(name)) }

// withoutSync wraps the results of a function that opens a file.
func withoutSync(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

// unsyncedFile is a file whose Sync has no effect.
type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error                { return nil }
func (unsyncedFile) SyncData() error            { return nil }
func (unsyncedFile) SyncTo(int64) (bool, error) { return false, nil }
