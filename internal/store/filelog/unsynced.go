package filelog

import "github.com/cockroachdb/pebble/v2/vfs"

// noSyncFS is a file system on which a sync does nothing: see Options.NoSync. Everything else is the same, the order
// of writes included, so a log that was written without syncs has the same format. It is in the way of every sync here,
// and not an if at each of them, so that no sync can be forgotten, and the code that runs in tests is that of releases.
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

// withoutSync wraps what a function returned that opens a file.
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
