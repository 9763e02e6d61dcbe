package admission

import (
	"k8s.io/pod-security-admission/api"

	"plinth/internal/engine"
)

// SecuredRequest is what the metrics of PodSecurity tell of a request.
type SecuredRequest struct {
	Operation   engine.Operation
	Resource    string // "pod", "namespace", or "controller" for what has a template
	Subresource string
}

// PodSecurityMetrics are told what PodSecurity does with requests about Pods and templates. Nil functions are not
// called.
type PodSecurityMetrics struct {
	// Evaluated is told the result for one mode ("enforce", "audit", "warn"): of the last two only refusals. version is
	// "future" for those that are not known yet, so that namespaces cannot make any number of series.
	Evaluated func(of SecuredRequest, mode, level, version string, allowed bool)
	// Exempted is told of requests that the configuration exempts.
	Exempted func(of SecuredRequest)
	// Failed is told of what kept it from an evaluation (fatal), or from reading the labels of a namespace.
	Failed func(of SecuredRequest, fatal bool)
}

// complete replaces nil functions by ones that do nothing.
func (m PodSecurityMetrics) complete() PodSecurityMetrics {
	if m.Evaluated == nil {
		m.Evaluated = func(SecuredRequest, string, string, string, bool) {}
	}
	if m.Exempted == nil {
		m.Exempted = func(SecuredRequest) {}
	}
	if m.Failed == nil {
		m.Failed = func(SecuredRequest, bool) {}
	}
	return m
}

// newestStandards is the newest version of the Pod Security Standards that is known.
var newestStandards = api.MajorMinorVersion(1, 37)

// evaluated tells the metrics of a result.
func (p *podSecurity) evaluated(of SecuredRequest, mode string, level api.LevelVersion, allowed bool) {
	version := level.Version
	switch {
	case level.Level == api.LevelPrivileged, version.Latest(): // privileged is the same in every version
		version = api.LatestVersion()
	case newestStandards.Older(version):
		p.metrics.Evaluated(of, mode, string(level.Level), "future", allowed)
		return
	}
	p.metrics.Evaluated(of, mode, string(level.Level), version.String(), allowed)
}

// securedRequest describes a request about a Pod or a template.
func securedRequest(a *engine.Attributes) SecuredRequest {
	of := SecuredRequest{Operation: a.Operation, Resource: "controller"}
	if r := a.Request.Resource; r.Group == "" && r.Name == "pods" {
		of.Resource = "pod"
	}
	if sub := a.Request.Subresource; sub != nil {
		of.Subresource = sub.Name
	}
	return of
}
