// Command plinth is the Kubernetes API server. The tables of flags and their conversion to a server.Config are here;
// the server itself is package internal/server. The commands owners and merge are here, too.
//
// The program has three names. As plinth it has the commands of the usage text. As kube-apiserver it is `plinth serve`
// with the reference's defaults, and as etcd it is the etcd stub: envtest and similar tools start these two.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"plinth/internal/server"
)

const usage = `Plinth: the Kubernetes API, without the rest of a cluster.

Usage:
  plinth serve [flags]             start the server
  plinth test-server [flags]       start a server in memory, for tests in any language
  plinth envtest DIR               create in DIR the programs that KUBEBUILDER_ASSETS needs
  plinth owners TYPE/NAME          print an object with the owners of each line; -f FILE reads it from a file
  plinth merge --live A --apply B  apply one file to another (server-side apply), without a server
  plinth version                   print the version
  plinth help                      print this text

plinth COMMAND --help lists the flags of a command.
`

func main() {
	name := filepath.Base(os.Args[0])
	if err := run(name, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, pflag.ErrHelp) {
		if name != kubeAPIServer && name != etcd {
			name = "plinth"
		}
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// The names that make the program behave as another one.
const (
	kubeAPIServer = "kube-apiserver"
	etcd          = "etcd"
)

// run runs the program under a name.
func run(name string, args []string, out io.Writer) error {
	switch name {
	case kubeAPIServer:
		return serve(kubeAPIServer, args, out)
	case etcd:
		return stub(args, out)
	}
	if len(args) == 0 {
		args = []string{"help"}
	}
	switch args[0] {
	case "serve":
		return serve("plinth serve", args[1:], out)
	case "test-server":
		return testServer(args[1:], out)
	case "envtest":
		return envtest(args[1:], out)
	case "owners":
		return owners(args[1:], out)
	case "merge":
		return mergeFiles(args[1:], out)
	case "version", "--version":
		_, err := fmt.Fprintf(out, "%s\ncommit %s\n", server.Version, server.BuiltFrom())
		return err
	case "help", "--help", "-h":
		_, err := io.WriteString(out, usage)
		return err
	}
	return fmt.Errorf("there is no command %q; try plinth help", args[0])
}
