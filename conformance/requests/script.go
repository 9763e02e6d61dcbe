package requests

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plinth/conformance/internal/records"
)

// Script is one file of testdata.
type Script struct {
	File  string
	Head  string // the comment at its top
	Steps []*Step
	// Differs are paths of bodies at which Plinth is known to differ anywhere in this file, with the reason.
	Differs []*Difference
	// Server are flags that the server is started with for this script alone; none: it shares one with the others.
	Server []string
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
	// The request is repeated until the answer has this status and this text: where the reference's controllers have to do
	// something first. 0: it is sent once.
	UntilStatus int
	UntilText   string
	Raw         bool // compare the body's bytes, normalised but not parsed

	Answer      string // of the reference, as recorded
	Differently string // of Plinth, as recorded, where Differs is set
}

// Parse reads a script.
func Parse(file, text string) (*Script, error) {
	head, steps, err := records.Parse(file, text, parseStep)
	if err != nil {
		return nil, err
	}
	s := &Script{File: file, Head: head, Steps: steps}
	for i, line := range strings.Split(head, "\n") {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "@differs-at "); ok {
			d, err := parseDifference(rest)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
			}
			s.Differs = append(s.Differs, d)
		}
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "@server "); ok {
			s.Server = append(s.Server, strings.Fields(rest)...)
		}
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

func parseStep(section records.Section) (*Step, error) {
	s := &Step{Title: section.Title, Line: section.Line, Answer: section.Answer, Differently: section.Differently}
	request, body, _ := strings.Cut(section.Step, "\n\n")
	s.Body = strings.TrimSpace(body)
	for line := range strings.SplitSeq(request, "\n") {
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
	case "until":
		status, text, _ := strings.Cut(rest, " ")
		s.UntilText = strings.TrimSpace(text)
		_, err := fmt.Sscan(status, &s.UntilStatus)
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

// Gone says what is wrong with the mark of a known difference; "" where there is none, or it is right.
func (s *Step) Gone() string {
	switch {
	case s.Differs == "":
		return ""
	case s.Differently == "":
		return "what Plinth answers instead is not recorded; -accept records it"
	case s.Differently == s.Answer:
		return "the known difference is gone: " + s.Differs
	}
	return ""
}

// Print writes a script as Parse reads it.
func (s *Script) Print() []byte { return records.Print(s.Head, s.Steps, (*Step).section) }

func (s *Step) section() records.Section {
	lines := slices.Concat(s.Comments, s.Directives, []string{s.Method + " " + s.URL})
	for _, h := range s.Headers {
		lines = append(lines, strings.TrimSpace(h.Name+": "+h.Value))
	}
	if s.Body != "" {
		lines = append(lines, "", s.Body)
	}
	section := records.Section{Title: s.Title, Step: strings.Join(lines, "\n"), Answer: s.Answer}
	if s.Differs != "" {
		section.Differently = s.Differently
	}
	return section
}
