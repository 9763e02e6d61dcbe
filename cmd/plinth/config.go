package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// configFlag names the configuration file of a server.
const configFlag = "config"

// notInConfig are the flags that mean nothing in a configuration file.
var notInConfig = []string{configFlag, "help", helpAll, "version"}

// readConfig sets flags from a configuration file: a map in YAML whose keys are the names of flags. What the command
// line has given stays. A list is the values of a flag that may be repeated, and a map its pairs NAME=VALUE.
//
// The file is read by its syntax tree: errors then have a line, and a value is the text that is written there, as it
// would be on a command line (0644, 1e3, no).
func readConfig(file string, flags *pflag.FlagSet) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--%s: %w", configFlag, fileError(file, err))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF): // comments, or nothing
		return nil
	case err != nil:
		return fileError(file, err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s has a second document (---); put all flags into the first one", file)
	}
	c := configFile{file: file, flags: flags, lines: map[string]int{}}
	return c.set(document.Content[0])
}

// configFile is a configuration file while its flags are set.
type configFile struct {
	file  string
	flags *pflag.FlagSet
	lines map[string]int // of the keys so far
}

func (c *configFile) errorf(at *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: "+format, append([]any{c.file, at.Line}, args...)...)
}

// set sets the flags of a map. All mistakes are found at once.
func (c *configFile) set(m *yaml.Node) error {
	if m.Kind == yaml.ScalarNode && m.Tag == "!!null" {
		return nil
	}
	if m.Kind != yaml.MappingNode {
		return c.errorf(m, "it has to be a map of flags; write lines such as secure-port: 6443")
	}
	given := map[string]bool{}
	c.flags.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	var errs []error
	for i := 0; i+1 < len(m.Content); i += 2 {
		errs = append(errs, c.setOne(m.Content[i], m.Content[i+1], given))
	}
	return errors.Join(errs...)
}

func (c *configFile) setOne(key, value *yaml.Node, given map[string]bool) error {
	f := c.flags.Lookup(strings.TrimPrefix(key.Value, "--"))
	if f == nil {
		var known []string
		c.flags.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		return c.errorf(key, "unknown key %q%splinth serve --%s lists the flags, which are the keys", key.Value,
			didYouMean(key.Value, known, ""), helpAll)
	}
	for _, name := range notInConfig {
		if f.Name == name {
			return c.errorf(key, "%s is for the command line; remove it here", name)
		}
	}
	if line, twice := c.lines[f.Name]; twice {
		return c.errorf(key, "%s is in line %d, too; remove one of them", f.Name, line)
	}
	c.lines[f.Name] = key.Line
	values, err := c.values(f.Name, value)
	if err != nil || given[f.Name] {
		return err
	}
	for _, v := range values {
		if err := c.flags.Set(f.Name, v); err != nil {
			return c.errorf(value, "%w", brief(err))
		}
	}
	return nil
}

// values are the texts to set a flag to, one after another.
func (c *configFile) values(name string, v *yaml.Node) ([]string, error) {
	for v.Kind == yaml.AliasNode {
		v = v.Alias
	}
	scalar := func(v *yaml.Node) (string, error) {
		for v.Kind == yaml.AliasNode {
			v = v.Alias
		}
		if v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
			return "", c.errorf(v, `%s has no value that is text or a number; "" is an empty one`, name)
		}
		return v.Value, nil
	}
	var all []string
	switch v.Kind {
	case yaml.SequenceNode:
		for _, item := range v.Content {
			text, err := scalar(item)
			if err != nil {
				return nil, err
			}
			all = append(all, text)
		}
		if !repeats(c.flags.Lookup(name)) {
			return nil, c.errorf(v, "%s takes one value, not a list; write %s: VALUE", name, name)
		}
		if len(all) == 0 { // none, in place of the default
			all = append(all, "")
		}
		return all, nil
	case yaml.MappingNode:
		if kind := c.flags.Lookup(name).Value.Type(); kind != "mapStringString" && kind != "stringToString" &&
			name != "feature-gates" {
			return nil, c.errorf(v, "%s takes no map; write %s: VALUE", name, name)
		}
		for i := 0; i+1 < len(v.Content); i += 2 {
			text, err := scalar(v.Content[i+1])
			if err != nil {
				return nil, err
			}
			all = append(all, v.Content[i].Value+"="+text)
		}
		return all, nil
	}
	text, err := scalar(v)
	return []string{text}, err
}

// repeats says whether a flag may be given several times, each time with a further value.
func repeats(f *pflag.Flag) bool {
	switch f.Value.Type() {
	case "stringSlice", "stringArray", "int32Slice", "mapStringString", "stringToString":
		return true
	}
	return false
}
