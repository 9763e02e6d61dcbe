package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/webhook"
)

// Outdated are the metrics of outdated certificates of webhooks, by the reference's names.
func Outdated() []prometheus.Collector {
	return outdated("webhooks", "webhooks", webhook.OutdatedCertificates)
}

// outdated are the metrics of outdated certificates of those whom a subsystem calls.
func outdated(subsystem, called string, o *webhook.Outdated) (all []prometheus.Collector) {
	for _, of := range []struct {
		name, help string
		count      *atomic.Int64
	}{
		{"x509_missing_san_total", "whose certificate has no subject alternative name", &o.MissingSAN},
		{"x509_insecure_sha1_total", "with a certificate that is signed with SHA-1", &o.InsecureSHA1},
	} {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "apiserver", Subsystem: subsystem,
			Name: of.name, Help: "Requests to " + called + " " + of.help + ", accepted or refused.",
		}, func() float64 { return float64(of.count.Load()) }))
	}
	return all
}
