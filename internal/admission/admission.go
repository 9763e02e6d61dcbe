// Package admission decides on writes that are authorized: it may change them, or refuse them (AUTH-3). Its plugins
// are those of kube-apiserver, with their names, and they run in its order whatever the order of the flags.
//
// A plugin is a row of the table below and a file. Mutating plugins see the body of a request before the object has
// a name, and validating ones the object as it would be stored; engine.Attributes says what they know of it. The engine
// calls the chain that New makes, and knows no plugin.
package admission

import (
	"context"
	"slices"

	"plinth/internal/engine"
)

// plugin is a row of the table. Both functions are nil for a plugin that Plinth does not have yet.
type plugin struct {
	name string
	// on: it is on by default in the reference.
	on bool
	// admit may replace the object, validate only refuses.
	admit, validate func(ctx context.Context, a *engine.Attributes) error
	// inert: it does nothing, in the reference, too.
	inert bool
}

// here says whether Plinth has the plugin.
func (p *plugin) here() bool { return p.inert || p.admit != nil || p.validate != nil }

// plugins are all plugins of kube-apiserver 1.37 in the order in which they run (AllOrderedPlugins of
// pkg/kubeapiserver/options). Webhooks, policies and ResourceQuota are behind all others, since they have to see the
// object as the others leave it.
var plugins = []plugin{
	{name: "AlwaysAdmit", inert: true},
	{name: "NamespaceAutoProvision"},
	{name: "NamespaceLifecycle", on: true, admit: namespaceLifecycle},
	{name: "NamespaceExists"},
	{name: "LimitPodHardAntiAffinityTopology"},
	{name: "LimitRanger", on: true},
	{name: "ServiceAccount", on: true},
	{name: "NodeRestriction"},
	{name: "TaintNodesByCondition", on: true},
	{name: "AlwaysPullImages"},
	{name: "ImagePolicyWebhook"},
	{name: "PodSecurity", on: true},
	{name: "PodNodeSelector"},
	{name: "Priority", on: true},
	{name: "DefaultTolerationSeconds", on: true},
	{name: "PodTolerationRestriction"},
	{name: "EventRateLimit"},
	{name: "ExtendedResourceToleration"},
	{name: "DefaultStorageClass", on: true},
	{name: "StorageObjectInUseProtection", on: true},
	{name: "PodGroupProtection", on: true},
	{name: "OwnerReferencesPermissionEnforcement"},
	{name: "PersistentVolumeClaimResize", on: true},
	{name: "RuntimeClass", on: true},
	{name: "CertificateApproval", on: true, validate: certificateApproval},
	{name: "CertificateSigning", on: true, validate: certificateSigning},
	{name: "ClusterTrustBundleAttest", on: true},
	{name: "CertificateSubjectRestriction", on: true, validate: certificateSubjectRestriction},
	{name: "DefaultIngressClass", on: true},
	{name: "DenyServiceExternalIPs"},
	{name: "PodTopologyLabels", on: true},
	{name: "NodeDeclaredFeatureValidator", on: true},
	{name: "PodResizeValidator", on: true},
	{name: "MutatingAdmissionPolicy", on: true},
	{name: "MutatingAdmissionWebhook", on: true},
	{name: "ValidatingAdmissionPolicy", on: true},
	{name: "ValidatingAdmissionWebhook", on: true},
	{name: "ResourceQuota", on: true},
	{name: "AlwaysDeny"},
}

// Selection says which plugins are on, by their names.
type Selection struct {
	// Only are the plugins that are on; empty: those that are on by default, Enabled, and not Disabled.
	Only, Enabled, Disabled []string
}

// on says whether a plugin runs.
func (s *Selection) on(p *plugin) bool {
	if len(s.Only) > 0 {
		return slices.Contains(s.Only, p.name)
	}
	return (p.on || slices.Contains(s.Enabled, p.name)) && !slices.Contains(s.Disabled, p.name)
}

// Known says whether there is a plugin of that name in the reference, and here whether Plinth has it.
func Known(name string) (known, here bool) {
	for i := range plugins {
		if plugins[i].name == name {
			return true, plugins[i].here()
		}
	}
	return false, false
}

// New makes the chain of the plugins that are on. Plugins that Plinth does not have are skipped: the caller refuses
// configurations that enable one by name (Known).
func New(s Selection) engine.Admission {
	var admit, validate []func(context.Context, *engine.Attributes) error
	for i := range plugins {
		p := &plugins[i]
		if !s.on(p) {
			continue
		}
		if p.admit != nil {
			admit = append(admit, p.admit)
		}
		if p.validate != nil {
			validate = append(validate, p.validate)
		}
	}
	return engine.Admission{Admit: inOrder(admit), Validate: inOrder(validate)}
}

// inOrder calls functions one after the other, up to the first error; nil if there are none.
func inOrder(list []func(context.Context, *engine.Attributes) error) func(context.Context, *engine.Attributes) error {
	if len(list) == 0 {
		return nil
	}
	return func(ctx context.Context, a *engine.Attributes) error {
		for _, f := range list {
			if err := f(ctx, a); err != nil {
				return err
			}
		}
		return nil
	}
}

// about says whether a request is about a built-in type, or one of its subresources ("": the object itself).
func about(a *engine.Attributes, group, resource, subresource string) bool {
	r, sub := a.Request.Resource, a.Request.Subresource
	if r.Group != group || r.Name != resource {
		return false
	}
	return sub == nil && subresource == "" || sub != nil && sub.Name == subresource
}
