package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"plinth/internal/builtin"
	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// mergeFiles is `plinth merge`: server-side apply of one file to another, without a server (SSA-3).
func mergeFiles(args []string, out io.Writer) error {
	flags := pflag.NewFlagSet("plinth merge", pflag.ContinueOnError)
	flags.SetOutput(out)
	liveFile := flags.String("live", "",
		"the live object with its managedFields, a YAML or JSON file; omitted: there is no live object")
	applyFile := flags.String("apply", "", "the object to apply, a YAML or JSON file")
	manager := flags.String("manager", "plinth", "the field manager that applies")
	force := flags.Bool("force", false, "take over the fields that conflict")
	managed := flags.Bool("show-managed-fields", false,
		"print the result with its managedFields, not with the owners of each line")
	if done, err := parseFlags(flags, args); done || err != nil {
		return err
	}
	if *applyFile == "" || flags.NArg() > 0 {
		return errors.New("usage: plinth merge --live FILE --apply FILE")
	}
	intent, err := readObject(*applyFile)
	if err != nil {
		return err
	}
	live := object.Nil
	if *liveFile != "" {
		if live, err = readObject(*liveFile); err != nil {
			return err
		}
	}
	typ := typeOf(intent)
	kind := &merge.Kind{Type: typ}
	if typ == nil {
		kind.Type = &schema.Type{Kind: schema.Any} // the kind is not built in: maps are granular, lists atomic
	}
	if intent, err = typed(intent, kind.Type.DecodePart, *applyFile); err != nil {
		return err
	}
	if !live.IsNull() {
		if live, err = typed(live, kind.Type.Decode, *liveFile); err != nil {
			return err
		}
	}
	result, err := kind.Apply(live, intent, merge.Writer{
		Manager: *manager, APIVersion: intent.At("apiVersion").Str(), Force: *force,
		Now: time.Now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return explained(err)
	}
	if *managed {
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
		return object.Nil, fmt.Errorf("%s: %w", file, err)
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
	return errors.New(text)
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
		return object.Nil, err
	}
	parsed, err := object.ParseYAML(text)
	if err != nil {
		return object.Nil, fmt.Errorf("%s: %w", file, err)
	}
	if parsed.Value.Kind() != object.Map {
		return object.Nil, fmt.Errorf("%s holds no object", file)
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

// parseFlags parses flags. done says that help was requested and printed.
func parseFlags(flags *pflag.FlagSet, args []string) (done bool, err error) {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return true, nil
		}
		return true, err
	}
	return false, nil
}
