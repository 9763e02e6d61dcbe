package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"plinth/object"
	"plinth/patch"
)

// The commands about the past of objects: history, diff, undo and purge. They are clients of what docs/server.md says
// in "The past".

// objectFlags are the flags of commands about objects of a server.
type objectFlags struct{ kubeconfig, namespace string }

func (f *objectFlags) files() []string { return kubeconfigsOf(f.kubeconfig) }

// objectCommand adds the flags, and the completion of one argument TYPE/NAME.
func objectCommand(c *cobra.Command, f *objectFlags) *cobra.Command {
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "", "the namespace (default: that of the kubeconfig)")
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig to use (default: as for plinth owners)")
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completeObjects(f.files(), f.namespace, word)
	}
	must(c.RegisterFlagCompletionFunc("namespace", func(*cobra.Command, []string, string) ([]string,
		cobra.ShellCompDirective) {
		return completeNames(f.files(), "", "namespaces"), cobra.ShellCompDirectiveNoFileComp
	}))
	return c
}

// at connects to the server, and finds the path of an object.
func (f *objectFlags) at(name string) (*remote, string, error) {
	kind, base, err := splitName(name) // before a kubeconfig is looked for
	if err != nil {
		return nil, "", err
	}
	c, err := connect(f.files())
	if err != nil {
		return nil, "", err
	}
	path, err := c.find(kind, base, f.namespace)
	return c, path, err
}

// document asks for a document of the server.
func (c *remote) document(path string, query url.Values) (object.Value, error) {
	return c.documentOf(http.MethodGet, path, query, nil)
}

// documentOf sends a request with a body of JSON, or none, and returns the object in the answer.
func (c *remote) documentOf(method, path string, query url.Values, body []byte) (object.Value, error) {
	header := http.Header{"Accept": {"application/json"}}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	text, err := c.send(method, path+"?"+query.Encode(), body, header)
	if err != nil {
		return object.Nil, err
	}
	parsed, err := object.ParseJSON(text)
	return parsed.Value, err
}

// moment reads a point of the past: a resourceVersion, a time (RFC 3339), or how long ago it was.
func moment(text string, now time.Time) (revision string, at time.Time, err error) {
	if text != "" && strings.Trim(text, "0123456789") == "" {
		return text, time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return "", at, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return "", now.Add(-ago), nil
	}
	return "", time.Time{},
		fmt.Errorf("%q is no resourceVersion, no time such as 2030-01-02T15:04:05Z, and no duration "+
			"such as 10m", text)
}

// setMoment has a query ask for what there was at a moment; "" for now.
func setMoment(query url.Values, text string) error {
	if text == "" {
		return nil
	}
	revision, at, err := moment(text, time.Now())
	if err != nil {
		return err
	}
	if revision != "" {
		query.Set("resourceVersion", revision)
		query.Set("resourceVersionMatch", "Exact")
	} else {
		query.Set("asOf", at.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// compared is an object without what each write changes.
func compared(v object.Value) object.Value {
	for _, key := range []string{"managedFields", "resourceVersion", "generation"} {
		v = v.WithoutAt("metadata", key)
	}
	return v
}

// writeDiff writes the difference of two objects as lines of YAML, and says whether there is one. Null is no object.
func writeDiff(out io.Writer, from, to string, before, after object.Value) (differs bool, err error) {
	var texts [2][]byte
	for i, v := range []object.Value{before, after} {
		if v.IsNull() {
			continue
		}
		if texts[i], err = object.YAML(object.AppendObject(nil, compared(v))); err != nil {
			return false, err
		}
	}
	text := udiff.Unified(from, to, string(texts[0]), string(texts[1]))
	style := styleOf(out)
	for line := range strings.Lines(text) {
		line, end := strings.TrimSuffix(line, "\n"), "\n"
		switch {
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"):
			line = style.bold(line)
		case strings.HasPrefix(line, "-"):
			line = style.red(line)
		case strings.HasPrefix(line, "+"):
			line = style.green(line)
		case strings.HasPrefix(line, "@@"):
			line = style.cyan(line)
		}
		if _, err := io.WriteString(out, line+end); err != nil {
			return false, err
		}
	}
	return text != "", nil
}

// changesCommand is `plinth history`.
func changesCommand() *cobra.Command {
	var f objectFlags
	var limit int
	var document bool
	c := objectCommand(&cobra.Command{
		Use:   "history TYPE/NAME",
		Short: "list who has changed an object, and what",
		Long: "Lists the changes of an object, the newest first, also if it was deleted: with the resourceVersion that each has\n" +
			"made, the user, and the fields. plinth owners --history has the same by lines, and plinth undo takes a change back.",
		Example: "  plinth history deploy/web\n  plinth history cm/settings --limit 5\n  plinth history cm/settings --json",
		Args:    arguments(1, "one TYPE/NAME, such as deploy/web"),
	}, &f)
	c.Flags().IntVar(&limit, "limit", 20, "how many changes")
	c.Flags().BoolVar(&document, "json", false, "print the document of the server, with the differences")
	c.RunE = func(c *cobra.Command, args []string) error {
		if limit <= 0 {
			return fmt.Errorf("--limit=%d is no number of changes", limit)
		}
		r, path, err := f.at(args[0])
		if err != nil {
			return err
		}
		record, err := r.document(path, url.Values{"history": {""}, "limit": {fmt.Sprint(limit)}})
		if err != nil {
			return err
		}
		if document {
			_, err := c.OutOrStdout().Write(append(object.AppendObject(nil, record), '\n'))
			return err
		}
		return printChanges(c.OutOrStdout(), args[0], record)
	}
	return c
}

// printChanges prints a record as a table.
func printChanges(out io.Writer, name string, record object.Value) error {
	text := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(text, "REVISION\tTIME\tUSER\tMANAGER\tVERB\tCHANGE")
	for _, c := range record.At("changes").Items() {
		at := c.At("time").Str()
		if parsed, err := time.Parse(time.RFC3339Nano, at); err == nil {
			at = parsed.Local().Format(time.DateTime)
		}
		user := c.At("user").Str()
		if as := c.At("impersonator").Str(); as != "" {
			user += " (" + as + ")"
		}
		change := c.At("change").Str()
		switch {
		case c.At("purged").Bool():
			change += ", purged"
		case change == "modified":
			change = strings.Join(changedFields(c.At("patch")), " ")
		}
		verb := c.At("verb").Str()
		if s := c.At("subresource").Str(); s != "" {
			verb += " /" + s
		}
		fmt.Fprintf(text, "%s\t%s\t%s\t%s\t%s\t%s\n", c.At("resourceVersion").Str(), dash(at), dash(user),
			dash(c.At("manager").Str()), dash(verb), dash(change))
	}
	if err := text.Flush(); err != nil {
		return err
	}
	switch {
	case record.At("metadata", "continue").Str() != "":
		fmt.Fprintf(out, "There are older ones; plinth history %s --limit N shows more.\n", name)
	case !record.At("complete").Bool():
		fmt.Fprintln(out, "Older changes are not kept any more.")
	}
	return nil
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// changedFields are the fields that a merge patch sets (.spec.replicas) and removes (-.spec.paused), but for the
// generation, which follows from others.
func changedFields(patch object.Value) (all []string) {
	var walk func(v object.Value, at string)
	walk = func(v object.Value, at string) {
		for _, m := range v.Members() {
			name := at + "." + m.Key
			switch {
			case name == ".metadata.generation":
			case m.Value.Kind() == object.Map && m.Value.Len() > 0:
				walk(m.Value, name)
			case m.Value.IsNull():
				all = append(all, "-"+name)
			default:
				all = append(all, name)
			}
		}
	}
	walk(patch, "")
	return all
}

// diffCommand is `plinth diff`.
func diffCommand() *cobra.Command {
	var f objectFlags
	var from, to, form string
	c := objectCommand(&cobra.Command{
		Use:   "diff TYPE[/NAME]",
		Short: "compare objects of two moments, or of two planes",
		Long: "Compares an object, or all of a type in the namespace, as they were at one moment and at another one. A moment is\n" +
			"a resourceVersion, a time, or how long ago it was; without --to it is now. Without --from, an object is compared\n" +
			"with what it was before its last change. PLANE@ in front means a plane, and PLANE@ alone what it is now there.\n\n" +
			"As with kubectl diff the exit code is 0 if there is no difference, and 1 if there is one.",
		Example: "  plinth diff deploy/web\n  plinth diff deploy/web --from 10m\n  plinth diff cm --from 4711 --to 4720\n" +
			"  plinth diff deploy --from main@ --to pr-1@",
		Args: arguments(1, "one TYPE/NAME, such as deploy/web, or a TYPE"),
	}, &f)
	c.Flags().StringVar(&from, "from", "",
		"the moment before: a resourceVersion, a time, a duration, PLANE@ with one of them")
	c.Flags().StringVar(&to, "to", "", "the moment after (default: now)")
	c.Flags().StringVarP(&form, "output", "o", "", "json: print a JSON document, with a merge patch for each object")
	c.RunE = func(c *cobra.Command, args []string) error {
		if form != "" && form != "json" {
			return fmt.Errorf("--output=%s is not json", form)
		}
		differs, err := diff(c.OutOrStdout(), &f, args[0], from, to, form == "json")
		switch {
		case err != nil:
			return &exitError{code: 2, err: err}
		case differs:
			return &exitError{code: 1}
		}
		return nil
	}
	return c
}

// side is one of the two sides of a diff.
type side struct {
	title   string
	objects map[string]object.Value // by their names
}

func diff(out io.Writer, f *objectFlags, what, from, to string, document bool) (differs bool, err error) {
	kind, name, one := strings.Cut(what, "/")
	if kind == "" || one && name == "" {
		return false, fmt.Errorf("%q is no TYPE/NAME, such as deploy/web, and no TYPE", what)
	}
	if from == "" {
		if !one || to != "" {
			return false,
				errors.New("--from is missing: without it, one object is compared with what it was before its last change")
		}
		if from, err = beforeLast(f, what); err != nil {
			return false, err
		}
	}
	before, err := readSide(f, kind, name, from)
	if err != nil {
		return false, err
	}
	after, err := readSide(f, kind, name, to)
	if err != nil {
		return false, err
	}
	if one && len(before.objects)+len(after.objects) == 0 {
		return false, fmt.Errorf("%s was not there at either moment", what)
	}
	var names []string
	for _, s := range []side{before, after} {
		for name := range s.objects {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var entries []object.Value
	for _, name := range slices.Compact(names) {
		was, is := before.objects[name], after.objects[name]
		if !document {
			title := kind + "/" + name + " "
			d, err := writeDiff(out, title+before.title, title+after.title, was, is)
			if err != nil {
				return false, err
			}
			differs = differs || d
			continue
		}
		entry, d, err := diffEntry(name, was, is)
		if err != nil {
			return false, err
		}
		if d {
			entries = append(entries, entry)
		}
	}
	if !document {
		return differs, nil
	}
	text := object.AppendObject(nil, object.Fields("apiVersion", object.StringOf("plinth/v1"), "kind",
		object.StringOf("Diff"), "from", object.StringOf(before.title), "to", object.StringOf(after.title), "objects",
		object.ListOf(entries...)))
	_, err = out.Write(append(text, '\n'))
	return len(entries) > 0, err
}

// diffEntry is the difference of an object in the document.
func diffEntry(name string, was, is object.Value) (entry object.Value, differs bool, err error) {
	change, key := "modified", "patch"
	var shown object.Value
	switch {
	case was.IsNull():
		change, key, shown = "created", "object", compared(is)
	case is.IsNull():
		change, key, shown = "deleted", "object", compared(was)
	default:
		if shown, err = patch.Between(compared(was), compared(is)); err != nil || shown.Len() == 0 {
			return object.Nil, false, err
		}
	}
	return object.Fields("name", object.StringOf(name), "change", object.StringOf(change), key, shown), true, nil
}

// beforeLast is the moment before the last change of an object.
func beforeLast(f *objectFlags, what string) (string, error) {
	r, path, err := f.at(what)
	if err != nil {
		return "", err
	}
	record, err := r.document(path, url.Values{"history": {""}, "limit": {"1"}})
	if err != nil {
		return "", err
	}
	changes := record.At("changes").Items()
	if len(changes) == 0 {
		return "", fmt.Errorf("no change of %s is known", what)
	}
	return before(changes[0].At("resourceVersion").Str())
}

// readSide reads the objects of one side.
func readSide(f *objectFlags, kind, name, at string) (s side, err error) {
	s.title = at
	r, err := connect(f.files())
	if err != nil {
		return s, err
	}
	if plane, rest, ok := strings.Cut(at, "@"); ok {
		p, err := planesAt(f.files())
		if err != nil {
			return s, err
		}
		namespace := r.namespace
		r, at = p.remote, rest
		r.namespace, r.url = namespace, r.url+"/clusters/"+url.PathEscape(plane)
	}
	if s.title == "" || strings.HasSuffix(s.title, "@") {
		s.title += "now"
	}
	path, err := r.find(kind, name, f.namespace)
	if err != nil {
		return s, err
	}
	query := url.Values{}
	if err := setMoment(query, at); err != nil {
		return s, err
	}
	s.objects = map[string]object.Value{}
	v, err := r.document(strings.TrimSuffix(path, "/"), query)
	if gone := (*statusError)(nil); name != "" && errors.As(err, &gone) && gone.value.At("reason").Str() == "NotFound" {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if name != "" {
		s.objects[name] = v
		return s, nil
	}
	for _, item := range v.At("items").Items() {
		s.objects[item.At("metadata", "name").Str()] = item.With("apiVersion", v.At("apiVersion")).With("kind",
			object.StringOf(strings.TrimSuffix(v.At("kind").Str(), "List")))
	}
	return s, nil
}
