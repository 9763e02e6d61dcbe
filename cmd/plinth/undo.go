package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plinth/object"
)

// undoManager is the name under which an undo writes.
const undoManager = "plinth-undo"

// undoFlags are the flags of `plinth undo`.
type undoFlags struct {
	objectFlags
	change, to         string
	force, dryRun, yes bool
}

// undoCommand is `plinth undo`: it takes a change of an object back (BEY-4).
func undoCommand() *cobra.Command {
	var f undoFlags
	c := objectCommand(&cobra.Command{
		Use:   "undo TYPE/NAME",
		Short: "take a change of an object back",
		Long: "Takes back the last change of an object, or the one of --change, or all since --to. What others have set since\n" +
			"stays; a field that has changed again since is an error, unless --force is given. A deleted object is created anew,\n" +
			"with another UID. Status, finalizers and deletions are left alone.\n\n" +
			"It shows the difference and asks before it writes. It writes as any client does: admission, quota and the rights of\n" +
			"the user apply, and the undo is a change that can be undone.",
		Example: "  plinth undo deploy/web\n  plinth undo deploy/web --change 4711\n  plinth undo deploy/web --to 10m --dry-run",
		Args:    arguments(1, "one TYPE/NAME, such as deploy/web"),
	}, &f.objectFlags)
	flags := c.Flags()
	flags.StringVar(&f.change, "change", "", "the resourceVersion that the change has made (default: the last change)")
	flags.StringVar(&f.to, "to", "", "take back all changes since a resourceVersion, a time, or a duration ago")
	flags.BoolVar(&f.force, "force", false, "take back fields that have changed again since, too")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only show what it would change")
	flags.BoolVarP(&f.yes, "yes", "y", false, "write without asking")
	c.RunE = func(c *cobra.Command, args []string) error { return f.run(c, args[0]) }
	return c
}

// query is that of the request for the object that is to be written.
func (f *undoFlags) query() (url.Values, error) {
	query := url.Values{"undo": {f.change}}
	if f.force {
		query.Set("force", "true")
	}
	if f.to == "" {
		return query, nil
	}
	if f.change != "" {
		return nil, errors.New("--change takes one change back, and --to all since then: give one of them")
	}
	revision, at, err := moment(f.to, time.Now())
	if revision == "" {
		revision = at.UTC().Format(time.RFC3339Nano)
	}
	query.Set("to", revision)
	return query, err
}

func (f *undoFlags) run(c *cobra.Command, name string) error {
	query, err := f.query()
	if err != nil {
		return err
	}
	r, path, err := f.at(name)
	if err != nil {
		return err
	}
	undo, err := r.document(path, query)
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	if all := undo.At("disagreements").Items(); len(all) > 0 && !f.force {
		return disagreement(all)
	}
	write := undo.At("write").Str()
	if write == "none" {
		fmt.Fprintf(out, "%s is as it was: there is nothing to undo.\n", name)
		return nil
	}
	var live object.Value
	method := http.MethodPost
	to := path[:strings.LastIndexByte(path, '/')]
	if write == "update" {
		method, to = http.MethodPut, path
		if live, err = r.document(path, nil); err != nil {
			return err
		}
	}
	body := object.AppendObject(nil, undo.At("object"))
	planned, err := r.documentOf(method, to, url.Values{"fieldManager": {undoManager}, "dryRun": {"All"}}, body)
	if err != nil {
		return err
	}
	if _, err := writeDiff(out, name+" now", name+" then", live, planned); err != nil {
		return err
	}
	remarks(out, undo)
	switch {
	case f.dryRun:
		return nil
	case !f.yes && !asks(c, "Write this?"):
		return unconfirmed(c, "nothing was written: without a terminal, --yes writes")
	}
	written, err := r.documentOf(method, to, url.Values{"fieldManager": {undoManager}}, body)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is written: resourceVersion %s.\n", name, written.At("metadata", "resourceVersion").Str())
	return nil
}

// disagreement is the error about fields that have changed again since.
func disagreement(all []object.Value) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%d fields have changed again since; --force takes them back, too:", len(all))
	if len(all) == 1 {
		text.Reset()
		text.WriteString("a field has changed again since; --force takes it back, too:")
	}
	value := func(d object.Value, key string) string {
		if v, ok := d.Get(key); ok {
			return string(object.AppendJSON(nil, v))
		}
		return "nothing"
	}
	for _, d := range all {
		fmt.Fprintf(&text, "\n  %s was %s, became %s, and is %s", d.At("path").Str(), value(d, "before"), value(d,
			"after"),
			value(d, "live"))
	}
	return &reportError{text.String()}
}

// remarks prints what else there is to know of an undo.
func remarks(out io.Writer, undo object.Value) {
	for _, note := range undo.At("notes").Items() {
		fmt.Fprintln(out, "Note: "+note.Str()+".")
	}
	dependents := undo.At("dependents").Items()
	if len(dependents) == 0 {
		return
	}
	fmt.Fprintln(out, "These had it as their owner, and do not have the new one:")
	for _, d := range dependents {
		name := d.At("name").Str()
		if namespace := d.At("namespace").Str(); namespace != "" {
			name = namespace + "/" + name
		}
		state := ""
		if d.At("deleted").Bool() {
			state = ", deleted since"
		}
		fmt.Fprintf(out, "  %s %s%s\n", d.At("kind").Str(), name, state)
	}
}

// before is the resourceVersion before another one.
func before(revision string) (string, error) {
	n, err := strconv.ParseInt(revision, 10, 64)
	return strconv.FormatInt(n-1, 10), err
}
