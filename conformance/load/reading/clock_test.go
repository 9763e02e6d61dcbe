package reading

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"plinth/conformance/internal/harness"
	"plinth/internal/server"
)

// clock is the real time with an offset.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

func (c *clock) jump(d time.Duration) { c.offset.Add(int64(d)) }

// startWithClock runs a server in this process, as the clock of another process cannot be set.
func startWithClock(t *testing.T, now func() time.Time) *harness.Server {
	t.Helper()
	config := server.Defaults()
	config.DataDir, config.SecurePort, config.Now, config.Logger = t.TempDir(), 0, now, slog.New(slog.DiscardHandler)
	s, err := server.Start(context.WithoutCancel(t.Context()), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &harness.Server{Kind: harness.Plinth, URL: s.URL(), Kubeconfig: filepath.Join(config.DataDir, "kubeconfig")}
}

// SPEC: WATCH-3, WATCH-7: the server's clock jumps, by seconds and by days, forwards and backwards, while informers are
// connected and while they are not. Whatever effect a jump has on the history, they finally have the exact state.
func TestInformersThroughClockJumps(t *testing.T) {
	if harness.Target() == harness.Reference {
		return // its clock is the machine's and cannot be set
	}
	objects, count := scale(400, 10000), scale(2, 20)
	jumps := []time.Duration{24 * time.Hour, -48 * time.Hour, 10 * time.Minute, time.Second, -time.Second}
	for _, encoding := range encodings {
		t.Run(encoding.name, func(t *testing.T) {
			t.Parallel() // it mostly waits for client-go's retries
			var clock clock
			server := startWithClock(t, clock.now)
			clock.jump(72 * time.Hour) // certificates are valid from the start, and no jump goes back before that
			writer, _ := client(t, server, encoding.contentType)
			w := &world{client: writer, name: "jumped"}
			namespace(t, writer, w.name)
			w.fill(t, objects)
			list := follow(t, server, w.name, encoding.contentType, count)
			w.agree(t, list)
			for _, jump := range jumps[:scale(2, len(jumps))] {
				w.change(t, objects/10, objects)
				clock.jump(jump)
				w.change(t, objects/10, objects)
				w.agree(t, list)

				away := list[:count/2]
				for _, inf := range away {
					inf.network.set(false)
				}
				w.change(t, objects/10, objects)
				clock.jump(jump)
				w.change(t, objects/10, objects)
				for _, inf := range away {
					inf.network.set(true)
				}
				w.agree(t, list)
			}
		})
	}
}
