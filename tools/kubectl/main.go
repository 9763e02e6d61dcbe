// Command kubectl is the real kubectl, linked from its library, so that a fresh machine can talk to the server without
// downloading a program: `make kubectl` builds it at the version that go.mod names.
//
// The version that it reports is set by the linker, as upstream does: without
// -X k8s.io/component-base/version.gitVersion=v1.37.1 it calls itself v0.0.0 and warns of the skew to the server.
package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // the credential plugins that a kubeconfig may name
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	// The command reads plugins and preferences, and logs about them, while it is being built: -v has to work by then.
	if _, err := logs.GlogSetter(cmd.GetLogVerbosity(os.Args)); err != nil {
		util.CheckErr(err)
	}
	util.CheckErr(cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()))
}
