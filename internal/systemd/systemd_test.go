package systemd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

// The manager hears that the server is ready, that it is alive in good time before the watchdog bites, nothing while it
// does not answer, and that it is ending, during which nobody asks it.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		begin := time.Now()
		var err error
		asked := 0
		ctx, cancel := context.WithCancel(t.Context())
		end := ready(ctx, quiet, 40*time.Second, func(ask context.Context) error {
			asked++
			if err == nil {
				return nil
			}
			<-ask.Done() // a server that hangs
			return err
		}, func(state string) { told = append(told, time.Since(begin).String()+" "+state) })
		time.Sleep(21 * time.Second)
		synctest.Wait()
		want := []string{"0s READY=1", "10s WATCHDOG=1", "20s WATCHDOG=1"}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, not %q", told, want)
		}
		err = errors.New("it hangs")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !slices.Equal(told, want) || asked < 5 {
			t.Errorf("of a server that hangs, asked %d times: told %q", asked, told)
		}
		cancel()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := strings.Join(told[3:], " "); !strings.Contains(got, "STOPPING=1") ||
			strings.Count(got, "WATCHDOG=1") < 3 {
			t.Errorf("at the end told %q", got)
		}
		end()
		last := len(told)
		time.Sleep(time.Hour)
		if len(told) != last {
			t.Errorf("after the end told %q", told[last:])
		}
	})
}

// A server that ends at once has told so.
func TestQuickEnd(t *testing.T) {
	for range 100 {
		var told []string
		ctx, cancel := context.WithCancel(t.Context())
		end := ready(ctx, quiet, 0, nil, func(state string) { told = append(told, state) })
		cancel()
		end()
		if want := []string{"READY=1", "STOPPING=1"}; !slices.Equal(told, want) {
			t.Fatalf("told %q, not %q", told, want)
		}
	}
}

// Without a watchdog the server is not asked.
func TestWithoutWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		ctx, cancel := context.WithCancel(t.Context())
		end := ready(ctx, quiet, 0, func(context.Context) error { t.Error("asked"); return nil },
			func(state string) { told = append(told, state) })
		time.Sleep(time.Hour)
		cancel()
		synctest.Wait()
		end()
		if want := []string{"READY=1", "STOPPING=1"}; !slices.Equal(told, want) {
			t.Errorf("told %q, not %q", told, want)
		}
	})
}

// What is told arrives at the socket of the environment; without one, nothing happens.
func TestSocket(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	Ready(t.Context(), quiet, nil)() // nothing happens

	at := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	if err != nil {
		t.Skipf("this system has no sockets of this kind: %v", err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", at)
	t.Setenv("WATCHDOG_USEC", "4000")
	defer Ready(t.Context(), quiet, func(context.Context) error { return nil })()
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		got := make([]byte, 100)
		n, err := socket.Read(got)
		if err != nil || string(got[:n]) != want {
			t.Fatalf("%q, %v, not %q", got[:n], err, want)
		}
	}
}
