package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
)

// ownersCommand is `plinth owners`: it prints an object with the owners of each line (BEY-1).
func ownersCommand() *cobra.Command {
	var file, namespace, kubeconfig string
	var document, past bool
	files := func() []string { return kubeconfigsOf(kubeconfig) }
	c := &cobra.Command{
		Use:     "owners TYPE/NAME | -f FILE",
		Short:   "print an object with the owners of each line",
		Example: "  plinth owners deploy/web\n  plinth owners -n kube-system cm/coredns --json\n  plinth owners deploy/web --history\n  kubectl get cm c -o yaml --show-managed-fields | plinth owners -f -",
		ValidArgsFunction: func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeObjects(files(), namespace, word)
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case file != "" && past:
				return errors.New("--history asks a server, and -f reads a file: give one of them")
			case file != "" && len(args) == 0 && !document:
				v, err := readObject(file)
				if err != nil {
					return err
				}
				return printOwned(c.OutOrStdout(), v, typeOf(v))
			case file == "" && len(args) == 1:
				return ownersOnServer(c.OutOrStdout(), files(), namespace, args[0], document, past)
			case file != "" && document:
				return errors.New("--json asks a server, and -f reads a file: give one of them")
			case file != "":
				return fmt.Errorf("-f %s and %q: owners takes either a file or one TYPE/NAME", file, args[0])
			}
			return fmt.Errorf("owners takes one TYPE/NAME, such as deploy/web, or -f FILE, and got %d arguments", len(args))
		},
	}
	flags := c.Flags()
	flags.StringVarP(&file, "filename", "f", "",
		"read the object, with its managedFields, from a file of YAML or JSON; - is the standard input")
	flags.StringVarP(&namespace, "namespace", "n", "", "the namespace of the object (default: that of the kubeconfig)")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "the kubeconfig to use (default: the files of KUBECONFIG, "+
		"as for kubectl; else ~/.kube/config, if it is there; else plinth-data/kubeconfig)")
	flags.BoolVar(&document, "json", false,
		"print a JSON document, which also lists what would be removed with each manager")
	flags.BoolVar(&past, "history", false,
		"print who has set each line to its value, when, and with which manager, in place of its owners")
	manifestFlags(c, "filename")
	must(c.RegisterFlagCompletionFunc("namespace", func(*cobra.Command, []string, string) ([]string,
		cobra.ShellCompDirective) {
		return completeNames(files(), "", "namespaces"), cobra.ShellCompDirectiveNoFileComp
	}))
	return c
}

func ownersOnServer(out io.Writer, kubeconfigs []string, namespace, name string, document, past bool) error {
	kind, base, err := splitName(name) // before a kubeconfig is looked for
	if err != nil {
		return err
	}
	c, err := connect(kubeconfigs)
	if err != nil {
		return err
	}
	path, err := c.find(kind, base, namespace)
	if err != nil {
		return err
	}
	query := url.Values{"ownership": {"yaml"}}
	switch {
	case past && document:
		query = url.Values{"history": {"lines"}}
	case past:
		query = url.Values{"history": {"yaml"}}
	case document:
		query = url.Values{"ownership": {"document"}}
	}
	text, err := c.get(path + "?" + query.Encode())
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// kubeconfigsOf are the files of the flag --kubeconfig, which may not have been given.
func kubeconfigsOf(flag string) []string {
	if flag != "" {
		return []string{flag}
	}
	return defaultKubeconfigs()
}

// defaultKubeconfigs are the files that kubectl would use, else the one that the server writes.
func defaultKubeconfigs() []string {
	if list := os.Getenv("KUBECONFIG"); list != "" {
		return slices.DeleteFunc(filepath.SplitList(list), func(file string) bool { return file == "" })
	}
	if home, err := os.UserHomeDir(); err == nil {
		if path := filepath.Join(home, ".kube", "config"); exists(path) {
			return []string{path}
		}
	}
	return []string{filepath.Join("plinth-data", "kubeconfig")}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
