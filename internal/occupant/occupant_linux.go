package occupant

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OfPort returns the process that listens at a TCP port.
func OfPort(port int) (Process, bool) {
	sockets := map[string]bool{} // as the links in /proc/PID/fd name them
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			const listening = "0A"
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[3] != listening {
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
				sockets["socket:["+fields[9]+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return Process{}, false
	}
	open, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return Process{}, false
	}
	for _, link := range open {
		if to, err := os.Readlink(link); err == nil && sockets[to] {
			return named(strings.Split(link, "/")[2])
		}
	}
	return Process{}, false
}

// OfLock returns the process that has locked a file or a directory by flock.
func OfLock(path string) (Process, bool) {
	var of unix.Stat_t
	if err := unix.Stat(path, &of); err != nil {
		return Process{}, false
	}
	where := fmt.Sprintf("%02x:%02x:%d", unix.Major(of.Dev), unix.Minor(of.Dev), of.Ino)
	text, err := os.ReadFile("/proc/locks")
	if err != nil {
		return Process{}, false
	}
	for line := range strings.Lines(string(text)) {
		// 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF
		fields := strings.Fields(line)
		if i := slices.Index(fields, where); i > 0 && slices.Contains(fields, "FLOCK") && !slices.Contains(fields, "->") {
			return named(fields[i-1])
		}
	}
	return Process{}, false
}

func named(pid string) (Process, bool) {
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 0 { // a process of another PID namespace
		return Process{}, false
	}
	name, _ := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	return Process{n, strings.TrimSpace(string(name))}, true
}
