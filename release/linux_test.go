package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/sassoftware/go-rpmutils"
)

// debian is a copy of this machine's files in which a test may do what it likes: what it writes is in a directory of
// its own. ROOT, with which the root of another Debian can be named, is for fresh ones.
func debian(t *testing.T) string {
	t.Helper()
	needRoot(t)
	need(t, "dpkg")
	upper, root := t.TempDir(), t.TempDir()
	lower := "/"
	if other := os.Getenv("ROOT"); other != "" {
		lower = other
	}
	for _, dir := range []string{"u", "w"} {
		if err := os.Mkdir(filepath.Join(upper, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("overlay", root, "overlay", 0,
		fmt.Sprintf("lowerdir=%s,upperdir=%s/u,workdir=%s/w", lower, upper, upper)); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mount of an overlay: %v", err)
		}
		t.Skipf("this machine does not mount overlays: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(root, 0); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{"dev", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o1777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mknod(filepath.Join(root, "dev/null"), syscall.S_IFCHR|0o666, 1<<8|3); err == nil {
		err = os.Chmod(filepath.Join(root, "dev/null"), 0o666)
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// within runs a program below another root directory.
func within(t *testing.T, root string, command ...string) string {
	t.Helper()
	return must(t, "/", append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "chroot", root}, command...)...)
}

// packageOf builds a deb of another version, from the same program.
func packageOf(t *testing.T, version string) string {
	t.Helper()
	other := *built
	other.version, other.out, other.work = version, t.TempDir(), t.TempDir()
	other.sums = map[string]map[string]string{}
	p := other.platforms[0]
	plinth := filepath.Join(other.work, "plinth")
	body, err := os.ReadFile(filepath.Join(programDir(t), "plinth"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plinth, body, 0o755); err != nil {
		t.Fatal(err)
	}
	other.programs = map[platform]programs{p: {plinth: plinth}}
	if err := other.writePackage(p, "deb"); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(other.out, "plinth_"+version+"_amd64.deb")
}

// programDir is a directory with the program and the documents of the archive.
func programDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	unpackGz(t, open(built.platforms[0].archive(name, built.version)), dir)
	return dir
}

// The deb is installed, its unit's command runs as its user, an upgrade and a removal keep the data and what was
// changed in its configuration.
func TestDeb(t *testing.T) {
	root := debian(t)
	deb := filepath.Join(root, "tmp/plinth.deb")
	place := func(from string) {
		body, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(deb, body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	place(open("plinth_" + built.version + "_amd64.deb"))
	within(t, root, "dpkg", "-i", "/tmp/plinth.deb")
	if got := within(t, root, "plinth", "version"); !strings.HasPrefix(got, "plinth "+built.version+"\n") {
		t.Errorf("plinth version: %s", got)
	}
	wanted := filepath.Join(root, "etc/systemd/system/multi-user.target.wants/plinth.service")
	if _, err := os.Lstat(wanted); err != nil {
		t.Errorf("the unit is not enabled: %v", err)
	}
	ids := strings.Split(within(t, root, "getent", "passwd", "plinth"), ":")
	uid, err := strconv.ParseUint(ids[2], 10, 32)
	if err != nil || uid == 0 {
		t.Fatalf("the user is %v: %v", ids, err)
	}
	serve := func() *server {
		s := start(t, as(root, uint32(uid)), execStart(t, root)...)
		return s
	}
	get := func(what ...string) string {
		return must(t, "/", append([]string{kubectl, "--kubeconfig=" + filepath.Join(root, "var/lib/plinth/kubeconfig")},
			what...)...)
	}
	// What the unit's StateDirectory= does.
	within(t, root, "install", "-d", "-m", "0700", "-o", "plinth", "-g", "plinth", "/var/lib/plinth")
	s := serve()
	get("get", "namespaces")
	t.Logf("from the deb to what kubectl got: %s", time.Since(began).Round(time.Millisecond))
	get("create", "configmap", "kept", "--from-literal=a=b")
	s.end()

	write(t, filepath.Join(root, "etc/default/plinth"), "PLINTH_FLAGS=\"--secure-port=0\"\n")
	next := "9.9.9"
	place(packageOf(t, next))
	within(t, root, "dpkg", "-i", "/tmp/plinth.deb")
	status := within(t, root, "dpkg-query", "-W", "-f", "${Version} ${Status}", "plinth")
	if status != next+" install ok installed" {
		t.Errorf("after the upgrade dpkg has %s", status)
	}
	s = serve()
	if got := get("get", "configmap", "kept", "-o", "jsonpath={.data.a}"); got != "b" {
		t.Errorf("after the upgrade the object has %q", got)
	}
	s.end()
	place(open("plinth_" + built.version + "_amd64.deb"))
	within(t, root, "dpkg", "--force-downgrade", "-i", "/tmp/plinth.deb")
	s = serve()
	get("get", "configmap", "kept")
	s.end()

	within(t, root, "dpkg", "-r", "plinth")
	for at, there := range map[string]bool{"usr/bin/plinth": false, "usr/lib/systemd/system/plinth.service": false,
		"etc/default/plinth": true, "var/lib/plinth/store/FORMAT": true} {
		if _, err := os.Stat(filepath.Join(root, at)); (err == nil) != there {
			t.Errorf("after the removal: /%s: %v", at, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(root, "etc/default/plinth")); err != nil ||
		!strings.Contains(string(text), "--secure-port=0") {
		t.Errorf("the configuration was replaced: %v\n%s", err, text)
	}
	within(t, root, "dpkg", "-P", "plinth")
	if _, err := os.Stat(filepath.Join(root, "var/lib/plinth/store/FORMAT")); err != nil {
		t.Errorf("the data was purged: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "etc/default/plinth")); err == nil {
		t.Error("the configuration was not purged")
	}
}

// execStart is the command line of the installed unit, at a free port.
func execStart(t *testing.T, root string) []string {
	t.Helper()
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/plinth.service"))
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(string(unit), "\nExecStart=")
	command, flags, _ := strings.Cut(command, "$PLINTH_FLAGS")
	if !found || !strings.HasPrefix(flags, "\n") {
		t.Fatalf("the unit has the command %q", command)
	}
	return append(strings.Fields(command), "--secure-port=0")
}

// systemd takes the unit, and finds little that it may do.
func TestUnit(t *testing.T) {
	need(t, "systemd-analyze")
	root := debian(t)
	unit := "/usr/lib/systemd/system/plinth.service"
	body, err := packageFiles.ReadFile("files/linux/plinth.service")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, unit), string(body))
	write(t, filepath.Join(root, "usr/bin/plinth"), "#!/bin/true\n")
	if err := os.Chmod(filepath.Join(root, "usr/bin/plinth"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "usr/share/doc/plinth/README.md"), "")
	// Whatever is wrong is a line that names the unit; other lines are about units of the machine.
	if text, err := inDir("/", "chroot", root, "systemd-analyze", "verify", unit); strings.Contains(text, "plinth") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, text)
	}
	broken := strings.Replace(string(body), "Type=notify", "Type=notice", 1)
	write(t, filepath.Join(root, "usr/lib/systemd/system/plinth-broken.service"), broken)
	text, _ := inDir("/", "chroot", root, "systemd-analyze", "verify", "/usr/lib/systemd/system/plinth-broken.service")
	if !strings.Contains(text, "notice") {
		t.Errorf("a broken unit is not noticed:\n%s", text)
	}
	// 10 is a service that may do all.
	lines := strings.Split(strings.TrimSpace(within(t, root, "systemd-analyze", "security", "--offline=yes",
		"--threshold=15", unit)), "\n")
	t.Log(lines[len(lines)-1])
}

// The rpm has the same files as the deb, and the scripts of its own.
func TestRPM(t *testing.T) {
	file, err := os.Open(open("plinth-" + built.version + "-1.x86_64.rpm"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rpm, err := rpmutils.ReadRpm(file)
	if err != nil {
		t.Fatal(err)
	}
	files, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	slices.Sort(names)
	var inDeb []string
	need(t, "dpkg-deb")
	for line := range strings.Lines(must(t, "/", "dpkg-deb", "-c", open("plinth_"+built.version+"_amd64.deb"))) {
		if name := strings.Fields(line)[5]; !strings.HasSuffix(name, "/") {
			inDeb = append(inDeb, strings.TrimPrefix(name, "."))
		}
	}
	slices.Sort(inDeb)
	if !slices.Equal(names, inDeb) || len(names) < 8 {
		t.Errorf("the rpm has\n%q\nthe deb\n%q", names, inDeb)
	}
	dir := t.TempDir()
	if err := rpm.ExpandPayload(dir); err != nil {
		t.Fatal(err)
	}
	plinth := filepath.Join(dir, "usr/bin/plinth")
	if err := os.Chmod(plinth, 0o755); err != nil { // the library does not set it
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == "/usr/bin/plinth" && f.Mode()&0o777 != 0o755 {
			t.Errorf("the program has the mode %o", f.Mode())
		}
	}
	if got := must(t, dir, plinth, "version"); !strings.HasPrefix(got, "plinth "+built.version) {
		t.Errorf("plinth version: %s", got)
	}
	for _, tag := range []int{rpmutils.POSTIN, rpmutils.PREUN, rpmutils.POSTUN} {
		script, err := rpm.Header.GetString(tag)
		if err != nil || !strings.Contains(script, "systemctl") {
			t.Errorf("script %d: %v\n%s", tag, err, script)
		}
		if text, err := inDir("/", "sh", "-n", "-c", script); err != nil {
			t.Errorf("script %d: %v\n%s", tag, err, text)
		}
	}
}

// The image has one program, which runs without root under each of its names.
func TestImage(t *testing.T) {
	needRoot(t)
	image, config := amd64(t)
	root := t.TempDir()
	files := unpack(t, mutate.Extract(image), root)
	if !slices.Equal(files, []string{"usr/local/bin/plinth"}) {
		t.Errorf("the files are %q", files)
	}
	for dir := root; dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	user, err := strconv.ParseUint(strings.Split(config.User, ":")[0], 10, 32)
	if err != nil || user == 0 {
		t.Fatalf("the user is %q", config.User)
	}
	command := append(slices.Clone(config.Entrypoint), config.Cmd...)
	start(t, as(root, uint32(user)), append(command, "--secure-port=0")...)
	kubeconfig := "--kubeconfig=" + filepath.Join(root, "var/lib/plinth/kubeconfig")
	if text := must(t, "/", kubectl, kubeconfig, "get", "namespaces"); !strings.Contains(text, "default") {
		t.Errorf("kubectl get: %s", text)
	}
	for program, want := range map[string]string{
		"kube-apiserver": "Kubernetes v" + built.kubernetes, "etcd": "etcd Version: 3.",
	} {
		cmd := exec.Command("/usr/local/bin/"+program, "--version")
		as(root, uint32(user))(cmd)
		if text, err := cmd.Output(); err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s --version: %v, %s", program, err, text)
		}
	}
}

// amd64 reads the image back from its archive.
func amd64(t *testing.T) (v1.Image, v1.Config) {
	t.Helper()
	dir := t.TempDir()
	body, err := os.ReadFile(open(built.imageFile()))
	if err != nil {
		t.Fatal(err)
	}
	unpack(t, bytes.NewReader(body), dir)
	at, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := at.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 ||
		manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != built.version {
		t.Fatalf("%v, %+v", err, manifest)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range inner.Manifests {
		if m.Platform.String() == "linux/amd64" {
			image, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			config, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			return image, config.Config
		}
	}
	t.Fatalf("there is no image for linux/amd64 in %+v", inner)
	return nil, v1.Config{}
}
