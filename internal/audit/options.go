package audit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Options are the flags of auditing.
type Options struct {
	PolicyFile string // "": no events are recorded
	Log        LogOptions
	Webhook    WebhookOptions
}

// LogOptions are the flags --audit-log-*.
type LogOptions struct {
	Path      string // "-" is standard output; "": no log
	Format    string // "json" or "legacy"
	Version   string
	MaxAge    int // days that a rotated file is kept; 0: forever
	MaxBackup int // how many rotated files are kept; 0: all
	MaxSize   int // megabytes after which the file is rotated; 0: never
	Compress  bool
	Delivery
}

// WebhookOptions are the flags --audit-webhook-*.
type WebhookOptions struct {
	ConfigFile     string        // a kubeconfig; "": no webhook
	InitialBackoff time.Duration // the delay before the first retry
	Version        string
	Delivery
}

// Delivery are the flags that both sinks have.
type Delivery struct {
	Mode string // "blocking", "blocking-strict" or "batch"

	// For the mode batch only.
	BufferSize int           // events in the queue; further ones are dropped
	BatchSize  int           // events that are written together
	BatchWait  time.Duration // how long a batch waits for more events
	Throttle   bool
	QPS        float64 // batches per second, if throttled
	Burst      int

	Truncate      bool
	MaxBatchBytes int64
	MaxEventBytes int64 // a larger event loses its bodies; if it is still larger, it is dropped
}

// The modes and formats.
const (
	batch          = "batch"
	blocking       = "blocking"
	blockingStrict = "blocking-strict"

	legacy = "legacy"
)

var (
	modes   = []string{batch, blocking, blockingStrict}
	formats = []string{legacy, "json"}
)

const version = "audit.k8s.io/v1"

// Defaults returns the defaults of the reference.
func Defaults() Options {
	delivery := Delivery{BufferSize: 10000, MaxBatchBytes: 10 << 20, MaxEventBytes: 100 << 10}
	log, hook := delivery, delivery
	log.Mode, log.BatchSize = blocking, 1
	hook.Mode, hook.BatchSize, hook.BatchWait = batch, 400, 30*time.Second
	hook.Throttle, hook.QPS, hook.Burst = true, 10, 15
	return Options{
		Log:     LogOptions{Format: "json", Version: version, MaxAge: 366, MaxBackup: 100, MaxSize: 100, Delivery: log},
		Webhook: WebhookOptions{InitialBackoff: 10 * time.Second, Version: version, Delivery: hook},
	}
}

// Validate validates the options of the sinks that are configured, with the messages of the reference.
func (o *Options) Validate() error {
	var errs []error
	if o.Log.Path != "" {
		errs = append(errs, o.Log.validateDelivery("log"), o.Log.validateTruncation("log"), validateVersion(o.Log.Version))
		if !slices.Contains(formats, o.Log.Format) {
			errs = append(errs, fmt.Errorf("invalid audit log format %s, allowed formats are %q", o.Log.Format,
				strings.Join(formats, ",")))
		}
		for _, limit := range []struct {
			flag  string
			value int
		}{{"maxage", o.Log.MaxAge}, {"maxbackup", o.Log.MaxBackup}, {"maxsize", o.Log.MaxSize}} {
			if limit.value < 0 {
				errs = append(errs, fmt.Errorf("--audit-log-%s %v can't be a negative number", limit.flag, limit.value))
			}
		}
	}
	if o.Webhook.ConfigFile != "" {
		errs = append(errs, o.Webhook.validateDelivery("webhook"), o.Webhook.validateTruncation("webhook"),
			validateVersion(o.Webhook.Version))
	}
	return errors.Join(errs...)
}

func (d *Delivery) validateDelivery(plugin string) error {
	if !slices.Contains(modes, d.Mode) {
		return fmt.Errorf("invalid audit %s mode %s, allowed modes are %q", plugin, d.Mode, strings.Join(modes, ","))
	}
	if d.Mode != batch {
		return nil
	}
	refuse := func(what string, value any) error {
		return fmt.Errorf("invalid audit batch %s %s %v, must be a positive number", plugin, what, value)
	}
	switch {
	case d.BufferSize <= 0:
		return refuse("buffer size", d.BufferSize)
	case d.BatchSize <= 0:
		return refuse("max batch size", d.BatchSize)
	case d.Throttle && d.QPS <= 0:
		return refuse("throttle QPS", d.QPS)
	case d.Throttle && d.Burst <= 0:
		return refuse("throttle burst", d.Burst)
	}
	return nil
}

func (d *Delivery) validateTruncation(plugin string) error {
	switch {
	case d.MaxEventBytes <= 0:
		return fmt.Errorf("invalid audit truncate %s max event size %v, must be a positive number", plugin, d.MaxEventBytes)
	case d.MaxBatchBytes < d.MaxEventBytes:
		return fmt.Errorf("invalid audit truncate %s max batch size %v, must be greater than max event size (%v)",
			plugin, d.MaxBatchBytes, d.MaxEventBytes)
	}
	return nil
}

func validateVersion(text string) error {
	if _, err := schema.ParseGroupVersion(text); err != nil {
		return err
	}
	if text != version {
		return fmt.Errorf("invalid group version, allowed versions are [%s]", strconv.Quote(version))
	}
	return nil
}
