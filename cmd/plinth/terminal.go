package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// style says whether text has colours. The zero value has none.
type style struct{ on bool }

// isTerminal says whether people see what is written to w. Only then there is progress.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// columns is the width of the terminal; 0 if w is none: then lines are not broken.
func columns(w io.Writer) int {
	if !isTerminal(w) {
		return 0
	}
	width, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return width
}

// styleOf is the style of what is written to w: colours on a terminal that has them, unless NO_COLOR is set
// (https://no-color.org).
func styleOf(w io.Writer) style {
	return style{isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (s style) wrap(code, text string) string {
	if !s.on {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(text string) string  { return s.wrap("1", text) }
func (s style) red(text string) string   { return s.wrap("31", text) }
func (s style) green(text string) string { return s.wrap("32", text) }
func (s style) cyan(text string) string  { return s.wrap("36", text) }
