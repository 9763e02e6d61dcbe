package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"plinth/internal/addresses"

	"github.com/spf13/pflag"
)

// The types of flags. A variable holds the default, and after parsing the value. The values of ignored flags are
// parsed, too: a value that the reference refuses is an error here, as well.

func text(v *string) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.StringVar(v, name, *v, usage) }
}

// list takes values that are separated by commas; the flag may also be repeated.
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

// checked is a text that a function validates.
type checked struct {
	*string
	kind string
	read func(string) error
}

func (c checked) String() string { return *c.string }
func (c checked) Type() string   { return c.kind }

// Set implements pflag.Value.
func (c checked) Set(s string) error {
	if err := c.read(s); err != nil {
		return err
	}
	*c.string = s
	return nil
}

// custom declares a flag of a type that package pflag does not have.
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

// choice takes one of some words.
type choice struct {
	checked
	words []string
}

// Words are for completion.
func (c choice) Words() []string { return c.words }

// oneOf takes one of these words.
func oneOf(v *string, words ...string) declare {
	read := func(s string) error {
		if slices.Contains(words, s) {
			return nil
		}
		return fmt.Errorf("%q is none of %s", s, strings.Join(words, ", "))
	}
	return func(flags *pflag.FlagSet, name, usage string) {
		flags.Var(choice{checked{v, "string", read}, words}, name, usage)
	}
}

// ports takes a range of ports as the reference does: A-B, A+N, or one port.
func ports(v *string) declare {
	return custom(v, "portRange", func(s string) error {
		_, _, err := addresses.ParsePorts(s)
		return err
	})
}

// pairs takes NAME=VALUE pairs that are separated by commas; the flag may also be repeated.
type pairs struct{ of *[]string }

func (p pairs) String() string { return strings.Join(*p.of, ",") }
func (p pairs) Type() string   { return "mapStringString" }

// Set implements pflag.Value.
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

// stringMap takes NAME=VALUE pairs as one record of CSV, as the reference does: a pair with commas is quoted.
func stringMap(v *map[string]string) declare {
	return func(flags *pflag.FlagSet, name, usage string) { flags.StringToStringVar(v, name, nil, usage) }
}

// assigned takes one NAME=VALUE pair each time that the flag is given. A comma is part of the value.
type assigned struct{ of *[]string }

func (a assigned) String() string { return strings.Join(*a.of, ",") }
func (a assigned) Type() string   { return "mapStringString" }

// Set implements pflag.Value.
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

// verbosity is klog's -v.
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
