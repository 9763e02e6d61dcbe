package main

import (
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
)

// owners is `plinth owners`: it prints an object with the owners of each line (BEY-1).
func owners(args []string, out io.Writer) error {
	flags := pflag.NewFlagSet("plinth owners", pflag.ContinueOnError)
	flags.SetOutput(out)
	file := flags.StringP("filename", "f", "",
		"read the object, with its managedFields, from a file of YAML or JSON; - is the standard input")
	namespace := flags.StringP("namespace", "n", "", "the namespace of the object (default: that of the kubeconfig)")
	kubeconfig := flags.String("kubeconfig", "", "the kubeconfig to use (default: the files of KUBECONFIG, "+
		"as for kubectl; else ~/.kube/config, if it is there; else plinth-data/kubeconfig)")
	document := flags.Bool("json", false,
		"print a JSON document, which also lists what would be removed with each manager")
	if done, err := parseFlags(flags, args); done || err != nil {
		return err
	}
	switch {
	case *file != "" && flags.NArg() == 0 && !*document:
		v, err := readObject(*file)
		if err != nil {
			return err
		}
		return printOwned(out, v, typeOf(v))
	case *file == "" && flags.NArg() == 1:
		files := defaultKubeconfigs()
		if *kubeconfig != "" {
			files = []string{*kubeconfig}
		}
		return ownersOnServer(out, files, *namespace, flags.Arg(0), *document)
	}
	return errors.New("owners takes either TYPE/NAME or -f FILE")
}

func ownersOnServer(out io.Writer, kubeconfigs []string, namespace, name string, document bool) error {
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
	form := "yaml"
	if document {
		form = "document"
	}
	text, err := c.get(path + "?ownership=" + url.QueryEscape(form))
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
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
