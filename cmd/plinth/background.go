package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"plinth/internal/background"
	kubeconfigs "plinth/internal/kubeconfig"
	"plinth/internal/server"
	"plinth/object"
)

// defaultServer is the name of the server that a command is about without a name.
const defaultServer = "default"

// exitStopped is the exit code of `plinth status` for a server that does not run, as systemctl has it.
const exitStopped = 3

// oneServer makes a command on a server by its name.
func oneServer(c *cobra.Command, run func(s *background.Server, c *cobra.Command) error) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var all []string
		if root, err := background.Root(); err == nil && len(args) == 0 {
			servers, _ := background.List(root)
			for _, s := range servers {
				all = append(all, s.Name)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%s takes the name of one server, and %q is one argument too many", c.Name(), args[1])
		}
		name := defaultServer
		if len(args) == 1 {
			name = args[0]
		}
		root, err := background.Root()
		if err != nil {
			return err
		}
		s, err := background.Named(root, name)
		if err != nil {
			return err
		}
		if c.Name() != "start" && !s.Exists() {
			return noServer(root, name)
		}
		return run(s, c)
	}
	return c
}

// noServer is the error for a name that no server has.
func noServer(root, name string) error {
	all, err := background.List(root)
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	start := "plinth start " + name + " starts one"
	if name == defaultServer {
		start = "plinth start starts one"
	}
	return errors.Join(fmt.Errorf("there is no server %q%s%s", name, didYouMean(name, names, ""), start), err)
}

// starting is what a start is asked for.
type starting struct {
	kubeconfig string
	current    bool
	wait       time.Duration
	flags      []string // of serve
}

func startCommand() *cobra.Command {
	var o starting
	c := &cobra.Command{
		Use:   "start [NAME] [-- FLAGS]",
		Short: "start a server in the background, and wait until it is ready",
		Long: `Starts a server in the background, by default the one with the name default, and returns when it is ready. Each server
has its own data directory, port and log, in $XDG_STATE_HOME/plinth/NAME (by default ~/.local/state/plinth), and its own
context in the kubeconfig: plinth-NAME, or plinth for the one named default. A server that was stopped is started again
with its data, at the same port if that is free. Flags after -- are those of plinth serve.`,
		Example: "  plinth start\n  plinth start dev -- --controllers='*,-namespace-controller' --secure-port=7443\n" +
			"  kubectl --context plinth-dev get namespaces\n  plinth stop dev",
	}
	oneServer(c, func(s *background.Server, c *cobra.Command) error { return o.run(s, c.OutOrStdout()) })
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if at := c.ArgsLenAtDash(); at >= 0 {
			args, o.flags = args[:at], args[at:]
		}
		return run(c, args)
	}
	c.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "the kubeconfig to add the context to (default: the first file of "+
		"KUBECONFIG, or ~/.kube/config); what else is in the file stays")
	c.Flags().BoolVar(&o.current, setCurrentContext, false, "make it the current context; in a kubeconfig without contexts it is")
	c.Flags().DurationVar(&o.wait, "wait", time.Minute, "how long to wait until the server is ready")
	return c
}

// contextOf is the name of a server's context.
func contextOf(s *background.Server) string {
	if s.Name == defaultServer {
		return server.DefaultContext
	}
	return server.DefaultContext + "-" + s.Name
}

func (o *starting) run(s *background.Server, out io.Writer) error {
	if o.wait <= 0 {
		return fmt.Errorf("--wait: %s is no time to wait; give one such as 30s", o.wait)
	}
	if pid, err := s.Running(); err == nil {
		state, err := s.State()
		if err != nil {
			return err
		}
		return fmt.Errorf("the server %s runs already at %s (process %d); plinth stop %s ends it", s.Name, state.URL, pid, s.Name)
	}
	file := o.kubeconfig
	if file == "" {
		file = userKubeconfig()
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	args := []string{"--data-dir=" + s.DataDir(), "--write-kubeconfig=" + file, "--context-name=" + contextOf(s),
		"--" + setCurrentContext + "=" + fmt.Sprint(o.current)}
	if !slices.ContainsFunc(o.flags, func(f string) bool { return strings.HasPrefix(f, "--secure-port") }) {
		args = append(args, "--secure-port="+freePort(s))
	}
	args = append(args, o.flags...)
	c, _, err := program(io.Discard).Find([]string{"serve"}) // a mistake in the flags is an error here, and not in the log
	if err != nil {
		return err
	}
	if err := c.ParseFlags(args); err != nil {
		return explainFlag(c, err)
	}
	if rest := c.Flags().Args(); len(rest) > 0 {
		return fmt.Errorf("after -- there are flags of plinth serve, and %q is none", rest[0])
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.wait)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	if isTerminal(os.Stderr) {
		fmt.Fprintf(os.Stderr, "Starting the server %s …\r", s.Name)
		defer fmt.Fprint(os.Stderr, "\x1b[K")
	}
	name := contextOf(s)
	state, err := s.Start(ctx, &background.Launch{Program: self, Args: append([]string{"serve"}, args...),
		State: background.State{Context: name, Kubeconfig: file},
		Find:  func() (string, error) { return urlOf(file, name) }})
	if errors.Is(err, background.ErrRuns) {
		return fmt.Errorf("the server %s is being started by another process; plinth status %s says how far it is", s.Name, s.Name)
	}
	if err != nil {
		return err
	}
	pid, err := s.Running()
	if err != nil {
		return fmt.Errorf("the server %s was ready and has ended: %w; plinth logs %s has what it said", s.Name, err, s.Name)
	}
	_, err = fmt.Fprintf(out, "The server %s is ready at %s (process %d).\n\n  %s\n  plinth logs %s -f\n  plinth stop %s\n",
		s.Name, state.URL, pid, kubectlLine(file, name), s.Name, s.Name)
	return err
}

// kubectlLine is what to type to use a context.
func kubectlLine(file, name string) string {
	line := "kubectl"
	if usual, err := filepath.Abs(userKubeconfig()); err != nil || usual != file {
		line += " --kubeconfig " + file
	}
	if c, err := readObject(file); err != nil || c.At("current-context").Str() != name {
		line += " --context " + name
	}
	return line + " get namespaces"
}

// userKubeconfig is the file that kubectl writes to.
func userKubeconfig() string {
	for _, file := range filepath.SplitList(os.Getenv("KUBECONFIG")) {
		if file != "" {
			return file
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "kubeconfig"
	}
	return filepath.Join(home, ".kube", "config")
}

// urlOf is the URL of a cluster in a kubeconfig.
func urlOf(file, name string) (string, error) {
	c, err := readObject(file)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(c.At("clusters").Items(), func(v object.Value) bool { return v.At("name").Str() == name })
	if i < 0 {
		return "", fmt.Errorf("%s has no cluster %s", file, name)
	}
	return c.At("clusters").Items()[i].At("cluster", "server").Str(), nil
}

// freePort is the port at which the server was last, if it is free; else 0, for any.
func freePort(s *background.Server) string {
	state, err := s.State()
	if err != nil {
		return "0"
	}
	u, err := url.Parse(state.URL)
	if err != nil || u.Port() == "" {
		return "0"
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", u.Port()))
	if err != nil {
		return "0"
	}
	l.Close()
	return u.Port()
}

func stopCommand() *cobra.Command {
	var kill, remove bool
	var wait time.Duration
	c := &cobra.Command{
		Use: "stop [NAME]", Short: "end a server in the background; its data stays",
		Example: "  plinth stop\n  plinth stop dev --delete",
	}
	c.Flags().BoolVar(&kill, "kill", false, "end it at once, without finishing requests")
	c.Flags().BoolVar(&remove, "delete", false, "remove its data, its log and its contexts in the kubeconfig, too")
	c.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait for its end")
	return oneServer(c, func(s *background.Server, c *cobra.Command) error {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		out := c.OutOrStdout()
		err := s.Stop(ctx, kill)
		said := fmt.Sprintf("The server %s has ended.", s.Name)
		if errors.Is(err, background.ErrStopped) {
			said, err = fmt.Sprintf("The server %s does not run.", s.Name), nil
		}
		if err == nil && remove {
			state, _ := s.State()
			if err = s.Remove(); errors.Is(err, background.ErrRuns) {
				err = fmt.Errorf("the server %s was started again meanwhile, and is not removed", s.Name)
			}
			said += " Its data is removed."
			if err == nil && state.Context != "" {
				said += removePlanes(ctx, &state) + removeContext(ctx, &state)
			}
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, said)
		return err
	})
}

// removePlanes removes the contexts of the planes of a server that is gone, which --merge has added to the files that
// kubectl reads and to that of the server, and returns what there is to say about it. One that leads to another server,
// or was changed since, stays. It comes before the context of the server goes: the others are copies of that.
func removePlanes(ctx context.Context, state *background.State) (said string) {
	own, err := readKubeconfigs([]string{state.Kubeconfig})
	if err != nil {
		return ""
	}
	entry := named(own, "contexts", "context", state.Context)
	current := &currentContext{cluster: named(own, "clusters", "cluster", entry.value.At("cluster").Str()),
		user: named(own, "users", "user", entry.value.At("user").Str())}
	if current.cluster.value.At("server").Str() != state.URL { // it is that of another server now
		return ""
	}
	s := &planeServer{remote: &remote{url: state.URL}, current: current}
	files := kubectlFiles()
	if !slices.ContainsFunc(files, func(f string) bool { return sameFile(f, state.Kubeconfig) }) {
		files = append(files, state.Kubeconfig)
	}
	all, err := existing(files)
	if err != nil {
		return ""
	}
	for _, k := range all {
		for _, name := range s.contextsBelow(k) {
			cluster := named([]kubeconfig{k}, "clusters", "cluster", name).value.At("server").Str()
			p, err := s.copyOf(strings.TrimPrefix(cluster, urlOfPlane(s.url, "")), name)
			if err == nil {
				said += " " + s.dropContext(ctx, k, p)
			}
		}
	}
	return said
}

// removeContext removes the context of a server that is gone, and returns what there is to say about it. That it cannot
// be removed is no failure of the stop: the kubeconfig is the user's.
func removeContext(ctx context.Context, state *background.State) string {
	err := kubeconfigs.Remove(ctx, state.Kubeconfig, state.Context, state.URL)
	switch {
	case errors.Is(err, kubeconfigs.ErrOther):
		return fmt.Sprintf(" The context %s stays: it is that of another server now.", state.Context)
	case err != nil:
		return fmt.Sprintf(" Its context stays (%v): kubectl config delete-context %s removes it.", err, state.Context)
	}
	return fmt.Sprintf(" So is its context %s in %s.", state.Context, state.Kubeconfig)
}

func statusCommand() *cobra.Command {
	return oneServer(&cobra.Command{
		Use: "status [NAME]", Short: "whether a server in the background runs and is ready",
		Long: "Prints where a server in the background is, and whether it runs and is ready.\n\n" +
			"Exit code: 0, it is ready; 1, it runs and is not ready; 3, it does not run.",
	}, func(s *background.Server, c *cobra.Command) error {
		state, err := s.State()
		if err != nil {
			return err
		}
		pid, err := s.Running()
		code, says := 0, "ready"
		switch {
		case errors.Is(err, background.ErrStopped):
			code, says = exitStopped, "stopped; plinth start "+s.Name+" starts it"
		case err != nil:
			return err
		default:
			if err := readyz(state.URL); err != nil {
				code, says = 1, "not ready: "+err.Error()
			}
		}
		text := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintf(text, "server\t%s\nstatus\t%s\n", s.Name, says)
		if code != exitStopped {
			fmt.Fprintf(text, "process\t%d\nURL\t%s\nsince\t%s\n", pid, state.URL, state.Started.Local().Format(time.DateTime))
		}
		fmt.Fprintf(text, "context\t%s in %s\ndata\t%s\nlog\t%s\n", state.Context, state.Kubeconfig, s.DataDir(), s.LogFile())
		if err := text.Flush(); err != nil || code == 0 {
			return err
		}
		return &exitError{code: code}
	})
}

// readyz asks a server whether it is ready.
func readyz(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return answers(ctx, url+"/readyz")
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "list the servers in the background", Args: arguments(0, "only flags"),
		RunE: func(c *cobra.Command, _ []string) error {
			root, err := background.Root()
			if err != nil {
				return err
			}
			all, err := background.List(root)
			if err != nil {
				return err
			}
			text := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(text, "NAME\tSTATUS\tURL\tCONTEXT")
			for _, s := range all {
				state, err := s.State()
				if err != nil {
					return err
				}
				says := "running"
				if _, err := s.Running(); errors.Is(err, background.ErrStopped) {
					says, state.URL = "stopped", ""
				} else if err != nil {
					says = "starting"
				}
				fmt.Fprintf(text, "%s\t%s\t%s\t%s\n", s.Name, says, state.URL, state.Context)
			}
			return text.Flush()
		},
	}
}

func logsCommand() *cobra.Command {
	var follow bool
	var tail int
	c := &cobra.Command{
		Use: "logs [NAME]", Short: "print what a server in the background has said",
		Example: "  plinth logs dev --tail 20\n  plinth logs dev -f",
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as the log grows, until the server ends")
	c.Flags().IntVar(&tail, "tail", -1, "how many lines to begin with; -1: all")
	return oneServer(c, func(s *background.Server, c *cobra.Command) error {
		return printLog(c.OutOrStdout(), s, tail, follow)
	})
}

// printLog prints a log, and what is added to it as long as the server runs.
func printLog(out io.Writer, s *background.Server, tail int, follow bool) error {
	file, err := os.Open(s.LogFile())
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	if tail >= 0 {
		lines := bytes.SplitAfter(text, []byte("\n"))
		if len(lines[len(lines)-1]) == 0 {
			lines = lines[:len(lines)-1]
		}
		text = bytes.Join(lines[max(0, len(lines)-tail):], nil)
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	for follow {
		_, running := s.Running() // before the rest is read: what it said last is printed, too
		if _, err := io.Copy(out, file); err != nil {
			return err
		}
		if running != nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}
