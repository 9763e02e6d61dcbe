// Command plinth is the Kubernetes API by itself. `plinth serve` starts the server; flags become a server.Config here,
// and nothing else happens in this package.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"plinth/internal/server"
)

const usage = `Plinth: the Kubernetes API, by itself.

Usage:
  plinth serve [flags]             start the server
  plinth owners TYPE/NAME          print an object with the owners of each line; -f FILE reads it from a file
  plinth merge --live A --apply B  merge an intent into an object, without a server
  plinth version                   print the version
  plinth help                      print this

plinth COMMAND --help lists the flags of a command.
`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "plinth:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch args[0] {
	case "serve":
		return serve(args[1:], out)
	case "owners":
		return owners(args[1:], out)
	case "merge":
		return mergeFiles(args[1:], out)
	case "version", "--version":
		_, err := fmt.Fprintln(out, server.Version)
		return err
	case "help", "--help", "-h":
		_, err := io.WriteString(out, usage)
		return err
	}
	return fmt.Errorf("there is no command %q; try plinth help", args[0])
}

func serve(args []string, out io.Writer) error {
	config := server.Defaults()
	level := slog.LevelInfo
	flags := pflag.NewFlagSet("plinth serve", pflag.ContinueOnError)
	flags.SetOutput(out)
	register(flags, &config)
	flags.TextVar(&level, "log-level", level, "the least important messages to log: debug, info, warn or error")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("serve takes no arguments, only flags: %q", flags.Args())
	}
	config.Flags = map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) { config.Flags[f.Name] = f.Value.String() })
	config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return server.Serve(ctx, config, out)
}

// register declares the flags. Those that kube-apiserver has, too, bear its names.
func register(flags *pflag.FlagSet, c *server.Config) {
	flags.StringVar(&c.DataDir, "data-dir", c.DataDir, "where certificates, the kubeconfig and all objects are kept")
	flags.StringVar(&c.Storage, "storage", c.Storage, "embedded: durable, in the data directory; memory: gone when the server ends")
	flags.StringVar(&c.BindAddress, "bind-address", c.BindAddress, "the IP address to listen on")
	flags.IntVar(&c.SecurePort, "secure-port", c.SecurePort, "the port to listen on with TLS; 0 picks a free one")
	flags.StringVar(&c.WriteKubeconfig, "write-kubeconfig", c.WriteKubeconfig, "where to write the administrator's kubeconfig (default: kubeconfig in the data directory)")
	flags.StringVar(&c.TokenAuthFile, "token-auth-file", c.TokenAuthFile, `a CSV file of bearer tokens: token,user,uid,"group,group"`)
	flags.StringVar(&c.ClientCAFile, "client-ca-file", c.ClientCAFile, "a PEM file of authorities whose client certificates are trusted, besides the server's own")
	flags.StringVar(&c.TLSCertFile, "tls-cert-file", c.TLSCertFile, "the server's certificate (default: one signed by the server's own authority)")
	flags.StringVar(&c.TLSKeyFile, "tls-private-key-file", c.TLSKeyFile, "the private key of --tls-cert-file")
	flags.StringSliceVar(&c.FeatureGates, "feature-gates", c.FeatureGates, "feature gates of kube-apiserver, comma-separated: NAME=true|false")
	flags.DurationVar(&c.RequestTimeout, "request-timeout", c.RequestTimeout, "how long a request other than a watch may take")
	flags.IntVar(&c.MinRequestTimeout, "min-request-timeout", c.MinRequestTimeout, "how many seconds a watch that names no timeoutSeconds lasts at least; it ends at a random moment before twice that")
	flags.StringSliceVar(&c.StrictTransport, "strict-transport-security-directives", c.StrictTransport, "directives of the Strict-Transport-Security header, comma-separated: max-age=SECONDS, includeSubDomains, preload; none: there is no header")
	flags.IntVar(&c.MaxRequestsInflight, "max-requests-inflight", c.MaxRequestsInflight, "how many requests other than watches may be under way at once; 0: any number")
	flags.DurationVar(&c.EventTTL, "event-ttl", c.EventTTL, "how long Events are kept")
	flags.BoolVar(&c.Profiling, "profiling", c.Profiling, "serve /debug/pprof to those who may do everything")
	flags.Int64Var(&c.WatchHistoryBytes, "watch-history-bytes", c.WatchHistoryBytes, "how many bytes of history are kept on disk for watches that fall behind or come back")
}
