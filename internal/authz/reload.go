package authz

import (
	"context"
	"reflect"
	"time"

	"plinth/internal/configfile"
)

// Watch follows the file of --authorization-config until ctx ends. It was read as text. What cannot be read, or asks
// for what was not there at the start, changes nothing: the configuration from before holds.
func (y *Authority) Watch(ctx context.Context, file string, text []byte, interval time.Duration) {
	if tell := y.options.Metrics.Configured; tell != nil {
		tell(text)
	}
	configfile.Watch(ctx, file, text, interval, func(text []byte, err error) {
		changed := false
		if err == nil {
			changed, err = y.reconfigure(text)
		}
		m, log := &y.options.Metrics, y.options.Logger
		switch {
		case err != nil:
			log.Error("the authorization configuration cannot be taken; the one from before holds", "file", file, "error", err)
		case !changed:
			return
		default:
			log.Info("the authorization configuration has changed", "file", file)
			if m.Configured != nil {
				m.Configured(text)
			}
		}
		if m.Reloaded != nil {
			m.Reloaded(err == nil)
		}
	})
}

// reconfigure takes another configuration, unless it is the same. All types but webhooks have to stay.
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
	// even where it cannot be built, as in the reference: the next one is compared with what the file has said
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
