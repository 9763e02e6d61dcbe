package requests

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plinth/conformance/internal/records"
)

// Script is a file of testdata.
type Script struct {
	File  string
	Head  string // the comment at its top
	Steps []*Step
	// Differs are differences that are known for all steps of this file: paths in bodies, with the reason.
	Differs []*Difference
	// Server holds flags of a server that is started only for this script. If it is empty, the script shares a server with
	// others.
	Server []string
}

// Difference is a known difference. If it is no longer observed, the test fails.
type Difference struct {
	Paths  []string
	Reason string
	seen   bool
}

// Header is one line of a header, in the order of the file.
type Header struct{ Name, Value string }

// Step is one request and the reference's response.
type Step struct {
	Title    string
	Line     int
	Comments []string
	Method   string
	URL      string
	Headers  []Header
	Body     string

	Directives []string // as written, for printing

	Set       []Header      // variable = path in the response
	Keep      []string      // if set, only these paths of the body are compared
	Drop      []string      // paths that are not compared
	Also      []string      // further headers of the response to compare
	Differs   string        // why Plinth's response is known to differ
	DiffersAt []*Difference // the paths
	InPlane   string        // what the response of a plane has instead: a word, such as its status
	Anonymous bool          // no Authorization header
	Stream    string        // the name of a watch that stays open
	Events    int           // how many events to read
	Wait      time.Duration // how long to read
	// The request is repeated until the response has this status and this text, for steps that depend on controllers of
	// the reference. If it is 0, the request is sent once.
	UntilStatus int
	UntilText   string
	Raw         bool // compare the body's bytes, normalised but not parsed

	Answer      string // the reference's, as recorded
	Differently string // Plinth's, as recorded, if Differs is set
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
			return fmt.Errorf("@differs needs a reason")
		}
		s.Differs = rest
	case "differs-at":
		d, err := parseDifference(rest)
		s.DiffersAt = append(s.DiffersAt, d)
		return err
	case "differs-in-plane":
		word, reason, _ := strings.Cut(rest, " ")
		if reason == "" {
			return fmt.Errorf("@differs-in-plane WORD REASON")
		}
		s.InPlane = word
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
		return fmt.Errorf("unknown directive @%s", word)
	}
	return nil
}

// Gone returns what is wrong with the known difference of a step: that it no longer occurs, or that Plinth's answer is
// not recorded. It returns "" for other steps.
func (s *Step) Gone() string {
	switch {
	case s.Differs == "":
		return ""
	case s.Differently == "":
		return "what Plinth answers instead is not recorded; -accept records it"
	case s.Differently == s.Answer:
		return "the known difference no longer occurs: " + s.Differs
	}
	return ""
}

// Print is the inverse of Parse.
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
