package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

//go:generate go test . -run TestFlagsPage -rewrite

// Flags are tables. A row is a flag and what becomes of it; what the program prints as help, what it does with a
// command line, and the page docs/flags.md are made from the rows. The reference's flags are all there, under its
// names.

// fate is what becomes of a flag.
type fate string

// The fates.
const (
	works      fate = "works"         // it does what it says
	plinthOnly fate = "Plinth only"   // it works, and the reference does not have it
	ignored    fate = "means nothing" // it is taken, and the log says that it means nothing here
	// it asks for something that is not there, and that nobody must be left to believe in
	refused fate = "error"
)

// row is one flag.
type row struct {
	name  string
	value declare
	fate  fate
	// says is what a flag does; why it means nothing; or, of one that is refused, what it asks for.
	says string
	// differs is why the default is not the reference's; "" where it is.
	differs string
}

// section is a group of flags, as the reference's help has them.
type section struct {
	title string
	rows  []row
}

// declare adds a flag of some type to a set.
type declare func(flags *pflag.FlagSet, name, usage string)

// usage is the text of a row in the help.
func (r *row) usage() string {
	switch r.fate {
	case ignored:
		return "means nothing here: " + r.says
	case refused:
		return "an error, since it asks for " + r.says + ", which is not there yet"
	}
	return r.says
}

// table is all flags of one program.
type table []section

// set declares the flags of one section, or of all.
func set(program string, sections ...section) *pflag.FlagSet {
	flags := pflag.NewFlagSet(program, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName { // as the reference takes them
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	for _, s := range sections {
		for i := range s.rows {
			s.rows[i].value(flags, s.rows[i].name, s.rows[i].usage())
		}
	}
	return flags
}

// parse reads a command line. What is refused is an error; what means nothing is returned as pairs of a flag and the
// reason.
func (t table) parse(program string, args []string) (flags *pflag.FlagSet, nothing []any, err error) {
	flags = set(program, t...)
	flags.Usage = func() {}
	flags.SetOutput(io.Discard)
	if err := flags.Parse(args); err != nil {
		return flags, nil, err
	}
	if flags.NArg() > 0 {
		return flags, nil, fmt.Errorf("%s takes no arguments, only flags: %q", program, flags.Args())
	}
	var errs []error
	for _, s := range t {
		for _, r := range s.rows {
			f := flags.Lookup(r.name)
			switch {
			case !f.Changed:
			case r.fate == ignored:
				nothing = append(nothing, "--"+r.name, r.says)
			case r.fate == refused && f.Value.String() != f.DefValue:
				errs = append(errs, fmt.Errorf("--%s asks for %s, which is not there yet", r.name, r.says))
			}
		}
	}
	return flags, nothing, errors.Join(errs...)
}

// help prints the flags, section by section.
func (t table) help(out io.Writer, program string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Usage:\n  %s [flags]\n", program)
	for _, s := range t {
		fmt.Fprintf(&text, "\n%s flags:\n\n%s", s.title, set(program, s).FlagUsages())
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// page is the table as Markdown, for docs/flags.md.
func (t table) page(out io.Writer) {
	for _, s := range t {
		fmt.Fprintf(out, "\n### %s\n\n| flag | default | | |\n|---|---|---|---|\n", s.title)
		flags := set("", s)
		for _, r := range s.rows {
			value := flags.Lookup(r.name).DefValue
			if slices.Contains([]string{"", "[]"}, value) {
				value = " "
			} else {
				value = "`" + value + "`"
			}
			says := r.says
			if r.differs != "" {
				says += ". The default differs: " + r.differs
			}
			fmt.Fprintf(out, "| `--%s` | %s | %s | %s |\n", r.name, value, r.fate, strings.ReplaceAll(says, "|", `\|`))
		}
	}
}
