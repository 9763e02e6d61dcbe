package authz

import (
	"context"
	"reflect"
	"time"

	"plinth/internal/configfile"
)

// Watch reloads --authorization-config when it changes, until ctx is cancelled. text is the current content. If the
// file is invalid, or lacks a required authorizer, the previous configuration stays in use.
func (y *Authority) Watch(ctx context.Context, file string, text []byte, interval time.Duration) {
	if report := y.options.Metrics.Configured; report != nil {
		report(text)
	}
	configfile.Watch(ctx, file, text, interval, func(text []byte, err error) {
		changed := false
		if err == nil {
			changed, err = y.reconfigure(text)
		}
		m, log := &y.options.Metrics, y.options.Logger
		switch {
		case err != nil:
			log.Error("the authorization configuration was not reloaded; the previous one is in use", "file", file, "error", err)
		case !changed:
			return
		default:
			log.Info("the authorization configuration was reloaded", "file", file)
			if m.Configured != nil {
				m.Configured(text)
			}
		}
		if m.Reloaded != nil {
			m.Reloaded(err == nil)
		}
	})
}

// reconfigure replaces the configuration, unless it is unchanged. The types of authorizers other than webhooks must
// stay.
func (y *Authority) reconfigure(text []byte) (changed bool, err error) {
	next, err := ParseConfig(text, y.first)
	if err != nil {
		return false, err
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if reflect.DeepEqual(next, y.now) {
		return false, nil
	}
	// Set even if it cannot be built, as in the reference: the next text is compared with this one.
	y.now = next
	made, err := y.build(next)
	if err != nil {
		return false, err
	}
	before := y.chain.Swap(&made)
	for _, of := range *before {
		if hook, ok := of.lister.(*hook); ok {
			hook.remote.Close()
		}
	}
	return true, nil
}
