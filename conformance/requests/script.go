package requests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Script is one file of testdata.
type Script struct {
	File  string
	Head  string // the comment at its top
	Steps []*Step
	// Differs are paths of bodies at which Plinth is known to differ anywhere in this file, with the reason.
	Differs []*Difference
}

// Difference is a known difference. It has to show: one that no longer does fails the test.
type Difference struct {
	Paths  []string
	Reason string
	seen   bool
}

// Header is one line of a header; its order is that of the file.
type Header struct{ Name, Value string }

// Step is one request and what the reference answers.
type Step struct {
	Title    string
	Line     int
	Comments []string
	Method   string
	URL      string
	Headers  []Header
	Body     string

	Directives []string // as written, for printing

	Set       []Header      // variable = path in the answer
	Keep      []string      // if set, only these paths of the body are compared
	Drop      []string      // these are not
	Also      []string      // further headers of the answer to compare
	Differs   string        // why Plinth is known to answer otherwise
	DiffersAt []*Difference // where
	Anonymous bool          // no Authorization header
	Stream    string        // the name of a watch that stays open
	Events    int           // how many events to read
	Wait      time.Duration // how long to read
	Raw       bool          // compare the body's bytes, normalised but not parsed

	Answer string // as recorded
}

const (
	stepMark   = "=== "
	answerMark = "-->"
)

// Load reads all scripts of a folder, in the order of their names.
func Load(dir string) ([]*Script, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var scripts []*Script
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		script, err := Parse(file, string(text))
		if err != nil {
			return nil, err
		}
		scripts = append(scripts, script)
	}
	return scripts, nil
}

// Parse reads a script.
func Parse(file, text string) (*Script, error) {
	s := &Script{File: file}
	lines := strings.SplitAfter(text, "\n")
	at := 0
	for at < len(lines) && !strings.HasPrefix(lines[at], stepMark) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(lines[at]), "@differs-at "); ok {
			d, err := parseDifference(rest)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, at+1, err)
			}
			s.Differs = append(s.Differs, d)
		}
		s.Head += lines[at]
		at++
	}
	for at < len(lines) {
		from := at
		at++
		for at < len(lines) && !strings.HasPrefix(lines[at], stepMark) {
			at++
		}
		step, err := parseStep(lines[from:at])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, from+1, err)
		}
		step.Line = from + 1
		s.Steps = append(s.Steps, step)
	}
	return s, nil
}

func parseDifference(text string) (*Difference, error) {
	paths, reason, ok := strings.Cut(text, " ")
	if !ok {
		return nil, fmt.Errorf("@differs-at PATH[,PATH…] REASON")
	}
	return &Difference{Paths: strings.Split(paths, ","), Reason: strings.TrimSpace(reason)}, nil
}

func parseStep(lines []string) (*Step, error) {
	s := &Step{Title: strings.TrimSpace(strings.TrimPrefix(lines[0], stepMark))}
	at := 1
	for ; at < len(lines); at++ {
		line := strings.TrimRight(lines[at], "\n")
		if line == "" || line == answerMark {
			break
		}
		var err error
		switch {
		case strings.HasPrefix(line, "#"):
			s.Comments = append(s.Comments, line)
		case strings.HasPrefix(line, "@"):
			s.Directives = append(s.Directives, line)
			err = s.direct(line)
		case s.Method == "":
			var ok bool
			s.Method, s.URL, ok = strings.Cut(line, " ")
			if !ok {
				err = fmt.Errorf("%q is no request line: METHOD URL", line)
			}
		default:
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				err = fmt.Errorf("%q is no header: Name: value", line)
			}
			s.Headers = append(s.Headers, Header{name, strings.TrimSpace(value)})
		}
		if err != nil {
			return nil, err
		}
	}
	if s.Method == "" {
		return nil, fmt.Errorf("%q has no request line", s.Title)
	}
	rest := strings.Join(lines[at:], "")
	body, answer, _ := strings.Cut("\n"+rest, "\n"+answerMark+"\n")
	s.Body = strings.TrimSpace(body)
	s.Answer = strings.TrimSpace(answer)
	return s, nil
}

func (s *Step) direct(line string) error {
	word, rest, _ := strings.Cut(strings.TrimPrefix(line, "@"), " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "set":
		name, path, ok := strings.Cut(rest, " ")
		if !ok {
			return fmt.Errorf("@set NAME PATH")
		}
		s.Set = append(s.Set, Header{name, strings.TrimSpace(path)})
	case "keep":
		s.Keep = append(s.Keep, strings.Fields(rest)...)
	case "drop":
		s.Drop = append(s.Drop, strings.Fields(rest)...)
	case "headers":
		s.Also = append(s.Also, strings.Fields(rest)...)
	case "differs":
		if rest == "" {
			return fmt.Errorf("@differs wants the reason")
		}
		s.Differs = rest
	case "differs-at":
		d, err := parseDifference(rest)
		s.DiffersAt = append(s.DiffersAt, d)
		return err
	case "anonymous":
		s.Anonymous = true
	case "raw":
		s.Raw = true
	case "stream":
		s.Stream = rest
	case "events":
		_, err := fmt.Sscan(rest, &s.Events)
		return err
	case "wait":
		var err error
		s.Wait, err = time.ParseDuration(rest)
		return err
	default:
		return fmt.Errorf("there is no @%s", word)
	}
	return nil
}

// Print writes a script as Parse reads it.
func (s *Script) Print() []byte {
	var out bytes.Buffer
	out.WriteString(strings.TrimRight(s.Head, "\n"))
	for _, step := range s.Steps {
		out.WriteString("\n\n" + stepMark + step.Title + "\n")
		for _, comment := range step.Comments {
			out.WriteString(comment + "\n")
		}
		for _, directive := range step.Directives {
			out.WriteString(directive + "\n")
		}
		out.WriteString(step.Method + " " + step.URL + "\n")
		for _, h := range step.Headers {
			out.WriteString(strings.TrimSpace(h.Name+": "+h.Value) + "\n")
		}
		if step.Body != "" {
			out.WriteString("\n" + step.Body + "\n")
		}
		out.WriteString(answerMark + "\n" + step.Answer)
	}
	out.WriteString("\n")
	return out.Bytes()
}
