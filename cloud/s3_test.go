package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"plinth/internal/backup"
	"plinth/internal/backup/remote"
)

// helperVariable makes this test binary the program.
const helperVariable = "PLINTH_TEST_CLOUD"

// limit is how long a test waits for what takes moments.
const limit = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// storage is a server of S3, with faults.
type storage struct {
	*httptest.Server
	backend http.Handler

	hanging  sync.WaitGroup // until the end of the test
	mu       sync.Mutex
	fault    func(n int, r *http.Request) fault // nil: none
	requests int
}

// fault is what happens to a request.
type fault int

const (
	none     fault = iota
	fails          // 500
	busy           // 503
	cut            // the connection breaks in the middle of the body, of the request or else of the answer
	lost           // the answer to what was done
	ignores        // If-None-Match, as old servers do
	forbids        // 403
	slowly         // the answer comes in pieces
	hangs          // there is no answer
	notFound       // 404, for the bucket
)

// s3 is one that has the empty bucket "bucket".
func s3(t testing.TB) *storage {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	s := &storage{backend: gofakes3.New(backend).Server()}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	s.hanging.Add(1)
	t.Cleanup(func() {
		s.hanging.Done()
		s.Close()
	})
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret-key",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	return s
}

func (s *storage) at(path string) string {
	return "s3://bucket" + path + "?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(s.URL)
}

func (s *storage) with(fault func(n int, r *http.Request) fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.requests = fault, 0
}

func (s *storage) next(r *http.Request) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests++; s.fault == nil {
		return none
	}
	return s.fault(s.requests, r)
}

func (s *storage) serve(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code string) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>of the test</Message></Error>", code)
	}
	switch s.next(r) {
	case fails:
		refuse(http.StatusInternalServerError, "InternalError")
	case busy:
		refuse(http.StatusServiceUnavailable, "SlowDown")
	case forbids:
		refuse(http.StatusForbidden, "AccessDenied")
	case notFound:
		refuse(http.StatusNotFound, "NoSuchBucket")
	case hangs:
		s.hanging.Wait()
		panic(http.ErrAbortHandler)
	case cut:
		if r.Method == http.MethodPut {
			io.CopyN(io.Discard, r.Body, r.ContentLength/2) //nolint:errcheck // it breaks either way
			panic(http.ErrAbortHandler)
		}
		s.backend.ServeHTTP(&partial{ResponseWriter: w}, r)
		panic(http.ErrAbortHandler)
	case lost:
		s.backend.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case slowly:
		s.backend.ServeHTTP(&partial{ResponseWriter: w, pieces: true}, r)
	case ignores:
		r.Header.Del("If-None-Match")
		s.backend.ServeHTTP(w, r)
	default:
		s.backend.ServeHTTP(w, r)
	}
}

// partial sends half of the answer and no more, or all of it in pieces.
type partial struct {
	http.ResponseWriter
	pieces bool
	sent   int64
}

func (p *partial) Write(b []byte) (int, error) {
	all := len(b)
	if !p.pieces {
		size, err := strconv.ParseInt(p.Header().Get("Content-Length"), 10, 64)
		if err != nil {
			size = 2 * int64(len(b)) // it has no length: what is written first is sent
		}
		b = b[:max(0, min(int64(len(b)), size/2-p.sent))]
	}
	for piece := range slices.Chunk(b, max(1, len(b)/20)) {
		n, err := p.ResponseWriter.Write(piece)
		if p.sent += int64(n); err != nil {
			return 0, err
		}
		p.ResponseWriter.(http.Flusher).Flush()
	}
	return all, nil
}

// opened opens the bucket at a URL in this process.
func opened(t testing.TB, text string) *bucket {
	t.Helper()
	b, err := open(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// helped opens the bucket at a URL in the program.
func helped(t testing.TB, text string) *remote.Bucket {
	t.Helper()
	t.Setenv(helperVariable, "1")
	b := remote.Open(remote.Options{Program: os.Args[0], Args: []string{text}, Said: func(line string) {
		t.Log(line)
	}})
	t.Cleanup(func() { b.Close() })
	return b
}

func get(ctx context.Context, b backup.Bucket, name string) ([]byte, error) {
	r, err := b.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(r)
	return content, errors.Join(err, r.Close())
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{2}).Read(b) //nolint:errcheck // it never fails
	return b
}

// reader is one that nothing else is known of.
func reader(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b)) }

// promised tests what backup.Bucket promises, with a bucket that is empty.
func promised(t *testing.T, b backup.Bucket) {
	ctx := t.Context()
	want := map[string][]byte{"a": {}, "dir/b": noise(3000), "dir/c d?e=f#g%41": noise(10), "large": noise(40 << 20)}
	for name, content := range want {
		if err := b.Put(ctx, name, reader(content), true); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := b.Put(ctx, name, reader([]byte("other")), true); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s again: %v", name, err)
		}
		if have, err := get(ctx, b, name); err != nil || !bytes.Equal(have, content) {
			t.Errorf("%s has %d bytes, %v, want %d", name, len(have), err, len(content))
		}
	}
	if err := b.Put(ctx, "dir/b", reader([]byte("new")), false); err != nil {
		t.Fatal(err)
	}
	if have, err := get(ctx, b, "dir/b"); err != nil || string(have) != "new" {
		t.Errorf("%s, %v", have, err)
	}
	if _, err := get(ctx, b, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	items, err := b.List(ctx, "")
	if err != nil || len(items) != 4 || items[3] != (remote.Item{Name: "large", Size: 40 << 20}) {
		t.Error(items, err)
	}
	for range 2 {
		if err := b.Delete(ctx, "large"); err != nil {
			t.Error(err)
		}
	}
}

// The bucket does with S3 what backup.Bucket promises: below the path of its URL, page by page, for objects of several
// parts.
//
// SPEC: STORE-6
func TestS3(t *testing.T) {
	s := s3(t)
	ctx := t.Context()
	whole := opened(t, s.at(""))
	for name, b := range map[string]backup.Bucket{"here": opened(t, s.at("/some/path")),
		"helper": helped(t, s.at("/other"))} {
		t.Run(name, func(t *testing.T) { promised(t, b) })
	}
	// One that some tools make for a path, and one whose path begins like it.
	for _, name := range []string{"some/path/", "some/path2/x"} {
		if err := whole.Put(ctx, name, reader(nil), false); err != nil {
			t.Fatal(err)
		}
	}
	b := opened(t, s.at("/some/path/"))
	for n := range 1100 {
		if err := b.Put(ctx, fmt.Sprintf("many/%04d", n), reader([]byte("x")), false); err != nil {
			t.Fatal(err)
		}
	}
	if items, err := b.List(ctx, "many/"); err != nil || len(items) != 1100 || items[1099].Name != "many/1099" {
		t.Errorf("%d objects, %v", len(items), err)
	}
	if items, err := b.List(ctx, ""); err != nil || len(items) != 1103 {
		t.Errorf("%d objects, %v", len(items), err)
	}
}

// What is sent in part is no object, neither of one part nor of many, and its parts do not stay.
//
// SPEC: STORE-6
func TestCutOffOnS3(t *testing.T) {
	s := s3(t)
	b := helped(t, s.at(""))
	errSource := errors.New("the source has failed")
	for _, size := range []int{0, 1, 5000, partBytes - 1, partBytes, 3*partBytes + 5} {
		content := io.MultiReader(bytes.NewReader(noise(size)), failing{errSource})
		if err := b.Put(t.Context(), "a", content, false); !errors.Is(err, errSource) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if items, err := b.List(t.Context(), ""); err != nil || len(items) > 0 {
		t.Errorf("there are %v, %v", items, err)
	}
	// A helper that is alone now gives up what it has begun.
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		r, err := http.Get(s.URL + "/bucket?uploads")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatal(r.Status, err)
		}
		if !bytes.Contains(text, []byte("<UploadId>")) {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("parts stay: %s", text)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A read whose connection breaks goes on where it was, if it is still the same object, and not for ever.
//
// SPEC: STORE-6
func TestReadGoesOn(t *testing.T) {
	s := s3(t)
	b := opened(t, s.at("/p"))
	content := noise(3 << 20)
	if err := b.Put(t.Context(), "a", reader(content), false); err != nil {
		t.Fatal(err)
	}
	reads := 0
	s.with(func(n int, r *http.Request) fault {
		switch reads = n; {
		case n < 6:
			return cut
		case n == 6:
			return fails
		}
		return none
	})
	if have, err := get(t.Context(), b, "a"); err != nil || !bytes.Equal(have, content) || reads < 7 {
		t.Errorf("%d bytes in %d requests, %v", len(have), reads, err)
	}
	s.with(func(n int, r *http.Request) fault {
		if n == 1 {
			return cut
		}
		return busy
	})
	if have, err := get(t.Context(), b, "a"); err == nil || !strings.Contains(err.Error(), "SlowDown") {
		t.Errorf("%d bytes, %v", len(have), err)
	}
	s.with(func(n int, r *http.Request) fault {
		if n == 1 {
			return cut
		}
		return none
	})
	r, err := b.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := b.Put(t.Context(), "a", reader(content[1:]), false); err != nil {
		t.Fatal(err)
	}
	if have, err := io.ReadAll(r); !errors.Is(err, errReplaced) {
		t.Errorf("%d bytes, %v", len(have), err)
	}
}

// Errors of the storage have its words, and no credentials.
//
// SPEC: STORE-6
func TestErrorsOfS3(t *testing.T) {
	s := s3(t)
	b := helped(t, s.at("/p"))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for with, want := range map[fault]string{forbids: "AccessDenied", notFound: "NoSuchBucket"} {
		s.with(func(int, *http.Request) fault { return with })
		_, list := b.List(ctx, "")
		_, read := get(ctx, b, "a")
		for request, err := range map[string]error{"list": list, "get": read, "put": b.Put(ctx, "a", reader([]byte("x")),
			false), "create": b.Put(ctx, "a", reader([]byte("x")), true)} {
			if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, fs.ErrExist) {
				t.Errorf("%s: %v, should say %s", request, err, want)
			}
			if err != nil && strings.Contains(err.Error(), "a-secret-key") {
				t.Errorf("%s: %v", request, err)
			}
		}
	}
	s.with(func(int, *http.Request) fault { return fails })
	if err := b.Put(ctx, "a", reader([]byte("x")), false); err == nil || !strings.Contains(err.Error(), "InternalError") {
		t.Error(err)
	}
	s.Close()
	if err := b.Put(ctx, "a", reader([]byte("x")), false); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

// A request that is cancelled ends, whatever the storage does.
//
// SPEC: STORE-6
func TestStorageHangs(t *testing.T) {
	s := s3(t)
	b := helped(t, s.at(""))
	arrived := make(chan struct{}, 10)
	s.with(func(int, *http.Request) fault {
		arrived <- struct{}{}
		return hangs
	})
	for name, request := range map[string]func(context.Context) error{
		"put":    func(ctx context.Context) error { return b.Put(ctx, "a", reader(noise(100<<20)), false) },
		"get":    func(ctx context.Context) error { _, err := get(ctx, b, "a"); return err },
		"list":   func(ctx context.Context) error { _, err := b.List(ctx, ""); return err },
		"delete": func(ctx context.Context) error { return b.Delete(ctx, "a") },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- request(ctx) }()
		<-arrived
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(limit):
			t.Fatalf("%s goes on", name)
		}
	}
}
