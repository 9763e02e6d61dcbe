// Package admission decides on writes that are authorized: it may change them, or refuse them (AUTH-3). Its plugins
// are those of kube-apiserver, with their names, and they run in its order whatever the order of the flags.
//
// A plugin is a row of the table below and a file. Mutating plugins see the body of a request before the object has
// a name, and validating ones the object as it would be stored; engine.Attributes says what they know of it. The engine
// calls the chain that New makes, and knows no plugin.
package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"plinth/internal/admission/hooks"
	"plinth/internal/cel"
	"plinth/internal/egress"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/store"
	"plinth/internal/webhook"
)

// plugin is a row of the table.
type plugin struct {
	name string
	// on: it is on by default in the reference.
	on bool
	// new makes the functions of the plugin.
	new func(c *Config) (steps, error)
}

// steps are the functions of a plugin. Nil functions admit everything.
type steps struct {
	// admit may replace the object; validate only refuses. Both return the error that the client gets: forbidden makes
	// most of them.
	admit, validate func(ctx context.Context, a *engine.Attributes) error
	// admitInPasses is admit for a plugin that may cause a second pass; it has one of the two.
	admitInPasses func(ctx context.Context, a *engine.Attributes, passes *hooks.Passes) error
	// ready returns why the plugin refuses all requests: an object that configures it cannot be read. Nil: it has no
	// such objects.
	ready func() error
}

// Config is what the plugins are made of.
type Config struct {
	Selection
	// Store and Registry have the objects and the types that plugins read (objects).
	Store    *store.Store
	Registry *engine.Registry
	Features features.Set
	// Version is that of Kubernetes as which the server answers.
	Version string
	Now     engine.Clock // nil: time.Now
	// Configurations are those of --admission-control-config-file, by the name of the plugin, as YAML or JSON.
	Configurations map[string][]byte
	// CreateNamespace creates a namespace for the plugin NamespaceAutoProvision, as a request of the server itself. It
	// is called only while a request is admitted, so the engine need not exist when New is called.
	CreateNamespace func(ctx context.Context, name string) error
	// NotReadyTolerationSeconds and UnreachableTolerationSeconds are for the plugin DefaultTolerationSeconds.
	NotReadyTolerationSeconds, UnreachableTolerationSeconds int64
	// Endpoint returns the address of a port of a Service, as for webhook.Clients.
	Endpoint func(ctx context.Context, namespace, service string, port int64) (string, error)
	// InProcess finds webhooks in this process; nil: all are in the network.
	InProcess webhook.InProcess
	// Egress says where webhooks may be that are in objects of the API, and WithoutCredentials that they are called
	// without those of the Configurations: whoever writes the objects chooses the hosts. Neither is for webhooks in files.
	Egress             egress.Policy
	WithoutCredentials bool
	// Expressions bounds the compiled expressions of policies; nil: all are kept.
	Expressions *cel.Cache
	Metrics     Metrics
	// Logger is told when static configurations of webhooks are loaded again, and of webhooks that fail or refuse; nil:
	// nobody is. Follow is given the function that loads them as long as the server runs; nil: they stay as they are.
	Logger *slog.Logger
	Follow func(run func(context.Context))
	// Manifests has the static configurations of the planes of a process that begin while files cannot be read; nil: this
	// is the only plane.
	Manifests *Manifests

	objects *objects // made by New
}

// always makes a plugin that needs nothing but the request.
func always(s steps) func(*Config) (steps, error) {
	return func(*Config) (steps, error) { return s, nil }
}

// plugins are all plugins of kube-apiserver 1.37 in the order in which they run (AllOrderedPlugins of
// pkg/kubeapiserver/options). Webhooks, policies and ResourceQuota are behind all others, since they have to see the
// object as the others leave it.
var plugins = []plugin{
	{name: "AlwaysAdmit", new: always(steps{})},
	{name: "NamespaceAutoProvision", new: newNamespaceAutoProvision},
	{name: "NamespaceLifecycle", on: true, new: always(steps{admit: namespaceLifecycle})},
	{name: "NamespaceExists", new: newNamespaceExists},
	{name: "LimitPodHardAntiAffinityTopology", new: always(steps{validate: limitPodHardAntiAffinityTopology})},
	{name: "LimitRanger", on: true, new: newLimitRanger},
	{name: "ServiceAccount", on: true, new: newServiceAccount},
	{name: "NodeRestriction", new: newNodeRestriction},
	{name: "TaintNodesByCondition", on: true, new: always(steps{admit: taintNodesByCondition})},
	{name: "AlwaysPullImages", new: always(alwaysPullImages)},
	{name: "ImagePolicyWebhook", new: newImagePolicyWebhook},
	{name: "PodSecurity", on: true, new: newPodSecurity},
	{name: "PodNodeSelector", new: newPodNodeSelector},
	{name: "Priority", on: true, new: newPriority},
	{name: "DefaultTolerationSeconds", on: true, new: newDefaultTolerationSeconds},
	{name: "PodTolerationRestriction", new: newPodTolerationRestriction},
	{name: "EventRateLimit", new: newEventRateLimit},
	{name: "ExtendedResourceToleration", new: always(steps{admit: extendedResourceToleration})},
	{name: "DefaultStorageClass", on: true, new: newDefaultStorageClass},
	{name: "StorageObjectInUseProtection", on: true, new: always(steps{admit: storageObjectInUseProtection})},
	{name: "PodGroupProtection", on: true, new: newPodGroupProtection},
	{name: "OwnerReferencesPermissionEnforcement", new: newOwnerReferencesPermissionEnforcement},
	{name: "PersistentVolumeClaimResize", on: true, new: newPersistentVolumeClaimResize},
	{name: "RuntimeClass", on: true, new: newRuntimeClass},
	{name: "CertificateApproval", on: true, new: always(steps{validate: certificateApproval})},
	{name: "CertificateSigning", on: true, new: always(steps{validate: certificateSigning})},
	{name: "ClusterTrustBundleAttest", on: true, new: newClusterTrustBundleAttest},
	{name: "CertificateSubjectRestriction", on: true, new: always(steps{validate: certificateSubjectRestriction})},
	{name: "DefaultIngressClass", on: true, new: newDefaultIngressClass},
	{name: "DenyServiceExternalIPs", new: always(steps{validate: denyServiceExternalIPs})},
	{name: "PodTopologyLabels", on: true, new: newPodTopologyLabels},
	{name: "NodeDeclaredFeatureValidator", on: true, new: newNodeDeclaredFeatureValidator},
	{name: "PodResizeValidator", on: true, new: newPodResizeValidator},
	{name: "MutatingAdmissionPolicy", on: true, new: mutatingPolicies.new},
	{name: "MutatingAdmissionWebhook", on: true, new: newWebhooks("mutatingwebhookconfigurations", true)},
	{name: "ValidatingAdmissionPolicy", on: true, new: validatingPolicies.new},
	{name: "ValidatingAdmissionWebhook", on: true, new: newWebhooks("validatingwebhookconfigurations", false)},
	{name: "ResourceQuota", on: true, new: newResourceQuota},
	{name: "AlwaysDeny", new: always(steps{admit: alwaysDeny, validate: alwaysDeny})},
}

// Selection says which plugins are on, by their names.
type Selection struct {
	// Only are the plugins that are on; empty: those that are on by default, Enabled, and not Disabled.
	Only, Enabled, Disabled []string
}

// Validate calls refuse with each error, by the names of the flags.
func (s *Selection) Validate(refuse func(format string, args ...any)) {
	if len(s.Only) > 0 && len(s.Enabled)+len(s.Disabled) > 0 {
		refuse("--admission-control goes with neither --enable-admission-plugins nor --disable-admission-plugins")
	}
	for flag, plugins := range map[string][]string{
		"--admission-control": s.Only, "--enable-admission-plugins": s.Enabled,
		"--disable-admission-plugins": s.Disabled,
	} {
		for _, name := range plugins {
			switch {
			case !Known(name):
				refuse("%s: there is no admission plugin %q", flag, name)
			case flag == "--disable-admission-plugins":
			case slices.Contains(s.Enabled, name) && slices.Contains(s.Disabled, name):
				refuse("%s: %s is disabled, too", flag, name)
			}
		}
	}
}

// on says whether a plugin runs.
func (s *Selection) on(p *plugin) bool {
	if len(s.Only) > 0 {
		return slices.Contains(s.Only, p.name)
	}
	return (p.on || slices.Contains(s.Enabled, p.name)) && !slices.Contains(s.Disabled, p.name)
}

// On says whether the plugin of that name runs.
func (s *Selection) On(name string) bool {
	return slices.ContainsFunc(plugins, func(p plugin) bool { return p.name == name && s.on(&p) })
}

// Known says whether there is a plugin of that name.
func Known(name string) bool {
	return slices.ContainsFunc(plugins, func(p plugin) bool { return p.name == name })
}

// Plugins are the plugins that are on.
type Plugins struct {
	engine.Admission // their chain
	// Ready returns an error if a plugin refuses all requests, because an object that configures it cannot be read.
	Ready func() error
}

// New makes the chain of the plugins that are on. The error is one of the configuration of a plugin.
func New(c Config) (Plugins, error) {
	c.objects = newObjects(c.Store, c.Registry)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Metrics = c.Metrics.complete()
	all := chain{admitted: c.Metrics.Step(true), validated: c.Metrics.Step(false)}
	var errs []error
	for i := range plugins {
		p := &plugins[i]
		if !c.on(p) {
			continue
		}
		s, err := p.new(&c)
		if err != nil {
			errs = append(errs, fmt.Errorf("admission plugin %s: %w", p.name, err))
		}
		all.plugins = append(all.plugins, pluginSteps{s, c.Metrics.Plugin(p.name, true), c.Metrics.Plugin(p.name, false)})
	}
	return Plugins{all.admission(), all.ready}, errors.Join(errs...)
}

// about says whether a request is about a built-in type, or one of its subresources ("": the object itself).
func about(a *engine.Attributes, group, resource, subresource string) bool {
	r, sub := a.Request.Resource, a.Request.Subresource
	if r.Group != group || r.Name != resource {
		return false
	}
	return sub == nil && subresource == "" || sub != nil && sub.Name == subresource
}

// writes says whether the operation is a create or an update.
func writes(a *engine.Attributes) bool {
	return a.Operation == engine.OperationCreate || a.Operation == engine.OperationUpdate
}

// forbidden is the refusal of a plugin.
func forbidden(a *engine.Attributes, why string) error { return hooks.Forbidden(a, why) }
