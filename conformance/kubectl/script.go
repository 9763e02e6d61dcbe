package kubectl

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"plinth/conformance/internal/harness"
)

// step is one command and what it printed.
type step struct {
	title, differs, command, stdin, output string
	line                                   int
}

// script is one file of testdata.
type script struct {
	file, head string
	steps      []*step
}

func load(file string) (*script, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &script{file: file}
	parts := strings.Split("\n"+string(text), "\n=== ")
	s.head = strings.TrimSpace(parts[0])
	line := 1 + strings.Count(parts[0], "\n")
	for _, part := range parts[1:] {
		st := &step{line: line}
		line += 1 + strings.Count(part, "\n")
		request, output, _ := strings.Cut(part, "\n-->")
		st.output = strings.TrimSpace(output)
		title, rest, _ := strings.Cut(request, "\n")
		st.title = strings.TrimSpace(title)
		if after, ok := strings.CutPrefix(rest, "@differs "); ok {
			st.differs, rest, _ = strings.Cut(after, "\n")
		}
		command, stdin, _ := strings.Cut(rest, "\n")
		var ok bool
		if st.command, ok = strings.CutPrefix(command, "$ "); !ok {
			return nil, fmt.Errorf("%s:%d: %q is no command", file, st.line, command)
		}
		st.stdin = strings.TrimSpace(stdin)
		s.steps = append(s.steps, st)
	}
	return s, nil
}

func (s *script) print() []byte {
	var out bytes.Buffer
	out.WriteString(s.head)
	for _, st := range s.steps {
		out.WriteString("\n\n=== " + st.title + "\n")
		if st.differs != "" {
			out.WriteString("@differs " + st.differs + "\n")
		}
		out.WriteString("$ " + st.command + "\n")
		if st.stdin != "" {
			out.WriteString(st.stdin + "\n")
		}
		out.WriteString("-->\n" + st.output)
	}
	out.WriteString("\n")
	return out.Bytes()
}

// shell runs commands against one server, with kubectl in its path and a home of its own for discovery's cache.
type shell struct {
	server *harness.Server
	home   string
	env    []string
}

func newShell(server *harness.Server, home string) (*shell, error) {
	program, err := harness.Kubectl()
	if err != nil {
		return nil, err
	}
	s := &shell{server: server, home: home}
	s.env = append(os.Environ(), "KUBECONFIG="+server.Kubeconfig, "HOME="+home, "TZ=UTC", "LC_ALL=C",
		"PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "KUBECTL_KUBERC=false")
	return s, nil
}

// commandTimeout is far beyond what any command takes.
const commandTimeout = 60 * time.Second

// run executes a shell line and returns what it printed, normalised.
func (s *shell) run(command, stdin string) string {
	cmd := exec.Command("timeout", fmt.Sprint(commandTimeout.Seconds()), "sh", "-c", command)
	cmd.Env, cmd.Dir = s.env, s.home
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	out := stdout.String()
	if text := strings.TrimRight(stderr.String(), "\n"); text != "" {
		for line := range strings.SplitSeq(text, "\n") {
			out += "! " + line + "\n"
		}
	}
	if err != nil {
		out += "(" + err.Error() + ")\n"
	}
	return s.normalise(out)
}

// What is different in every run, and what stands in its place.
var different = []struct {
	found *regexp.Regexp
	as    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`20[23]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000`), "<time>"},
	{regexp.MustCompile(`(resourceVersion"?: "|Resource Version: +)\d+`), "${1}<rv>"},
	{regexp.MustCompile(`\b10\.0\.\d{1,3}\.\d{1,3}\b`), "<clusterIP>"},
	{regexp.MustCompile(`\b3[0-2]\d{3}/TCP`), "<nodePort>/TCP"},
	{regexp.MustCompile(`(nodePort"?: |NodePort: +\S+ +)3[0-2]\d{3}`), "${1}<nodePort>"},
	{regexp.MustCompile(`(-[a-z]*)[bcdfghjklmnpqrstvwxz2456789]{5}( created)`), "${1}<random>${2}"},
	// An age, at the end of a cell: alone, or in brackets.
	{regexp.MustCompile(`(?m)( |^|\()(\d{1,3}s|\d{1,2}m(\d{1,2}s)?|\d{1,2}h(\d{1,2}m)?)( ago\)|\)| {2,}|$)`), "${1}<age>${5}"},
	// The widths of columns follow the longest cell, ages too.
	{regexp.MustCompile(`(\S) {2,}`), "${1}  "},
	{regexp.MustCompile(`(?m) +$`), ""},
	{regexp.MustCompile(`(?m)^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ `), ""},
}

func (s *shell) normalise(out string) string {
	out = strings.ReplaceAll(out, s.server.URL, "<server>")
	out = strings.ReplaceAll(out, s.home, "<home>")
	for range 2 { // two ages side by side share the space between them
		for _, d := range different {
			out = d.found.ReplaceAllString(out, d.as)
		}
	}
	return strings.TrimSpace(out)
}
