package replicas

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// disk is a file system of its own, in memory, which a fault fills.
type disk struct{ dir string }

// diskBytes is its size: two files of etcd's log that are reserved, and two that are kept, take 64 MB each.
const diskBytes = 512 << 20

// newDisk mounts a disk on a folder. It returns nil where the test may not mount anything, as only root may.
func newDisk(t *testing.T, dir string) *disk {
	t.Helper()
	err := syscall.Mount("plinth-test", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV,
		fmt.Sprintf("size=%d,mode=0700", diskBytes))
	if errors.Is(err, syscall.EPERM) {
		t.Logf("no disks that can be filled: mounting on %s: %v", dir, err)
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return &disk{dir}
}

func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill takes all the room that is left.
func (d *disk) fill() error {
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var stat syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &stat); err != nil {
		return err
	}
	if free := int64(stat.Bavail) * stat.Bsize; free > 0 {
		if err := syscall.Fallocate(int(f.Fd()), 0, 0, free); err != nil && !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
	// What somebody has given back since, and what Fallocate did not take when somebody else was quicker.
	for end, err := f.Seek(0, 2); ; end += 4096 {
		if err == nil {
			_, err = f.WriteAt(make([]byte, 4096), end)
		}
		if errors.Is(err, syscall.ENOSPC) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// empty gives the room back, which may be none if the disk was full before it was to be filled.
func (d *disk) empty() error {
	if err := os.Remove(d.filler()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// TestDisk: a disk that is full takes nothing, and one that is emptied does.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	d := newDisk(t, dir)
	if d == nil {
		return
	}
	write := func() error { return os.WriteFile(filepath.Join(dir, "file"), make([]byte, 64<<10), 0o600) }
	for range 2 {
		if err := d.fill(); err != nil {
			t.Fatal(err)
		}
		if err := write(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("writing to a full disk: %v", err)
		}
		if err := d.empty(); err != nil {
			t.Fatal(err)
		}
		if err := write(); err != nil {
			t.Errorf("writing to a disk that was emptied: %v", err)
		}
		if err := os.Remove(filepath.Join(dir, "file")); err != nil {
			t.Error(err)
		}
	}
}
