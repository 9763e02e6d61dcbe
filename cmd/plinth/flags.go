package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

//go:generate go test . -run TestFlagsPage -rewrite

// Flags are rows of a table. A row has the flag's name, its type and its status. The help, the parsing of the command
// line and the page docs/flags.md are derived from the rows. All flags of the reference are in the table, with the
// same names.

// status says whether a flag has an effect.
type status string

// The statuses.
const (
	works      status = "works"       // it has the effect that the reference documents
	plinthOnly status = "Plinth only" // it has an effect, and the reference does not have the flag
	ignored    status = "no effect"   // it is accepted, and the log says that it has no effect
	// It requests a feature that Plinth lacks and that the user would otherwise rely on, such as a store of its own.
	refused status = "error"
)

// row is one flag.
type row struct {
	name   string
	value  declare
	status status
	// says documents the flag: for works and plinthOnly the effect, for ignored why it has no effect, for refused the
	// feature that it requests.
	says string
	// differs is why the default differs from the reference's; "" if it does not.
	differs string
}

// section is a group of flags, with the title that the reference's help gives it.
type section struct {
	title string
	rows  []row
}

// declare adds a flag of one type to a set.
type declare func(flags *pflag.FlagSet, name, usage string)

// usage is the text of the flag in the help.
func (r *row) usage() string {
	switch r.status {
	case ignored:
		return "no effect here: " + r.says
	case refused:
		return "an error: it asks for " + r.says + ", which is not there yet"
	}
	return r.says
}

// table holds all flags of one program.
type table []section

// set declares the flags of these sections.
func set(program string, sections ...section) *pflag.FlagSet {
	flags := pflag.NewFlagSet(program, pflag.ContinueOnError)
	table(sections).declare(flags)
	return flags
}

// declare adds the flags of the table to a set.
func (t table) declare(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName { // the reference accepts _ for -, too
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	for _, s := range t {
		for i := range s.rows {
			s.rows[i].value(flags, s.rows[i].name, s.rows[i].usage())
		}
	}
}

// parse parses a command line. It returns the ignored flags that were given, as pairs of a name and the reason. A
// refused flag is an error, unless it was given its default.
func (t table) parse(program string, args []string) (flags *pflag.FlagSet, nothing []any, err error) {
	flags = set(program, t...)
	flags.Usage = func() {}
	flags.SetOutput(io.Discard)
	if err := flags.Parse(args); err != nil {
		return flags, nil, flagError(err)
	}
	if f := flags.Lookup(configFlag); f != nil && f.Value.String() != "" {
		if err := readConfig(f.Value.String(), flags); err != nil {
			return flags, nil, err
		}
	}
	if flags.NArg() > 0 {
		return flags, nil, fmt.Errorf("%s takes no arguments, only flags: %q", program, flags.Args())
	}
	nothing, err = t.check(flags)
	return flags, nothing, err
}

// check returns the ignored flags that were given, and the error of refused ones, as parse does.
func (t table) check(flags *pflag.FlagSet) (nothing []any, err error) {
	var errs []error
	for _, s := range t {
		for _, r := range s.rows {
			f := flags.Lookup(r.name)
			switch {
			case !f.Changed:
			case r.status == ignored:
				nothing = append(nothing, "--"+r.name, r.says)
			case r.status == refused && f.Value.String() != f.DefValue:
				errs = append(errs, fmt.Errorf("--%s asks for %s, which is not there yet", r.name, r.says))
			}
		}
	}
	return nothing, errors.Join(errs...)
}

// flagError says in the words of the user what package pflag says in those of strconv.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return err
	}
	why := "is no number"
	switch {
	case errors.Is(number, strconv.ErrRange):
		why = "is out of range"
	case number.Func == "ParseBool":
		why = "is neither true nor false"
	}
	return fmt.Errorf("--%s: %q %s", invalid.GetFlag().Name, invalid.GetValue(), why)
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
			fmt.Fprintf(out, "| `--%s` | %s | %s | %s |\n", r.name, value, r.status, strings.ReplaceAll(says, "|", `\|`))
		}
	}
}
