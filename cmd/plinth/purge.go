package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// purgeCommand is `plinth purge`: it removes what an object was (BEY-4).
func purgeCommand() *cobra.Command {
	var f objectFlags
	var dryRun, yes bool
	c := objectCommand(&cobra.Command{
		Use:   "purge TYPE/NAME",
		Short: "remove what an object was, for good",
		Long: "Removes all past versions of an object, and of others that had its name, from the server's disk and memory: a\n" +
			"password that was written into it, for example. Who has changed it and when stays, without what. The object as it\n" +
			"is stays, too: write it first. Copies that were made before, such as backups, keep what they have.\n\n" +
			"It cannot be undone. It asks first, and needs the right to purge, which the ClusterRoles edit and admin do not have.\n" +
			"Watches that have not seen the last changes begin again.",
		Example: "  plinth purge cm/settings --dry-run\n  plinth purge secret/login -n shop --yes",
		Args:    arguments(1, "one TYPE/NAME, such as cm/settings"),
	}, &f)
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what it would remove")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "remove it without asking")
	c.RunE = func(c *cobra.Command, args []string) error {
		r, path, err := f.at(args[0])
		if err != nil {
			return err
		}
		r.client.Timeout = 0 // it takes as long as the files are large
		return r.purge(c, args[0], path, dryRun, yes)
	}
	return c
}

func (c *remote) purge(command *cobra.Command, name, path string, dryRun, yes bool) error {
	out := command.OutOrStdout()
	would, err := c.documentOf(http.MethodPost, path, url.Values{"purge": {""}, "dryRun": {"All"}}, nil)
	if err != nil {
		return err
	}
	versions := int(would.At("versions").Int())
	fmt.Fprintf(out, "%s of %s would be removed, and of %s who has made them stays.\n", count(versions, "version"), name,
		count(int(would.At("changes").Int()), "change"))
	remarks(out, would)
	switch {
	case dryRun:
		return nil
	case !yes && !asks(command, "Remove them for good?"):
		return unconfirmed(command, "nothing was removed: without a terminal, --yes removes")
	}
	done, err := c.documentOf(http.MethodPost, path, url.Values{"purge": {""}}, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s of %s: removed from the disk of the server.\n", count(int(done.At("versions").Int()), "version"),
		name)
	return nil
}

// count is a number of things.
func count(n int, thing string) string {
	switch n {
	case 0:
		return "no " + thing
	case 1:
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
