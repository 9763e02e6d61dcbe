// Command programs builds kube-controller-manager and kube-scheduler, which tests run on Plinth, and two versions of
// etcd, one in which it stores objects and one that it refuses, unless they are built already. That takes minutes,
// longer than the time limit of a test.
package main

import (
	"log"
	"os"

	"plinth/conformance/internal/reference"
)

func main() {
	if _, err := reference.BuildPrograms(os.Stderr, reference.ControllerManager, reference.Scheduler,
		reference.EtcdProgram, reference.EtcdRefusedProgram); err != nil {
		log.Fatal(err)
	}
}
