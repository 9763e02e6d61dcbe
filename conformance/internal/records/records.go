// Package records reads and writes the files with recorded responses of the reference. A file is a script: a head of
// comments and then sections, each with a title, a step and its response. The package whose script it is interprets the
// steps.
//
// A step in which Plinth is known to differ has Plinth's response below the reference's: any third response is an
// error.
package records

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plinth/conformance/internal/linediff"
)

const (
	titleMark     = "=== "
	answerMark    = "-->"
	differentMark = "~~>"
)

// Section is one step and its response.
type Section struct {
	Title        string
	Line         int // line number of the title
	Step, Answer string
	Differently  string // Plinth's response, where it is known to differ

	answered bool // a response may be empty, if a command prints nothing
}

// split divides the text of a file into its head and sections.
func split(text string) (head string, sections []Section) {
	parts := strings.Split("\n"+text, "\n"+titleMark)
	line := 1 + strings.Count(parts[0], "\n")
	for _, part := range parts[1:] {
		title, rest, _ := strings.Cut(part, "\n")
		step, answer, answered := strings.Cut(rest, "\n"+answerMark)
		answer, differently, _ := strings.Cut(answer, "\n"+differentMark)
		sections = append(sections, Section{Title: strings.TrimSpace(title), Line: line, Step: strings.TrimRight(step, "\n"),
			Answer: strings.TrimSpace(answer), Differently: strings.TrimSpace(differently), answered: answered})
		line += 1 + strings.Count(part, "\n")
	}
	return strings.TrimRight(strings.TrimPrefix(parts[0], "\n"), "\n"), sections
}

// Parse divides the text of a file into sections and parses each into a step.
func Parse[Step any](file, text string, parse func(Section) (Step, error)) (head string, steps []Step, err error) {
	head, sections := split(text)
	if len(sections) == 0 {
		return "", nil, fmt.Errorf("%s has no steps", file)
	}
	for _, section := range sections {
		step, err := parse(section)
		if err == nil && !section.answered && !rewriting() {
			err = fmt.Errorf("%s has no answer: -rewrite asks the reference", section.Title)
		}
		if err != nil {
			return "", nil, fmt.Errorf("%s:%d: %w", file, section.Line, err)
		}
		steps = append(steps, step)
	}
	return head, steps, nil
}

// rewriting says whether this run writes the responses.
func rewriting() bool {
	f := flag.Lookup("rewrite")
	return f != nil && f.Value.String() == "true"
}

// Print is the inverse of Parse.
func Print[Step any](head string, steps []Step, section func(Step) Section) []byte {
	var out bytes.Buffer
	out.WriteString(head)
	for _, step := range steps {
		s := section(step)
		out.WriteString("\n\n" + titleMark + s.Title + "\n")
		out.WriteString(strings.TrimRight(s.Step, "\n") + "\n")
		out.WriteString(answerMark + "\n" + s.Answer)
		if s.Differently != "" {
			out.WriteString("\n" + differentMark + "\n" + s.Differently)
		}
	}
	out.WriteString("\n")
	return out.Bytes()
}

// Load reads all scripts of testdata, in the order of their names.
func Load[Script any](t testing.TB, parse func(file, text string) (Script, error)) []Script {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no scripts")
	}
	var scripts []Script
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script, err := parse(file, string(text))
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, script)
	}
	return scripts
}

// Name returns the name of the subtest for a file.
func Name(file string) string { return strings.TrimSuffix(filepath.Base(file), ".txt") }

// Unchanged fails a test if the printed script differs from the file: recording must change only responses.
func Unchanged(t testing.TB, file string, printed []byte) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, printed) {
		t.Errorf("%s is printed otherwise:\n%s", file, linediff.Diff(string(text), string(printed)))
	}
}
