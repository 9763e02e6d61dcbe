package kubectl

import (
	"fmt"
	"regexp"
	"strings"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/records"
	"plinth/conformance/internal/shell"
)

// step is one command and what it printed.
type step struct {
	title, differs, command, stdin string
	output                         string // with the reference
	differently                    string // with Plinth, where it differs
	line                           int
}

// script is one file of testdata.
type script struct {
	file, head string
	steps      []*step
}

func parse(file, text string) (*script, error) {
	head, steps, err := records.Parse(file, text, parseStep)
	return &script{file, head, steps}, err
}

func parseStep(section records.Section) (*step, error) {
	st := &step{title: section.Title, line: section.Line, output: section.Answer, differently: section.Differently}
	rest := section.Step
	if after, ok := strings.CutPrefix(rest, "@differs "); ok {
		st.differs, rest, _ = strings.Cut(after, "\n")
	}
	command, stdin, _ := strings.Cut(rest, "\n")
	var ok bool
	if st.command, ok = strings.CutPrefix(command, "$ "); !ok {
		return nil, fmt.Errorf("%q is no command", command)
	}
	st.stdin = strings.TrimSpace(stdin)
	return st, nil
}

func (s *script) print() []byte { return records.Print(s.head, s.steps, (*step).section) }

func (st *step) section() records.Section {
	text := "$ " + st.command + "\n" + st.stdin
	section := records.Section{Title: st.title, Step: text, Answer: st.output}
	if st.differs != "" {
		section.Step, section.Differently = "@differs "+st.differs+"\n"+text, st.differently
	}
	return section
}

// runner runs commands with one server, with a separate home for the discovery cache.
type runner struct {
	server *harness.Server
	home   string
	shell  *shell.Shell
}

func newRunner(server *harness.Server, home string) (*runner, error) {
	sh, err := shell.New(home, home, server.Kubeconfig)
	return &runner{server, home, sh}, err
}

// run runs a shell line and returns its output, normalised.
func (r *runner) run(command, stdin string) string {
	return r.normalise(r.shell.Run(command, stdin).String())
}

// Texts that differ in every run, and their replacements.
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
	{regexp.MustCompile(
		`(?m)( |^|\()(\d{1,3}s|\d{1,2}m(\d{1,2}s)?|\d{1,2}h(\d{1,2}m)?|\d{1,4}d(\d{1,2}h)?|\d{1,3}y(\d{1,3}d)?)( ago\)|\)| {2,}|$)`), "${1}<age>${7}"},
	// The widths of columns follow the longest cell, ages too.
	{regexp.MustCompile(`(\S) {2,}`), "${1}  "},
	{regexp.MustCompile(`(?m) +$`), ""},
	{regexp.MustCompile(`(?m)^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ `), ""},
}

func (r *runner) normalise(out string) string {
	out = strings.ReplaceAll(out, r.server.URL, "<server>")
	out = strings.ReplaceAll(out, r.home, "<home>")
	for range 2 { // two ages side by side share the space between them
		for _, d := range different {
			out = d.found.ReplaceAllString(out, d.as)
		}
	}
	return strings.TrimSpace(out)
}
