package shell

import (
	"fmt"
	"strings"
)

// Chapter returns the shell commands in a chapter of a Markdown page: its code blocks that contain the text command,
// concatenated.
func Chapter(page, title, command string) (script string, err error) {
	_, rest, ok := strings.Cut(page, "\n## "+title+"\n")
	if !ok {
		return "", fmt.Errorf("the page has no chapter %q", title)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	for i, block := range strings.Split(rest, "```\n") {
		if i%2 == 1 && strings.Contains(block, command) {
			script += block
		}
	}
	if script == "" {
		return "", fmt.Errorf("no block of the chapter %q speaks of %s", title, command)
	}
	return script, nil
}
