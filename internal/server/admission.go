package server

import (
	"plinth/internal/admission"
	"plinth/internal/engine"
)

// admission makes the chain of admission plugins. The store and the registry are there already.
func (s *Server) admission() (engine.Admission, error) {
	c := &s.config
	return admission.New(admission.Config{
		Selection: admission.Selection{
			Only: c.AdmissionControl, Enabled: c.EnableAdmission, Disabled: c.DisableAdmission,
		},
		Store: s.store, Registry: s.registry, Features: s.features, Now: c.Now,
		NotReadyTolerationSeconds: c.NotReadyTolerationSeconds, UnreachableTolerationSeconds: c.UnreachableTolerationSeconds,
	})
}
