package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plinth/internal/background"
	"plinth/internal/plane"
	"plinth/internal/server"
	"plinth/internal/systemd"
)

// defaults returns the default settings of the program under this name. As kube-apiserver they are the reference's:
// there is no default data directory, no controller runs, and there is no console.
func defaults(program string) *settings {
	s := &settings{Config: server.Defaults(), logLevel: "info", verbosity: "0", logFormat: "text", version: "false"}
	s.Console = true
	if program == kubeAPIServer {
		s.Console = false
		s.DataDir, s.BindAddress, s.CertDir, s.Controllers = "", "0.0.0.0", "/var/run/kubernetes", nil
		s.Aggregation.OwnAuthority = false
	}
	return s
}

func serveCommand() *cobra.Command {
	const program = "plinth serve"
	s := defaults(program)
	all := serveFlags(s)
	c := &cobra.Command{
		Use:   "serve",
		Short: "start the server in the foreground",
		Long: "Starts the server, with its objects in the data directory. It writes a kubeconfig and prints what to type next.\n" +
			"plinth start does the same in the background.",
		Example: "  plinth serve\n  plinth serve --data-dir /var/lib/plinth --write-kubeconfig ~/.kube/config\n" +
			"  plinth serve --config plinth.yaml",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.read(all, c.Flags()); err != nil {
				return err
			}
			s.DataDirGiven = c.Flags().Changed("data-dir")
			if err := s.serve(program, c.OutOrStdout()); err != nil {
				return explainStart(program, s.DataDir, all, c.Flags(), err)
			}
			return nil
		},
	}
	all.declare(c.Flags())
	return first(c, all, "config", "data-dir", "storage", "etcd-servers", "bind-address", "secure-port",
		"write-kubeconfig", "controllers", "authorization-mode", "log-level")
}

// serve runs the server until it is interrupted.
func serve(program string, args []string, out io.Writer) error {
	s, err := configure(program, args, out)
	if err != nil || s == nil {
		return err
	}
	return s.serve(program, out)
}

// serve runs a server with these settings until it is interrupted.
func (s *settings) serve(program string, out io.Writer) error {
	now, err := clock()
	if err != nil {
		return err
	}
	s.Now = now
	ctx, hangups := untilSignal(s.Logger)
	of, err := server.Start(ctx, s.Config)
	if err != nil && ctx.Err() != nil {
		// It was told to end while it started, and it did. Another reason why it could not start is worth a line.
		s.Logger.Info("the server ends before it was ready", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	go giveBackMemory(ctx, of.DropDocuments)
	go reopen(ctx, hangups, of, s.Logger)
	if program == kubeAPIServer { // other programs start it, and the text is for people
		s.Logger.Info("the server is ready", "url", of.URL())
		out = io.Discard
	}
	defer systemd.Ready(ctx, s.Logger, alive(of.URL()))()
	return of.Serve(ctx, out)
}

// endSignals are the signals that end a program in order. SIGHUP is one when it says that the terminal is closed: not
// under nohup, nor in a program without a terminal.
func endSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) && hasTerminal() {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// hasTerminal says whether the program has a terminal whose end would be its own.
func hasTerminal() bool {
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	terminal.Close()
	return true
}

// untilSignal returns a context that ends with the first of endSignals, with which the server closes. That may take
// as long as --shutdown-delay-duration and the requests under way; a second signal ends the process at once, as it does
// with kube-apiserver. hangups gets SIGHUP, unless that is one of them.
func untilSignal(logger *slog.Logger) (until context.Context, hangups <-chan os.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	ends := endSignals()
	signals, others := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, ends...)
	if !slices.Contains(ends, os.Signal(syscall.SIGHUP)) {
		signal.Notify(others, syscall.SIGHUP)
	}
	go func() {
		logger.Info("the server was told to end", "signal", (<-signals).String())
		cancel()
		<-signals
		os.Exit(1)
	}()
	return ctx, others
}

// reopen opens the log files again with each signal of hangups, until ctx ends: that of the audit log, and that of
// plinth start, to which the program's outputs lead.
func reopen(ctx context.Context, hangups <-chan os.Signal, of *server.Server, logger *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		err := of.Reopen()
		if file := os.Getenv(background.LogVariable); file != "" {
			err = errors.Join(err, background.Redirect(file))
		}
		if err != nil {
			logger.Error("log files were not opened again", "error", err)
			continue
		}
		logger.Info("log files were opened again")
	}
}

// configure turns a command line into settings. It returns nil if the command line requests help or the version, which
// it prints.
func configure(program string, args []string, out io.Writer) (*settings, error) {
	s := defaults(program)
	flags, err := s.parse(program, serveFlags(s), args, out)
	if err != nil || flags == nil {
		return nil, err
	}
	s.DataDirGiven = flags.Changed("data-dir")
	return s, nil
}

// parse sets the settings to which the flags of a table belong. It returns nil if the command line requests help or the
// version, which it prints.
func (s *settings) parse(program string, all table, args []string, out io.Writer) (*pflag.FlagSet, error) {
	flags, nothing, err := all.parse(program, args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return nil, all.help(out, program)
	case s.version != "false":
		return nil, printServedVersion(out)
	case err != nil:
		return nil, err
	}
	if err := s.take(flags, nothing); err != nil {
		return nil, err
	}
	return flags, nil
}

// read completes the settings from the parsed flags of a table.
func (s *settings) read(all table, flags *pflag.FlagSet) error {
	if s.configFile != "" {
		if err := readConfig(s.configFile, flags); err != nil {
			return err
		}
	}
	nothing, err := all.check(flags)
	if err == nil {
		err = s.take(flags, nothing)
	}
	if err != nil {
		return fmt.Errorf("%w; leave the flag out", err)
	}
	return nil
}

// printServedVersion prints what --version asks for.
func printServedVersion(out io.Writer) error {
	_, err := fmt.Fprintln(out, "Kubernetes "+plane.Version)
	return err
}

// take takes over from the parsed flags what is not in the settings yet. nothing are the ignored ones that were given.
func (s *settings) take(flags *pflag.FlagSet, nothing []any) error {
	if err := conflict(flags); err != nil {
		return err
	}
	s.Flags = map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) { s.Flags[f.Name] = f.Value.String() })
	flags.Visit(func(f *pflag.Flag) { s.OIDC.Given = s.OIDC.Given || strings.HasPrefix(f.Name, "oidc-") })
	s.AnonymousAuthGiven = flags.Changed("anonymous-auth")
	s.Logger = s.logger(os.Stderr)
	if len(nothing) > 0 {
		s.Logger.Warn("flags without effect are ignored", nothing...)
	}
	return nil
}

// logger creates the logger that the flags describe. klog's verbosity 4 and above is slog's level debug.
func (s *settings) logger(to io.Writer) *slog.Logger {
	level := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[s.logLevel]
	if v, err := strconv.Atoi(s.verbosity); err == nil && v >= 4 {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}
