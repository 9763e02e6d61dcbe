package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"plinth/internal/admission"
	"plinth/internal/authz"
	"plinth/internal/configfile"
	"plinth/internal/metrics"
	"plinth/internal/peers"
)

// validateAccess refuses settings that restrict access in a way that Plinth does not implement: to ignore them would
// leave something unprotected.
func (c *Config) validateAccess() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	c.validateModes(refuse)
	plugins := c.plugins()
	plugins.Validate(refuse)
	if !c.AllowPrivileged {
		refuse("--allow-privileged=false asks for refusing privileged containers, which is not there yet")
	}
	return errors.Join(errs...)
}

// AuthorizationWebhook configures the webhook of --authorization-mode=Webhook.
type AuthorizationWebhook struct {
	ConfigFile                     string // a kubeconfig: the webhook's URL and the server's credentials
	Version                        string // of the SubjectAccessReviews that are sent: v1 or v1beta1
	AuthorizedTTL, UnauthorizedTTL time.Duration
}

// validateModes refuses the values of --authorization-mode and its related flags that the reference refuses.
func (c *Config) validateModes(refuse func(format string, args ...any)) {
	if c.AuthorizationConfig != "" {
		return // the file replaces the modes
	}
	if len(c.AuthorizationModes) == 0 {
		refuse("at least one authorization-mode must be passed")
	}
	modes := c.modes()
	for i, mode := range modes {
		switch {
		case !authz.ValidMode(mode):
			refuse("authorization-mode %q is not a valid mode", mode)
		case mode == authz.ABAC && c.AuthorizationPolicyFile == "":
			refuse("authorization-mode ABAC's authorization policy file not passed")
		case mode == authz.Webhook && c.AuthorizationWebhook.ConfigFile == "":
			refuse("authorization-mode Webhook's authorization config file not passed")
		case slices.Contains(modes[:i], mode):
			refuse("authorization-mode %q has mode specified more than once", c.AuthorizationModes)
		}
	}
	if c.AuthorizationPolicyFile != "" && !slices.Contains(modes, authz.ABAC) {
		refuse("cannot specify --authorization-policy-file without mode ABAC")
	}
	if c.AuthorizationWebhook.ConfigFile != "" && !slices.Contains(modes, authz.Webhook) {
		refuse("cannot specify --authorization-webhook-config-file without mode Webhook")
	}
}

func (c *Config) modes() []authz.Mode {
	modes := make([]authz.Mode, len(c.AuthorizationModes))
	for i, mode := range c.AuthorizationModes {
		modes[i] = authz.Mode(mode)
	}
	return modes
}

// authorization creates the configured authorizers. --authorization-config is read again when it changes.
func (s *Server) authorization() (*authz.Authority, error) {
	c := &s.config
	var text []byte
	var config *authz.AuthorizationConfiguration
	if c.AuthorizationConfig == "" {
		hook := &c.AuthorizationWebhook
		config = authz.FromModes(c.modes(), authz.WebhookFromFlags(hook.ConfigFile, hook.Version, hook.AuthorizedTTL,
			hook.UnauthorizedTTL))
	} else {
		var err error
		if config, text, err = authz.LoadConfig(c.AuthorizationConfig); err != nil {
			return nil, err
		}
	}
	isNode := func(a authz.AuthorizerConfiguration) bool { return a.Type == authz.Node }
	if plugins := c.plugins(); slices.ContainsFunc(config.Authorizers, isNode) && !plugins.On("NodeRestriction") {
		c.Logger.Warn("authorization mode Node without the admission plugin NodeRestriction: "+
			"any kubelet may write the Nodes and the status of the Pods of all others", "plugin", "NodeRestriction")
	}
	counts := metrics.NewAuthorization(peers.HostIdentity())
	s.counts.show(counts.Collectors()...)
	authority, err := authz.New(config, authz.Options{Logger: c.Logger, PolicyFile: c.AuthorizationPolicyFile,
		Metrics: counts.Hooks(), Features: s.features})
	if err == nil && c.AuthorizationConfig != "" {
		s.follow = append(s.follow, func(ctx context.Context) {
			authority.Watch(ctx, c.AuthorizationConfig, text, configfile.Interval)
		})
	}
	return authority, err
}

// plugins says which admission plugins are on.
func (c *Config) plugins() admission.Selection {
	return admission.Selection{Only: c.AdmissionControl, Enabled: c.EnableAdmission, Disabled: c.DisableAdmission}
}

// admission says which admission plugins are on, and how they are configured.
func (s *Server) admission() (admission.Config, error) {
	c := &s.config
	counts := metrics.NewAdmission(peers.HostIdentity())
	s.counts.show(counts.Collectors()...)
	to := admission.Config{Selection: c.plugins(), Metrics: counts.Hooks(),
		Manifests:                    &admission.Manifests{},
		NotReadyTolerationSeconds:    c.NotReadyTolerationSeconds,
		UnreachableTolerationSeconds: c.UnreachableTolerationSeconds}
	if c.AdmissionConfig == "" {
		return to, nil
	}
	var err error
	if to.Configurations, err = admission.LoadConfigurations(c.AdmissionConfig); err != nil {
		return to, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	return to, nil
}
