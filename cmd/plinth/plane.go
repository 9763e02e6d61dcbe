package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"plinth/internal/planes/kind"
	"plinth/object"
)

// planeCommand is `plinth plane`: control planes beside the one at /, in a server with --planes.
func planeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "plane COMMAND",
		Short: "control planes beside the one at /, each at a URL of its own",
		Long: "A plane is a control plane of its own in a server that was started with --planes: with its own objects, types and\n" +
			"roles, at https://HOST/clusters/NAME. Planes are objects of the server, of the type planes.plinth, so kubectl can\n" +
			"do all that these commands do.\n\n" +
			"The server is that of the current context. If the context is that of a plane, it is the server of this plane.",
		Example: "  plinth plane create pr-1 --ttl 2h --merge\n  plinth plane list\n  plinth plane delete pr-1",
	}
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("there is no command %q%splinth help plane lists the commands", "plane "+args[0],
			didYouMean(args[0], names(c), "plinth plane "))
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return printHelp(c.OutOrStdout(), c, false) }
	c.AddCommand(planeCreateCommand(), planeListCommand(), planeDeleteCommand(), planeKubeconfigCommand())
	return c
}

// planeFlags are the flags that the commands share.
type planeFlags struct {
	kubeconfig string
	timeout    time.Duration
}

func (f *planeFlags) files() []string { return kubeconfigsOf(f.kubeconfig) }

// planeSubcommand adds the flags that all have, and the completion of names; most is how many arguments are names.
func planeSubcommand(c *cobra.Command, f *planeFlags, most int) *cobra.Command {
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig to use (default: as for plinth owners)")
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.DeleteFunc(completePlanes(f.files()), func(name string) bool { return slices.Contains(args, name) }),
			cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

// planeServer is the server whose planes they are.
type planeServer struct {
	*remote
	current *currentContext
}

const planesPath = "/apis/" + kind.Group + "/" + kind.Version + "/" + kind.Plural

// planeContext is the current context, and the URL of the server whose planes they are: the context may be that of one
// of its planes.
func planeContext(files []string) (current *currentContext, base string, err error) {
	if current, err = readCurrentContext(files); err != nil {
		return nil, "", err
	}
	base = strings.TrimSuffix(current.cluster.value.At("server").Str(), "/")
	u, err := url.Parse(base)
	if err != nil {
		return nil, "", fmt.Errorf("%s: the URL of the server: %w", current.cluster.file, err)
	}
	// Other servers have paths of this form, too, below others.
	if name, ok := strings.CutPrefix(u.Path, "/clusters/"); ok && name != "" && !strings.Contains(name, "/") {
		u.Path, u.RawPath = "", ""
		base = u.String()
	}
	return current, base, nil
}

// planesAt connects to the server whose planes they are.
func planesAt(files []string) (*planeServer, error) {
	current, base, err := planeContext(files)
	if err != nil {
		return nil, err
	}
	if program := current.plugin(); program != "" {
		return nil, fmt.Errorf("the credentials of the user %s come from the program %s, which plinth plane does not run; "+
			"kubectl does: kubectl get planes.plinth", current.user.name, program)
	}
	c, err := current.connect()
	if err != nil {
		return nil, err
	}
	c.url = base
	return &planeServer{c, current}, nil
}

// plugin is the program from which the credentials of the user come; "" if there is none.
func (current *currentContext) plugin() string {
	user := current.user.value
	if provider := user.At("auth-provider", "name").Str(); provider != "" {
		return provider
	}
	return user.At("exec", "command").Str()
}

// call sends a request to the type Plane, or to the plane of a name, and returns the object in the answer.
func (s *planeServer) call(method, name string, query url.Values, body []byte) (object.Value, error) {
	at := planesPath
	if name != "" {
		at += "/" + url.PathEscape(name)
	}
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	header := http.Header{"Accept": {"application/json"}}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	text, err := s.send(method, at, body, header)
	if err != nil {
		return object.Nil, s.explain(err)
	}
	parsed, err := object.ParseJSON(text)
	return parsed.Value, err
}

// explain replaces the error of a server that has no planes by one that says so.
func (s *planeServer) explain(err error) error {
	var code *codeError
	if missing := errors.As(err, &code) && code.code == http.StatusNotFound; !missing {
		var status *statusError
		if !errors.As(err, &status) || status.value.At("code").Int() != http.StatusNotFound ||
			status.value.At("details", "name").Str() != "" {
			return err
		}
	}
	// It may be another path that is not there.
	if text, asked := s.get(path.Dir(planesPath), "application/json"); asked == nil {
		list, parsed := object.ParseJSON(text)
		if parsed == nil && slices.ContainsFunc(list.Value.At("resources").Items(), func(r object.Value) bool {
			return r.At("name").Str() == kind.Plural
		}) {
			return err
		}
	}
	return fmt.Errorf("the server at %s has no planes: it has to be started with plinth serve --planes", s.url)
}

// isGone says whether a plane is not there.
func isGone(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.value.At("reason").Str() == "NotFound"
}

// await reads a plane, and its changes, until it is as it should be; done is called with null when it is gone.
func (s *planeServer) await(ctx context.Context, name string, done func(obj object.Value) bool) error {
	for {
		obj, err := s.call(http.MethodGet, name, nil, nil)
		if err != nil && !isGone(err) {
			return err
		}
		if isGone(err) {
			obj = object.Nil
		}
		if done(obj) {
			return nil
		}
		if obj.IsNull() {
			return fmt.Errorf("the plane %s is gone", name)
		}
		if err := s.follow(ctx, name, obj.At("metadata", "resourceVersion").Str(), done); !errors.Is(err, errWatchEnded) {
			return err
		}
		select { // a server that ends each watch at once is not asked all the time
		case <-time.After(watchPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watchPause is the time between a watch that has ended and the next one.
const watchPause = 100 * time.Millisecond

// errWatchEnded is returned if a watch has ended before what it waits for has happened.
var errWatchEnded = errors.New("the watch has ended")

// follow is await from a version of the plane on, by one watch.
func (s *planeServer) follow(ctx context.Context, name, version string, done func(obj object.Value) bool) error {
	client := *s.client
	client.Timeout = 0 // ctx ends it
	query := url.Values{"watch": {"1"}, "fieldSelector": {"metadata.name=" + name}, "resourceVersion": {version}}
	response, err := s.open(ctx, &client, http.MethodGet, planesPath+"?"+query.Encode(), nil,
		http.Header{"Accept": {"application/json"}})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for events := json.NewDecoder(response.Body); ; {
		var text json.RawMessage
		if err := events.Decode(&text); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errWatchEnded
		}
		event, err := object.ParseJSON(text)
		if err != nil {
			return err
		}
		obj := event.Value.At("object")
		switch event.Value.At("type").Str() {
		case "ERROR": // the version is too old, say
			return errWatchEnded
		case "DELETED":
			obj = object.Nil
		}
		if done(obj) {
			return nil
		}
		if obj.IsNull() {
			return fmt.Errorf("the plane %s is gone", name)
		}
	}
}

// waiting bounds a wait.
func (f *planeFlags) waiting(c *cobra.Command) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context(), f.timeout)
}

// waitFlags are the flags of commands that wait.
func waitFlags(c *cobra.Command, f *planeFlags, wait *bool, usage string) {
	c.Flags().BoolVar(wait, "wait", false, usage)
	c.Flags().DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long --wait waits")
}

// planeCreate are the flags of `plinth plane create`.
type planeCreate struct {
	planeFlags
	from            string
	ttl             time.Duration
	objects         int64
	requests        int32
	weight          int32
	bytes           string
	readOnly, merge bool
	context         string
	wait            bool
}

func planeCreateCommand() *cobra.Command {
	var o planeCreate
	c := planeSubcommand(&cobra.Command{
		Use: "create NAME", Short: "create a plane",
		Long: "Creates a plane. It is served when the command ends. With --from it begins with the objects of another plane, as\n" +
			"they are now or were at a resourceVersion; that needs the right to access the other plane.",
		Example: "  plinth plane create pr-1 --ttl 2h\n  plinth plane create pr-2 --from main --merge\n" +
			"  plinth plane create before --from main@4711 --read-only\n  plinth plane create student-7 --objects 2000 --bytes 64Mi",
		Args: arguments(1, "NAME"),
	}, &o.planeFlags, 0)
	c.RunE = func(c *cobra.Command, args []string) error { return o.run(c, args[0]) }
	flags := c.Flags()
	flags.StringVar(&o.from, "from", "", "begin with the objects of another plane: NAME, or NAME@RESOURCEVERSION")
	flags.DurationVar(&o.ttl, "ttl", 0, "delete it this long after its creation (default: when somebody deletes it)")
	flags.Int64Var(&o.objects, "objects", 0, "how many objects it may have, the about 200 that every plane begins "+
		"with included (default: any number)")
	flags.StringVar(&o.bytes, "bytes", "", "how much its objects may take as they are stored, such as 64Mi (default: any amount)")
	flags.Int32Var(&o.requests, "requests", 0, "how many requests it serves at one time (default: any number)")
	flags.Int32Var(&o.weight, "weight", 0, "its share while requests of several planes wait, from 1 to 1000 (default 1)")
	flags.BoolVar(&o.readOnly, "read-only", false, "its objects cannot be changed")
	mergeFlags(c, &o.merge, &o.context)
	waitFlags(c, &o.planeFlags, &o.wait, "wait until its controllers have nothing to do")
	must(c.RegisterFlagCompletionFunc("from", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return completePlanes(o.files()), cobra.ShellCompDirectiveNoFileComp
	}))
	return c
}

// spec is the spec that the flags ask for. What the server can judge, it judges.
func (o *planeCreate) spec(c *cobra.Command) (object.Value, error) {
	spec, limits := object.MapOf(), object.MapOf()
	given := c.Flags().Changed
	if given("from") {
		name, version, at := strings.Cut(o.from, "@")
		if name == "" || at && version == "" {
			return spec, fmt.Errorf("--from=%s is no NAME and no NAME@RESOURCEVERSION", o.from)
		}
		from := object.Fields("name", object.StringOf(name))
		if at {
			from = from.With("resourceVersion", object.StringOf(version))
		}
		spec = spec.With("from", from)
	}
	if given("ttl") {
		if o.ttl < time.Second {
			return spec, fmt.Errorf("--ttl=%s is less than a second", o.ttl)
		}
		spec = spec.With("ttlSeconds", object.IntOf(int64((o.ttl+time.Second-1)/time.Second)))
	}
	if given("objects") {
		limits = limits.With("objects", object.IntOf(o.objects))
	}
	if given("bytes") {
		if _, err := resource.ParseQuantity(o.bytes); err != nil {
			return spec, fmt.Errorf("--bytes=%s is no quantity, such as 500k or 64Mi", o.bytes)
		}
		limits = limits.With("bytes", object.StringOf(o.bytes))
	}
	if given("requests") {
		limits = limits.With("requests", object.IntOf(int64(o.requests)))
	}
	if limits.Len() > 0 {
		spec = spec.With("limits", limits)
	}
	if given("weight") {
		spec = spec.With("weight", object.IntOf(int64(o.weight)))
	}
	if o.readOnly {
		spec = spec.With("readOnly", object.BoolOf(true))
	}
	return spec, nil
}

func (o *planeCreate) run(c *cobra.Command, name string) error {
	spec, err := o.spec(c)
	if err != nil {
		return err
	}
	if o.context != "" && !o.merge {
		return errors.New("--context is the name of the context that --merge adds: give both")
	}
	s, err := planesAt(o.files())
	if err != nil {
		return err
	}
	var p *planeCopy
	if o.merge { // what cannot be added is an error before there is a plane
		if p, err = s.copyOf(name, o.context); err == nil {
			err = p.free()
		}
		if err != nil {
			return err
		}
	}
	body := object.Fields("apiVersion", object.StringOf(kind.Group+"/"+kind.Version), "kind", object.StringOf(kind.Kind),
		"metadata", object.Fields("name", object.StringOf(name)), "spec", spec)
	obj, err := s.call(http.MethodPost, "", url.Values{"fieldManager": {"plinth"}}, object.AppendObject(nil, body))
	if err != nil {
		return err
	}
	if o.wait {
		ctx, cancel := o.waiting(c)
		defer cancel()
		err = s.await(ctx, name, func(now object.Value) bool {
			if !now.IsNull() {
				obj = now
			}
			return !now.IsNull() && isSettled(now)
		})
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("the plane %s is created, and has not settled within %s", name, o.timeout)
		}
		if err != nil {
			return err
		}
	}
	said := fmt.Sprintf("The plane %s is at %s.\n\n", name, urlOfPlane(s.url, name))
	if at := obj.At("status", "expirationTime").Str(); at != "" {
		said = fmt.Sprintf("The plane %s is at %s until %s.\n\n", name, urlOfPlane(s.url, name), at)
	}
	if p == nil {
		said += fmt.Sprintf("  plinth plane kubeconfig %s --merge\n  plinth plane delete %s\n", name, name)
	} else {
		if err := p.add(c.Context()); err != nil {
			return fmt.Errorf("the plane %s is created, but its context is not: %w", name, err)
		}
		said += fmt.Sprintf("  %s\n  plinth plane delete %s\n", kubectlLine(p.file, p.Name), name)
	}
	_, err = io.WriteString(c.OutOrStdout(), said)
	return err
}

// isSettled says whether requests to a plane are served, and its controllers have nothing to do, as far as it says so.
func isSettled(obj object.Value) bool {
	ready, settled := false, true
	for _, c := range obj.At("status", "conditions").Items() {
		switch is := c.At("status").Str() == "True"; c.At("type").Str() {
		case kind.Ready:
			ready = is
		case kind.Settled:
			settled = is
		}
	}
	return ready && settled
}

func urlOfPlane(base, name string) string { return base + "/clusters/" + name }

func planeListCommand() *cobra.Command {
	var f planeFlags
	var form string
	forms := []string{"wide", "json", "yaml", "name"}
	c := planeSubcommand(&cobra.Command{
		Use: "list", Short: "list the planes of a server",
		Example: "  plinth plane list\n  plinth plane list -o wide\n  plinth plane delete $(plinth plane list -o name)",
		Args:    arguments(0, "only flags"),
	}, &f, 0)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if form != "" && !slices.Contains(forms, form) {
			return fmt.Errorf("there is no output %q%sthe outputs are %s", form, didYouMean(form, slices.Clone(forms), "-o "),
				strings.Join(forms, ", "))
		}
		s, err := planesAt(f.files())
		if err != nil {
			return err
		}
		return s.list(c.OutOrStdout(), form)
	}
	c.Flags().StringVarP(&form, "output", "o", "", strings.Join(forms, ", ")+" (default: a table)")
	must(c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)))
	return c
}

// list prints the planes.
func (s *planeServer) list(out io.Writer, form string) error {
	if form == "" || form == "wide" {
		return s.table(out, form == "wide")
	}
	list, err := s.call(http.MethodGet, "", nil, nil)
	if err != nil {
		return err
	}
	items := slices.Clone(list.At("items").Items())
	if form == "name" {
		for _, item := range items {
			if _, err := fmt.Fprintln(out, item.At("metadata", "name").Str()); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range items { // as kubectl shows them
		items[i] = items[i].WithoutAt("metadata", "managedFields")
	}
	text := object.AppendObject(nil, list.With("items", object.ListOf(items...)))
	if form == "yaml" {
		if text, err = object.YAML(text); err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "    ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(json.RawMessage(text))
}

// table prints the planes as the server shows them to kubectl.
func (s *planeServer) table(out io.Writer, wide bool) error {
	text, err := s.get(planesPath, "application/json;as=Table;v=v1;g=meta.k8s.io")
	if err != nil {
		return s.explain(err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		return err
	}
	rows := parsed.Value.At("rows").Items()
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, "There are no planes; plinth plane create NAME creates one.")
		return err
	}
	var shown []int
	lines := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	var line []string
	for i, column := range parsed.Value.At("columnDefinitions").Items() {
		if wide || column.At("priority").Int() == 0 {
			shown, line = append(shown, i), append(line, strings.ToUpper(column.At("name").Str()))
		}
	}
	fmt.Fprintln(lines, strings.Join(line, "\t"))
	for _, row := range rows {
		line = line[:0]
		cells := row.At("cells").Items()
		for _, i := range shown {
			cell := "-"
			if i < len(cells) && !cells[i].IsNull() && cells[i].Native() != "" {
				cell = fmt.Sprint(cells[i].Native())
			}
			line = append(line, cell)
		}
		fmt.Fprintln(lines, strings.Join(line, "\t"))
	}
	return lines.Flush()
}

func planeDeleteCommand() *cobra.Command {
	var f planeFlags
	var wait, contexts bool
	c := planeSubcommand(&cobra.Command{
		Use: "delete NAME...", Short: "delete planes, with all that is in them",
		Example: "  plinth plane delete pr-1\n  plinth plane delete pr-1 pr-2 --wait --contexts",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("delete needs the names of planes, as in: plinth plane delete NAME")
			}
			return nil
		},
	}, &f, 1<<30)
	c.Flags().BoolVar(&contexts, "contexts", false, "remove the contexts that --merge has added, without asking")
	waitFlags(c, &f, &wait, "wait until they are gone: a plane with finalizers is not at once")
	c.RunE = func(c *cobra.Command, args []string) error {
		s, err := planesAt(f.files())
		if err != nil {
			return err
		}
		var errs []error
		for _, name := range args {
			said, err := s.remove(c, &f, name, wait)
			if err == nil {
				if _, err := fmt.Fprintln(c.OutOrStdout(), said); err != nil {
					return err
				}
				err = s.dropContexts(c, name, contexts)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	return c
}

// remove deletes a plane, and returns what there is to say about it.
func (s *planeServer) remove(c *cobra.Command, f *planeFlags, name string, wait bool) (string, error) {
	obj, err := s.call(http.MethodDelete, name, nil, nil)
	if err != nil {
		return "", err
	}
	deleted := fmt.Sprintf("The plane %s is deleted.", name)
	if obj.At("kind").Str() != kind.Kind { // a Status: it is gone
		return deleted, nil
	}
	if !wait {
		return fmt.Sprintf("The plane %s is being deleted: it is kept by %s.", name, finalizersOf(obj)), nil
	}
	ctx, cancel := f.waiting(c)
	defer cancel()
	uid := obj.At("metadata", "uid").Str()
	err = s.await(ctx, name, func(now object.Value) bool {
		if now.IsNull() || now.At("metadata", "uid").Str() != uid { // another one has the name
			return true
		}
		obj = now
		return false
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return "", fmt.Errorf("the plane %s is not gone within %s: it is kept by %s", name, f.timeout, finalizersOf(obj))
	}
	return deleted, err
}

func finalizersOf(obj object.Value) string {
	var all []string
	for _, f := range obj.At("metadata", "finalizers").Items() {
		all = append(all, f.Str())
	}
	return strings.Join(all, ", ")
}

// completePlanes are the names of planes, at most 500.
func completePlanes(files []string) []string {
	s, err := planesAt(files)
	if err != nil {
		return nil
	}
	s.client.Timeout = completeTimeout
	return s.names(planesPath)
}
