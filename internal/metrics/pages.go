// Package metrics counts what happens in a server, for Prometheus: the pages /metrics and /metrics/slis. The packages
// in which it happens do not know it: they report to functions, which this package gives them (the methods Hooks), or
// have figures, which it reads when a page is requested. A metric that the reference has, too, has its name and labels.
package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Pages are the pages /metrics and /metrics/slis, the results of health checks. more is what is shown beside the
// requests.
func Pages(limits *Limits, logger *slog.Logger, requests *Requests,
	more ...prometheus.Collector) (map[string]http.Handler, error) {
	limited, err := limits.parse()
	if err != nil {
		return nil, err
	}
	// A process may run several servers, so none of them uses Prometheus' own registry.
	all, health := prometheus.NewRegistry(), prometheus.NewRegistry()
	all.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	all.MustRegister(requests.Collectors()...)
	all.MustRegister(more...)
	all.MustRegister(limited.figures()...)
	health.MustRegister(requests.checks, requests.checked)
	page := func(of prometheus.Gatherer) http.Handler {
		return promhttp.HandlerFor(limited.of(of), promhttp.HandlerOpts{
			ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError)})
	}
	return map[string]http.Handler{"/metrics": page(all), "/metrics/slis": page(health)}, nil
}
