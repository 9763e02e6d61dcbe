package admission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// podNodeSelector is the plugin PodNodeSelector: the Pods of a namespace get its node selector, and may have no labels
// in theirs that the namespace is not allowed.
type podNodeSelector struct {
	objects *objects
	// allowed are the labels that the Pods of a namespace may select, as a selector by its name. That of
	// clusterDefaultNodeSelector is for namespaces that have no annotation.
	allowed map[string]string
}

const (
	nodeSelectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"
	clusterNodeSelector    = "clusterDefaultNodeSelector"
)

func newPodNodeSelector(c *Config) (steps, error) {
	var config struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if err := yaml.Unmarshal(c.Configurations["PodNodeSelector"], &config); err != nil {
		return steps{}, err
	}
	p := &podNodeSelector{c.objects, config.Selectors}
	return steps{admit: p.admit, validate: p.validate}, nil
}

func (p *podNodeSelector) applies(a *engine.Attributes) bool {
	return a.Operation == engine.OperationCreate && about(a, "", "pods", "")
}

func (p *podNodeSelector) admit(ctx context.Context, a *engine.Attributes) error {
	if !p.applies(a) {
		return nil
	}
	selector, err := p.ofNamespace(ctx, a)
	if err != nil {
		return err
	}
	own := stringsOf(a.Object.At("spec", "nodeSelector"))
	if labels.Conflicts(selector, own) {
		return p.conflict(a)
	}
	for key, value := range selector {
		if _, has := own[key]; !has {
			a.Object = a.Object.WithAt(object.StringOf(value), "spec", "nodeSelector", key)
		}
	}
	return p.validate(ctx, a)
}

func (p *podNodeSelector) validate(ctx context.Context, a *engine.Attributes) error {
	if !p.applies(a) {
		return nil
	}
	selector, err := p.ofNamespace(ctx, a)
	if err != nil {
		return err
	}
	own := stringsOf(a.Object.At("spec", "nodeSelector"))
	if labels.Conflicts(selector, own) {
		return p.conflict(a)
	}
	allowed, err := labels.ConvertSelectorToLabelsMap(p.allowed[a.Request.Namespace])
	if err != nil {
		return unknown(err.Error())
	}
	for key, value := range own {
		if has, ok := allowed[key]; len(allowed) > 0 && (!ok || has != value) {
			return apierr.NewForbidden(a.Request.Resource.Type(), a.Object.At("metadata", "name").Str(),
				"pod node label selector labels conflict with its namespace whitelist")
		}
	}
	return nil
}

func (p *podNodeSelector) conflict(a *engine.Attributes) error {
	return apierr.NewForbidden(a.Request.Resource.Type(), a.Object.At("metadata", "name").Str(),
		"pod node label selector conflicts with its namespace node label selector")
}

// ofNamespace is the node selector of the namespace of a Pod.
func (p *podNodeSelector) ofNamespace(ctx context.Context, a *engine.Attributes) (labels.Set, error) {
	name := a.Request.Namespace
	ns, err := p.objects.get(ctx, kindOf{"", "v1", "namespaces"}, "", name)
	if err == nil && ns.IsNull() {
		err = fmt.Errorf("namespace %s does not exist", name)
	}
	if err != nil {
		return nil, apierr.NewInternal(err)
	}
	text := p.allowed[clusterNodeSelector]
	if v, ok := ns.At("metadata", "annotations").Get(nodeSelectorAnnotation); ok {
		text = v.Str()
	}
	selector, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, unknown(err.Error())
	}
	return selector, nil
}

// stringsOf is a map of strings.
func stringsOf(v object.Value) map[string]string {
	members := v.Members()
	all := make(map[string]string, len(members))
	for _, m := range members {
		all[m.Key] = m.Value.Str()
	}
	return all
}
