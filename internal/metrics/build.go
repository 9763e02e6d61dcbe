package metrics

import (
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"plinth/internal/features"
)

// Build says which release of Kubernetes is served, by which program, and which features are on. commit and date are
// those of the program.
func Build(version, commit, date string, set features.Set, of features.Versions) []prometheus.Collector {
	numbers := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubernetes_build_info",
		Help: "The release of Kubernetes that is served, and the program that does it.",
		ConstLabels: prometheus.Labels{"major": numbers[0], "minor": numbers[1], "git_version": version, "git_commit": commit,
			"git_tree_state": "", "build_date": date, "go_version": runtime.Version(), "compiler": runtime.Compiler,
			"platform": runtime.GOOS + "/" + runtime.GOARCH}})
	info.Set(1)
	enabled := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubernetes_feature_enabled",
		Help: "1 for each feature gate that is on, 0 for each that is off; those without effect here are left out."},
		[]string{"name", "stage"})
	set.Each(of, func(name, stage string, on bool) {
		value := 0.0
		if on {
			value = 1
		}
		enabled.WithLabelValues(name, stage).Set(value)
	})
	return []prometheus.Collector{info, enabled}
}
