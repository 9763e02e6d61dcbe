package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"plinth/internal/plane"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plinth/internal/product"
)

// group is a part of the list of commands, with its title in the help.
type group struct {
	title    string
	commands []*cobra.Command
}

// commands lists the commands in the order of the help.
func commands() []group {
	return []group{
		{"Servers", []*cobra.Command{serveCommand(), startCommand(), stopCommand(), statusCommand(), listCommand(),
			logsCommand()}},
		{"Planes", []*cobra.Command{planeCommand()}},
		{"Tests", []*cobra.Command{testServerCommand(), envtestCommand(), validateCommand()}},
		{"Objects", []*cobra.Command{kubectlCommand(), consoleCommand(), ownersCommand(), mergeCommand(),
			changesCommand(), diffCommand(), undoCommand(), purgeCommand()}},
		{"Data", []*cobra.Command{backupCommand(), restoreCommand(), copyCommand(), checkCommand(), exportCommand(),
			doctorCommand()}},
	}
}

const introduction = `Plinth: the Kubernetes API, without the rest of a cluster.

To begin:
  plinth start  start a server in the background; it says what to type next
  plinth serve  start one in this terminal
`

// program makes the command plinth. Cobra finds the command and parses its flags; texts are made here: templates of
// package text/template would make the linker keep every exported method of the program
// (docs/decisions/0002-dependencies.md).
func program(out io.Writer) *cobra.Command {
	all := commands()
	root := &cobra.Command{
		Use: "plinth", Short: "the Kubernetes API, without the rest of a cluster",
		SilenceErrors: true, SilenceUsage: true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return noCommand(c, args[0])
		},
	}
	version := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(*cobra.Command, []string) error {
		if *version {
			return printVersion(out)
		}
		return printCommands(out, all)
	}
	root.SetOut(out)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		print := func() error { return printHelp(out, c, false) }
		if c == root {
			print = func() error { return printCommands(out, all) }
		}
		print() //nolint:errcheck // cobra has no way to return it, and who has closed the output does not read on
	})
	root.SetUsageFunc(func(*cobra.Command) error { return nil })
	root.SetFlagErrorFunc(explainFlag)
	for _, g := range all {
		root.AddCommand(g.commands...)
	}
	root.CompletionOptions.DisableDefaultCmd = true // its texts are not of this program
	root.AddCommand(versionCommand(), completionCommand(root))
	root.SetHelpCommand(helpCommand(root, all))
	return root
}

// noCommand is the error for a command that there is not.
func noCommand(root *cobra.Command, name string) error {
	return fmt.Errorf("there is no command %q%splinth help lists the commands", name,
		didYouMean(name, names(root), "plinth "))
}

// names are those of the commands.
func names(root *cobra.Command) (all []string) {
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			all = append(all, c.Name())
		}
	}
	return all
}

// explainFlag is the error for a flag that does not parse: what is wrong, and what to type instead.
func explainFlag(c *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	how := c.CommandPath() + " --help lists the flags"
	if c.Flags().Lookup(helpAll) != nil {
		how = c.CommandPath() + " --" + helpAll + " lists the flags"
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		meant := "; "
		if unknown.GetSpecifiedShortnames() == "" {
			meant = didYouMean(unknown.GetSpecifiedName(), known, "--")
		} else if len(unknown.GetSpecifiedShortnames()) > 1 { // one dash for two
			meant = didYouMean(strings.SplitN(unknown.GetSpecifiedShortnames(), "=", 2)[0], known, "--")
		}
		return fmt.Errorf("%w%s%s", err, meant, how)
	}
	return fmt.Errorf("%w; %s", brief(err), how)
}

// brief is flagError, with each reason in the same form: the flag, and what is wrong with the value.
func brief(err error) error {
	said := flagError(err)
	var invalid *pflag.InvalidValueError
	if said != err || !errors.As(err, &invalid) { //nolint:errorlint // the same error: nothing was said
		return said
	}
	return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, errors.Unwrap(invalid))
}

// arguments is the rule for a command that takes n arguments: what they are is for the error.
func arguments(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) == n:
			return nil
		case len(args) > n && n == 0:
			return fmt.Errorf("%s takes no arguments, %s, and got %q; %s --help says more", c.Name(), what, args[0],
				c.CommandPath())
		case len(args) > n:
			return fmt.Errorf("%s takes %s, and %q is one argument too many; %s --help says more", c.Name(), what,
				args[n], c.CommandPath())
		}
		return fmt.Errorf("%s needs %s: %s%s", c.Name(), what, strings.TrimSuffix(c.CommandPath(), c.Name()), c.Use)
	}
}

// must is for what can fail only by a mistake in this program, such as the name of a flag.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Args: arguments(0, "only flags"),
		RunE: func(c *cobra.Command, _ []string) error { return printVersion(c.OutOrStdout()) },
	}
}

// printVersion prints the product's version, that of the API that it serves, and what the program was built from.
func printVersion(out io.Writer) error {
	built := product.Built()
	_, err := fmt.Fprintf(out, "plinth %s\nKubernetes %s\ncommit %s\n%s %s/%s\n", built.Version, plane.Version,
		built.From(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// printCommands prints what `plinth` alone and `plinth help` say.
func printCommands(out io.Writer, all []group) error {
	s := styleOf(out)
	var text strings.Builder
	text.WriteString(introduction)
	for _, g := range all {
		fmt.Fprintf(&text, "\n%s:\n", s.bold(g.title))
		for _, c := range g.commands {
			fmt.Fprintf(&text, "  %-38s %s\n", "plinth "+c.Use, c.Short)
		}
	}
	fmt.Fprintf(&text, "\n%s:\n", s.bold("More"))
	for _, line := range [][2]string{
		{"help COMMAND", "the help of a command, with examples"},
		{"help serve TOPIC", "the flags of one topic, such as etcd or auditing"},
		{"completion SHELL", "completion for bash, zsh, fish or powershell"},
		{"version", "print the version"},
	} {
		fmt.Fprintf(&text, "  %-38s %s\n", "plinth "+line[0], line[1])
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// helpAll is the flag of commands with many flags that lists all of them.
const helpAll = "help-all"

// firstFlags is the annotation of a command that names the flags which its help lists.
const firstFlags = "first"

// first makes a command whose help lists the flags that one needs first, and all with --help-all. all are the flags.
func first(c *cobra.Command, all table, names ...string) *cobra.Command {
	c.Annotations = map[string]string{firstFlags: strings.Join(names, ",")}
	everything := c.Flags().Bool(helpAll, false, "list all flags")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if *everything {
			return all.help(c.OutOrStdout(), c.CommandPath())
		}
		if f := c.Flags().Lookup("version"); f != nil && f.Value.String() != "false" {
			return printServedVersion(c.OutOrStdout())
		}
		return run(c, args)
	}
	c.Args = arguments(0, "only flags")
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if words, ok := f.Value.(interface{ Words() []string }); ok {
			must(c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words.Words(),
				cobra.ShellCompDirectiveNoFileComp)))
		}
	})
	return c
}

// printHelp prints the help of a command.
func printHelp(out io.Writer, c *cobra.Command, all bool) error {
	s := styleOf(out)
	var text strings.Builder
	about := c.Long
	if about == "" {
		about = strings.ToUpper(c.Short[:1]) + c.Short[1:] + "."
	}
	use := c.CommandPath() + strings.TrimPrefix(c.Use, c.Name())
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	shown.SortFlags = false
	names := strings.Split(c.Annotations[firstFlags], ",")
	hidden := 0
	c.InitDefaultHelpFlag()
	c.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Hidden || f.Name == "help":
		case names[0] == "" || all || f.Name == helpAll:
			shown.AddFlag(f)
		case !slices.Contains(names, f.Name):
			hidden++
		}
	})
	if names[0] != "" && !all {
		ordered := pflag.NewFlagSet("", pflag.ContinueOnError)
		ordered.SortFlags = false
		for _, name := range names {
			f := *c.Flags().Lookup(name)
			f.Usage = shortened(f.Usage)
			ordered.AddFlag(&f)
		}
		ordered.AddFlagSet(shown)
		shown = ordered
	}
	fmt.Fprintf(&text, "%s\n\n%s:\n  %s", about, s.bold("Usage"), use)
	if shown.HasFlags() && !strings.Contains(use, "--") {
		text.WriteString(" [flags]")
	}
	text.WriteString("\n")
	if c.Example != "" {
		fmt.Fprintf(&text, "\n%s:\n%s\n", s.bold("Examples"), c.Example)
	}
	if subs := c.Commands(); len(subs) > 0 {
		fmt.Fprintf(&text, "\n%s:\n", s.bold("Commands"))
		for _, sub := range subs {
			fmt.Fprintf(&text, "  %-12s %s\n", sub.Name(), sub.Short)
		}
	}
	if shown.HasFlags() {
		title := "Flags"
		if hidden > 0 {
			title = "The flags that one needs first"
		}
		fmt.Fprintf(&text, "\n%s:\n%s", s.bold(title), shown.FlagUsagesWrapped(columns(out)))
	}
	if hidden > 0 {
		fmt.Fprintf(&text, "\nThere are %d more: %s --%s lists all", hidden, c.CommandPath(), helpAll)
		if c.Name() == "serve" {
			fmt.Fprintf(&text, ",\nplinth help serve TOPIC those of a topic: %s", strings.Join(topics(), ", "))
		}
		text.WriteString(".\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// shortened is the beginning of a text that is too long for a list of a few lines.
func shortened(text string) string {
	const most = 150
	if len(text) <= most {
		return text
	}
	return text[:strings.LastIndexByte(text[:most], ' ')] + " …"
}

// topic is the word for a section of flags: etcd, secure-serving.
func topic(s *section) string { return strings.ReplaceAll(strings.ToLower(s.title), " ", "-") }

// topics are those of serve's flags.
func topics() (all []string) {
	for _, s := range serveFlags(defaults("plinth serve")) {
		all = append(all, topic(&s))
	}
	return all
}

// helpCommand is `plinth help [COMMAND [TOPIC]]`.
func helpCommand(root *cobra.Command, all []group) *cobra.Command {
	c := &cobra.Command{
		Use: "help [COMMAND [TOPIC]]", Short: "the help of a command",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			switch {
			case len(args) == 0:
				return names(root), cobra.ShellCompDirectiveNoFileComp
			case len(args) == 1 && args[0] == "serve":
				return topics(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		out := c.OutOrStdout()
		if len(args) == 0 {
			return printCommands(out, all)
		}
		if args[0] == "serve" && len(args) == 2 {
			return printTopic(out, args[1])
		}
		of, rest, err := root.Find(args)
		switch {
		case err != nil || of == root:
			return noCommand(root, args[0])
		case len(rest) > 0:
			return fmt.Errorf("there is no help on %q; plinth help %s is the help of the command", strings.Join(args, " "),
				args[0])
		}
		return printHelp(out, of, false)
	}
	return c
}

// printTopic prints the flags of serve on one topic.
func printTopic(out io.Writer, name string) error {
	for _, s := range serveFlags(defaults("plinth serve")) {
		if topic(&s) == strings.ToLower(name) {
			return table{s}.help(out, "plinth serve")
		}
	}
	return fmt.Errorf("serve has no flags on %q%sthe topics are %s", name, didYouMean(name, topics(), ""),
		strings.Join(topics(), ", "))
}
