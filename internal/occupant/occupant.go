// Package occupant says which process has what this one wants: a port, or the lock of a file. It is for the texts of
// errors: where the system does not tell, or another user's processes are hidden, there is no answer.
package occupant

import (
	"fmt"
	"os"
)

// Process is a process of this machine.
type Process struct {
	PID  int
	Name string // of its program; "" if it is not known
}

// String names a process for an error: "kube-apiserver (process 12)", "this process".
func (p Process) String() string {
	switch {
	case p.PID == os.Getpid():
		return "this process"
	case p.Name == "":
		return fmt.Sprintf("process %d", p.PID)
	}
	return fmt.Sprintf("%s (process %d)", p.Name, p.PID)
}
