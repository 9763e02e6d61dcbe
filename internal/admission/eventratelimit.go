package admission

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/configfile"
	"plinth/internal/engine"
	"plinth/internal/recent"
)

// eventLimit is a limit of the plugin EventRateLimit, as its configuration has it: of all Events, or of those of each
// namespace, user, or source and object.
type eventLimit struct {
	Type      string `json:"type"`
	QPS       int32  `json:"qps"`
	Burst     int32  `json:"burst"`
	CacheSize int32  `json:"cacheSize"`

	mu       sync.Mutex // between a look-up in limiters and the new one
	limiters recent.Cache[string, *rate.Limiter]
}

// eventKeys are the types of limits, and the keys by which they tell Events apart.
var eventKeys = map[string]func(a *engine.Attributes) string{
	"Server":          func(*engine.Attributes) string { return "" },
	"Namespace":       func(a *engine.Attributes) string { return a.Request.Namespace },
	"User":            func(a *engine.Attributes) string { return a.Request.User.Name },
	"SourceAndObject": sourceAndObject,
}

// eventLimiters is how many keys a limit tells apart if its configuration does not say.
const eventLimiters = 4096

func sourceAndObject(a *engine.Attributes) string {
	var key strings.Builder
	for _, name := range []string{"component", "host"} {
		key.WriteString(a.Object.At("source", name).Str())
	}
	for _, name := range []string{"kind", "namespace", "name", "uid", "apiVersion"} {
		key.WriteString(a.Object.At("involvedObject", name).Str())
	}
	return key.String()
}

// newEventRateLimit makes the plugin EventRateLimit: Events beyond the limits are refused with 429. As in the
// reference, Events of the group events.k8s.io are not limited.
func newEventRateLimit(c *Config) (steps, error) {
	limits, err := eventLimits(c.Configurations["EventRateLimit"])
	if err != nil {
		return steps{}, err
	}
	return steps{validate: func(_ context.Context, a *engine.Attributes) error {
		r := a.Request.Resource
		if !writes(a) || a.DryRun || r.Group != "" || r.Name != "events" {
			return nil
		}
		var reached []string
		for _, l := range limits {
			if key := eventKeys[l.Type](a); !l.of(key).AllowN(c.Now(), 1) {
				reached = append(reached, fmt.Sprintf("limit reached on type %s for key %s", l.Type, key))
			}
		}
		if len(reached) > 0 {
			return &apierr.Error{Code: 429, Reason: apierr.TooManyRequests,
				Message: "Too many requests: " + together(reached)}
		}
		return nil
	}}, nil
}

// of is the limiter of a key. Keys that were not used lately are forgotten, and begin again.
func (l *eventLimit) of(key string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.limiters.Get(key)
	if !ok {
		known = rate.NewLimiter(rate.Limit(l.QPS), int(l.Burst))
		l.limiters.Set(strings.Clone(key), known, 1)
	}
	return known
}

// eventLimits reads the configuration of the plugin.
func eventLimits(text []byte) ([]*eventLimit, error) {
	var c struct {
		APIVersion string        `json:"apiVersion"`
		Kind       string        `json:"kind"`
		Limits     []*eventLimit `json:"limits"`
	}
	if len(text) > 0 {
		// Unknown fields are ignored, as in the reference.
		if _, err := configfile.Decode(text, "Configuration", []string{"eventratelimit.admission.k8s.io/v1alpha1"},
			&c); err != nil {
			return nil, err
		}
	}
	var errs field.ErrorList
	path := field.NewPath("limits")
	if len(c.Limits) == 0 {
		errs = append(errs, field.Invalid(path, c.Limits, "must not be empty"))
	}
	for i, l := range c.Limits {
		at := path.Index(i)
		if eventKeys[l.Type] == nil {
			errs = append(errs, field.NotSupported(at.Child("type"), l.Type,
				[]string{"Namespace", "Server", "SourceAndObject", "User"}))
		}
		if l.Burst <= 0 {
			errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
		}
		if l.QPS <= 0 {
			errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
		}
		if l.Type != "Server" && l.CacheSize < 0 {
			errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
		}
		if l.limiters.Limit = int(l.CacheSize); l.CacheSize == 0 {
			l.limiters.Limit = eventLimiters
		}
	}
	return c.Limits, errs.ToAggregate()
}
