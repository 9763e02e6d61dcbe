package envtest

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

var rewrite = flag.Bool("rewrite", false, "record the flags of the reference")

func TestMain(m *testing.M) { harness.Main(m) }

// shape is the type and the default of a flag in the help.
type shape struct{ kind, value string }

var (
	// Package pflag's: two spaces at least behind the name and the type.
	serverFlag = regexp.MustCompile(`^ +(?:-[a-z], )?--([a-z0-9-]+)(?: ([^ ]+(?: [^ ]+)*?))?(?:  +(.*))?$`)
	defaultOf  = regexp.MustCompile(`(?s)\(default "?(.*?)"?\)\s*$`)
	// etcd's own: the default is behind the name, in quotes or not.
	etcdFlag = regexp.MustCompile(`^  (?:etcd )?--([a-z0-9-]+)(?: '?([^']*?)'?)?$`)
)

// serverFlags reads the help of kube-apiserver.
func serverFlags(help string) map[string]shape {
	flags := map[string]shape{}
	name, text := "", ""
	end := func() {
		if name == "" {
			return
		}
		s := flags[name]
		if m := defaultOf.FindStringSubmatch(text); m != nil && m[1] != "[]" { // the help has this for some empty defaults
			s.value = m[1]
		}
		flags[name], name = s, ""
	}
	for line := range strings.SplitSeq(help, "\n") {
		m := serverFlag.FindStringSubmatch(line)
		if m == nil {
			if strings.TrimSpace(line) == "" {
				end()
			}
			text += "\n" + strings.TrimSpace(line)
			continue
		}
		end()
		kind := "value"
		if m[2] == "" || strings.HasSuffix(m[2], "[=true]") {
			kind = "switch" // a flag without a value
		}
		name, text = m[1], m[3]
		flags[name] = shape{kind: kind}
	}
	end()
	delete(flags, "help")
	return flags
}

// etcdFlags reads the help of etcd. It does not mark the flags that need no value: those with the default true or
// false.
func etcdFlags(help string) map[string]shape {
	flags := map[string]shape{}
	for line := range strings.SplitSeq(help, "\n") {
		m := etcdFlag.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		kind := "value"
		if m[2] == "true" || m[2] == "false" {
			kind = "switch"
		}
		flags[m[1]] = shape{kind: kind}
	}
	return flags
}

// switches are the flags of etcd whose type the help does not show.
var switches = []string{"memory-mlock", "enable-grpc-gateway", "version"}

func record(flags map[string]shape) []byte {
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintln(&text, strings.TrimRight(name+" "+flags[name].kind+" "+flags[name].value, " "))
	}
	return text.Bytes()
}

func recorded(t *testing.T, file string) map[string]shape {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]shape{}
	for line := range strings.Lines(string(text)) {
		parts := append(strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3), "")
		flags[parts[0]] = shape{parts[1], parts[2]}
	}
	return flags
}

func help(t *testing.T, program string) string {
	t.Helper()
	text, err := exec.Command(program, "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v\n%s", program, err, text)
	}
	return string(text)
}

// Every flag of the reference exists and has the same type; those of kube-apiserver also have the same default. For
// each other flag, and for each default that differs, docs/flags.md has the reason.
//
// SPEC: RUN-1, RUN-2
func TestFlags(t *testing.T) {
	assets := assets(t)
	page, err := os.ReadFile("../../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	for program, c := range map[string]struct {
		read  func(string) map[string]shape
		least int
	}{"kube-apiserver": {serverFlags, 171}, "etcd": {etcdFlags, 115}} {
		file := filepath.Join("testdata", program+"-flags.txt")
		if harness.WantReference() {
			dir, err := reference.Build(os.Stderr)
			if err != nil {
				t.Fatal(err)
			}
			is := c.read(help(t, filepath.Join(dir, program)))
			for _, name := range switches {
				if s, ok := is[name]; ok && program == "etcd" {
					is[name] = shape{"switch", s.value}
				}
			}
			if *rewrite {
				if err := os.WriteFile(file, record(is), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if had := recorded(t, file); !maps.Equal(had, is) {
				t.Errorf("%s is not what the reference says any more", file)
			}
		}
		theirs, ours := recorded(t, file), serverFlags(help(t, filepath.Join(assets, program)))
		if len(theirs) < c.least {
			t.Errorf("only %d flags of %s are recorded", len(theirs), program)
		}
		for _, difference := range compare(theirs, ours, string(page), program == "kube-apiserver") {
			t.Errorf("%s: %s", program, difference)
		}
	}
}

// compare reports where flags differ without a reason on the page.
func compare(theirs, ours map[string]shape, page string, defaults bool) (differences []string) {
	row := func(name string) string {
		_, rest, _ := strings.Cut(page, "| `--"+name+"` |")
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	for name, want := range theirs {
		got, ok := ours[name]
		switch {
		case !ok:
			differences = append(differences, "--"+name+" is missing")
		case got.kind != want.kind:
			differences = append(differences, fmt.Sprintf("--%s is a %s, there a %s", name, got.kind, want.kind))
		case defaults && (got.value != want.value) != strings.Contains(row(name), "The default differs"):
			if name != "bind-address" && name != "cert-dir" { // compared under the other name
				differences = append(differences, fmt.Sprintf("--%s has the default %q, there %q, and docs/flags.md says%s", name,
					got.value, want.value, row(name)))
			}
		case defaults && got.value != want.value && (name == "bind-address" || name == "cert-dir"):
			differences = append(differences, fmt.Sprintf("--%s has the default %q, there %q", name, got.value, want.value))
		}
	}
	for name := range ours {
		if _, ok := theirs[name]; !ok && !strings.Contains(row(name), "Plinth only") {
			differences = append(differences, "--"+name+" is there without a reason")
		}
	}
	return differences
}

// TestCompare checks that compare reports each kind of difference.
func TestCompare(t *testing.T) {
	theirs := map[string]shape{"a": {"value", "1"}, "b": {"switch", ""}, "c": {"value", "x"}, "d": {"value", "x"}}
	ours := map[string]shape{"b": {"value", ""}, "c": {"value", "y"}, "d": {"value", "y"}, "e": {}, "f": {}}
	page := "| `--d` | `y` | works | d. The default differs: so |\n| `--e` | | Plinth only | e |\n"
	got := compare(theirs, ours, page, true)
	slices.Sort(got)
	want := []string{"--a is missing", "--b is a value, there a switch",
		`--c has the default "y", there "x", and docs/flags.md says`, "--f is there without a reason"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// Every admission plugin of the reference is accepted by its name.
//
// SPEC: RUN-1
func TestAdmissionPlugins(t *testing.T) {
	text, err := os.ReadFile("testdata/admission-plugins.txt")
	if harness.WantReference() {
		dir, err := reference.Build(os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(help(t, filepath.Join(dir, "kube-apiserver")),
			"Comma-delimited list of admission plugins: ")
		names, _, _ := strings.Cut(rest, ".")
		is := []byte(strings.ReplaceAll(names, ", ", "\n") + "\n")
		if *rewrite {
			if err := os.WriteFile("testdata/admission-plugins.txt", is, 0o644); err != nil {
				t.Fatal(err)
			}
			text = is
		}
		if !bytes.Equal(text, is) {
			t.Error("testdata/admission-plugins.txt is not what the reference says any more")
		}
	}
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	plugins := strings.Fields(string(text))
	if len(plugins) < 35 {
		t.Fatalf("only %d plugins are recorded", len(plugins))
	}
	out, _ := exec.Command(filepath.Join(assets(t), "kube-apiserver"), "--data-dir="+t.TempDir(),
		"--enable-admission-plugins="+strings.Join(append(plugins, "Nobody"), ",")).CombinedOutput()
	for _, name := range plugins {
		if strings.Contains(string(out), "no admission plugin "+fmt.Sprintf("%q", name)) {
			t.Errorf("%s is not known", name)
		}
	}
	if !strings.Contains(string(out), `no admission plugin "Nobody"`) {
		t.Errorf("it is not refused that there is no plugin Nobody:\n%s", out)
	}
}
