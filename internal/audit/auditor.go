package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// Auditor writes down what its policy wants. A nil one writes down nothing.
type Auditor struct {
	Counters Counters
	policy   *Policy
	backends []*backend
	now      func() time.Time
	cancel   context.CancelFunc // ends the deliveries that are under way
}

// Counters are the figures of an auditor, each with the name of its metric.
type Counters struct {
	Events   atomic.Int64 // apiserver_audit_event_total
	Rejected atomic.Int64 // apiserver_audit_requests_rejected_total
	levels   [4]atomic.Int64
	errors   [4]atomic.Int64 // by plugins
}

// plugins are the values of the label of apiserver_audit_error_total.
var plugins = [...]string{"log", "webhook", "buffered", "truncate"}

func (c *Counters) level(level Level) {
	for i := range levels {
		if levels[i] == level {
			c.levels[i].Add(1)
		}
	}
}

func (c *Counters) failed(plugin string, events int) {
	for i := range plugins {
		if plugins[i] == plugin {
			c.errors[i].Add(int64(events))
		}
	}
}

// Levels tells how many requests had which level (apiserver_audit_level_total).
func (c *Counters) Levels(yield func(level string, requests int64) bool) {
	for i := range levels {
		if n := c.levels[i].Load(); n > 0 && !yield(string(levels[i]), n) {
			return
		}
	}
}

// Errors tells how many events each plugin has lost (apiserver_audit_error_total).
func (c *Counters) Errors(yield func(plugin string, events int64) bool) {
	for i := range plugins {
		if n := c.errors[i].Load(); n > 0 && !yield(plugins[i], n) {
			return
		}
	}
}

// New makes an auditor; nil if there is nothing to write down, or nowhere to write it to. Its caller closes it.
func New(o Options, logger *slog.Logger) (*Auditor, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var policy *Policy
	if o.PolicyFile != "" {
		var warning, err error
		if policy, warning, err = LoadPolicy(o.PolicyFile); err != nil {
			return nil, fmt.Errorf("loading audit policy file: %w", err)
		}
		if warning != nil {
			logger.Warn("the audit policy has errors, and what is unknown in it means nothing", "error", warning)
		}
	}
	if policy == nil && (o.Log.Path != "" || o.Webhook.ConfigFile != "") {
		logger.Warn("there is no audit policy file, and so no events are recorded")
	}
	// Where the log cannot be written, or the webhook's configuration not be read, that is an error all the same.
	ctx, cancel := context.WithCancel(context.Background())
	a := &Auditor{policy: policy, now: time.Now, cancel: cancel}
	if o.Log.Path != "" {
		b, err := newLog(&o.Log)
		if err != nil {
			return nil, errors.Join(err, a.Close(ctx))
		}
		a.add(ctx, b, &o.Log.Delivery, false, logger)
	}
	if o.Webhook.ConfigFile != "" && policy != nil {
		b, err := newWebhook(&o.Webhook)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("initializing audit webhook: %w", err), a.Close(ctx))
		}
		a.add(ctx, b, &o.Webhook.Delivery, true, logger)
	}
	if policy == nil || len(a.backends) == 0 {
		return nil, a.Close(ctx)
	}
	return a, nil
}

// add puts a backend to work.
func (a *Auditor) add(ctx context.Context, b *backend, d *Delivery, async bool, logger *slog.Logger) {
	b.counters, b.delivery, b.logger = &a.Counters, *d, logger
	if d.Mode == batch && a.policy != nil {
		b.queue = newQueue(d, async)
		go b.run(ctx)
	}
	a.backends = append(a.backends, b)
}

// process hands an event to every backend, even where one fails.
func (a *Auditor) process(e *event) (ok bool) {
	ok = true
	for _, b := range a.backends {
		ok = b.process(e) && ok
	}
	return ok
}

// Close delivers what is still queued, as long as ctx allows. There must be no requests any more.
func (a *Auditor) Close(ctx context.Context) error {
	if a == nil {
		return nil
	}
	var errs []error
	for _, b := range a.backends {
		errs = append(errs, b.close(ctx, a.cancel))
	}
	a.cancel()
	return errors.Join(errs...)
}
