package operators

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/modules"
)

func TestMain(m *testing.M) { harness.Main(m) }

// operator is a project with a webhook server.
type operator struct {
	name    string
	modules map[string]string // by folder
	command string            // the folder of the server's command
	main    string            // in testdata: the source of the command, if it is not in the module
	args    func(*site) []string
	ready   string // a path at its port for health, if it has one

	manifests []string          // in its sources: what is installed before the server starts
	chart     func() []string   // further: a folder with a chart and the flags of helm template
	converts  map[string]string // paths of its conversion webhook, by the names of definitions

	// stages are what a user does, one after the other.
	stages []stage
	more   func(*site)
	// controllers says that it writes to objects at any time: to their status and their finalizers.
	controllers bool

	// unowned are objects whose managedFields differ, with the reason.
	unowned map[string]string

	// denied is the number of requests at least that its webhooks refuse, and changes are in objects that they have
	// changed, and in no others.
	denied  int
	changes []string
}

// stage is a number of objects that are created, read in every version, updated, applied.
type stage struct {
	// The stage begins when the answers to these requests contain a text: an operator sees what was written in the stage
	// before a moment later.
	until []sign
	files []string // patterns, in its sources or in testdata
}

// sign is a dry run of creating the first object of a file, and a text in the answer.
type sign struct{ file, text string }

// operators are the projects.
var operators = []operator{
	{
		name:    "cert-manager",
		modules: map[string]string{".": "github.com/cert-manager/cert-manager@v1.21.2"},
		command: "cmd/webhook", main: "cert-manager.go.txt",
		args: func(s *site) []string {
			return []string{"--kubeconfig", s.server.Kubeconfig, "--secure-port", s.port, "--healthz-port", s.health,
				"--tls-cert-file", s.certificate, "--tls-private-key-file", s.key, "--metrics-listen-address", "0"}
		},
		ready:     "/healthz",
		manifests: []string{"deploy/crds/*.yaml"},
		chart: func() []string {
			return []string{"deploy/charts/cert-manager", "--namespace", "cert-manager"}
		},
		stages: []stage{{files: []string{"testdata/cert-manager/*.yaml"}}},
		more:   approvals,
		denied: 10, changes: []string{`"username":"admin"`},
	},
	{
		name: "prometheus-operator",
		modules: map[string]string{
			".":                   "github.com/prometheus-operator/prometheus-operator@v0.85.0",
			"pkg/apis/monitoring": "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring@v0.85.0",
			"pkg/client":          "github.com/prometheus-operator/prometheus-operator/pkg/client@v0.85.0",
		},
		command: "cmd/admission-webhook",
		args: func(s *site) []string {
			return []string{"--web.listen-address", "127.0.0.1:" + s.port, "--web.enable-tls=true",
				"--web.cert-file", s.certificate, "--web.key-file", s.key}
		},
		manifests: []string{"example/prometheus-operator-crd-full/*.yaml",
			"test/framework/resources/alertmanager-config-validating-webhook.yaml",
			"test/framework/resources/prometheus-operator-*webhook.yaml"},
		converts: map[string]string{"alertmanagerconfigs.monitoring.coreos.com": "/convert"},
		stages: []stage{{files: []string{
			"example/user-guides/alerting/*-example*.yaml", "example/user-guides/getting-started/*.yaml",
			"testdata/prometheus-operator/*.yaml"}}},
		unowned: map[string]string{
			"not-texts": "it fits the schema after a webhook has changed it: the reference records no managers for it",
		},
		denied: 8, changes: []string{`"whole":"1"`, `"prometheus-operator-validated":"true"`},
	},
	{
		name:    "gatekeeper",
		modules: map[string]string{".": "github.com/open-policy-agent/gatekeeper/v3@v3.23.1"},
		command: ".",
		args: func(s *site) []string {
			return []string{"--port", s.port, "--health-addr", "127.0.0.1:" + s.health, "--disable-cert-rotation",
				"--cert-dir", filepath.Dir(s.certificate), "--operation=webhook", "--operation=mutation-webhook",
				"--operation=mutation-controller", "--operation=generate", "--operation=status", "--operation=mutation-status",
				"--exempt-namespace=gatekeeper-system", "--enable-k8s-native-validation=false", "--shutdown-delay=0"}
		},
		ready:     "/readyz",
		manifests: []string{"deploy/gatekeeper.yaml", "testdata/gatekeeper/pod.yaml"},
		stages: []stage{
			{files: []string{"demo/agilebank/templates/k8s[acr]*.yaml", "demo/basic/bad/bad_template.yaml",
				"demo/basic/templates/k8suniquelabel_template.yaml"}},
			{files: []string{"demo/agilebank/constraints/[cop]*.yaml", "demo/basic/bad/bad_constraint_labelselector.yaml",
				"testdata/gatekeeper/constraints.yaml", "testdata/gatekeeper/mutators.yaml"},
				until: []sign{
					{"demo/agilebank/constraints/containers_must_be_limited.yaml", constraint},
					{"demo/agilebank/constraints/owner_must_be_provided.yaml", constraint},
					{"demo/agilebank/constraints/probes_must_be_provided.yaml", constraint},
					{"demo/agilebank/constraints/prod_repo_is_openpolicyagent.yaml", constraint}}},
			{files: []string{"demo/agilebank/bad_resources/namespace.yaml",
				"demo/agilebank/good_resources/namespace.yaml"},
				until: []sign{{"demo/agilebank/bad_resources/namespace.yaml", "[all-must-have-owner]"}}},
			{files: []string{"demo/agilebank/bad_resources/opa*.yaml", "demo/agilebank/bad_resources/deployment_nolimit.yaml",
				"demo/agilebank/good_resources/opa.yaml", "testdata/gatekeeper/resources.yaml"},
				until: []sign{
					{"demo/agilebank/bad_resources/opa_wrong_repo.yaml", "[prod-repo-is-openpolicyagent]"},
					{"demo/agilebank/bad_resources/opa_wrong_repo.yaml", "[must-have-probes]"},
					{"demo/agilebank/bad_resources/opa_no_limits.yaml", "[container-must-have-limits]"},
					{"testdata/gatekeeper/resources.yaml", `"imagePullPolicy":"Always"`},
					{"testdata/gatekeeper/resources.yaml", `"team":"platform"`}}},
		},
		controllers: true,
		denied:      8, changes: []string{`"team":"platform"`, `"imagePullPolicy":"Always"`},
	},
}

// constraint is in an admitted constraint.
const constraint = `"apiVersion":"constraints.gatekeeper.sh/v1beta1"`

// An operator's webhooks work on Plinth as on the reference.
//
// SPEC: AUTH-3, EXT-1
func TestOperators(t *testing.T) {
	asked := os.Getenv("OPERATORS")
	if asked == "" {
		t.Skip("OPERATORS is not set")
	}
	for _, o := range operators {
		t.Run(o.name, func(t *testing.T) {
			if asked != "1" && !slices.Contains(strings.Split(asked, ","), o.name) {
				t.Skip("OPERATORS names others")
			}
			source, program := o.build(t)
			port, health := freePort(t), freePort(t)
			there := o.run(t, harness.Reference, source, program, port, health)
			here := o.run(t, harness.Plinth, source, program, port, health)
			o.compare(t, there, here)
		})
	}
}

// build builds the server.
func (o *operator) build(t *testing.T) (source, program string) {
	source, program = filepath.Join(t.TempDir(), o.name), filepath.Join(t.TempDir(), "webhook")
	if err := modules.Copy(source, o.modules); err != nil {
		t.Fatal(err)
	}
	if o.main != "" {
		text, err := os.ReadFile(filepath.Join("testdata", o.main))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(source, o.command), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(source, o.command, "main.go"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", program, "./"+o.command)
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building it: %v\n%s", err, out)
	}
	return source, program
}

// run returns the answers of one server.
func (o *operator) run(t *testing.T, kind harness.Kind, source, program, port, health string) []answer {
	s := newSite(t, kind, o, source, port, health)
	s.install()
	defer s.start(program)()
	s.ready()
	for _, stage := range o.stages {
		s.await(stage)
		for _, file := range stage.files {
			for _, object := range s.read(file) {
				s.exercise(object)
			}
		}
	}
	if o.more != nil {
		o.more(s)
	}
	s.remove()
	return s.answers
}

// around is the part of a text where it differs from another.
func around(text, other string) string {
	i := 0
	for i < min(len(text), len(other)) && text[i] == other[i] {
		i++
	}
	return text[max(0, i-300):min(len(text), i+500)]
}

// compare demands equal answers.
func (o *operator) compare(t *testing.T, there, here []answer) {
	denied, differ := 0, map[string]bool{} // the latter: objects whose managedFields differ
	for i := range max(len(there), len(here)) {
		if i >= len(there) || i >= len(here) {
			t.Errorf("the reference gives %d answers, Plinth %d", len(there), len(here))
			break
		}
		a, b := there[i], here[i]
		if a.request != b.request {
			t.Fatalf("answer %d is to %s there, and to %s here", i, a.request, b.request)
		}
		if a.text != b.text {
			t.Errorf("%s\nthe reference: %s\nPlinth:        %s", a.request, around(a.text, b.text), around(b.text, a.text))
		}
		if a.managers != b.managers && o.unowned[a.name] != "" {
			differ[a.name] = true
		} else if a.managers != b.managers {
			t.Errorf("%s, the managers\nthe reference: %s\nPlinth:        %s", a.request, around(a.managers, b.managers),
				around(b.managers, a.managers))
		}
		if strings.Contains(a.text, "denied the request") {
			denied++
		}
	}
	for name := range o.unowned {
		if !differ[name] {
			t.Errorf("the managedFields of %s are equal now", name)
		}
	}
	t.Logf("%s: %d answers compared; %d refusals by webhooks", o.name, len(there), denied)
	if denied < o.denied {
		t.Errorf("too few for a comparison: %d refusals are expected", o.denied)
	}
	for _, change := range o.changes {
		if !slices.ContainsFunc(there, func(a answer) bool { return strings.Contains(a.text, change) }) {
			t.Errorf("no webhook has changed an object: none has %s", change)
		}
	}
}
