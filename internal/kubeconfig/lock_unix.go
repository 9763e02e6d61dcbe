//go:build unix

package kubeconfig

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A lock of client-go outlives a process that is killed while it holds it, and a server that is started again would not
// start. So a lock of this program says whose it is, and is locked by the system, too, which ends with the process:
//
//	the file has the text of ours and is not locked  ⇒  the process that made it is gone
//
// The text is written after the file is locked, so a lock that was just made is not taken for an abandoned one.
const ours = "plinth\n"

func hold(file *os.File) error {
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // the file system has no such locks; then nobody takes the lock for an abandoned one
	}
	_, err := file.WriteString(ours)
	return err
}

// removeAbandoned removes a lock whose process is gone.
func removeAbandoned(name string) {
	file, err := os.Open(name)
	if err != nil {
		return
	}
	defer file.Close()
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	text, err := io.ReadAll(io.LimitReader(file, int64(len(ours))+1))
	if err != nil || string(text) != ours {
		return
	}
	mine, err := file.Stat()
	if err != nil {
		return
	}
	if now, err := os.Lstat(name); err == nil && os.SameFile(mine, now) { // else another process was faster
		os.Remove(name)
	}
}
