package defaults

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // the tests have mostly short-lived objects
	os.Exit(m.Run())
}
