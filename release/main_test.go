package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// built is a trial for linux/amd64, with its files at a server on loopback, as they are at the URL of a real one.
var built *release

// kubectl is the program that is built for the tests.
var kubectl string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		fmt.Println("the release is tried on linux/amd64")
		return 0
	}
	dir, err := os.MkdirTemp("", "release-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // other users are to get in
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	out := filepath.Join(dir, "out")
	go http.Serve(listener, flat(out)) //nolint:errcheck // it ends with the process
	kubectl = filepath.Join(dir, "kubectl")
	if text, err := inDir("../tools", "CGO_ENABLED=0", "go", "build", "-o", kubectl, "./kubectl"); err != nil {
		fmt.Println(text, err)
		return 1
	}
	built, err = prepare(options{source: "..", out: out, trial: true, platforms: []string{"linux/amd64"}, kubectl: kubectl,
		files: "http://" + listener.Addr().String()})
	if err == nil {
		err = built.build()
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return m.Run()
}

// flat serves the files of a directory and of the directories in it by their names alone, as a release on GitHub does.
func flat(dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := filepath.Base(r.URL.Path)
		for _, at := range []string{filepath.Join(dir, name), filepath.Join(dir, "npm", name)} {
			if _, err := os.Stat(at); err == nil {
				http.ServeFile(w, r, at)
				return
			}
		}
		http.NotFound(w, r)
	})
}

// inDir runs a program in a directory, with the variables before it, and returns all that it prints.
func inDir(dir string, command ...string) (string, error) {
	n := 0
	for strings.Contains(command[n], "=") {
		n++
	}
	cmd := exec.Command(command[n], command[n+1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), command[:n]...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// must is inDir that has to succeed.
func must(t *testing.T, dir string, command ...string) string {
	t.Helper()
	text, err := inDir(dir, command...)
	if err != nil {
		t.Fatalf("%q: %v\n%s", command, err, text)
	}
	return text
}

// need ends a test on a machine that lacks a program, except where tests are to be whole.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("this machine has no %s", program)
	}
	t.Skipf("this machine has no %s", program)
}

// needRoot ends a test that has to change the root directory or the user.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can do this")
	}
}

// open returns the path of a file of the release.
func open(file string) string { return filepath.Join(built.out, file) }

// unpack writes the files of a tar archive below a directory, with their owners if it may.
func unpack(t *testing.T, archive io.Reader, dir string) (files []string) {
	t.Helper()
	for all := tar.NewReader(archive); ; {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(at, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, at)
		default:
			files = append(files, h.Name)
			var body []byte
			if body, err = io.ReadAll(all); err == nil {
				err = os.WriteFile(at, body, 0o644)
			}
		}
		if err == nil && h.Typeflag != tar.TypeSymlink {
			err = errors.Join(os.Chmod(at, h.FileInfo().Mode()), os.Lchown(at, h.Uid, h.Gid))
		}
		if err != nil && os.Getuid() == 0 {
			t.Fatal(err)
		}
	}
}

func unpackGz(t *testing.T, archive, dir string) []string {
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
	return unpack(t, plain, dir)
}

// server is a running `plinth serve`.
type server struct {
	*exec.Cmd
	url string
	end func()
}

// start starts a command that serves, as configured by set, and waits until it is ready. Other lines are read, too.
func start(t *testing.T, set func(*exec.Cmd), command ...string) *server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // cleanups come after t.Context
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	if set != nil {
		set(cmd)
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{Cmd: cmd}
	s.end = func() {
		if s.end = func() {}; cmd.Process.Signal(syscall.SIGTERM) == nil {
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s ended with %v\n%s", command[0], err, log.String())
			}
		}
		cancel()
	}
	t.Cleanup(func() { s.end() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, after, found := strings.Cut(lines.Text(), " is ready at "); found {
			s.url = strings.Fields(after)[0]
			go io.Copy(io.Discard, out) //nolint:errcheck // until the server ends
			return s
		}
	}
	t.Fatalf("%s is not ready: %v\n%s", command[0], cmd.Wait(), log.String())
	return nil
}

// as makes a command run as a user, and below a directory that is its root, if this is root.
func as(root string, user uint32) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Dir = "/"
		cmd.Env = []string{"HOME=/tmp", "PATH=/usr/local/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
}

// The archive has all that is needed: below an empty root directory, as a user without rights, the server starts from
// it, and kubectl gets namespaces.
func TestArchive(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	for dir := root; dir != os.TempDir(); dir = filepath.Dir(dir) { // others are to get in
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	files := unpackGz(t, open(built.platforms[0].archive(name, built.version)), root)
	if got := strings.Join(files, " "); got != "plinth README.md CHANGELOG.md SECURITY.md" {
		t.Errorf("the archive has %s", got)
	}
	body, err := os.ReadFile(kubectl)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "kubectl"), body, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777); err != nil {
		t.Fatal(err)
	}
	const user = 4711
	start(t, as(root, user), "/plinth", "serve", "--secure-port=0", "--data-dir=/tmp/data")
	get := exec.Command("/kubectl", "--kubeconfig=/tmp/data/kubeconfig", "get", "namespaces")
	as(root, user)(get)
	if text, err := get.CombinedOutput(); err != nil || !strings.Contains(string(text), "kube-system") {
		t.Errorf("kubectl get: %v\n%s", err, text)
	}
	t.Logf("from the archive to what kubectl got: %s", time.Since(began).Round(time.Millisecond))

	version := exec.Command("/plinth", "version")
	as(root, user)(version)
	text, err := version.Output()
	if want := "plinth " + built.version + "\nKubernetes v" + built.kubernetes; err != nil ||
		!strings.HasPrefix(string(text), want) || !strings.Contains(string(text), built.commit) {
		t.Errorf("plinth version: %v\n%s\nnot %q and commit %s", err, text, want, built.commit)
	}
}

// The program for object storages has an archive of its own. Unpacked beside plinth it is found, and is of the same
// release: what fails is the connection to the storage.
func TestCloudArchive(t *testing.T) {
	p, dir := built.platforms[0], t.TempDir()
	unpackGz(t, open(p.archive(name, built.version)), dir)
	restore := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "plinth"), "restore", "-o", filepath.Join(dir, "data"),
			"s3://bucket/plinth?region=us-east-1&use_path_style=true&endpoint=http://127.0.0.1:1")
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b",
			"AWS_MAX_ATTEMPTS=1"}
		text, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("it is restored: %s", text)
		}
		return string(text)
	}
	if text := restore(); !strings.Contains(text, "plinth-cloud") || strings.Contains(text, "connection refused") {
		t.Errorf("without the program: %s", text)
	}
	files := unpackGz(t, open(p.archive(cloudName, built.version)), dir)
	if got := strings.Join(files, " "); got != "plinth-cloud README.md CHANGELOG.md SECURITY.md" {
		t.Errorf("the archive has %s", got)
	}
	if text := restore(); !strings.Contains(text, "connection refused") {
		t.Errorf("with the program: %s", text)
	}
}

// The list of what a program consists of has its modules, and the libraries of the console's page, each once.
func TestSBOM(t *testing.T) {
	p := built.platforms[0]
	for of, libraries := range map[string][]string{
		name: {"std", "github.com/google/cel-go", "preact", "htm", "@preact/signals", "@preact/signals-core"},
		// Of its own release is plinth, from the same sources.
		cloudName: {"std", "gocloud.dev", built.module},
	} {
		file, err := os.Open(open(fmt.Sprintf("%s_%s_%s_%s.cdx.json", of, built.version, p.os, p.arch)))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		var bom cyclonedx.BOM
		if err := cyclonedx.NewBOMDecoder(file, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, c := range *bom.Components {
			if seen[c.Name]++; c.Version == "" || strings.Contains(c.PackageURL, "..") {
				t.Errorf("%s has the component %s", of, c.PackageURL)
			}
		}
		for _, library := range libraries {
			if seen[library] != 1 {
				t.Errorf("%s: %s is listed %d times", of, library, seen[library])
			}
		}
	}
	// Every file that the page loads from elsewhere is of a package that is listed.
	list, err := os.ReadFile(filepath.Join(built.source, "tools", "webvendor", "packages.txt"))
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob(filepath.Join(built.source, "internal", "console", "web", "static", "vendor", "*.js"))
	if err != nil || len(scripts) < 5 {
		t.Fatalf("%v: %d scripts", err, len(scripts))
	}
	for _, script := range scripts {
		if !strings.Contains(string(list), " "+filepath.Base(script)+"\n") {
			t.Errorf("%s is of no package of the list", script)
		}
	}
}

// What is published is listed with its sums, in the form that sha256sum and sha512sum check, and the sums are right.
func TestSums(t *testing.T) {
	for _, kind := range []string{"sha256", "sha512"} {
		need(t, kind+"sum")
		text := must(t, built.out, kind+"sum", "--check", "--strict", strings.ToUpper(kind)+"SUMS")
		if n := strings.Count(text, ": OK"); n != len(built.sums) || n < 12 {
			t.Errorf("%d files have the right sum, of %d", n, len(built.sums))
		}
	}
	listed := 0
	all, err := folder(built.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if _, has := built.sums[e.name]; has {
			listed++
		} else if e.name != markFile && !strings.HasSuffix(e.name, "SUMS") {
			t.Errorf("%s has no sum", e.name)
		}
	}
	if listed != len(built.sums) {
		t.Errorf("%d of %d files with sums are there", listed, len(built.sums))
	}
}

// What may not be given away is not built, and the error says what to do.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		o     options
		want  string
	}{
		"no licence": {nil, options{home: "https://x.example"}, "UNLICENSED=1"},
		"a licence without a name": {map[string]string{"LICENSE": "do what you like\n"},
			options{home: "https://x.example"}, "SPDX-License-Identifier"},
		"no URL": {map[string]string{"LICENSE": "SPDX-License-Identifier: MIT\n"}, options{}, "HOMEPAGE="},
		"no entry in the changes": {map[string]string{"LICENSE": "SPDX-License-Identifier: MIT\n"},
			options{home: "https://x.example"}, "## 1.2.3 (YYYY-MM-DD)"},
		"no such platform": {nil, options{platforms: []string{"plan9/amd64"}}, "linux/arm64"},
	} {
		dir := checkout(t, c.files)
		c.o.source, c.o.out = dir, filepath.Join(t.TempDir(), "out")
		if _, err := prepare(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, without %q", name, err, c.want)
		}
	}
	dir := checkout(t, map[string]string{"LICENSE": "SPDX-License-Identifier: MIT\n",
		"CHANGELOG.md": "# Changes\n\n## 1.2.3 (2026-01-02)\n"})
	o := options{source: dir, out: filepath.Join(t.TempDir(), "out"), home: "https://x.example/plinth/"}
	r, err := prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	if r.module != "x" || r.kubernetes != "1.99.1" || r.version != "1.2.3" {
		t.Errorf("the module is %s %s, Kubernetes %s", r.module, r.version, r.kubernetes)
	}
	if r.licenceID() != "MIT" || r.files != "https://x.example/plinth/releases/download/v1.2.3" {
		t.Errorf("the licence is %s, the files are at %s", r.licenceID(), r.files)
	}
	write(t, filepath.Join(dir, "README.md"), "")
	if _, err := prepare(o); err == nil || !strings.Contains(err.Error(), "differ from the commit") {
		t.Errorf("a changed checkout: %v", err)
	}
	if err := clear(dir); err == nil {
		t.Errorf("a directory with other files was emptied")
	}
}

// checkout makes a repository with these files and the ones that a release reads.
func checkout(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for file, body := range map[string]string{"go.mod": "module x\n\nrequire (\n\tk8s.io/api v0.99.1\n)\n",
		"internal/product/VERSION": "1.2.3\n", "CHANGELOG.md": "# Changes\n"} {
		if _, given := files[file]; !given {
			write(t, filepath.Join(dir, file), body)
		}
	}
	for file, body := range files {
		write(t, filepath.Join(dir, file), body)
	}
	must(t, dir, "git", "init", "-q")
	must(t, dir, "git", "add", "-A")
	must(t, dir, "git", "-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "-q", "-m", "t")
	return dir
}

func write(t *testing.T, file, body string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
}
