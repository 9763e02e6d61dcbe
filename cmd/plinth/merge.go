package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"plinth/internal/builtin"
	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// mergeCommand is `plinth merge`: server-side apply of one file to another, without a server (SSA-3).
func mergeCommand() *cobra.Command {
	var m merging
	c := &cobra.Command{
		Use:     "merge --live FILE --apply FILE",
		Short:   "apply one file to another (server-side apply), without a server",
		Example: "  plinth merge --live live.yaml --apply intent.yaml --manager ci",
		Args:    arguments(0, "only flags"),
		RunE:    func(c *cobra.Command, _ []string) error { return m.run(c.OutOrStdout()) },
	}
	flags := c.Flags()
	flags.StringVar(&m.live, "live", "",
		"the live object with its managedFields, a YAML or JSON file; omitted: there is no live object")
	flags.StringVar(&m.apply, "apply", "", "the object to apply, a YAML or JSON file")
	flags.StringVar(&m.manager, "manager", "plinth", "the field manager that applies")
	flags.BoolVar(&m.force, "force", false, "take over the fields that conflict")
	flags.BoolVar(&m.managed, "show-managed-fields", false,
		"print the result with its managedFields, not with the owners of each line")
	manifestFlags(c, "live", "apply")
	return c
}

// merging is what a merge is asked for.
type merging struct {
	live, apply, manager string // live and apply are files
	force, managed       bool
}

func (m *merging) run(out io.Writer) error {
	if m.apply == "" {
		return errors.New("merge needs the file to apply: plinth merge --live FILE --apply FILE")
	}
	intent, err := readObject(m.apply)
	if err != nil {
		return err
	}
	if intent.At("apiVersion").Str() == "" || intent.At("kind").Str() == "" {
		return fmt.Errorf("%s: apiVersion or kind is missing; an object has both", m.apply)
	}
	live := object.Nil
	if m.live != "" {
		if live, err = readObject(m.live); err != nil {
			return err
		}
	}
	typ := typeOf(intent)
	kind := &merge.Kind{Type: typ}
	if typ == nil {
		kind.Type = &schema.Type{Kind: schema.Any} // the kind is not built in: maps are granular, lists atomic
	}
	if intent, err = typed(intent, kind.Type.DecodePart, m.apply); err != nil {
		return err
	}
	if !live.IsNull() {
		if live, err = typed(live, kind.Type.Decode, m.live); err != nil {
			return err
		}
	}
	result, err := kind.Apply(live, intent, merge.Writer{
		Manager: m.manager, APIVersion: intent.At("apiVersion").Str(), Force: m.force,
		Now: time.Now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return explained(err)
	}
	if m.managed {
		return printYAML(out, result)
	}
	return printOwned(out, result, typ)
}

// typed decodes an object of a file by its type.
func typed(v object.Value, decode func(object.Value) (schema.Decoded, error), file string) (object.Value, error) {
	decoded, err := decode(v)
	if err == nil && len(decoded.Unknown) > 0 {
		err = fmt.Errorf("unknown field %q", decoded.Unknown[0])
	}
	if err != nil {
		return object.Nil, fileError(file, err)
	}
	return decoded.Value, nil
}

// explained adds the values to the text of a conflict.
func explained(err error) error {
	var conflicts *merge.ConflictError
	if !errors.As(err, &conflicts) {
		return err
	}
	text := err.Error()
	for i := range conflicts.Conflicts {
		c := &conflicts.Conflicts[i]
		text += fmt.Sprintf("\n  %s is %s, owned by %s; the intent has %s", c.Path, object.AppendJSON(nil, c.Live), &c.With,
			object.AppendJSON(nil, c.Wanted))
	}
	return &reportError{text}
}

// typeOf is the type of an object of a built-in kind, else nil.
func typeOf(v object.Value) *schema.Type {
	for _, r := range builtin.Resources(builtin.Config{}) {
		if r.APIVersion() == v.At("apiVersion").Str() && r.Kind == v.At("kind").Str() {
			return r.Schema()
		}
	}
	return nil
}

func readObject(file string) (object.Value, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(os.Stdin)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return object.Nil, fileError(file, err)
	}
	parsed, err := object.ParseYAML(text)
	if err != nil {
		return object.Nil, fileError(file, err)
	}
	if parsed.Value.Kind() != object.Map {
		return object.Nil, fmt.Errorf("%s holds no object; it has to begin with apiVersion and kind", file)
	}
	return parsed.Value, nil
}

func printYAML(out io.Writer, v object.Value) error {
	text, err := object.YAML(object.AppendObject(nil, v))
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

func printOwned(out io.Writer, v object.Value, typ *schema.Type) error {
	owned, err := merge.Owners(v, typ)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, owned.YAML())
	return err
}
