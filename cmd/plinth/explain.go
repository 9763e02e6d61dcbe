package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"plinth/internal/store/filelog"
)

// The texts of errors for people: what is wrong, where, and what to do. Libraries say the first, and often not the
// others; here these are added, once for all of them.

// fileError is the error of reading or parsing a file that the command line names.
func fileError(file string, err error) error {
	said := strings.TrimPrefix(err.Error(), file+": ")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such file; name one that is there%w", file, silent{err})
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%s is a directory; name a file in it%w", file, silent{err})
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be read; give this user the permission, or name another file%w", file, silent{err})
	case errors.As(err, new(*fs.PathError)):
		return err
	}
	return fmt.Errorf("%s: %s; correct it there%w", file, strings.ReplaceAll(said, "yaml: ", ""), silent{err})
}

// silent is an error that has been put into words: it is there for errors.Is.
type silent struct{ error }

func (s silent) Error() string { return "" }
func (s silent) Unwrap() error { return s.error }

// explainStart is the error of a start, by a program with these flags: with the flag that it is about, if the error
// does not name it, and with what to do.
func explainStart(program, dir string, all table, flags *pflag.FlagSet, err error) error {
	text := err.Error()
	switch {
	case errors.As(err, new(*filelog.DamageError)), errors.As(err, new(*filelog.MissingError)):
		return fmt.Errorf("%w; plinth check %s says all that is damaged, plinth export %s --to NEW saves what can be read", err,
			dir, dir)
	case errors.Is(err, filelog.ErrLocked):
		return fmt.Errorf("%w; stop that server first, or give another --data-dir", err)
	case strings.HasPrefix(text, "data directory ") && errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w; give --data-dir a directory", err)
	case errors.Is(err, fs.ErrPermission) && strings.HasPrefix(text, "data directory "):
		return fmt.Errorf("%w; give this user the permission, or give another --data-dir", err)
	case strings.HasPrefix(text, "data directory "): // these say what to do
		return err
	}
	name, section := "", ""
	best := 0
	for _, s := range all {
		for _, r := range s.rows {
			if n := about(text, flags.Lookup(r.name)); n > best {
				best, name, section = n, r.name, topic(&s)
			}
		}
	}
	if best == 0 {
		return err
	}
	where := ""
	if !strings.Contains(text, "--"+name) {
		where = "--" + name + ": "
	}
	how := program + " --" + helpAll + " says what it takes"
	if program == "plinth serve" {
		how = "plinth help serve " + section + " says what it takes"
	}
	if errors.As(err, new(silent)) {
		return fmt.Errorf("%s%w", where, err)
	}
	return fmt.Errorf("%s%w; %s", where, err, how)
}

// about says how much a text seems to be about a flag; 0: not at all. A flag that it names counts most, and then the
// longest one; without one it is about a flag that was given and whose value is in the text.
func about(text string, f *pflag.Flag) int {
	const named = 1 << 20
	if at := strings.Index(text, "--"+f.Name); at >= 0 {
		rest := text[at+2+len(f.Name):]
		if rest == "" || !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz-", rune(rest[0])) {
			return named<<1 - at
		}
	}
	if len(f.Name) > 8 && strings.Contains(text, f.Name) {
		return named>>1 + len(f.Name)
	}
	value := strings.Trim(f.Value.String(), "[]")
	if f.Changed && value != "" && strings.Contains(text, value) {
		return len(value)
	}
	return 0
}
