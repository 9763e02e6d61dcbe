package filelog

import "github.com/cockroachdb/pebble/v2/vfs"

// unsynced is a file system whose files and directories are synced by nobody.
type unsynced struct{ vfs.FS }

func (u unsynced) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return unsyncedFile(u.FS.Create(name, category))
}

func (u unsynced) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return unsyncedFile(u.FS.OpenReadWrite(name, category, options...))
}

func (u unsynced) OpenDir(name string) (vfs.File, error) { return unsyncedFile(u.FS.OpenDir(name)) }

func unsyncedFile(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return noSync{f}, nil
}

type noSync struct{ vfs.File }

func (noSync) Sync() error                { return nil }
func (noSync) SyncData() error            { return nil }
func (noSync) SyncTo(int64) (bool, error) { return false, nil }
