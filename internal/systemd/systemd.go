// Package systemd tells systemd, or another service manager with its protocol (sd_notify), that a server is ready, that
// it is alive, and that it is ending: a unit with Type=notify and WatchdogSec= depends on it. Without such a manager
// nothing is sent.
package systemd

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Ready tells that the server is ready. From then on the manager is told that it is alive as often as the manager wants
// to hear it, if alive returns no error; without that it ends the server and starts it anew. When ctx ends, it is told
// that the server is ending, which may take as long as it takes. The function that is returned ends all this.
func Ready(ctx context.Context, logger *slog.Logger, alive func(context.Context) error) (end func()) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		logger.Warn("the watchdog of the service manager is not fed", "error", err)
	}
	return ready(ctx, logger, within, alive, func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			logger.Warn("the service manager was not told the state of the server", "state", state, "error", err)
		}
	})
}

// ready is Ready for a manager that expects a word within a duration, or none if that is 0, and is told by tell.
func ready(ctx context.Context, logger *slog.Logger, within time.Duration, alive func(context.Context) error,
	tell func(string)) (end func()) {
	tell(daemon.SdNotifyReady)
	ended, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var pulse <-chan time.Time
		if within > 0 {
			ticker := time.NewTicker(max(within/4, 1)) // so that one check may take half of the duration
			defer ticker.Stop()
			pulse = ticker.C
		}
		ending := ctx.Done()
		for {
			select {
			case <-ended.Done():
				if ending != nil { // the server was quicker than this goroutine, or failed
					tell(daemon.SdNotifyStopping)
				}
				return
			case <-ending:
				tell(daemon.SdNotifyStopping)
				ending = nil
			case <-pulse:
				if ending != nil && !lives(ctx, logger, within/2, alive) {
					continue
				}
				tell(daemon.SdNotifyWatchdog)
			}
		}
	}()
	return func() {
		stop()
		<-done
	}
}

// lives says whether alive returns no error within a duration, or the server was told to end meanwhile.
func lives(ctx context.Context, logger *slog.Logger, within time.Duration, alive func(context.Context) error) bool {
	ask, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := alive(ask)
	if err == nil || ctx.Err() != nil {
		return true
	}
	logger.Error("the watchdog of the service manager is not fed: the server does not answer", "error", err)
	return false
}
