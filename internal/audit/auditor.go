package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// Auditor records requests as its policy says. A nil Auditor records nothing.
type Auditor struct {
	Counters Counters
	policy   *Policy
	sinks    []*sink
	now      func() time.Time
	cancel   context.CancelFunc // ends running deliveries
}

// Counters are the metrics of an auditor.
type Counters struct {
	Events   atomic.Int64 // apiserver_audit_event_total
	Rejected atomic.Int64 // apiserver_audit_requests_rejected_total
	levels   [4]atomic.Int64
	errors   [4]atomic.Int64 // by plugins
}

// plugins are the values of the label plugin of apiserver_audit_error_total.
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

// Levels yields how many requests had each level (apiserver_audit_level_total).
func (c *Counters) Levels(yield func(level string, requests int64) bool) {
	for i := range levels {
		if n := c.levels[i].Load(); n > 0 && !yield(string(levels[i]), n) {
			return
		}
	}
}

// Errors yields how many events each plugin lost (apiserver_audit_error_total).
func (c *Counters) Errors(yield func(plugin string, events int64) bool) {
	for i := range plugins {
		if n := c.errors[i].Load(); n > 0 && !yield(plugins[i], n) {
			return
		}
	}
}

// New creates an auditor; nil if there is no policy or no sink. The caller has to close it.
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
			logger.Warn("the audit policy has unknown or duplicate fields, which are ignored", "error", warning)
		}
	}
	if policy == nil && (o.Log.Path != "" || o.Webhook.ConfigFile != "") {
		logger.Warn("no audit events are recorded: --audit-policy-file is not set")
	}
	// As in the reference, a log that cannot be written is an error even without a policy.
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
	if policy == nil || len(a.sinks) == 0 {
		return nil, a.Close(ctx)
	}
	return a, nil
}

// add starts a sink.
func (a *Auditor) add(ctx context.Context, b *sink, d *Delivery, async bool, logger *slog.Logger) {
	b.ctx, b.counters, b.delivery, b.logger = ctx, &a.Counters, *d, logger
	if d.Mode == batch && a.policy != nil {
		b.queue = newQueue(d, async)
		go b.run(ctx)
	}
	a.sinks = append(a.sinks, b)
}

// process writes an event to every sink, even if one fails. ok is false if the request must be refused.
func (a *Auditor) process(e *event) (ok bool) {
	ok = true
	for _, b := range a.sinks {
		ok = b.process(e) && ok
	}
	return ok
}

// Reopen opens the log file again, which another program may have moved away. A file that cannot be opened leaves the
// old one in use. Events are not lost. The nil Auditor has no file.
func (a *Auditor) Reopen() error {
	if a == nil {
		return nil
	}
	var errs []error
	for _, b := range a.sinks {
		if b.again != nil {
			if err := b.again(); err != nil {
				errs = append(errs, fmt.Errorf("audit %s: %w", b.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Close writes the queued events, until ctx is cancelled. It is called after the last request.
func (a *Auditor) Close(ctx context.Context) error {
	if a == nil {
		return nil
	}
	var errs []error
	for _, b := range a.sinks {
		errs = append(errs, b.close(ctx, a.cancel))
	}
	a.cancel()
	return errors.Join(errs...)
}
