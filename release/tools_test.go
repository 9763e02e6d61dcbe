package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"
)

// setup-envtest installs from the index, and envtest itself downloads from it and runs on what it got.
func TestEnvtest(t *testing.T) {
	index := built.url("envtest-releases.yaml")
	dir := t.TempDir()
	// Its standard error may have what go says of downloading it.
	said, err := exec.Command("go", "tool", "setup-envtest", "use", built.kubernetes, "--index", index, "--bin-dir", dir,
		"-p", "path").Output()
	if err != nil {
		t.Fatal(err)
	}
	path := string(said)
	t.Cleanup(func() { must(t, "/", "chmod", "-R", "u+w", dir) }) // setup-envtest makes it read-only
	for _, program := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if info, err := os.Lstat(filepath.Join(path, program)); err != nil || !info.Mode().IsRegular() ||
			info.Mode()&0o111 == 0 {
			t.Errorf("%s: %v, %v", program, err, info)
		}
	}
	log.SetLogger(logr.Discard())
	for name, environment := range map[string]*envtest.Environment{
		"setup-envtest": {},
		"envtest": {DownloadBinaryAssets: true, DownloadBinaryAssetsIndexURL: index,
			DownloadBinaryAssetsVersion: "v" + built.kubernetes, BinaryAssetsDirectory: t.TempDir()},
	} {
		t.Setenv("KUBEBUILDER_ASSETS", path)
		if environment.DownloadBinaryAssets {
			if err := os.Unsetenv("KUBEBUILDER_ASSETS"); err != nil { // it would win; Setenv restores it
				t.Fatal(err)
			}
		}
		config, err := environment.Start()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			t.Errorf("%s: %v, %v", name, err, list)
		}
		if err := environment.Stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// serve starts the program of the archive on free ports.
func serve(t *testing.T, flags ...string) (kubeconfig string) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	start(t, nil, append([]string{filepath.Join(programDir(t), "plinth"), "serve", "--storage=memory", "--secure-port=0",
		"--data-dir=" + data}, flags...)...)
	return "--kubeconfig=" + filepath.Join(data, "kubeconfig")
}

// Helm finds nothing wrong with the chart, installs and upgrades it, and a Pod that it describes is one of the level
// restricted. An upgrade keeps the certificates and the token.
func TestChart(t *testing.T) {
	helm := filepath.Join(t.TempDir(), "helm")
	must(t, "../tools/helm", "CGO_ENABLED=0", "go", "build", "-o", helm, "helm.sh/helm/v4/cmd/helm")
	chart := open("plinth-" + built.version + ".tgz")
	home := "HOME=" + t.TempDir()
	must(t, "/", home, helm, "lint", "--strict", chart)
	kubeconfig := serve(t)
	k := func(args ...string) string { return must(t, "/", append([]string{kubectl, kubeconfig}, args...)...) }
	k("create", "namespace", "plinths")
	k("label", "namespace", "plinths", "pod-security.kubernetes.io/enforce=restricted",
		"pod-security.kubernetes.io/warn=restricted")
	with := []string{home, helm, kubeconfig, "--namespace", "plinths"}
	if text := must(t, "/", append(with, "install", "p", chart)...); strings.Contains(text, "would violate") {
		t.Errorf("helm install: %s", text)
	}
	tokens := []string{"get", "secrets", "--namespace", "plinths", "p-plinth-tokens", "p-plinth-tls",
		"p-plinth-kubeconfig", "-o", "jsonpath={.items[*].data}"}
	before := k(tokens...)
	must(t, "/", append(with, "upgrade", "p", chart, "--set", "flags={--v=2}")...)
	if after := k(tokens...); after != before || len(before) < 1000 {
		t.Errorf("an upgrade changes the Secrets")
	}
	var set struct {
		Spec struct {
			Template struct {
				Metadata, Spec map[string]any
			}
		}
	}
	stored := k("get", "statefulset", "p-plinth", "--namespace", "plinths", "-o", "json")
	if err := json.Unmarshal([]byte(stored), &set); err != nil {
		t.Fatal(err)
	}
	// What the controller of StatefulSets adds.
	volumes, _ := set.Spec.Template.Spec["volumes"].([]any)
	set.Spec.Template.Spec["volumes"] = append(volumes, map[string]any{"name": "data",
		"persistentVolumeClaim": map[string]any{"claimName": "data-p-plinth-0"}})
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": set.Spec.Template.Spec,
		"metadata": map[string]any{"name": "p", "labels": set.Spec.Template.Metadata["labels"]}}
	body, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pod.json")
	write(t, file, string(body))
	if text := k("create", "--namespace", "plinths", "-f", file); text != "pod/p created\n" {
		t.Errorf("the Pod of the chart: %s", text)
	}
	// The same Pod with root is refused, so the level is in force.
	write(t, file, strings.ReplaceAll(string(body), `"runAsNonRoot":true`, `"runAsNonRoot":false`))
	if text, err := inDir("/", kubectl, kubeconfig, "create", "--namespace", "plinths", "-f", file); err == nil ||
		!strings.Contains(text, "restricted") {
		t.Errorf("with root: %v, %s", err, text)
	}

	chartServes(t, helm, home, chart)
}

// chartServes runs the server as the rendered chart configures it, with the Secrets as files, and uses the kubeconfig.
func chartServes(t *testing.T, helm, home, chart string) {
	t.Helper()
	root := t.TempDir()
	var args []string
	files := map[string]string{"/var/lib/plinth": root}
	var config string
	for document := range strings.SplitSeq(must(t, "/", home, helm, "template", "p", chart), "\n---\n") {
		var object struct {
			Kind             string
			Metadata         struct{ Name string }
			Data, StringData map[string]string
			Spec             struct {
				Template struct {
					Spec struct{ Containers []struct{ Args []string } }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		switch {
		case object.Kind == "StatefulSet":
			args = object.Spec.Template.Spec.Containers[0].Args
		case object.Metadata.Name == "p-plinth-kubeconfig":
			config = object.StringData["kubeconfig"]
		case object.Kind == "Secret":
			of := strings.TrimPrefix(object.Metadata.Name, "p-plinth-")
			for name, value := range object.Data {
				plain, err := base64.StdEncoding.DecodeString(value)
				if err != nil {
					t.Fatal(err)
				}
				at := filepath.Join(root, of, name)
				write(t, at, string(plain))
				files["/etc/plinth/"+of+"/"+name] = at
			}
		}
	}
	command := []string{filepath.Join(programDir(t), "plinth")}
	for _, a := range args {
		for from, to := range files {
			a = strings.Replace(a, from, to, 1)
		}
		command = append(command, strings.Replace(a, "--secure-port=6443", "--secure-port=0", 1))
	}
	url := start(t, nil, command...).url
	kubeconfig := filepath.Join(root, "kubeconfig")
	write(t, kubeconfig, config)
	who := must(t, "/", kubectl, "--kubeconfig="+kubeconfig, "--server="+url, "auth", "whoami")
	if !strings.Contains(who, "system:masters") {
		t.Errorf("who the kubeconfig of the chart is: %s", who)
	}
}

// The manifest of krew names an archive that is there, with its sum, and a program in it that is a plugin of kubectl.
func TestKrew(t *testing.T) {
	var manifest struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
			}
		}
	}
	body, err := os.ReadFile(open("krew/owners.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(body, &manifest); err != nil {
		t.Fatal(err)
	}
	// As krew's own checks have it.
	if manifest.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || manifest.Kind != "Plugin" ||
		manifest.Metadata.Name != "owners" || manifest.Spec.Version != "v"+built.version ||
		manifest.Spec.ShortDescription == "" || len(manifest.Spec.ShortDescription) > 50 ||
		len(manifest.Spec.Platforms) != len(built.platforms) {
		t.Errorf("the manifest is\n%s", body)
	}
	dir := t.TempDir()
	p := manifest.Spec.Platforms[0]
	fetch(t, p.URI, p.SHA256, filepath.Join(dir, "archive"))
	unpackGz(t, filepath.Join(dir, "archive"), dir)
	if err := os.Symlink(filepath.Join(dir, p.Bin), filepath.Join(dir, "kubectl-owners")); err != nil { // as krew does
		t.Fatal(err)
	}
	kubeconfig := serve(t)
	must(t, "/", kubectl, kubeconfig, "create", "configmap", "c", "--from-literal=a=b")
	text := must(t, "/", "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+strings.TrimPrefix(kubeconfig, "--kubeconfig="),
		kubectl, "owners", "configmap/c")
	if !strings.Contains(text, "kubectl-create") {
		t.Errorf("kubectl owners: %s", text)
	}
}

// fetch downloads a file and compares its sum.
func fetch(t *testing.T, url, sum, to string) {
	t.Helper()
	need(t, "curl")
	must(t, "/", "curl", "-sSf", "-o", to, url)
	if text := must(t, "/", "sha256sum", to); !strings.HasPrefix(text, sum+" ") || len(sum) != 64 {
		t.Errorf("%s: %s, not %s", url, text, sum)
	}
}

// The formula has a block for each platform of Homebrew, and Ruby can parse it where there is one. With the classes of
// Homebrew it is not tried.
func TestFormula(t *testing.T) {
	all := *built
	all.platforms, all.out, all.sums = platforms, t.TempDir(), map[string]map[string]string{}
	for i, p := range platforms {
		all.sums[p.archive(name, all.version)] = map[string]string{"sha256": strings.Repeat(fmt.Sprint(i), 64)}
	}
	if err := all.writeFormula(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(all.out, "homebrew/plinth.rb")
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`on_(\w+) do\n +on_(arm|intel) do\n +url "(\S+)"\n +sha256 "(\w{64})"\n +end\n`+
		` +on_(arm|intel) do\n +url "(\S+)"\n +sha256 "(\w{64})"\n +end\n  end\n`).FindAllSubmatch(body, -1)
	if len(blocks) != 2 || strings.Count(string(body), "sha256") != 4 {
		t.Errorf("the formula is\n%s", body)
	}
	if dos, ends := regexp.MustCompile(`(?m)\bdo$|^class|^  def`).FindAll(body, -1), regexp.MustCompile(`(?m)^ *end$`).
		FindAll(body, -1); len(dos) != len(ends) {
		t.Errorf("%d blocks begin and %d end in\n%s", len(dos), len(ends), body)
	}
	if text, err := inDir("/", "sh", "-c", "command -v ruby >/dev/null || exit 0; ruby -c "+file); err != nil {
		t.Errorf("ruby: %v\n%s", err, text)
	}
}

// The script of the action installs the program as on a runner, checks its sum, starts a server, and makes the programs
// for envtest.
func TestAction(t *testing.T) {
	need(t, "curl")
	var action struct {
		Name, Description string
		Inputs            map[string]struct{ Description, Default string }
		Runs              struct {
			Using string
			Steps []struct {
				Shell, Run string
				Env        map[string]string
			}
		}
	}
	body, err := os.ReadFile(open("action/action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(body, &action); err != nil {
		t.Fatal(err)
	}
	if len(action.Runs.Steps) != 1 || action.Runs.Using != "composite" || len(action.Inputs) != 3 {
		t.Fatalf("the action is\n%s", body)
	}
	step := action.Runs.Steps[0]
	for name := range action.Inputs {
		if got := step.Env["PLINTH_"+strings.ToUpper(name)]; got != "${{ inputs."+name+" }}" {
			t.Errorf("the input %s is handed on as %q", name, got)
		}
	}
	temp := t.TempDir()
	run := func(script string, more ...string) (string, error) {
		return inDir(temp, append(append([]string{"RUNNER_OS=Linux", "RUNNER_ARCH=X64", "RUNNER_TEMP=" + temp,
			"GITHUB_ACTION_PATH=" + open("action"), "GITHUB_PATH=" + filepath.Join(temp, "path"),
			"GITHUB_ENV=" + filepath.Join(temp, "env"), "GITHUB_OUTPUT=" + filepath.Join(temp, "output")}, more...),
			"bash", "-c", script)...)
	}
	// A runner ends what a job has started; here the server is found by the file that it has open.
	text, err := run(`trap 'kill $(pgrep --full "^$RUNNER_TEMP/plinth-`+built.version+`/plinth serve")' EXIT; `+step.Run+
		`; cat "$RUNNER_TEMP/env"; . "$RUNNER_TEMP/env"; export KUBECONFIG; `+kubectl+
		` get namespaces; "$(cat "$RUNNER_TEMP/path")"/plinth version; ls "$KUBEBUILDER_ASSETS"`,
		"PLINTH_START=true", "PLINTH_ENVTEST=true", "PLINTH_FLAGS=--event-ttl=2h -v=0", "PATH="+os.Getenv("PATH"))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, want := range []string{"KUBECONFIG=", "KUBEBUILDER_ASSETS=", "kube-system", "plinth " + built.version,
		"kube-apiserver"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	script, err := os.ReadFile(open("action/install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	sum := built.sums[built.platforms[0].archive(name, built.version)]["sha256"]
	bad := filepath.Join(t.TempDir(), "install.sh")
	write(t, bad, strings.Replace(string(script), sum, strings.Repeat("0", 64), 1))
	text, err = run("bash "+bad, "PLINTH_START=", "PLINTH_ENVTEST=")
	if err == nil || !strings.Contains(text, "::error::") {
		t.Errorf("with another sum: %v\n%s", err, text)
	}
	if text, err := run("bash "+open("action/install.sh"), "RUNNER_ARCH=RISCV64"); err == nil ||
		!strings.Contains(text, "there is no Plinth for Linux on RISCV64") {
		t.Errorf("on another processor: %v\n%s", err, text)
	}
}

// The wheel is installed by pip, and its helper passes the tests of docs/testing-other-languages.md with the program in
// it; with pytest, the fixture is there.
func TestWheel(t *testing.T) {
	need(t, "python3")
	if text, err := inDir("/", "python3", "-m", "pip", "--version"); err != nil {
		t.Skipf("there is no pip: %s", text)
	}
	wheel, err := filepath.Glob(open("*.whl"))
	if err != nil || len(wheel) != 1 {
		t.Fatal(wheel, err)
	}
	dir := t.TempDir()
	must(t, "/", "python3", "-m", "pip", "install", "--no-index", "--no-deps", "--target", dir, wheel[0])
	got := must(t, "/", "PYTHONPATH="+dir, filepath.Join(dir, "bin/plinth"), "version")
	if !strings.HasPrefix(got, "plinth "+built.version) {
		t.Errorf("plinth version: %s", got)
	}
	tests := t.TempDir()
	for _, file := range []string{"python/test_widgets.py", "widgets.yaml"} {
		body, err := os.ReadFile("../docs/examples/" + file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(tests, "examples", file), string(body))
	}
	path := "PATH=/usr/bin:/bin" // with no plinth
	python := strings.TrimSpace(must(t, "/", "python3", "-c", "import sys; print(sys.executable)"))
	text := must(t, filepath.Join(tests, "examples/python"), "PYTHONPATH="+dir, path, python, "-m",
		"unittest", "-v", "test_widgets.py")
	if !strings.Contains(text, "OK") {
		t.Errorf("unittest: %s", text)
	}
	if _, err := inDir("/", "python3", "-c", "import pytest"); err != nil {
		t.Log("there is no pytest: its fixture is not tried")
		return
	}
	write(t, filepath.Join(tests, "test_fixture.py"), `import pytest

@pytest.mark.plinth("--event-ttl=2h")
def test_namespaces(plinth_server):
    assert plinth_server.request("GET", "/api/v1/namespaces")["kind"] == "NamespaceList"
`)
	text = must(t, tests, "PYTHONPATH="+dir, path, python, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers",
		"test_fixture.py")
	if !strings.Contains(text, "1 passed") {
		t.Errorf("pytest: %s", text)
	}
}

// The npm packages are installed from files, and their helper passes the tests of docs/testing-other-languages.md with
// the program in them.
func TestNPM(t *testing.T) {
	need(t, "npm")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "package.json"), `{"private": true, "type": "module"}`)
	text := must(t, dir, "npm", "install", "--offline", "--no-audit", "--no-fund", "--cache", t.TempDir(),
		open("npm/plinth-server-linux-x64-"+built.version+".tgz"), open("npm/plinth-server-"+built.version+".tgz"))
	t.Log(text)
	if got := must(t, dir, "npx", "--no", "plinth", "version"); !strings.HasPrefix(got, "plinth "+built.version) {
		t.Errorf("plinth version: %s", got)
	}
	body, err := os.ReadFile("../docs/examples/javascript/widgets.test.mjs")
	if err != nil {
		t.Fatal(err)
	}
	const local = "'./plinth-server.mjs'"
	if !strings.Contains(string(body), local) {
		t.Fatalf("the example does not import %s", local)
	}
	write(t, filepath.Join(dir, "widgets.test.mjs"), strings.Replace(string(body), local, "'plinth-server'", 1))
	if text := must(t, dir, "node", "--test", "widgets.test.mjs"); !strings.Contains(text, "fail 0") {
		t.Errorf("node --test: %s", text)
	}
	if err := os.RemoveAll(filepath.Join(dir, "node_modules/plinth-server-linux-x64")); err != nil {
		t.Fatal(err)
	}
	if text, err := inDir(dir, "npx", "--no", "plinth", "version"); err == nil ||
		!strings.Contains(text, "the package plinth-server-linux-x64 is missing") {
		t.Errorf("without the program: %v\n%s", err, text)
	}
}
