package controllers

import (
	"fmt"
	"slices"
	"strings"

	"plinth/conformance/internal/records"
)

// step is a line of a scenario, with its body.
type step struct {
	verb, path string
	members    []string // of a see; of an await, the text
	body       string   // YAML
}

func (s step) looks() bool { return s.verb == "see" || s.verb == "events" }

// scenario is a section of a file.
type scenario struct {
	title   string
	line    int
	comment string // lines that begin with #
	differs string // why Plinth is known to differ
	text    string // of the steps, as it is written
	steps   []step

	want        string // what the reference has left, at each look
	differently string // what Plinth leaves, if differs is set
}

// wanted is what Plinth is to leave.
func (s *scenario) wanted() string {
	if s.differs != "" {
		return s.differently
	}
	return s.want
}

// file holds the scenarios of one file of testdata.
type file struct {
	name, head string
	scenarios  []*scenario
}

func parseFile(name, text string) (*file, error) {
	head, scenarios, err := records.Parse(name, text, parseScenario)
	return &file{name, head, scenarios}, err
}

func parseScenario(section records.Section) (*scenario, error) {
	s := &scenario{title: section.Title, line: section.Line, want: section.Answer, differently: section.Differently}
	for line := range strings.Lines(section.Step) {
		if strings.HasPrefix(line, "#") {
			s.comment += line
			continue
		}
		if reason, ok := strings.CutPrefix(line, "@differs "); ok {
			s.differs = strings.TrimSpace(reason)
			continue
		}
		s.text += line
		if strings.HasPrefix(line, " ") {
			if len(s.steps) == 0 {
				return nil, fmt.Errorf("%q is a body without a request", line)
			}
			last := &s.steps[len(s.steps)-1]
			last.body += line
			continue
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		known := slices.Contains([]string{"POST", "PATCH", "DELETE", "await", "see", "events"}, words[0])
		if !known || len(words) < 2 || (len(words) > 2) != (words[0] == "await") && words[0] != "see" {
			return nil, fmt.Errorf("%q is no step", line)
		}
		s.steps = append(s.steps, step{verb: words[0], path: words[1], members: words[2:]})
	}
	if len(s.steps) == 0 || !s.steps[len(s.steps)-1].looks() {
		return nil, fmt.Errorf("%s does not end with a look", s.title)
	}
	return s, nil
}

func (f *file) print() []byte {
	return records.Print(f.head, f.scenarios, func(s *scenario) records.Section {
		section := records.Section{Title: s.title, Step: s.comment, Answer: s.want}
		if s.differs != "" {
			section.Step += "@differs " + s.differs + "\n"
			section.Differently = s.differently
		}
		section.Step += s.text
		return section
	})
}
