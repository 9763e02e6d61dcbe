package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/auth/serviceaccount"
)

// Tokens count the uses of tokens of service accounts, by the reference's names.
func Tokens(c *serviceaccount.Counters) (all []prometheus.Collector) {
	for _, of := range []struct {
		name, help string
		count      *atomic.Int64
	}{
		{"legacy_tokens_total", "Uses of tokens without an audience.", &c.Legacy},
		{"legacy_auto_token_uses_total", "Uses of tokens from generated Secrets.", &c.Generated},
		{"legacy_manual_token_uses_total", "Uses of tokens from Secrets that were made by hand.", &c.Manual},
		{"invalid_legacy_auto_token_uses_total", "Uses of tokens from Secrets that are marked invalid.", &c.Invalid},
		{"stale_tokens_total", "Uses of tokens of Pods that should have been renewed.", &c.Stale},
		{"valid_tokens_total", "Uses of other tokens of Pods.", &c.Valid},
	} {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "serviceaccount", Name: of.name, Help: of.help,
		}, func() float64 { return float64(of.count.Load()) }))
	}
	return all
}
