package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mistake is what somebody types that cannot work, and what the error has to have: where the mistake is, and what to
// do.
type mistake struct {
	args      string // PORT stands for a port that is taken
	where, do string
}

const (
	memory   = "serve --storage=memory --secure-port=0 --data-dir=d "
	allFlags = "--help-all lists the flags"
)

var mistakes = []mistake{
	{"serv", `command "serv"`, "did you mean plinth serve?"},
	{"Serve", `command "Serve"`, "did you mean plinth serve?"},
	{"nothing-like-it", `command "nothing-like-it"`, "plinth help lists the commands"},
	{"--colour", "--colour", "plinth --help lists the flags"},
	{"-x", "'x' in -x", "plinth --help lists the flags"},
	{"help nope", `command "nope"`, "plinth help lists the commands"},
	{"help serve audting", `"audting"`, "did you mean auditing?"},
	{"help merge nope", `"merge nope"`, "plinth help merge"},
	{"version x", `got "x"`, "plinth version --help"},
	{"completion", "needs the shell", "plinth completion SHELL"},
	{"completion fsh", `"fsh"`, "did you mean fish?"},
	{"completion bash zsh", `"zsh" is one argument too many`, "plinth completion --help"},

	{"serve x", `got "x"`, "plinth serve --help"},
	{"serve --colour=red", "--colour", allFlags},
	{"serve --secure-prot=1", "--secure-prot", "did you mean --secure-port?"},
	{"serve -secure-port 1", "-secure-port", "did you mean --secure-port?"},
	{"serve --secure-port", "--secure-port", allFlags},
	{"serve --secure-port=abc", `--secure-port: "abc" is no number`, allFlags},
	{"serve --secure-port=99999", "--secure-port: 99999", "plinth help serve secure-serving"},
	{"serve --storage=disk", `--storage: "disk" is none of embedded, memory`, allFlags},
	{"serve --event-ttl=5", "--event-ttl: time: missing unit", allFlags},
	{"serve --profiling=maybe", `--profiling: "maybe" is neither true nor false`, allFlags},
	{"serve --log-level=loud", `--log-level: "loud"`, "debug, info, warn, error"},
	{"serve --egress-selector-config-file=x", "--egress-selector-config-file", "leave the flag out"},
	{"serve --secure-port=0 --data-dir=afile", "data directory afile", "give --data-dir a directory"},
	{"serve --secure-port=0 --data-dir=damaged", "FORMAT is damaged", "plinth check damaged"},
	{"serve --secure-port=0 --data-dir=incomplete", "store/FORMAT", "Put back what is missing"},
	{"serve --storage=memory --data-dir=d --secure-port=PORT", "--secure-port: port PORT is in use",
		"another one can be given"},
	{memory + "--bind-address=x", `--bind-address: "x"`, "plinth help serve secure-serving"},
	{memory + "--bind-address=192.0.2.1", "--bind-address: 192.0.2.1", "plinth help serve"},
	{memory + "--tls-min-version=1.9", `--tls-min-version: "1.9"`, "VersionTLS12"},
	{memory + "--tls-cert-file=none", "--tls-cert-file and --tls-private-key-file", "go together"},
	{memory + "--tls-cert-file=none --tls-private-key-file=other", "--tls-cert-file and --tls-private-key-file: open none",
		"plinth help serve"},
	{memory + "--token-auth-file=none", "--token-auth-file: open none", "plinth help serve authentication"},
	{memory + "--client-ca-file=empty", "--client-ca-file: empty: there is no cert", "plinth help serve authentication"},
	{memory + "--audit-policy-file=none", "--audit-policy-file", "plinth help serve auditing"},
	{memory + "--audit-policy-file=broken.yaml", "broken.yaml", "plinth help serve auditing"},
	{memory + "--authorization-mode=None", `--authorization-mode`, "plinth help serve authorization"},
	{memory + "--enable-admission-plugins=Nope", `no admission plugin "Nope"`, "plinth help serve admission"},
	{memory + "--controllers=nope", `--controllers: "nope"`, "plinth help serve plinth"},
	{memory + "--feature-gates=Nope=true", "--feature-gates", "plinth help serve generic"},
	{memory + "--service-cluster-ip-range=x", "--service-cluster-ip-range", "plinth help serve"},
	{memory + "--runtime-config=x", `--runtime-config: "x"`, "plinth help serve api-enablement"},
	{memory + "--encryption-provider-config=none", "--encryption-provider-config", "plinth help serve etcd"},
	{memory + "--encryption-provider-config=broken.yaml", "broken.yaml", "plinth help serve etcd"},
	{memory + "--write-kubeconfig=broken.yaml", "--write-kubeconfig: kubeconfig broken.yaml", "plinth help serve plinth"},
	{memory + "--write-kubeconfig=emptydir", "kubeconfig emptydir: it is no regular file", "plinth help serve plinth"},
	{memory + "--goaway-chance=2", "--goaway-chance: 2 is not between", "plinth help serve generic"},
	{memory + "--emulated-version=9.9", "--emulated-version", "plinth help serve generic"},
	{memory + "--oidc-issuer-url=x", "--oidc-issuer-url", "plinth help serve authentication"},
	{memory + "--tls-cipher-suites=x", "--tls-cipher-suites", "plinth help serve secure-serving"},
	{memory + "--authentication-config=none", "--authentication-config", "plinth help serve authentication"},
	{"serve --etcd-servers=foo", "--etcd-servers: foo", "plinth help serve etcd"},
	{"serve --etcd-servers=http://127.0.0.1:1 --storage=memory", "--storage: memory", "plinth help serve"},

	{"serve --config", "--config", allFlags},
	{"serve --config none", "--config: none: no such file", "name one that is there"},
	{"serve --config emptydir", "emptydir is a directory", "name a file in it"},
	{"serve --config unknown.yaml", `unknown.yaml:2: unknown key "secure-prot"`, "did you mean secure-port?"},
	{"serve --config list.yaml", "list.yaml:1: it has to be a map", "write lines such as secure-port: 6443"},
	{"serve --config broken.yaml", "broken.yaml: line 1", "correct it there"},
	{"serve --config values.yaml", `values.yaml:1: --secure-port: "x" is no number; values.yaml:2: data-dir`,
		`"" is an empty one`},
	{"serve --config severally.yaml", "severally.yaml:1: secure-port takes one value", "write secure-port: VALUE"},
	{"serve --config twice.yaml", "twice.yaml:3: secure-port is in line 1, too", "remove one of them"},
	{"serve --config itself.yaml", "itself.yaml:1: config is for the command line", "remove it here"},
	{"serve --config documents.yaml", "documents.yaml has a second document", "put all flags into the first one"},

	{"test-server x", `got "x"`, "plinth test-server --help"},
	{"test-server --data-dir x", "--data-dir", allFlags},
	{"test-server --manifests none", "--manifests: none: no such file", "name one that is there"},
	{"test-server --manifests emptydir", "emptydir has no files of YAML or JSON", "name a directory with manifests"},
	{"test-server --manifests broken.yaml", "broken.yaml: document 1: line 1", "correct it there"},
	{"test-server --manifests kindless.yaml", "kindless.yaml: document 1", "correct it there"},
	{"test-server --manifests unknownkind.yaml", "unknownkind.yaml: Nope a: v1 has no such kind",
		"is the definition of it missing?"},
	{"test-server --manifests unknownfield.yaml", "unknownfield.yaml: ConfigMap a", ".bad"},

	{"envtest", "needs the directory", "plinth envtest DIR"},
	{"envtest a b", `"b" is one argument too many`, "plinth envtest --help"},
	{"envtest afile", "afile", "name a directory"},
	{"owners", "got 0 arguments", "one TYPE/NAME, such as deploy/web"},
	{"owners cm", `"cm" is no TYPE/NAME`, "such as deploy/web"},
	{"owners -f none", "none: no such file", "name one that is there"},
	{"owners -f broken.yaml", "broken.yaml: line 1", "correct it there"},
	{"owners -f list.yaml", "list.yaml holds no object", "apiVersion and kind"},
	{"owners -f unknownfield.yaml x/y", `-f unknownfield.yaml and "x/y"`, "either a file or one TYPE/NAME"},
	{"owners --json -f unknownfield.yaml", "--json asks a server, and -f reads a file", "give one of them"},
	{"owners --kubeconfig none cm/x", "no kubeconfig at none", "--kubeconfig names one"},
	{"owners --kubeconfig twice.yaml cm/x", "twice.yaml: the current context", "kubectl config use-context"},
	{"merge", "needs the file to apply", "--apply FILE"},
	{"merge --apply none", "none: no such file", "name one that is there"},
	{"merge --apply unknownfield.yaml", `unknownfield.yaml: unknown field "bad"`, "correct it there"},
	{"merge --apply kindless.yaml", "kindless.yaml: apiVersion or kind is missing", "an object has both"},

	{"validate", "needs manifests", "plinth validate PATH..."},
	{"validate none", "none: no such file", "name one that is there"},
	{"validate emptydir", "emptydir: there are no objects", "name files or directories"},
	{"validate list.yaml -o xml", `no form "xml"`, "json, junit, sarif, text"},
	{"validate kindless.yaml --emulated-version=9.9", "--emulated-version", "9.9"},

	{"check", "needs one data directory", "plinth check DIR"},
	{"plane create", "needs NAME", "plinth plane create NAME"},
	{"check none", "none: no such file", "name the --data-dir of a server"},
	{"check emptydir", "emptydir has no store", "name the --data-dir of a server"},
	{"check afile", "afile is no directory", "name the --data-dir of a server"},
	{"export damaged --to emptydir --for-apply", "--to keeps all of an object", "give one of them"},
	{"doctor x", `got "x"`, "plinth doctor --help"},
	{"start Bad_Name", `"Bad_Name" is no name`, "such as dev"},
	{"start a b", `"b" is one argument too many`, "the name of one server"},
	{"start x --wait=-1s", "--wait: -1s", "give one such as 30s"},
	{"start x -- --colour", "--colour", allFlags},
	{"stop nope", `no server "nope"`, "plinth start nope starts one"},
	{"logs nope", `no server "nope"`, "plinth start nope starts one"},
	{"list x", `got "x"`, "plinth list --help"},
}

// mistaken are the files that the mistakes are about.
var mistaken = map[string]string{
	"broken.yaml": "clusters: [\n", "list.yaml": "[1]\n", "afile": "x\n", "empty": "",
	"unknown.yaml": "# mine\nsecure-prot: 1\n", "values.yaml": "secure-port: x\ndata-dir:\n",
	"severally.yaml": "secure-port: [1, 2]\n", "twice.yaml": "secure-port: 1\nlog-level: info\nsecure_port: 2\n",
	"itself.yaml": "config: other.yaml\n", "documents.yaml": "log-level: info\n---\nlog-level: warn\n",
	"kindless.yaml": "kind: ConfigMap\nmetadata: {name: a}\n", "emptydir/.keep": "",
	"unknownkind.yaml":   "apiVersion: v1\nkind: Nope\nmetadata: {name: a}\n",
	"unknownfield.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nbad: 1\n",
	"damaged/store/LOCK": "", "damaged/store/FORMAT": "x\n", "damaged/store/00000000000000000001.log": "",
	"incomplete/PARTS": "plinth parts 1\nstorage embedded\nstore/FORMAT\n",
}

// contents are the files below the current directory.
func contents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Whatever is mistyped or missing, the error is one line that says what is wrong, where, and what to do; and no file is
// changed, made or lost.
//
// SPEC: RUN-10
func TestMistakes(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for name, text := range mistaken {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, name, text)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	if len(mistakes) < 60 {
		t.Errorf("only %d mistakes", len(mistakes))
	}
	before := contents(t)
	for _, m := range mistakes {
		args := strings.ReplaceAll(m.args, "PORT", port)
		var out bytes.Buffer
		err := run("plinth", strings.Fields(args), &out)
		if err == nil {
			t.Errorf("%s: no error, but\n%s", args, &out)
			continue
		}
		said := oneLine(err)
		where := strings.ReplaceAll(m.where, "PORT", port)
		if !strings.Contains(said, where) || !strings.Contains(said, m.do) {
			t.Errorf("%s:\n  %s\nlacks one of\n  %s\n  %s", args, said, where, m.do)
		}
		if strings.Contains(said, "\n") || out.Len() > 0 || strings.Contains(said, "%!") ||
			strings.Contains(said, "strconv") {
			t.Errorf("%s: %q, and on standard output %q", args, said, &out)
		}
		if after := contents(t); !maps.Equal(before, after) {
			t.Errorf("%s: the files were\n%q\nand are\n%q", args, slices.Sorted(maps.Keys(before)),
				slices.Sorted(maps.Keys(after)))
			before = after
		}
	}
}
