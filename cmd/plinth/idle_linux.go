package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapProgram takes the pages of the program's file out of the memory of the process. They stay in the page cache,
// from which they are mapped again when they are used, 16 at a time. But the system can take them when it needs memory,
// as no process uses them. After an error they stay mapped.
func unmapProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer maps.Close()
	found, err := clean(maps, program)
	if err != nil {
		return err
	}
	for _, m := range found {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise %x-%x: %w", m.start, m.end, errno)
		}
	}
	return nil
}

// addresses is a range of them.
type addresses struct{ start, end uintptr }

// clean reads proc_pid_smaps(5) and returns the ranges of a file that cannot be written and have no page that differs
// from the file: such a page has been changed by the dynamic linker, and would be lost.
func clean(smaps io.Reader, file string) ([]addresses, error) {
	var found []addresses
	var of addresses
	candidate := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) > 0 && strings.HasSuffix(fields[0], ":"):
			if candidate && fields[0] == "Anonymous:" && fields[1] == "0" {
				found = append(found, of)
			}
		case len(fields) > 5:
			candidate = !strings.Contains(fields[1], "w") && strings.HasSuffix(lines.Text(), " "+file)
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &of.start, &of.end); err != nil {
				return nil, fmt.Errorf("smaps: %q: %w", fields[0], err)
			}
		default:
			candidate = false
		}
	}
	return found, lines.Err()
}
