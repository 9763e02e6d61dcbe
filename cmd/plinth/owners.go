package main

import (
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

// owners is `plinth owners`: it prints an object with the owners of each line (BEY-1).
func owners(args []string, out io.Writer) error {
	flags := pflag.NewFlagSet("plinth owners", pflag.ContinueOnError)
	flags.SetOutput(out)
	file := flags.StringP("filename", "f", "",
		"read the object, with its managedFields, from a file of YAML or JSON; - is the standard input")
	namespace := flags.StringP("namespace", "n", "", "the namespace of the object (default: that of the kubeconfig)")
	kubeconfig := flags.String("kubeconfig", defaultKubeconfig(), "the kubeconfig to use")
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
		return ownersOnServer(out, *kubeconfig, *namespace, flags.Arg(0), *document)
	}
	return errors.New("owners takes either TYPE/NAME or -f FILE")
}

func ownersOnServer(out io.Writer, kubeconfig, namespace, name string, document bool) error {
	c, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	path, err := c.find(name, namespace)
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

// defaultKubeconfig is the file that kubectl would use, else the one that the server writes.
func defaultKubeconfig() string {
	if path := os.Getenv("KUBECONFIG"); path != "" {
		return path
	}
	if home, err := os.UserHomeDir(); err == nil {
		if path := filepath.Join(home, ".kube", "config"); exists(path) {
			return path
		}
	}
	return filepath.Join("plinth-data", "kubeconfig")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
