// Command programs builds kube-controller-manager, kube-scheduler and KWOK, which tests run on Plinth, and two versions
// of etcd, one in which it stores objects and one that it refuses, unless they are built already, and prints the
// directory in which they are. That takes minutes, longer than the time limit of a test. Arguments name other programs
// to build, such as kube-apiserver.
package main

import (
	"fmt"
	"log"
	"os"

	"plinth/conformance/internal/reference"
)

func main() {
	programs := os.Args[1:]
	if len(programs) == 0 {
		programs = []string{reference.ControllerManager, reference.Scheduler, reference.EtcdProgram,
			reference.EtcdRefusedProgram, reference.KwokProgram}
	}
	dir, err := reference.BuildPrograms(os.Stderr, programs...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(dir)
}
