package apply

import (
	"fmt"
	"strings"

	"plinth/conformance/internal/records"
)

// step is one command or request and its result.
type step struct {
	title, comment string
	differs        string   // why Plinth's response is known to differ
	show           []string // objects to print afterwards
	headers        []string // of a request: "Name: value"
	command        string   // lines after "$ ", or a request line
	stdin          string   // the standard input or the body
	want           string   // the reference's response
	differently    string   // Plinth's response, if it differs
	line           int
}

// script is one file of testdata.
type script struct {
	file, head string
	steps      []*step
}

func (s *script) name() string { return records.Name(s.file) }

func parse(file, text string) (*script, error) {
	head, steps, err := records.Parse(file, text, parseStep)
	return &script{file, head, steps}, err
}

func parseStep(section records.Section) (*step, error) {
	st := &step{title: section.Title, line: section.Line, want: section.Answer, differently: section.Differently}
	rest := section.Step
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

// print is the inverse of parse.
func (s *script) print() []byte { return records.Print(s.head, s.steps, (*step).section) }

func (st *step) section() records.Section {
	text := st.comment
	if st.differs != "" {
		text += "@differs " + st.differs + "\n"
	}
	for _, header := range st.headers {
		text += "@header " + header + "\n"
	}
	if len(st.show) > 0 {
		text += "@show " + strings.Join(st.show, " ") + "\n"
	}
	text += st.command + "\n" + st.stdin
	section := records.Section{Title: st.title, Step: text, Answer: st.want}
	if st.differs != "" {
		section.Differently = st.differently
	}
	return section
}
