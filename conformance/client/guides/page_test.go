package guides

import (
	"fmt"
	"regexp"
	"strings"
)

// step is a block of commands, and what the page shows of them.
type step struct {
	line     int // in the page
	commands string
	fails    bool
	shown    *string // nil: nothing is shown
}

// parsePage returns the steps of a page, and how many of its blocks are for other machines.
func parsePage(text string) (steps []*step, elsewhere int, err error) {
	var last *step // what a block of output belongs to
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		fence, opens := strings.CutPrefix(lines[i], "```")
		if !opens {
			continue
		}
		begin := i + 1
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		if i == len(lines) {
			return nil, 0, fmt.Errorf("line %d: the block has no end", begin)
		}
		body := strings.Join(lines[begin:i], "\n")
		switch fence {
		case "sh", "sh fails":
			last = &step{line: begin, commands: body, fails: fence != "sh"}
			steps = append(steps, last)
			if strings.Contains(body, "||") || strings.Contains(body, "kill %") {
				return nil, 0, fmt.Errorf("line %d: the commands hide failures, or end whatever job has a number", begin)
			}
		case "sh elsewhere":
			last = nil
			elsewhere++
		case "text":
			if last == nil || last.shown != nil {
				return nil, 0, fmt.Errorf("line %d: this is the output of no commands", begin)
			}
			last.shown = &body
		default:
			if word, _, _ := strings.Cut(fence, " "); word == "sh" || word == "text" {
				return nil, 0, fmt.Errorf("line %d: a block begins with %q", begin, lines[begin-1])
			}
		}
	}
	for _, s := range steps {
		if s.fails && (s.shown == nil || strings.Trim(*s.shown, "… \n") == "") {
			return nil, 0, fmt.Errorf("line %d: the commands fail, and the page does not show why", s.line)
		}
	}
	return steps, elsewhere, nil
}

// matches says whether the commands have printed what the page shows.
func matches(shown, printed string) bool {
	var pattern strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(shown, "\n"), "\n") {
		if strings.TrimSpace(line) == "…" {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		line = regexp.QuoteMeta(strings.TrimRight(line, " \t"))
		line = regexp.MustCompile(`(\S)[ \t]+`).ReplaceAllString(line, `$1[ \t]+`) // not the indentation
		pattern.WriteString(strings.ReplaceAll(line, "…", ".*") + "[ \t]*\n")
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(strings.TrimRight(printed, "\n") + "\n")
}
