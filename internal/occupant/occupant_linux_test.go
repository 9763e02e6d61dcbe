package occupant

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestThisProcess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if p, ok := OfPort(port); !ok || p.PID != os.Getpid() || p.Name == "" || p.String() != "this process" {
		t.Errorf("at the port: %+v, %t", p, ok)
	}
	l.Close()
	if p, ok := OfPort(port); ok {
		t.Errorf("at a free port: %s", p)
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if p, ok := OfLock(dir.Name()); ok {
		t.Errorf("without a lock: %s", p)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if p, ok := OfLock(dir.Name()); !ok || p.PID != os.Getpid() {
		t.Errorf("with a lock: %+v, %t", p, ok)
	}
	for p, want := range map[Process]string{
		{PID: 1 << 30}: "process 1073741824", {1 << 30, "a"}: "a (process 1073741824)",
	} {
		if p.String() != want {
			t.Errorf("%s, want %s", p, want)
		}
	}
}
