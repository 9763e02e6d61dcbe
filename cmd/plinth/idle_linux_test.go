package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Only ranges of the program that cannot have been changed are given up.
func TestCleanRanges(t *testing.T) {
	const smaps = `00400000-01000000 r-xp 00000000 fe:00 10 /bin/a program
Rss:                 900 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
01000000-02000000 r--p 00c00000 fe:00 10 /bin/a program
Anonymous:             4 kB
02000000-03000000 r--p 01c00000 fe:00 10 /bin/a program
Anonymous:             0 kB
03000000-04000000 rw-p 02c00000 fe:00 10 /bin/a program
Anonymous:             0 kB
04000000-05000000 r--p 00000000 fe:00 11 /lib/a program
Anonymous:             0 kB
05000000-06000000 r--p 00000000 00:00 0
Anonymous:             0 kB
7ffc0000-7ffd0000 r-xp 00000000 00:00 0 [vdso]
Anonymous:             0 kB
`
	got, err := clean(strings.NewReader(smaps), "/bin/a program")
	if want := []addresses{{0x400000, 0x1000000}, {0x2000000, 0x3000000}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%x, %v, want %x", got, err, want)
	}
	if got, err := clean(strings.NewReader("x-y r-xp 0 fe:00 10 /a\n"), "/a"); err == nil {
		t.Errorf("no addresses: %x", got)
	}
}

// The program goes on after its pages were given up, and fewer of them are in memory then.
func TestUnmapProgram(t *testing.T) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	ranges := func() []addresses {
		t.Helper()
		maps, err := os.Open("/proc/self/smaps")
		if err != nil {
			t.Fatal(err)
		}
		defer maps.Close()
		found, err := clean(maps, program)
		if err != nil || len(found) < 2 {
			t.Fatalf("ranges of the program: %x, %v", found, err)
		}
		return found
	}
	for _, r := range ranges() { // so that much is in memory, also when the test runs again in its process
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, r.start, r.end-r.start, unix.MADV_POPULATE_READ)
	}
	resident := func() (pages, of int) {
		t.Helper()
		pagemap, err := os.Open("/proc/self/pagemap")
		if err != nil {
			t.Fatal(err)
		}
		defer pagemap.Close()
		for _, r := range ranges() {
			n := int(r.end-r.start) / unix.Getpagesize()
			entries := make([]byte, 8*n)
			if _, err := pagemap.ReadAt(entries, 8*int64(r.start)/int64(unix.Getpagesize())); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if entries[8*i+7]&0x80 != 0 { // present
					pages++
				}
			}
			of += n
		}
		return pages, of
	}
	before, of := resident()
	if before < of/3 {
		t.Fatalf("only %d of %d pages of the program are in memory before", before, of)
	}
	if err := unmapProgram(); err != nil {
		t.Fatal(err)
	}
	after, _ := resident()
	if t.Logf("%d of %d pages before, %d after", before, of, after); after > before*3/4 {
		t.Errorf("%d pages of the program are in memory after %d", after, before)
	}
}
