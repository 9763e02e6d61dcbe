package remote_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plinth/internal/backup"
	"plinth/internal/backup/remote"
)

// What this test binary is, by the variable: a helper, or a Plinth that writes an object until it is killed.
const (
	roleVariable  = "PLINTH_TEST_REMOTE"
	asHelper      = "helper"
	asPlinth      = "plinth"
	asFinder      = "finder"                   // prints where the helper is
	aliveVariable = "PLINTH_TEST_REMOTE_ALIVE" // the address that a helper connects to while it lives
)

// limit is how long a test waits for what happens at once.
const limit = 30 * time.Second

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case asHelper:
		if err := helper(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case asFinder:
		path, err := remote.Find()
		fmt.Println(path, err)
	case asPlinth:
		os.Setenv(roleVariable, asHelper)
		b := remote.Open(remote.Options{Program: os.Args[0], Args: os.Args[1:],
			Said: func(line string) { fmt.Println(line) }})
		b.Put(context.Background(), "hangs", endless{}, false) //nolint:errcheck // it is killed
	default:
		os.Exit(m.Run())
	}
}

// helper serves a directory, with faults. A first argument of another kind is what it says instead of a greeting.
func helper(url string) error {
	if address := os.Getenv(aliveVariable); address != "" {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		fmt.Fprintln(conn, os.Getpid())
	}
	if !strings.HasPrefix(url, "file://") {
		_, err := fmt.Println(url)
		return err
	}
	return remote.Serve("0.0.0", func() (remote.Objects, error) {
		b, err := backup.OpenBucket(url, nil)
		return faults{b}, err
	}, os.Stdin, os.Stdout)
}

// faults is a bucket that does something else with objects of some names.
type faults struct{ backup.Bucket }

func (f faults) Put(ctx context.Context, name string, content io.Reader, create bool) error {
	switch name {
	case "hangs": // with most of the object in the pipe
		io.ReadFull(content, make([]byte, 10)) //nolint:errcheck // the content is endless
		fmt.Fprintln(os.Stderr, "it hangs")
		select {}
	case "refused":
		return errors.New("the storage says: AccessDenied")
	case "says":
		fmt.Fprint(os.Stderr, "one line\n"+strings.Repeat("x", 5000)+"\nno end")
	case "reads by ReadFull": // as SDKs do for parts
		part := make([]byte, 64<<20)
		n, err := io.ReadFull(content, part)
		if err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		content = bytes.NewReader(part[:n])
	case "reads half":
		_, err := io.ReadFull(content, make([]byte, 10))
		return err
	}
	return f.Bucket.Put(ctx, name, content, create)
}

func (f faults) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := f.Bucket.Get(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case name == "breaks":
		return half{r, errors.New("the storage says: SlowDown")}, nil
	case name == "kills":
		return half{r, nil}, nil
	}
	return r, nil
}

// half ends with an error after some bytes, or kills the process.
type half struct {
	io.ReadCloser
	err error
}

func (h half) Read(b []byte) (int, error) {
	n, err := h.ReadCloser.Read(b[:min(len(b), 5<<10)])
	if err == io.EOF && h.err == nil {
		p, _ := os.FindProcess(os.Getpid())
		p.Kill()
		select {}
	}
	if err == io.EOF {
		err = h.err
	}
	return n, err
}

// endless is a content without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// fixture is a bucket that a helper serves, and the helpers that live.
type fixture struct {
	*remote.Bucket
	dir     string
	started chan *life

	mu   sync.Mutex
	said []string
}

// life is a helper that has started; ended is closed when it has ended, however it did.
type life struct {
	pid   int
	ended chan struct{}
}

func open(t *testing.T, args ...string) *fixture {
	t.Helper()
	f := &fixture{dir: t.TempDir(), started: make(chan *life, 100)}
	t.Setenv(roleVariable, asHelper)
	f.watch(t)
	if len(args) == 0 {
		args = []string{"file://" + filepath.ToSlash(f.dir)}
	}
	f.Bucket = remote.Open(remote.Options{Program: os.Args[0], Args: args, Said: func(line string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.said = append(f.said, line)
	}})
	t.Cleanup(func() { f.Close() })
	return f
}

// watch notes helpers that start.
func (f *fixture) watch(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	t.Setenv(aliveVariable, listener.Addr().String())
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l := &life{ended: make(chan struct{})}
			go func() {
				in := bufio.NewReader(conn)
				line, _ := in.ReadString('\n')
				l.pid, _ = strconv.Atoi(strings.TrimSpace(line))
				f.started <- l
				io.Copy(io.Discard, in) //nolint:errcheck // either way it has ended
				close(l.ended)
			}()
		}
	}()
}

// next is the helper that is started next, or was and is not asked for yet.
func (f *fixture) next(t *testing.T) *life {
	t.Helper()
	select {
	case l := <-f.started:
		return l
	case <-time.After(limit):
		t.Fatal("no helper was started")
		return nil
	}
}

func (l *life) wait(t *testing.T) {
	t.Helper()
	select {
	case <-l.ended:
	case <-time.After(limit):
		t.Fatalf("the helper %d goes on", l.pid)
	}
}

func (l *life) kill(t *testing.T) {
	t.Helper()
	p, err := os.FindProcess(l.pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	l.wait(t)
}

func get(ctx context.Context, b backup.Bucket, name string) ([]byte, error) {
	r, err := b.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b) //nolint:errcheck // it never fails
	return b
}

// A bucket that a helper serves does what the directory does that is behind it.
//
// SPEC: STORE-6
func TestObjects(t *testing.T) {
	ctx := t.Context()
	dir, err := backup.OpenBucket("file://"+filepath.ToSlash(t.TempDir()), nil)
	if err != nil {
		t.Fatal(err)
	}
	for kind, b := range map[string]backup.Bucket{"directory": dir, "helper": open(t)} {
		t.Run(kind, func(t *testing.T) {
			want := map[string][]byte{"a": {}, "dir/b": noise(100), "dir/c d?e=f#g%41": noise(70_000), "ü/ö": noise(3),
				"dir/large": noise(9 << 20)}
			for name, content := range want {
				if err := b.Put(ctx, name, io.MultiReader(bytes.NewReader(content)), true); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if err := b.Put(ctx, name, strings.NewReader("other"), true); !errors.Is(err, fs.ErrExist) {
					t.Errorf("%s again: %v", name, err)
				}
			}
			want["dir/b"] = noise(5000)
			section := io.NewSectionReader(bytes.NewReader(want["dir/b"]), 0, 5000)
			if err := b.Put(ctx, "dir/b", section, false); err != nil {
				t.Fatal(err)
			}
			for name, content := range want {
				if have, err := get(ctx, b, name); err != nil || !bytes.Equal(have, content) {
					t.Errorf("%s has %d bytes, %v, want %d", name, len(have), err, len(content))
				}
			}
			if _, err := get(ctx, b, "dir/none"); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
			for prefix, names := range map[string][]string{"": {"a", "dir/b", "dir/c d?e=f#g%41", "dir/large", "ü/ö"},
				"dir/": {"dir/b", "dir/c d?e=f#g%41", "dir/large"}, "dir/l": {"dir/large"}, "di": {"dir/b",
					"dir/c d?e=f#g%41", "dir/large"}, "dir/b/c": nil, "none": nil} {
				items, err := b.List(ctx, prefix)
				if err != nil {
					t.Fatal(err)
				}
				var have []string
				for _, item := range items {
					have = append(have, item.Name)
					if item.Size != int64(len(want[item.Name])) {
						t.Errorf("%s has %d bytes, and %d are listed", item.Name, len(want[item.Name]), item.Size)
					}
				}
				if !slices.Equal(have, names) {
					t.Errorf("of %q there are %q, want %q", prefix, have, names)
				}
			}
			for range 2 {
				if err := b.Delete(ctx, "a"); err != nil {
					t.Error(err)
				}
			}
			if _, err := get(ctx, b, "a"); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
}

var errSource = errors.New("the source has failed")

// broken ends with an error after some bytes, and calls wait before.
type broken struct {
	io.Reader
	wait func()
}

func (b broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.wait()
		err = errSource
	}
	return n, err
}

// An object of which not all is sent is none, whatever the helper takes for an end, and the error is that of the
// source.
//
// SPEC: STORE-6
func TestCutOff(t *testing.T) {
	f := open(t)
	for _, name := range []string{"plain", "reads by ReadFull"} {
		for _, size := range []int{0, 1, 5000, 300_000} {
			err := f.Put(t.Context(), name, broken{bytes.NewReader(noise(size)), func() {}}, false)
			if !errors.Is(err, errSource) {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
			f.next(t).wait(t)
			ctx, cancel := context.WithCancel(t.Context())
			err = f.Put(ctx, name, broken{bytes.NewReader(noise(size)), cancel}, false)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
			f.next(t).wait(t)
		}
		// A body whose length was announced.
		short := io.NewSectionReader(bytes.NewReader(noise(5000)), 0, 6000)
		if err := f.Put(t.Context(), name, short, false); err == nil {
			t.Errorf("%s: an object of 6000 bytes was made of 5000", name)
		}
		f.next(t).wait(t)
	}
	if items, err := f.List(t.Context(), ""); err != nil || len(items) > 0 {
		t.Errorf("there are %v, %v", items, err)
	}
	if err := f.Put(t.Context(), "reads half", bytes.NewReader(noise(5000)), false); err == nil ||
		!strings.Contains(err.Error(), "has not read the object to its end") {
		t.Errorf("an object of which a half is read: %v", err)
	}
}

// What the storage says reaches the user, also while an object is sent that never ends, and when it fails in the middle
// of one that is read.
//
// SPEC: STORE-6
func TestErrorsOfTheStorage(t *testing.T) {
	f := open(t)
	for range 30 {
		err := f.Put(t.Context(), "refused", endless{}, false)
		if err == nil || err.Error() != "the storage says: AccessDenied" {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"breaks", "kills", "says"} {
		if err := f.Put(t.Context(), name, bytes.NewReader(noise(100_000)), false); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := get(t.Context(), f, "breaks"); err == nil || err.Error() != "the storage says: SlowDown" ||
		len(have) != 100_000 {
		t.Errorf("%d bytes, %v", len(have), err)
	}
	if have, err := get(t.Context(), f, "kills"); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("%d bytes, %v", len(have), err)
	}
	f.Close()
	for len(f.started) > 0 {
		f.next(t).wait(t)
	}
	wants := []string{"one line\n", "no end", strings.Repeat("x", 4096) + "\nx"}
	if runtime.GOOS != "windows" {
		wants = append(wants, "it has ended: signal: killed")
	}
	for _, want := range wants {
		f.says(t, want)
	}
}

// says waits until the helpers have said something.
func (f *fixture) says(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		said := strings.Join(f.said, "\n")
		f.mu.Unlock()
		if strings.Contains(said, want) {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%q is not among %.200q", want, said)
		}
	}
}

// A helper that was killed is started anew by the next request, and one that does not answer is killed by the end of a
// request.
//
// SPEC: STORE-6
func TestKilledHelper(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	if err := f.Put(ctx, "a", strings.NewReader("x"), false); err != nil {
		t.Fatal(err)
	}
	first := f.next(t)
	if err := f.Put(ctx, "a", strings.NewReader("y"), false); err != nil || len(f.started) > 0 {
		t.Fatalf("the process is not kept: %v", err)
	}
	first.kill(t)
	for attempt := range 5 { // the first ones may find the connection broken
		if have, err := get(ctx, f, "a"); err == nil && string(have) == "y" {
			break
		} else if attempt == 4 {
			t.Fatalf("%q, %v", have, err)
		}
	}
	if second := f.next(t); second.pid == first.pid {
		t.Error("it is the same process")
	}
	for name, end := range map[string]func(*life, context.CancelFunc){
		"killed":    func(l *life, _ context.CancelFunc) { l.kill(t) },
		"cancelled": func(_ *life, cancel context.CancelFunc) { cancel() },
	} {
		f := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Put(ctx, "hangs", endless{}, false) }()
		l := f.next(t)
		f.says(t, "it hangs")
		end(l, cancel)
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		case <-time.After(limit):
			t.Fatalf("%s: the upload goes on", name)
		}
		l.wait(t)
		cancel()
	}
}

// A helper ends when Plinth is killed, also in the middle of an object that a storage takes no more of.
//
// SPEC: STORE-6
func TestKilledPlinth(t *testing.T) {
	f := open(t)
	plinth := exec.Command(os.Args[0], "file://"+filepath.ToSlash(f.dir))
	plinth.Env = append(os.Environ(), roleVariable+"="+asPlinth)
	out, err := plinth.StdoutPipe()
	if err == nil {
		err = plinth.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	l := f.next(t)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "it hangs\n" {
		t.Fatal(line, err)
	}
	if err := plinth.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	plinth.Wait() //nolint:errcheck // it was killed
	l.wait(t)
}

// What is no helper, or one of another release, is an error that says so.
//
// SPEC: STORE-6
func TestGreeting(t *testing.T) {
	for says, want := range map[string]string{
		"plinth-cloud 1 0.1.0 error no credentials: see the manual": "no credentials: see the manual",
		"plinth-cloud 2 0.9.0 ready":                                "of release 0.9.0, speaks version 2 of the protocol",
		"hello":                                                     `is not the program plinth-cloud that is meant, or has ended: it says "hello\n"`,
		"plinth-cloud 1 0.1.0 perhaps":                              `says "plinth-cloud 1 0.1.0 perhaps\n"`,
		"plinth-cloud 1":                                            "is not the program",
		strings.Repeat("x", 100_000):                                "is not the program",
	} {
		f := open(t, says)
		if _, err := f.List(t.Context(), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: %v, should say %q", says, err, want)
		}
	}
	b := remote.Open(remote.Options{Program: filepath.Join(t.TempDir(), "none"), Said: func(string) {}})
	if _, err := b.List(t.Context(), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// The helper is looked for beside this program and in PATH, and not in the working directory.
//
// SPEC: STORE-6
func TestFind(t *testing.T) {
	name, own := remote.Program, "own"
	if runtime.GOOS == "windows" {
		name, own = name+".exe", own+".exe"
	}
	beside, dir := t.TempDir(), t.TempDir()
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(beside, own)
	put := func(path string, content []byte) {
		if err := os.WriteFile(path, content, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	put(program, text)
	put(filepath.Join(dir, name), nil)
	find := func(path, want string) {
		t.Helper()
		command := exec.Command(program)
		command.Dir, command.Env = dir, append(os.Environ(), roleVariable+"="+asFinder, "PATH="+path)
		if said, err := command.Output(); err != nil || !strings.Contains(string(said), want) {
			t.Errorf("PATH=%s: %s, %v, should say %q", path, said, err, want)
		}
	}
	for _, path := range []string{"", ".", "x" + string(os.PathListSeparator)} {
		find(path, "which is neither in "+beside+" nor in a directory of PATH")
	}
	find(dir, filepath.Join(dir, name)+" <nil>")
	put(filepath.Join(beside, name), nil)
	find(dir, filepath.Join(beside, name)+" <nil>")
}
