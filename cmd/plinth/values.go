package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"plinth/internal/server"
)

// The types of flags. A variable holds the default, and the value once the flags are parsed. What a flag means nothing
// of is parsed all the same: a value that the reference refuses is an error here, too.

func text(v *string) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.StringVar(v, name, *v, usage) }
}

// list is separated by commas, or by giving the flag again.
func list(v *[]string) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.StringSliceVar(v, name, *v, usage) }
}

// array takes one value each time that the flag is given.
func array(v *[]string) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.StringArrayVar(v, name, *v, usage) }
}

func boolean(v *bool) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.BoolVar(v, name, *v, usage) }
}

func integer(v *int) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.IntVar(v, name, *v, usage) }
}

func integer64(v *int64) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.Int64Var(v, name, *v, usage) }
}

func integers(v *[]int32) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.Int32SliceVar(v, name, *v, usage) }
}

func float(v *float64) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.Float64Var(v, name, *v, usage) }
}

func duration(v *time.Duration) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.DurationVar(v, name, *v, usage) }
}

// checked is a text that something has to be able to read.
type checked struct {
	*string
	kind string
	read func(string) error
}

func (c checked) String() string { return *c.string }
func (c checked) Type() string   { return c.kind }

// Set keeps the text if it is one.
func (c checked) Set(s string) error {
	if err := c.read(s); err != nil {
		return err
	}
	*c.string = s
	return nil
}

// custom is a flag of a type that package pflag has not.
func custom(v *string, kind string, read func(string) error) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.Var(checked{v, kind, read}, name, usage) }
}

func address(v *string) declare {
	return custom(v, "ip", func(s string) error {
		if s != "" && net.ParseIP(s) == nil {
			return fmt.Errorf("%q is no IP address", s)
		}
		return nil
	})
}

// oneOf is one of a few words.
func oneOf(v *string, words ...string) declare {
	return custom(v, "string", func(s string) error {
		for _, word := range words {
			if s == word {
				return nil
			}
		}
		return fmt.Errorf("%q is none of %s", s, strings.Join(words, ", "))
	})
}

// ports is a range as the reference takes it: A-B, A+n, or one port.
func ports(v *string) declare {
	return custom(v, "portRange", func(s string) error {
		_, _, err := server.ParsePorts(s)
		return err
	})
}

// pairs is NAME=VALUE, separated by commas or by giving the flag again.
type pairs struct{ of *[]string }

func (p pairs) String() string { return strings.Join(*p.of, ",") }
func (p pairs) Type() string   { return "mapStringString" }

// Set adds what a text holds.
func (p pairs) Set(s string) error {
	for pair := range strings.SplitSeq(s, ",") {
		if pair = strings.TrimSpace(pair); pair != "" {
			*p.of = append(*p.of, pair)
		}
	}
	return nil
}

func mapping(v *[]string) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.Var(pairs{v}, name, usage) }
}

// assigned is NAME=VALUE, once each time that the flag is given; a comma is part of a value.
type assigned struct{ of *[]string }

func (a assigned) String() string { return strings.Join(*a.of, ",") }
func (a assigned) Type() string   { return "mapStringString" }

// Set adds a pair.
func (a assigned) Set(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("malformed pair, expect string=string")
	}
	*a.of = append(*a.of, strings.TrimSpace(name)+"="+strings.TrimSpace(value))
	return nil
}

func assignments(v *[]string) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.Var(assigned{v}, name, usage) }
}

// verbosity is the level of klog, for which -v is short.
func verbosity(v *string) declare {
	return func(flags *pflag.FlagSet, name, usage string) {
		flags.VarP(checked{v, "Level", func(s string) error {
			_, err := strconv.ParseInt(s, 10, 32)
			return err
		}}, name, "v", usage)
	}
}

// version may be given without a value.
func version(v *string) declare {
	return func(flags *pflag.FlagSet, name, usage string) {
		flags.Var(checked{v, "version", func(s string) error {
			if s == "true" || s == "false" || s == "raw" || strings.HasPrefix(s, "v") {
				return nil
			}
			return fmt.Errorf("%q is none of true, false, raw", s)
		}}, name, usage)
		flags.Lookup(name).NoOptDefVal = "true"
	}
}
