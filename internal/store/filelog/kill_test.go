package filelog_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plinth/internal/store"
	"plinth/internal/store/filelog"
	"plinth/internal/store/storetest"
)

const childDir = "PLINTH_FILELOG_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
	}
	if dir := os.Getenv(childPlanesDir); dir != "" {
		childPlanes(dir)
	}
	os.Exit(m.Run())
}

func openDir(dir string) (*store.Store, error) {
	log, err := filelog.Open(dir, filelog.Options{SegmentBytes: 256 << 10})
	if err != nil {
		return nil, err
	}
	return store.Open(store.Config{Log: log, Describe: storetest.Describe, CompactBytes: 512 << 10})
}

// child writes as fast as it can, and reports each acknowledged commit, until it is killed.
func child(dir string) {
	s, err := openDir(dir)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("ready", s.Revision())
	for w := range 16 {
		go func() {
			for i := 0; ; i++ {
				k := store.Key{Resource: "/pods", Name: fmt.Sprintf("%d/%d-%d", w, s.Revision(), i)}
				last := store.Key{Resource: "/nodes", Name: fmt.Sprint(w)}
				data := []byte(k.Name + strings.Repeat(" and so on", i%200))
				revisions, err := s.Commit(context.Background(), []store.Precondition{{Key: k}},
					[]store.Change{{Key: k, Data: data}, {Key: last, Data: []byte(k.Name)}})
				if err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				os.Stdout.WriteString(fmt.Sprintln("ack", revisions.Of(1), k.Name, len(data)))
			}
		}()
	}
	select {}
}

// TestKill kills a process under load repeatedly: after each restart every acknowledged commit exists, byte for byte.
//
// SPEC: STORE-1
func TestKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plinth", "data")
	acks := 0
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(200+100*round)*time.Millisecond, func() { cmd.Process.Kill() })
		type ack struct {
			revision int64
			name     string
			size     int
		}
		var acked []ack
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var a ack
			switch line := lines.Text(); {
			case strings.HasPrefix(line, "ready"):
				if _, err := filelog.Open(dir, filelog.Options{}); !errors.Is(err, filelog.ErrLocked) ||
					!strings.Contains(err.Error(), "in use by ") {
					t.Errorf("a directory that another process has open was opened: %v", err)
				}
			case strings.HasPrefix(line, "ack"):
				if n, _ := fmt.Sscanf(line, "ack %d %s %d", &a.revision, &a.name, &a.size); n == 3 {
					acked = append(acked, a)
				}
			default:
				t.Error(line)
			}
		}
		cmd.Wait()
		s, err := openDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range acked {
			v, ok := s.Get(store.Key{Resource: "/pods", Name: a.name})
			if !ok || v.Revision != a.revision-1 || v.Len() != a.size ||
				!strings.HasPrefix(string(v.Data()), a.name) {
				t.Fatalf("round %d: %s was acknowledged at %d, the store has %v", round, a.name, a.revision, v)
			}
		}
		// The other change of each of the last commits exists, too.
		sn, err := s.Snapshot(0)
		if err != nil {
			t.Fatal(err)
		}
		sn.Ascend("/nodes", "", "", func(v *store.Version) bool {
			if p, ok := s.Get(store.Key{Resource: "/pods", Name: string(v.Data())}); !ok || p.Revision != v.Revision-1 {
				t.Errorf("%s names %s at %d, whose commit also wrote a Pod; the store has %v",
					v.Key, v.Data(), v.Revision, p)
			}
			return true
		})
		acks += len(acked)
		s.Close()
	}
	if acks < 100 {
		t.Errorf("only %d commits were acknowledged", acks)
	}
	modes(t, dir)
}

// modes checks that other users cannot read the directory.
func modes(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
