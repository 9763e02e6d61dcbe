// Command programs builds kube-controller-manager and kube-scheduler, which tests run on Plinth, and etcd, in which it
// stores objects, unless they are built already. That takes minutes, longer than the time limit of a test.
package main

import (
	"log"
	"os"

	"plinth/conformance/internal/reference"
)

func main() {
	if _, err := reference.BuildPrograms(os.Stderr, reference.ControllerManager, reference.Scheduler, "etcd"); err != nil {
		log.Fatal(err)
	}
}
