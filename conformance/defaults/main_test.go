package defaults

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // nothing but short-lived objects
	os.Exit(m.Run())
}
