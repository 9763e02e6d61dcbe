package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plinth/internal/backup"
	"plinth/internal/planes"
)

// restoreCommand is `plinth restore`: a data directory of a backup (STORE-6).
func restoreCommand() *cobra.Command {
	var r restoreFlags
	c := &cobra.Command{
		Use:   "restore FILE|URL -o DIR",
		Short: "make a data directory of a backup",
		Long: `Checks a backup, which is a file or an object of plinth backup, or the --backup-url of a server, and makes a data
directory of it: as of its newest revision, or of another one that it has, or of a time. Objects keep their UIDs and
resourceVersions. The server goes on far above every resourceVersion that the lost one can have given out, so that none
of them means two things: who watches from one of those gets 410, and lists again.

Keys that are in the backup are put in their place; if there are none, it says which files have to be put there before
the server starts.`,
		Example: "  plinth restore plinth.tar -o plinth-data\n  plinth restore file:///var/backups/plinth -o new --at 2030-01-02T03:04:05Z\n" +
			"  plinth restore s3://bucket/plinth -o new\n" +
			"  zstd -d < plinth.tar.zst | plinth restore - -o new",
		Args: arguments(1, "one file or URL"),
		RunE: func(c *cobra.Command, args []string) error { return r.run(c.Context(), args[0], c.OutOrStdout()) },
	}
	flags := c.Flags()
	flags.StringVarP(&r.to, "output", "o", "", "the data directory to make, which is new or empty")
	flags.StringVar(&r.at, "at", "",
		"as of when: a resourceVersion, a time (RFC 3339, such as 2030-01-02T03:04:05Z), or how long ago (10m)")
	flags.Int64Var(&r.bump, "bump-revision", 0, "by how much the revision goes on above that of the backup (default: "+
		strconv.Itoa(backup.DefaultBump)+", and one more for each microsecond since the backup)")
	flags.StringVar(&r.passphraseFile, passphraseFile, "",
		"a file with the passphrase of the keys in its first line (default: ask at the terminal)")
	flags.BoolVar(&r.withoutKeys, "without-keys", false, "leave out the keys that are in the backup")
	must(c.MarkFlagDirname("output"))
	return c
}

type restoreFlags struct {
	to, at, passphraseFile string
	bump                   int64
	withoutKeys            bool
}

func (r *restoreFlags) run(ctx context.Context, from string, out io.Writer) error {
	switch {
	case r.to == "":
		return fmt.Errorf("-o names the data directory to make: plinth restore %s -o DIR", from)
	case r.bump < 0:
		return fmt.Errorf("--bump-revision: %d is negative, and revisions only grow", r.bump)
	}
	at, err := restoreTo(r.at)
	if err != nil {
		return err
	}
	var m meter
	defer m.clear()
	source, end, err := openBackup(ctx, from, &m)
	if err != nil {
		return err
	}
	defer end()
	o := backup.Restoring{Dir: r.to, At: at, Bump: r.bump, Now: time.Now()}
	if !r.withoutKeys {
		o.Passphrase = func() (string, error) {
			m.clear()
			text, err := readPassphrase(r.passphraseFile, false)
			if err != nil {
				err = fmt.Errorf("%w; or leave the keys out (--without-keys)", err)
			}
			return text, err
		}
	}
	made, err := backup.Restore(ctx, source, o)
	if err != nil {
		return err
	}
	m.clear()
	return r.report(out, made)
}

// restoreTo parses --at.
func restoreTo(text string) (to backup.Moment, err error) {
	if text == "" {
		return to, nil
	}
	revision, at, err := moment(text, time.Now())
	if err != nil {
		return to, fmt.Errorf("--at: %w", err)
	}
	if revision == "" {
		return backup.Moment{Time: at}, nil
	}
	to.Revision, err = strconv.ParseInt(revision, 10, 64)
	return to, err
}

// report says what was made, and what a server needs besides.
func (r *restoreFlags) report(out io.Writer, made *backup.Restored) error {
	var text strings.Builder
	when := cmp.Or(made.At.Time, made.Since).UTC().Format(time.RFC3339)
	fmt.Fprintf(&text, "%s has %d objects and claims as of revision %d, of %s; it goes on above %d.\n", r.to,
		made.Objects,
		made.At.Revision, when, made.Next)
	others := slices.DeleteFunc(made.Planes, func(id string) bool { return id == planes.Template })
	flags := made.Flags
	if len(others) > 0 {
		fmt.Fprintf(&text, "Planes besides the first one: %d.\n", len(others))
		flags = append(flags, "--planes")
	}
	for _, by := range slices.Sorted(maps.Keys(made.Sealed)) {
		fmt.Fprintf(&text, "%d of them are encrypted, and need the key %s: --encryption-provider-config\n",
			made.Sealed[by], by)
	}
	if len(made.Missing) > 0 {
		fmt.Fprintf(&text,
			"\nNo server starts in %s before these files are put there, which are in the data directory of the lost "+
				"server (%s), and not in the backup:\n", r.to, made.Directory)
		for _, part := range made.Missing {
			fmt.Fprintf(&text, "  %s\n", part)
		}
		text.WriteString("Put all of its pki/ there. Without it, remove PARTS: the server makes new authorities and keys, and all " +
			"kubeconfigs and tokens have to be made anew.\n")
	}
	if len(made.Flags) == 0 && len(made.Supplied) > 0 {
		text.WriteString("\nThe flags of the lost server named these files, which are not in the backup:\n")
		for _, s := range made.Supplied {
			fmt.Fprintf(&text, "  --%s=%s\n", s.Flag, s.File)
		}
	}
	fmt.Fprintf(&text, "\n  plinth serve --data-dir %s\n", strings.Join(append([]string{r.to}, flags...), " "))
	_, err := io.WriteString(out, text.String())
	return err
}
