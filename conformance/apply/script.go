package apply

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// step is one command or request and what became of it.
type step struct {
	title, comment string
	differs        string   // why Plinth is known to answer otherwise
	show           []string // objects to print afterwards
	headers        []string // of a request: "Name: value"
	command        string   // lines behind "$ ", or a request line
	stdin          string   // the standard input or the body
	want           string   // what the reference answered
	differently    string   // what Plinth answers, where it differs
	line           int
}

// script is one file of testdata.
type script struct {
	file, head string
	steps      []*step
}

func (s *script) name() string { return strings.TrimSuffix(filepath.Base(s.file), ".txt") }

const (
	stepMark      = "=== "
	wantMark      = "-->"
	differentMark = "~~>"
)

func loadAll(dir string) ([]*script, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var scripts []*script
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s, err := parse(file, string(text))
		if err != nil {
			return nil, err
		}
		scripts = append(scripts, s)
	}
	return scripts, nil
}

func parse(file, text string) (*script, error) {
	s := &script{file: file}
	parts := strings.Split("\n"+text, "\n"+stepMark)
	s.head = strings.TrimSpace(parts[0])
	line := 1 + strings.Count(parts[0], "\n")
	for _, part := range parts[1:] {
		st, err := parseStep(part)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, line, err)
		}
		st.line = line
		line += 1 + strings.Count(part, "\n")
		s.steps = append(s.steps, st)
	}
	return s, nil
}

func parseStep(text string) (*step, error) {
	request, answers, _ := strings.Cut(text, "\n"+wantMark)
	want, differently, _ := strings.Cut(answers, "\n"+differentMark)
	title, rest, _ := strings.Cut(request, "\n")
	st := &step{title: strings.TrimSpace(title), want: strings.TrimSpace(want), differently: strings.TrimSpace(differently)}
	for st.command == "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		word, argument, _ := strings.Cut(line, " ")
		argument = strings.TrimSpace(argument)
		switch {
		case strings.HasPrefix(line, "#"):
			st.comment += line + "\n"
		case word == "@differs" && argument != "":
			st.differs = argument
		case word == "@show" && argument != "":
			st.show = strings.Fields(argument)
		case word == "@header" && argument != "":
			st.headers = append(st.headers, argument)
		case word == "$" || methods[word].method != "":
			st.command = line
		default:
			return nil, fmt.Errorf("%q is neither a directive nor a command", line)
		}
	}
	for strings.HasPrefix(st.command, "$ ") && strings.HasPrefix(rest, "$ ") {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		st.command += "\n" + line
	}
	st.stdin = strings.TrimSpace(rest)
	return st, nil
}

// print writes a script as parse reads it.
func (s *script) print() []byte {
	var out bytes.Buffer
	out.WriteString(s.head)
	for _, st := range s.steps {
		out.WriteString("\n\n" + stepMark + st.title + "\n" + st.comment)
		if st.differs != "" {
			out.WriteString("@differs " + st.differs + "\n")
		}
		for _, header := range st.headers {
			out.WriteString("@header " + header + "\n")
		}
		if len(st.show) > 0 {
			out.WriteString("@show " + strings.Join(st.show, " ") + "\n")
		}
		out.WriteString(st.command + "\n")
		if st.stdin != "" {
			out.WriteString(st.stdin + "\n")
		}
		out.WriteString(wantMark + "\n" + st.want)
		if st.differs != "" && st.differently != "" {
			out.WriteString("\n" + differentMark + "\n" + st.differently)
		}
	}
	out.WriteString("\n")
	return out.Bytes()
}
