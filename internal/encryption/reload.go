package encryption

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"plinth/internal/configfile"
)

const (
	// patience is at least how long the plugins of a new configuration may take to become healthy, and askedInterval how
	// often that is asked.
	patience      = 10 * time.Second
	askedInterval = 100 * time.Millisecond
	// firstRetry and lastRetry are the times after which a reload that failed is tried again; each is twice the one
	// before.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Run replaces the transformers when the file changes, until ctx ends. A configuration that is refused, or whose
// plugins are not healthy, changes nothing: the last good one stays in use, and the file is read again, less and less
// often.
// reloaded is told the result of each attempt. ctx is also that of Open: Run returns when all checks have ended.
func (t *Transformers) Run(ctx context.Context, interval time.Duration, reloaded func(hash string, err error)) {
	if t.reloads {
		configfile.Watch(ctx, t.file, t.current.Load().text, interval, func(text []byte, err error) {
			if err != nil {
				err = fmt.Errorf("error reading encryption provider configuration file %q: %w", t.file, err)
			}
			t.reload(ctx, text, err, reloaded)
		})
	}
	<-ctx.Done()
	t.wait.Wait()
}

// reload makes a text the configuration. If that fails, it tries again with the text that is in the file then.
func (t *Transformers) reload(ctx context.Context, text []byte, err error, reloaded func(string, error)) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		if err == nil {
			if bytes.Equal(text, t.current.Load().text) {
				return
			}
			if err = notEmpty(t.file, text); err == nil {
				err = t.replace(ctx, text)
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			reloaded(t.Hash(), nil)
			return
		}
		err = fmt.Errorf("error processing encryption config file %s: %w", t.file, err)
		t.Logger.Error("the encryption configuration was not reloaded", "error", err)
		reloaded("", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		text, err = read(t.file)
	}
}

// replace makes a text the configuration when its plugins are healthy. The plugins of the one before are closed when
// the requests that use them have ended.
func (t *Transformers) replace(ctx context.Context, text []byte) error {
	g, err := t.generation(ctx, text)
	if err != nil {
		return err
	}
	if err := t.awaitHealth(ctx, g); err != nil {
		g.close()
		return err
	}
	old := t.current.Swap(g)
	t.Logger.Info("the encryption configuration was reloaded", "hash", t.Hash())
	t.wait.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(2 * old.timeouts):
		}
		old.close()
	})
	return nil
}

// awaitHealth waits until the plugins of a configuration are healthy.
func (t *Transformers) awaitHealth(ctx context.Context, g *generation) error {
	ctx, cancel := context.WithTimeout(ctx, max(t.Patience, 2*g.timeouts))
	defer cancel()
	for {
		failed := g.check(ctx)
		if failed == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("health check for new transformers failed, polling error %v: %w", ctx.Err(), failed)
		case <-time.After(askedInterval):
		}
	}
}
