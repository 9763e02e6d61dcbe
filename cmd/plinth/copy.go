package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plinth/internal/addresses"
	"plinth/internal/storage"
	"plinth/internal/transfer"
)

// copyCommand is `plinth copy`: all objects, from one store to another one (STORE-6).
func copyCommand() *cobra.Command {
	var c copyFlags
	command := &cobra.Command{
		Use:   "copy FROM TO",
		Short: "copy all objects between data directories and etcds",
		Long: `Copies all objects from one store to another one that is new or empty. A store is a data directory, or the URLs of an
etcd, comma-separated, which a Plinth or a kube-apiserver has used (--etcd-servers). No server may run on either.

Objects keep their UIDs, managedFields and creation times. In a data directory they keep their resourceVersions, too; in
an etcd they get new ones. Either way the target goes on above all that the source has given out. Not copied are the
history and the past.

The target is read again in the end and compared with the source. A copy into an etcd that was interrupted goes on when
the same command is given again; one into a directory begins again.`,
		Example: "  plinth copy plinth-data https://10.0.0.1:2379 --to-etcd-cafile ca.crt --to-etcd-certfile " +
			"client.crt --to-etcd-keyfile client.key\n" +
			"  plinth copy http://127.0.0.1:2379 plinth-data --from-encryption-provider-config keys.yaml",
		Args: arguments(2, "two stores: the data directory or the etcd to copy from, and the one to copy to"),
		RunE: func(command *cobra.Command, args []string) error {
			return c.run(command.Context(), args[0], args[1], command.OutOrStdout())
		},
	}
	flags := command.Flags()
	c.from.add(flags, "from", "FROM")
	c.to.add(flags, "to", "TO")
	flags.StringVar(&c.to.etcd.MediaType, "to-storage-media-type", "application/vnd.kubernetes.protobuf",
		"the form of built-in objects, if TO is an etcd: this, or application/json")
	flags.StringVar(&c.nodePorts, "to-service-node-port-range", "30000-32767",
		"the ports of Services of type NodePort, if TO is an etcd: the flag --service-node-port-range of its servers")
	flags.StringVar(&c.plane, "plane", "", "copy one plane of FROM, by its name or ID, / for the first one; it is the first "+
		"one of TO")
	flags.StringSliceVar(&c.leaveOut, "leave-out", nil, "first parts of the keys below the prefix that are not copied, if "+
		"FROM is an etcd: those of kinds that this release does not know")
	flags.Int64Var(&c.bump, "bump-revision", 0,
		"by how much resourceVersions go on above those of FROM, if TO is a directory")
	manifestFlags(command, "from-encryption-provider-config", "to-encryption-provider-config")
	return command
}

type copyFlags struct {
	from, to  storeFlags
	nodePorts string
	plane     string
	leaveOut  []string
	bump      int64
}

// storeFlags say how to reach a store.
type storeFlags struct {
	etcd       storage.Etcd
	encryption storage.Encryption
}

func (s *storeFlags) add(flags *pflag.FlagSet, side, name string) {
	what := ", if " + name + " is an etcd"
	flags.StringVar(&s.etcd.Prefix, side+"-etcd-prefix", "/registry", "the prefix of all keys"+what)
	flags.StringVar(&s.etcd.CAFile, side+"-etcd-cafile", "", "the authority of its URLs"+what)
	flags.StringVar(&s.etcd.CertFile, side+"-etcd-certfile", "", "the client certificate"+what)
	flags.StringVar(&s.etcd.KeyFile, side+"-etcd-keyfile", "", "its private key")
	flags.StringVar(&s.encryption.ConfigFile, side+"-encryption-provider-config", "",
		"the file of the server's flag --encryption-provider-config at "+name)
}

// isEtcd says whether a store is an etcd.
func isEtcd(name string) bool { return strings.Contains(name, "://") }

// at is the etcd of these URLs.
func (s *storeFlags) at(urls, side string) (transfer.Etcd, error) {
	e := transfer.Etcd{Etcd: s.etcd, Encryption: s.encryption, Logger: slog.New(slog.NewTextHandler(os.Stderr,
		&slog.HandlerOptions{Level: slog.LevelError}))}
	e.Servers, e.Timeout = strings.Split(urls, ","), 30*time.Second
	for _, server := range e.Servers {
		if !strings.HasPrefix(server, "http://") && !strings.HasPrefix(server, "https://") &&
			!strings.HasPrefix(server, "unix://") {
			return e, fmt.Errorf("%s is no URL of an etcd, such as http://127.0.0.1:2379", server)
		}
	}
	if (e.CertFile == "") != (e.KeyFile == "") {
		return e, fmt.Errorf("--%s-etcd-certfile and --%s-etcd-keyfile go together", side, side)
	}
	return e, nil
}

func (c *copyFlags) run(ctx context.Context, from, to string, out io.Writer) error {
	switch {
	case c.bump < 0:
		return fmt.Errorf("--bump-revision: %d is negative, and resourceVersions only grow", c.bump)
	case c.bump > 0 && isEtcd(to):
		return errors.New("--bump-revision is for a directory; the resourceVersions of an etcd go on by themselves")
	case c.plane != "" && isEtcd(from):
		return errors.New("--plane is for a data directory; an etcd has one plane")
	case from == to && c.from.etcd.Prefix == c.to.etcd.Prefix:
		return fmt.Errorf("%s cannot be copied onto itself", from)
	}
	first, last, err := addresses.ParsePorts(c.nodePorts)
	if err != nil {
		return fmt.Errorf("--to-service-node-port-range: %w", err)
	}
	content, end, err := c.read(ctx, from)
	if err != nil {
		return err
	}
	var bar *copyProgress
	var made *transfer.Result
	if isEtcd(to) {
		var e transfer.Etcd
		if e, err = c.to.at(to, "to"); err == nil {
			e.FirstNodePort, e.LastNodePort = first, last
			bar = &copyProgress{}
			made, err = content.ToEtcd(ctx, e, bar)
			bar.clear()
		}
	} else {
		made, err = content.ToDirectory(ctx, transfer.Directory{Path: to, Encryption: c.to.encryption, Bump: c.bump,
			Rest: rest(from), Logger: slog.New(slog.DiscardHandler)})
	}
	changed, failed := end(ctx)
	if err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("the copy is whole, but whether the source has changed meanwhile is not known: %w", failed)
	}
	return c.report(out, from, to, content, made, changed)
}

// read reads the source. end says how many of its objects were written since.
func (c *copyFlags) read(ctx context.Context, from string) (content *transfer.Content,
	end func(context.Context) (int, error), err error) {
	if isEtcd(from) {
		e, err := c.from.at(from, "from")
		if err != nil {
			return nil, nil, err
		}
		return transfer.FromEtcd(ctx, e, c.leaveOut)
	}
	d := dataDir{encryption: c.from.encryption}
	if err := d.at(from); err != nil {
		return nil, nil, err
	}
	in, closed, _, err := d.inspect()
	if err != nil {
		return nil, nil, err
	}
	end = func(context.Context) (int, error) { closed(); return 0, nil }
	if content, err = transfer.FromDirectory(in); err != nil || c.plane == "" {
		return content, end, err
	}
	e := export{plane: strings.TrimPrefix(c.plane, "/")}
	versions, err := e.versions(&d, in)
	if err == nil {
		err = content.Only(versions)
	}
	return content, end, err
}

// rest puts what a data directory has besides its store into another one; nil: there is nothing.
func rest(from string) func(string) error {
	if isEtcd(from) || !exists(filepath.Join(from, "store")) {
		return nil
	}
	return func(to string) error { return copyRest(from, to) }
}

// report says what was copied, and what is not the same.
func (c *copyFlags) report(out io.Writer, from, to string, content *transfer.Content, made *transfer.Result,
	changed int) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s has the %d objects of %s", to, made.Objects, from)
	if made.Already > 0 {
		fmt.Fprintf(&text, ", of which %d were there from an earlier attempt", made.Already)
	}
	fmt.Fprintf(&text, ".\nsha256:%s\nresourceVersions: up to %d in %s; %s goes on above %d.\n", made.Sum, content.Revision,
		from, to, made.Revision)
	if n := len(content.Planes); n > 0 {
		text.WriteString("Other planes were copied, too: --planes.\n")
	}
	for _, folder := range slices.Sorted(maps.Keys(content.LeftOut)) {
		fmt.Fprintf(&text, "Left out: %d keys below %s/.\n", content.LeftOut[folder], folder)
	}
	if n := made.Plain; n > 0 {
		fmt.Fprintf(&text, "%d objects were encrypted in %s, and are not in %s: --to-encryption-provider-config.\n", n, from, to)
	}
	if changed > 0 {
		fmt.Fprintf(&text, "WARNING: %d objects of %s were written while they were copied, and the copy has them as they were "+
			"before. Stop all servers there, and copy again.\n", changed, from)
	}
	flags := "--data-dir " + to
	if isEtcd(to) {
		flags = "--etcd-servers " + to
		if c.to.etcd.Prefix != "/registry" {
			flags += " --etcd-prefix " + c.to.etcd.Prefix
		}
	}
	if len(content.Planes) > 0 {
		flags += " --planes"
	}
	if isEtcd(to) && !isEtcd(from) {
		fmt.Fprintln(&text, "Give each server there the authority and the key of tokens of the one that was here.")
		for _, f := range []struct{ flag, file string }{{"service-account-signing-key-file", "sa.key"},
			{"cluster-signing-cert-file", "ca.crt"}, {"cluster-signing-key-file", "ca.key"}} {
			flags += fmt.Sprintf(" --%s %s", f.flag, filepath.Join(from, "pki", f.file))
		}
	}
	fmt.Fprintf(&text, "\n  plinth serve %s\n", flags)
	_, err := io.WriteString(out, text.String())
	return err
}

// copyProgress shows how far a copy is, on a terminal alone.
type copyProgress struct{ raising, writing *progressbar.ProgressBar }

// Raising implements transfer.Progress.
func (p *copyProgress) Raising(revision, to int64) { show(&p.raising, "resourceVersion", revision, to) }

// Writing implements transfer.Progress.
func (p *copyProgress) Writing(written, of int) {
	p.raising = nil
	show(&p.writing, "objects", int64(written), int64(of))
}

// show shows a count, if there is a terminal.
func show(bar **progressbar.ProgressBar, what string, now, of int64) {
	if !isTerminal(os.Stderr) {
		return
	}
	if *bar == nil {
		*bar = progressbar.NewOptions64(of, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionFullWidth())
	}
	(*bar).Set64(now) //nolint:errcheck // nothing depends on what a terminal shows
}

func (p *copyProgress) clear() {
	for _, bar := range []*progressbar.ProgressBar{p.raising, p.writing} {
		if bar != nil {
			bar.Clear() //nolint:errcheck // as above
		}
	}
}
