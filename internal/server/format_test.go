package server

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/klauspost/compress/s2"

	"plinth/internal/access"
	"plinth/internal/auth"
	"plinth/object"
)

var updateFormats = flag.Bool("update", false, "make the data directories of earlier commits anew, which takes minutes")

// written is a data directory that a program of an earlier commit has written: the folders store and past, and what
// that program has answered at last (answersFile).
type written struct {
	archive, commit string
	planes, past    bool
}

var allWritten = []written{
	{"format2", "e5fbd14f", false, false},
	{"format3", "6181766f", true, false},
	{"format3past", "1d23f080", true, true},
}

// answersFile is the name of a file in an archive.
const answersFile = "answers.json"

// answers are what a program has answered, by the path of the request, and when.
type answers struct {
	Now      time.Time
	Of       map[string]string
	Watch    map[string]string // from the first version on
	Revision string            // of the first plane
}

const (
	formatMaps   = "/api/v1/namespaces/default/configmaps"
	formatThings = "/apis/example.com/v1/namespaces/default/widgets"
)

// program is a running program of an earlier commit.
type program struct {
	t      *testing.T
	served *exec.Cmd
	url    string
}

var servedURL = regexp.MustCompile(`https://127\.0\.0\.1:\d+`)

func (w *written) run(t *testing.T, binary, dir, tokens string) *program {
	t.Helper()
	args := []string{"serve", "--secure-port=0", "--data-dir=" + dir, "--token-auth-file=" + tokens}
	if w.planes {
		args = append(args, "--planes")
	}
	p := &program{t: t, served: exec.CommandContext(t.Context(), binary, args...)}
	out, err := p.served.StdoutPipe()
	if err == nil {
		err = p.served.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	text, buffer := "", make([]byte, 4<<10)
	for !servedURL.MatchString(text) {
		n, err := out.Read(buffer)
		if text += string(buffer[:n]); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	p.url = servedURL.FindString(text)
	go io.Copy(io.Discard, out) //nolint:errcheck // it ends with the program
	return p
}

func (p *program) stop() {
	p.t.Helper()
	if err := errors.Join(p.served.Process.Signal(syscall.SIGTERM), p.served.Wait()); err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) do(method, path, body string) (int, string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer root")
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	answer, err := client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func (p *program) must(method, path, body string) object.Value {
	p.t.Helper()
	code, text := p.do(method, path, body)
	parsed, err := object.ParseJSON([]byte(text))
	if code >= 300 || err != nil {
		p.t.Fatalf("%s %s: %d, %v: %s", method, path, code, err, text)
	}
	return parsed.Value
}

// bases are the paths of the planes.
func (w *written) bases() []string {
	if w.planes {
		return []string{"", "/clusters/other"}
	}
	return []string{""}
}

// make builds the program of the commit, has it write, and makes the archive.
func (w *written) make(t *testing.T) {
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "source"), filepath.Join(dir, "plinth")
	tokens := filepath.Join(dir, "tokens")
	command := exec.CommandContext(t.Context(), "sh", "-ec", `mkdir "$1"; git -C "$(git rev-parse --show-toplevel)" archive "$2" |
		tar -x -C "$1"; cd "$1"; go build -o "$3" ./cmd/plinth`, "sh", source, w.commit, binary)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(tokens, []byte("root,root,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	p := w.run(t, binary, data, tokens)
	if w.planes {
		p.must(http.MethodPost, planesPath, `{"apiVersion":"plinth/v1alpha1","kind":"Plane","metadata":{"name":"other"}}`)
	}
	first := map[string]string{}
	for _, base := range w.bases() {
		made := p.must(http.MethodPost, base+formatMaps, `{"metadata":{"name":"kept"},"data":{"a":"1"}}`)
		first[base] = versionOf(made)
		p.must(http.MethodPatch, base+formatMaps+"/kept?fieldManager=patcher", `{"data":{"a":"2"}}`)
		p.must(http.MethodPost, base+formatMaps, `{"metadata":{"name":"gone"},"data":{"a":"3"}}`)
		p.must(http.MethodDelete, base+formatMaps+"/gone", "")
		p.must(http.MethodPost, base+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":
			"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets",
			"kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{
			"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"}}}}}}}]}}`)
	}
	p.stop()
	p = w.run(t, binary, data, tokens)
	have := answers{Of: map[string]string{}, Watch: map[string]string{}}
	for _, base := range w.bases() {
		p.must(http.MethodPost, base+formatThings, `{"apiVersion":"example.com/v1","kind":"Widget",
			"metadata":{"name":"w"},"spec":{"size":3}}`)
		paths := []string{formatMaps + "/kept", formatMaps + "/gone", formatThings + "/w",
			formatMaps + "?fieldSelector=metadata.name=kept"}
		if w.past {
			paths = append(paths, formatMaps+"/kept?history", formatMaps+"/gone?history", formatMaps+"/kept"+asOf(first[base]),
				formatMaps+asOf(first[base])+"&fieldSelector=metadata.name=kept")
		}
		for _, path := range paths {
			_, have.Of[base+path] = p.do(http.MethodGet, base+path, "")
		}
		path := base + formatMaps + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=kept&resourceVersion=" + first[base]
		_, have.Watch[path] = p.do(http.MethodGet, path, "")
	}
	have.Revision = versionOf(p.must(http.MethodGet, formatMaps, ""))
	p.stop()
	have.Now = time.Now().UTC()
	text, err := json.MarshalIndent(have, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(data, answersFile), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := packDirectory(data, w.path()); err != nil {
		t.Fatal(err)
	}
}

func (w *written) path() string { return filepath.Join("testdata", w.archive+".tgz") }

// packDirectory writes an archive of what a test needs of a data directory.
func packDirectory(data, archive string) error {
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	all := tar.NewWriter(zip)
	err = filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(data, path)
		if err != nil {
			return err
		}
		part, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		if !slices.Contains([]string{"store", "past", answersFile}, part) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		content = withoutPreallocated(name, content)
		header := &tar.Header{Name: filepath.ToSlash(name), Mode: 0o600, Size: int64(len(content))}
		if err := all.WriteHeader(header); err != nil {
			return err
		}
		_, err = all.Write(content)
		return err
	})
	if err = errors.Join(err, all.Close(), zip.Close()); err != nil {
		return err
	}
	return os.WriteFile(archive, out.Bytes(), 0o644)
}

// withoutPreallocated is a file without most of the zeros at its end, which a segment has. Some may be of a frame.
func withoutPreallocated(name string, content []byte) []byte {
	if filepath.Ext(name) != ".log" {
		return content
	}
	written := len(bytes.TrimRight(content, "\x00"))
	return content[:min(len(content), written+64)]
}

// text is the answer to a GET of an administrator, as it is sent.
func (s *planesServer) text(path string) string {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1"
	r = r.WithContext(auth.As(r.Context(), &access.Identity{User: access.User{Name: "root",
		Groups: []string{access.Masters, "system:authenticated"}}}))
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	return w.Body.String()
}

// unpack writes the files of an archive below a directory.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for all := tar.NewReader(plain); ; files++ {
		header, err := all.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.FileInfo().IsDir() {
			continue
		}
		content, err := io.ReadAll(all)
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if files < 4 {
		t.Fatalf("%s has %d files", archive, files)
	}
}

// A data directory of each earlier format is opened: its objects, revisions, watches and past are those that the
// program which has written it has answered. It is written to, and opened again.
//
// SPEC: STORE-1, BEY-4
func TestEarlierFormats(t *testing.T) {
	for _, w := range allWritten {
		t.Run(w.archive, func(t *testing.T) {
			if *updateFormats {
				w.make(t)
			}
			dir := t.TempDir()
			unpack(t, w.path(), dir)
			var had answers
			text, err := os.ReadFile(filepath.Join(dir, answersFile))
			if err == nil {
				err = json.Unmarshal(text, &had)
			}
			if err != nil || len(had.Of) < 4*len(w.bases()) || len(had.Watch) != len(w.bases()) {
				t.Fatalf("%v: %s", err, text)
			}
			after := had.Now.Add(time.Minute) // when all is still there that is kept for minutes
			s := startPlanes(t, func(c *Config) {
				c.DataDir, c.Planes, c.Now = dir, w.planes, func() time.Time { return after }
			})
			if revision := fmt.Sprint(s.plane.Store.Revision()); len(revision) < len(had.Revision) ||
				len(revision) == len(had.Revision) && revision < had.Revision {
				t.Errorf("the revision is %s, was %s", revision, had.Revision)
			}
			check := func(all map[string]string) {
				t.Helper()
				for _, path := range slices.Sorted(maps.Keys(all)) {
					have, want := s.text(path), all[path]
					if strings.Contains(path, "fieldSelector") && !strings.Contains(path, "resourceVersion") { // the list's own
						have, want = itemsOf(t, have), itemsOf(t, want)
					}
					if have != want || want == "" {
						t.Errorf("%s is\n%s\nwas\n%s", path, have, want)
					}
				}
			}
			check(had.Of)
			check(had.Watch)
			for _, base := range w.bases() {
				plane := strings.TrimPrefix(base, "/clusters/")
				kept := s.want(200, plane, http.MethodPatch, formatMaps+"/kept", `{"data": {"a": "4"}}`)
				s.want(201, plane, http.MethodPost, formatMaps, mapOf("new", "5"))
				s = s.restarted()
				if have := s.want(200, plane, http.MethodGet, formatMaps+"/kept", ""); jsonOf(have) != jsonOf(kept) {
					t.Errorf("%q: kept is %s", base, object.AppendObject(nil, have))
				}
				s.want(200, plane, http.MethodGet, formatMaps+"/new", "")
				s.want(200, plane, http.MethodGet, formatThings+"/w", "")
				if !w.past {
					continue
				}
				s.want(200, plane, http.MethodGet, formatMaps+asOf(versionOf(kept))+"&limit=1", "")
				was, err := object.ParseJSON([]byte(had.Of[base+formatMaps+"/kept?history"]))
				if err != nil {
					t.Fatal(err)
				}
				changes := s.want(200, plane, http.MethodGet, formatMaps+"/kept?history", "").At("changes").Items()
				if before := was.Value.At("changes").Items(); len(before) != 2 || len(changes) != 3 ||
					jsonOf(changes[1]) != jsonOf(before[0]) || jsonOf(changes[2]) != jsonOf(before[1]) {
					t.Errorf("%q: the record is %s", base, object.AppendJSON(nil, object.ListOf(changes...)))
				}
			}
			if format, err := os.ReadFile(filepath.Join(dir, "store", "FORMAT")); err != nil ||
				string(format) != "plinth data 3\n" {
				t.Errorf("FORMAT is %q, %v", format, err)
			}
		})
	}
}

func jsonOf(v object.Value) string { return string(object.AppendJSON(nil, v)) }

// itemsOf are the items of a list.
func itemsOf(t *testing.T, list string) string {
	t.Helper()
	parsed, err := object.ParseJSON([]byte(list))
	if err != nil {
		t.Fatal(err)
	}
	return string(object.AppendJSON(nil, parsed.Value.At("items")))
}

// A directory in a later format, or with a file of the past in one, is refused by an error that says so. Nothing of it
// changes, but that a store which was opened and closed has another end; it is served when the file is put back.
//
// SPEC: STORE-1, BEY-4
func TestLaterFormats(t *testing.T) {
	for file, c := range map[string]struct {
		change func(content []byte) []byte
		want   string
		opens  bool // the store, first
	}{
		"store/FORMAT": {func([]byte) []byte { return []byte("plinth data 4\n") }, "format 4", false},
		"past/*.pack":  {laterPack(t), "is of version 3, which this version of the program does not read", true},
	} {
		dir := t.TempDir()
		unpack(t, filepath.Join("testdata", "format3past.tgz"), dir)
		found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(file)))
		if err != nil || len(found) == 0 {
			t.Fatal(found, err)
		}
		content, err := os.ReadFile(found[0])
		if err == nil {
			err = os.WriteFile(found[0], c.change(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		before := contentsOf(t, dir)
		config := quiet(dir)
		config.Storage, config.Planes = "embedded", true
		s, err := Start(context.Background(), config)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", file, err)
		}
		after := contentsOf(t, dir)
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if before[name] != after[name] && (!c.opens || filepath.Base(filepath.Dir(name)) == "past") {
				t.Errorf("%s: %s has changed", file, name)
			}
		}
		if err := os.WriteFile(found[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err = Start(context.Background(), config); err != nil {
			t.Errorf("%s is put back: %v", file, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// contentsOf are the files of the store and the past.
func contentsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, part := range []string{"store", "past"} {
		found, err := filepath.Glob(filepath.Join(dir, part, "*"))
		if err != nil || len(found) == 0 {
			t.Fatal(found, err)
		}
		for _, name := range found {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(content)
		}
	}
	return all
}

// A directory in a format that is not read any more is refused, and nothing in it is changed.
//
// SPEC: STORE-1
func TestFormat1(t *testing.T) {
	c := quiet(t.TempDir())
	c.Storage = "embedded"
	unpack(t, "testdata/format2.tgz", c.DataDir)
	file := filepath.Join(c.DataDir, "store", "FORMAT")
	if err := os.WriteFile(file, []byte("plinth data 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if other, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "format 1") ||
		!strings.Contains(err.Error(), "a server with a new directory") {
		t.Errorf("format 1: %v", err)
		if err == nil {
			other.Close()
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "plinth data 1\n" {
		t.Errorf("FORMAT is %q, %v", text, err)
	}
}

// laterPack makes a file of the past one of version 3.
func laterPack(t *testing.T) func(content []byte) []byte {
	return func(b []byte) []byte {
		const trailer = 8 + 4 + 8
		end := b[len(b)-trailer:]
		at := binary.LittleEndian.Uint64(end)
		text, err := s2.Decode(nil, b[at:len(b)-trailer-4])
		if err != nil {
			t.Fatal(err)
		}
		var header map[int]any
		if err := cbor.Unmarshal(text, &header); err != nil {
			t.Fatal(err)
		}
		header[1] = 3
		if text, err = cbor.Marshal(header); err != nil {
			t.Fatal(err)
		}
		text = s2.Encode(nil, text)
		text = binary.LittleEndian.AppendUint32(text, crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
		later := append(slices.Clone(b[:at]), text...)
		later = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(later, at), uint32(len(text)))
		return append(later, end[12:]...)
	}
}
