package guides

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const root = "../../.."

// pages are those with commands that run, beside the guides.
var pages = []string{"README.md", "docs/encryption.md", "docs/operations.md"}

// The commands of all pages work as written, each page in one shell from an empty directory, and print what it shows.
//
// SPEC: URI-5, SSA-2, BEY-1, AUTH-1, AUTH-2, AUTH-3, RUN-2, STORE-2, STORE-5
func TestPages(t *testing.T) {
	guides, err := filepath.Glob(filepath.Join(root, "docs/guides/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	if err := linkPrograms(programs); err != nil {
		t.Fatal(err)
	}
	all := slices.Clone(pages)
	for _, guide := range guides {
		if filepath.Base(guide) != "README.md" { // the list of the guides
			all = append(all, "docs/guides/"+filepath.Base(guide))
		}
	}
	if len(all) < len(pages)+8 {
		t.Errorf("only %d pages were found", len(all))
	}
	for _, page := range all {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) { runPage(t, page, programs) })
	}
}

func runPage(t *testing.T, page, programs string) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	steps, elsewhere, err := parsePage(string(text))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	if strings.HasPrefix(page, "docs/guides/") && elsewhere > 0 {
		t.Errorf("%s: a guide runs whole", page)
	}
	shown := 0
	for _, s := range steps {
		if s.shown != nil {
			shown++
		}
	}
	if len(steps) < 2 || shown == 0 {
		t.Errorf("%s: only %d steps, and the output of %d of them, were found", page, len(steps), shown)
	}
	w := newWalk(t, programs)
	for _, complaint := range w.run(t.Context(), steps) {
		t.Errorf("%s: %s", page, complaint)
	}
	left, err := w.stopServers()
	if err != nil {
		t.Error(err)
	}
	if len(left) > 0 && !t.Failed() {
		t.Errorf("%s leaves servers in the background: %v", page, left)
	}
}

// Go code in README.md is part of a guide, in which it runs.
func TestCodeOfTheREADME(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile(filepath.Join(root, "docs/guides/testing-controllers.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "\n```\n")
		if !strings.Contains(string(guide), "\n"+code+"\n") {
			t.Errorf("the guide does not have this:\n%s", code)
		}
	}
	if len(blocks) == 0 {
		t.Error("no code was found")
	}
}

func newWalk(t *testing.T, programs string) *walk {
	t.Helper()
	sources, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{programs: programs, dir: t.TempDir(), home: t.TempDir(), env: []string{"PLINTH_SOURCES=" + sources}}
	// Go's caches are below the home directory: another one would have none, and build for minutes.
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		w.env = append(w.env, name+"="+strings.TrimSpace(string(value)))
	}
	return w
}

// A page that is not true is noticed, whatever is wrong with it.
func TestUntruePages(t *testing.T) {
	fence := func(begin, body string) string { return "```" + begin + "\n" + body + "\n```\n" }
	for name, c := range map[string]struct{ page, complaint string }{
		"true":                {fence("sh", "echo one   two; echo three") + fence("text", "one …\nthree"), ""},
		"lines are left out":  {fence("sh", "seq 9; printf end") + fence("text", "1\n…\n9\nend"), ""},
		"it fails as it says": {fence("sh fails", "ls /none") + fence("text", "ls: …: No such file or directory"), ""},
		"one shell": {fence("sh", "x=1; mkdir d; cd d") + fence("sh", "echo $x $(basename $PWD); cd ..") +
			fence("text", "1 d"), ""},
		"head ends what is in front of it": {fence("sh", "seq 99999 | head -1") + fence("text", "1"), ""},

		"a word":             {fence("sh", "echo one") + fence("text", "two"), "- two\n+ one"},
		"indentation":        {fence("sh", "echo ' one'") + fence("text", "one"), "shows something else"},
		"a line more":        {fence("sh", "echo one; echo two") + fence("text", "one"), "+ two"},
		"a line less":        {fence("sh", "echo one") + fence("text", "one\ntwo"), "- two"},
		"another reason":     {fence("sh fails", "ls /none") + fence("text", "ls: …: denied"), "denied"},
		"no failure":         {fence("sh fails", "echo none") + fence("text", "none"), "one command is to fail"},
		"two failures":       {fence("sh fails", "false\nfalse\necho no") + fence("text", "no"), "one command is to fail"},
		"a failure":          {fence("sh", "false\necho on") + fence("sh", "true"), "this failed: 1 false"},
		"in front of a pipe": {fence("sh", "ls /none | cat"), "this failed: 2 "},
		"in a substitution":  {fence("sh", "echo $(ls /none)"), "this failed: 2 ls /none"},
		"in a function":      {fence("sh", "f() { ls /none; echo; }\nf"), "this failed: 2 ls /none"},
		"an unset variable":  {fence("sh", "echo $nothing"), "the shell ended in step 1 of 1"},
		"no end of a file":   {fence("sh", "cat <<END\nx"), "no whole script"},
		"another directory":  {fence("sh", "cd /"), "not where it began"},
		"an exit":            {fence("sh", "exit 0") + fence("sh", "true"), "the shell ended in step 1 of 2"},

		"no reason":         {fence("sh fails", "false"), "does not show why"},
		"any reason":        {fence("sh fails", "false") + fence("text", "…"), "does not show why"},
		"hidden failures":   {fence("sh", "false || true"), "hide failures"},
		"output of nothing": {fence("text", "x"), "the output of no commands"},
		"another word":      {fence("sh failing", "false"), "begins with"},
		"no end":            {"```sh\ntrue\n", "has no end"},
	} {
		t.Run(name, func(t *testing.T) {
			steps, _, err := parsePage(c.page)
			var complaints []string
			if err != nil {
				complaints = []string{err.Error()}
			} else {
				w := &walk{dir: t.TempDir(), home: t.TempDir()}
				complaints = w.run(t.Context(), steps)
			}
			got := strings.Join(complaints, "\n")
			if c.complaint == "" && got != "" || !strings.Contains(got, c.complaint) {
				t.Errorf("got %q, want %q", got, c.complaint)
			}
		})
	}
}
