package replicas

import (
	"fmt"
	"os"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
)

// The clock of a server can be stepped while it runs: without that, the fault would be none.
func TestClockOffset(t *testing.T) {
	c := &cluster{}
	c.startReplicas(t, harness.Plinth)
	r := &run{cluster: c, t: t, ctx: t.Context(), began: time.Now()}
	client := r.client(0)
	for i, offset := range []time.Duration{0, time.Hour, -time.Hour} {
		if err := os.WriteFile(c.replicas[0].clock, []byte(offset.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		n := 0
		eventually(t, "the clock is stepped", func() error {
			n++
			name := fmt.Sprintf("at-%d-%d", i, n)
			a := client.send("POST", configMaps("default"), plainJSON, configMap(name, nil))
			at, err := time.Parse(time.RFC3339, a.body.text("metadata", "creationTimestamp"))
			if off := time.Until(at) - offset; err == nil && (off < -time.Minute || off > time.Minute) {
				err = fmt.Errorf("it is off by %s", off)
			}
			return err
		})
	}
}
