package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Certificates count the certificates that were issued for requests with a duration, by signer. Signers other
// than those of Kubernetes are counted as "other".
type Certificates struct{ requested, honored *prometheus.CounterVec }

// NewCertificates makes metrics that have counted nothing yet.
func NewCertificates() *Certificates {
	of := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "apiserver", Subsystem: "certificates_registry", Name: name, Help: help}, []string{"signerName"})
	}
	return &Certificates{
		requested: of("csr_requested_duration_total", "Issued certificates whose request has a duration."),
		honored:   of("csr_honored_duration_total", "Issued certificates that are valid for the requested duration."),
	}
}

// Issued counts a certificate.
func (m *Certificates) Issued(signer string, honored bool) {
	if !strings.HasPrefix(signer, "kubernetes.io/") {
		signer = "other"
	}
	m.requested.WithLabelValues(signer).Inc()
	if honored {
		m.honored.WithLabelValues(signer).Inc()
	}
}

// Collectors are what /metrics shows.
func (m *Certificates) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requested, m.honored}
}
