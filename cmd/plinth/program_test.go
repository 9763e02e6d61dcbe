package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// `plinth` alone says how to begin and lists all commands; the help of a command is that of `plinth help COMMAND`.
//
// SPEC: RUN-10
func TestHelp(t *testing.T) {
	alone, err := plinth()
	if err != nil {
		t.Fatal(err)
	}
	help, err := plinth("help")
	if err != nil || help != alone || !strings.Contains(alone, "plinth serve ") {
		t.Errorf("%v:\n%s\nand alone:\n%s", err, help, alone)
	}
	root := program(os.Stdout)
	listed := 0
	for _, c := range root.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		listed++
		if !strings.Contains(alone, "plinth "+c.Use) && !slices.Contains([]string{"version", "completion"}, c.Name()) {
			t.Errorf("%s is not listed:\n%s", c.Name(), alone)
		}
		one, err1 := plinth("help", c.Name())
		two, err2 := one, err1
		if !c.DisableFlagParsing { // then --help is for another program
			two, err2 = plinth(c.Name(), "--help")
		}
		if err1 != nil || err2 != nil || one != two || !strings.Contains(one, "Usage:\n  plinth "+c.Name()) {
			t.Errorf("%s: %v, %v\n%s\n%s", c.Name(), err1, err2, one, two)
		}
		if strings.ContainsRune(one, '\x1b') {
			t.Errorf("%s: there are colours where there is no terminal:\n%q", c.Name(), one)
		}
	}
	if listed < 6 {
		t.Errorf("only %d commands", listed)
	}
}

// The help of a server has ten flags, --help-all has all of them, and each topic has its own.
//
// SPEC: RUN-10
func TestHelpOfServers(t *testing.T) {
	count := func(text string) (n int) {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(strings.TrimLeft(line, " "), "-") && !strings.Contains(line, "--"+helpAll+" ") {
				n++
			}
		}
		return n
	}
	for _, program := range []string{"serve", "test-server"} {
		short, err := plinth("help", program)
		if n := count(short); err != nil || n != 10 || !strings.Contains(short, "--"+helpAll) {
			t.Errorf("%s: %d flags, %v:\n%s", program, n, err, short)
		}
		want := serveFlags(defaults("plinth serve"))
		if program == "test-server" {
			want = testServerFlags(testDefaults())
		}
		all := 0
		for _, s := range want {
			all += len(s.rows)
		}
		long, err := plinth(program, "--"+helpAll)
		if n := count(long); err != nil || n != all {
			t.Errorf("%s: %d flags of %d, %v:\n%s", program, n, all, err, long)
		}
	}
	sum := 0
	for _, name := range topics() {
		text, err := plinth("help", "serve", name)
		if err != nil {
			t.Error(err)
		}
		sum += count(text)
	}
	if long, _ := plinth("serve", "--"+helpAll); sum != count(long) || sum < 150 {
		t.Errorf("the topics have %d flags", sum)
	}
}

// SPEC: RUN-10
func TestNearest(t *testing.T) {
	words := []string{"serve", "test-server", "secure-port", "storage", "etcd-servers", "data-dir"}
	for word, want := range map[string]string{
		"serv": "serve", "sevre": "serve", "secure-prot": "secure-port", "sec": "secure-port", "dta-dir": "data-dir",
		"etcd-server": "etcd-servers", "colour": "", "x": "", "DATA-DIR": "data-dir",
	} {
		if got := nearest(word, words); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

// Only a report has several lines.
//
// SPEC: RUN-10
func TestErrorsAreOneLine(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("yaml: unmarshal errors:\n  line 1: a\n\n  line 2: b\n"),
	} {
		if got := oneLine(err); got != "yaml: unmarshal errors: line 1: a; line 2: b" {
			t.Error(got)
		}
	}
	if got := oneLine(fmt.Errorf("it: %w", &reportError{"a\n  b"})); got != "it: a\n  b" {
		t.Error(got)
	}
}

// A style of what is no terminal has no colours, and NO_COLOR takes them away.
//
// SPEC: RUN-10
func TestColours(t *testing.T) {
	if got := styleOf(os.Stdout).red("x") + (style{}).bold("x"); !isTerminal(os.Stdout) && got != "xx" {
		t.Errorf("%q", got)
	}
	if got := (style{true}).red("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("%q", got)
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Logf("there is no terminal to try: %v", err)
		return
	}
	defer terminal.Close()
	t.Setenv("TERM", "xterm")
	for value, want := range map[string]bool{"": true, "1": false} {
		t.Setenv("NO_COLOR", value)
		if got := styleOf(terminal); got.on != want {
			t.Errorf("NO_COLOR=%q: colours are %t", value, got.on)
		}
	}
}

// Values of a configuration file are those of the command line, which wins.
//
// SPEC: RUN-10
func TestConfigFile(t *testing.T) {
	const text = `# my server
data-dir: /var/lib/plinth
secure-port: 7443
cert_dir: /certs
profiling: true
event-ttl: 2h
controllers: ["*", -namespace-controller]
feature-gates: {A: true, B: false}
service-account-issuer:
- https://a
- https://b
etcd-servers: http://a,http://b
audit-log-path: "-"
allow-metric-labels: {"m,l": v}
`
	for _, program := range []string{"plinth serve", kubeAPIServer} {
		s, err := configure(program, []string{"--config", file(t, "c.yaml", text), "--secure-port=1", "--controllers=x"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !s.DataDirGiven || s.DataDir != "/var/lib/plinth" || s.SecurePort != 1 || s.CertDir != "/certs" ||
			!s.Profiling || s.EventTTL.Hours() != 2 || fmt.Sprint(s.Controllers) != "[x]" ||
			fmt.Sprint(s.FeatureGates) != "[A=true B=false]" || s.Audit.Log.Path != "-" ||
			fmt.Sprint(s.ServiceAccounts.Issuers) != "[https://a https://b]" ||
			fmt.Sprint(s.Etcd.Servers) != "[http://a http://b]" || s.Metrics.Labels["m,l"] != "v" {
			t.Errorf("%s: %+v", program, s)
		}
	}
	for _, empty := range []string{"", "# nothing\n", "---\n"} {
		if _, err := configure("plinth serve", []string{"--config", file(t, "c.yaml", empty)}, nil); err != nil {
			t.Errorf("%q: %v", empty, err)
		}
	}
}

var manDir = flag.String("man", "", "the directory to write the man pages to")

// The man pages are made from the commands; a release has them. With -man they are written to a directory.
//
// SPEC: RUN-10
func TestManPages(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	}
	root := program(os.Stdout)
	header := &doc.GenManHeader{Title: "PLINTH", Section: "1", Source: "Plinth", Manual: "Plinth"}
	root.DisableAutoGenTag = true // the date would differ in each build
	if err := doc.GenManTree(root, header, dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(root.Commands(), root) {
		if c != root && !c.IsAvailableCommand() {
			continue
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.HasPrefix(string(text), ".nh\n.TH") {
			t.Errorf("%s: %v, %.60q", name, err, text)
			continue
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(string(text), `\-\-`+strings.ReplaceAll(f.Name, "-", `\-`)) &&
				!strings.Contains(string(text), "--"+f.Name) {
				t.Errorf("%s lacks --%s", name, f.Name)
			}
		})
	}
}

// complete is what a shell gets for the words of a command line.
func complete(t *testing.T, words ...string) []string {
	t.Helper()
	text, err := plinth(append([]string{cobra.ShellCompNoDescRequestCmd}, words...)...)
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return strings.Split(strings.TrimSpace(text), "\n")
}

// SPEC: RUN-10
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"":                              "serve",
		"help ":                         "merge",
		"help serve ":                   "auditing",
		"completion ":                   "powershell",
		"serve --storage ":              "memory",
		"serve --log-level=":            "debug",
		"serve --secure":                "--secure-port",
		"test-server --logging-format ": "json",
		"merge --ap":                    "--apply",
	} {
		if got := complete(t, strings.Split(line, " ")...); !slices.Contains(got, want) {
			t.Errorf("%q: %q, want %s", line, got, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if text, err := plinth("completion", shell); err != nil || !strings.Contains(text, "__complete") {
			t.Errorf("%s: %v, %.100s", shell, err, text)
		}
	}
}
