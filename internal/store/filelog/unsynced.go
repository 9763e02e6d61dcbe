package filelog

import "github.com/cockroachdb/pebble/v2/vfs"

// noSyncFS is a file system on which a sync does nothing: see Options.NoSync. All other operations, and their order,
// are the same, so a log that was written without syncs has the same format. It replaces the file system instead of
// adding a condition at each sync, so that no sync can be forgotten, and tests run the code of releases.
type noSyncFS struct{ vfs.FS }

// Create, OpenReadWrite and OpenDir implement vfs.FS.
func (u noSyncFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return withoutSync(u.FS.Create(name, category))
}

func (u noSyncFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File,
	error) {
	return withoutSync(u.FS.OpenReadWrite(name, category, options...))
}

func (u noSyncFS) OpenDir(name string) (vfs.File, error) { return withoutSync(u.FS.OpenDir(name)) }

// withoutSync wraps the results of a function that opens a file.
func withoutSync(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return noSyncFile{f}, nil
}

// noSyncFile is a file whose Sync has no effect.
type noSyncFile struct{ vfs.File }

func (noSyncFile) Sync() error                { return nil }
func (noSyncFile) SyncData() error            { return nil }
func (noSyncFile) SyncTo(int64) (bool, error) { return false, nil }
