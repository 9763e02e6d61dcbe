package admission

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"plinth/internal/admission/hooks"
	"plinth/internal/admission/webhooks"
	"plinth/internal/configfile"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/webhook"
	"plinth/object"
)

// newWebhooks makes the plugin MutatingAdmissionWebhook or ValidatingAdmissionWebhook, whose configurations are the
// objects of this resource.
func newWebhooks(resource string, mutating bool) func(c *Config) (steps, error) {
	return func(c *Config) (steps, error) {
		settings, err := webhookSettings(c.Configurations[map[bool]string{
			true: "MutatingAdmissionWebhook", false: "ValidatingAdmissionWebhook"}[mutating]], c.Features)
		if err != nil {
			return steps{}, err
		}
		kind := c.objects.resource(kindOf{hooks.Group, "v1", resource})
		if kind == nil {
			return steps{}, nil
		}
		clients := &webhook.Clients{Endpoint: c.Endpoint, InProcess: c.InProcess, Egress: c.Egress}
		static := &webhook.Clients{InProcess: c.InProcess}
		if settings.KubeConfigFile != "" {
			if static.Credentials, err = webhook.LoadCredentials(settings.KubeConfigFile); err != nil {
				return steps{}, err
			}
			if !c.WithoutCredentials {
				clients.Credentials = static.Credentials
			}
		}
		p := webhooks.New(webhooks.Config{
			Mutating: mutating, Configurations: c.Store.Collection(kind.Stored.Path), Types: c.Registry.Now,
			Namespace: func(ctx context.Context, name string) (object.Value, error) {
				return c.objects.get(ctx, kindOf{"", "v1", "namespaces"}, "", name)
			},
			Clients: clients, Static: static, Reviews: !c.Features.On(features.ExcludeAdmissionWebhookVirtualResources),
			Metrics: c.Metrics.Webhooks, Logger: c.Logger,
		})
		if dir := settings.StaticManifestsDir; dir != "" {
			err := c.loadManifests(&manifests{
				plugin: pluginOf(kind), dir: dir, kinds: []*engine.Resource{kind}, check: checkStaticHooks,
				apply: func(of [][]object.Value) { p.SetStatic(of[0]) },
			})
			if err != nil {
				return steps{}, err
			}
		}
		if mutating {
			return steps{admitInPasses: p.Admit, ready: p.Ready}, nil
		}
		return steps{validate: p.Validate, ready: p.Ready}, nil
	}
}

// webhookConfiguration is the WebhookAdmissionConfiguration of a plugin.
type webhookConfiguration struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	KubeConfigFile     string `json:"kubeConfigFile"`
	StaticManifestsDir string `json:"staticManifestsDir"`
}

// webhookSettings reads a WebhookAdmissionConfiguration; an empty one is none.
func webhookSettings(text []byte, gates features.Set) (c webhookConfiguration, err error) {
	if len(text) == 0 {
		return c, nil
	}
	err = parseConfiguration(text, "WebhookAdmissionConfiguration", []string{"apiserver.config.k8s.io/v1"}, &c)
	if err != nil {
		return c, err
	}
	switch {
	case c.KubeConfigFile != "" && !filepath.IsAbs(c.KubeConfigFile):
		return c, fmt.Errorf("kubeConfigFile: Invalid value: %q: must be an absolute file path", c.KubeConfigFile)
	case c.StaticManifestsDir != "":
		return c, checkManifestsDir(c.StaticManifestsDir, gates.On(features.ManifestBasedAdmissionControlConfig))
	}
	return c, nil
}

// checkStaticHooks demands that the webhooks of a configuration in a file are called by their URLs: a valid one that
// names no service has a URL.
func checkStaticHooks(_, file string, obj object.Value) error {
	for _, hook := range obj.At("webhooks").Items() {
		if !hook.At("clientConfig", "service").IsNull() {
			return fmt.Errorf("webhook %q in %q (file %q): clientConfig.service is not supported for static manifests; "+
				"use clientConfig.url instead", hook.At("name").Str(), obj.At("metadata", "name").Str(), file)
		}
	}
	return nil
}

// pluginOf is the name of the plugin that calls the webhooks of a kind of configurations.
func pluginOf(kind *engine.Resource) string {
	return strings.TrimSuffix(kind.Kind, "WebhookConfiguration") + "AdmissionWebhook"
}

// parseConfiguration reads the configuration of a plugin, which must be of a kind and of one of its versions, and may
// have no unknown fields.
func parseConfiguration(text []byte, kind string, versions []string, into any) error {
	lenient, err := configfile.Decode(text, kind, versions, into)
	if err != nil {
		return err
	}
	return configfile.Strict(lenient)
}
