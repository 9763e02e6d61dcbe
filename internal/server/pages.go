package server

import (
	"maps"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/httpapi"
	"plinth/internal/metrics"
	"plinth/internal/plane"
	"plinth/internal/planes"
	"plinth/internal/product"
)

// counts are the metrics that /metrics shows.
type counts struct {
	requests    *metrics.Requests
	aggregation *metrics.Aggregation
	peers       *metrics.Peers         // nil: no requests go to other servers on the same etcd
	shown       []prometheus.Collector // besides these, and those that are made of parts of the plane
}

func (c *counts) show(all ...prometheus.Collector) { c.shown = append(c.shown, all...) }

// hooks makes the metrics of requests. Those of custom types that the plane does not serve any more are dropped.
func (c *counts) hooks(s *Server) httpapi.Metrics {
	c.requests = metrics.NewRequests(func(group, version, resource string) bool {
		return s.plane.Registry.Now().Find(group, version, resource) != nil
	})
	return c.requests.Hooks()
}

// pages are those beside the API: /metrics, and profiles.
func (s *Server) pages(p *plane.Plane) (map[string]http.Handler, error) {
	shown, err := s.collectors(p)
	if err != nil {
		return nil, err
	}
	all, err := metrics.Pages(&s.config.Metrics, s.config.Logger, s.counts.requests, shown...)
	if err == nil && s.config.Profiling {
		maps.Copy(all, profiles())
	}
	if err == nil {
		all[backupPath] = s.backupHandler(p)
	}
	if err == nil && s.config.Planes {
		all["/debug/planes"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.planes.Page().ServeHTTP(w, r)
		})
	}
	return all, err
}

// collectors are what /metrics shows besides the requests.
func (s *Server) collectors(p *plane.Plane) ([]prometheus.Collector, error) {
	shown := append(slices.Clip(s.counts.shown), metrics.Audit(s.audit),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "plinth_compiled_expressions",
			Help: "Expressions of custom types and of policies that are compiled."},
			func() float64 { return float64(p.Expressions.Compiled()) }))
	releases, err := s.config.releases()
	if err != nil {
		return nil, err
	}
	of := product.Built()
	shown = append(shown, metrics.Build(plane.Version, of.Hash, of.Date, s.features, releases)...)
	shown = append(shown, metrics.Outdated()...)
	shown = append(shown, metrics.Tokens(&p.Verifier.Counters)...)
	shown = append(shown, s.counts.aggregation.Collectors(p.Aggregator, p.Documents)...)
	if s.counts.peers != nil {
		shown = append(shown, s.counts.peers.Collectors(p.Documents)...)
	}
	shown = append(shown, p.Storage.Collectors()...)
	if s.config.Planes { // none of them has a label for each plane: there are thousands
		gauge := func(name, help string, of func(planes.Figures) int) prometheus.Collector {
			return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
				func() float64 { return float64(of(s.planes.Figures())) })
		}
		shown = append(shown,
			gauge("plinth_planes", "Planes besides the first one.", func(f planes.Figures) int { return f.Planes }),
			gauge("plinth_planes_open", "Planes that are open, because somebody uses them or they have something to do.",
				func(f planes.Figures) int { return f.Open }))
	}
	if s.unservedPlanes(p) > 0 {
		shown = append(shown, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "plinth_planes_unserved",
			Help: "Planes of the data directory that are not served, as the server was started without --planes."},
			func() float64 { return float64(s.unservedPlanes(p)) }))
	}
	if p.Fairness != nil {
		shown = append(shown, metrics.Fairness(p.Fairness)...)
	}
	return shown, nil
}
