package server

import (
	"fmt"

	"plinth/internal/admission"
	"plinth/internal/engine"
)

// admission makes the chain of admission plugins. The store and the registry are there already; the engine is not, and
// is used only when a request is admitted.
func (s *Server) admission() (engine.Admission, error) {
	c := &s.config
	s.admissionMetrics = newAdmissionMetrics()
	var configurations map[string][]byte
	if c.AdmissionConfig != "" {
		var err error
		if configurations, err = admission.LoadConfigurations(c.AdmissionConfig); err != nil {
			return engine.Admission{}, fmt.Errorf("--admission-control-config-file: %w", err)
		}
	}
	return admission.New(admission.Config{
		Selection: admission.Selection{
			Only: c.AdmissionControl, Enabled: c.EnableAdmission, Disabled: c.DisableAdmission,
		},
		Store: s.store, Registry: s.registry, Features: s.features, Now: c.Now, Configurations: configurations,
		NotReadyTolerationSeconds:    c.NotReadyTolerationSeconds,
		UnreachableTolerationSeconds: c.UnreachableTolerationSeconds,
		Endpoint:                     s.webhooks().Endpoint,
		Metrics:                      s.admissionMetrics.hooks(),
	})
}
