package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/dranodeallocatableresources"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// declaredFeatures is the plugin NodeDeclaredFeatureValidator: a Pod on a node is not changed to need a feature that
// the node does not declare, and a device does not take resources of nodes that do not declare that they support it.
type declaredFeatures struct {
	objects *objects
	devices bool             // the gate of devices with resources of nodes is on
	version *version.Version // of Kubernetes, as which this server answers
}

// newNodeDeclaredFeatureValidator makes the plugin.
func newNodeDeclaredFeatureValidator(c *Config) (steps, error) {
	v, err := version.Parse(c.Version)
	p := &declaredFeatures{c.objects, c.Features.On(features.DRANodeAllocatableResources), v}
	return steps{validate: p.validate}, err
}

func (p *declaredFeatures) validate(ctx context.Context, a *engine.Attributes) error {
	switch {
	case a.Operation == engine.OperationUpdate && (about(a, "", "pods", "") || about(a, "", "pods", "resize")):
		return p.pod(ctx, a)
	case writes(a) && p.devices && a.Request.Resource.Group == "resource.k8s.io" &&
		a.Request.Resource.Name == "resourceslices":
		return p.slice(ctx, a)
	}
	return nil
}

var nodeKind = kindOf{"", "v1", "nodes"}

// pod refuses a change of the spec of a Pod on a node that needs what the node does not declare.
func (p *declaredFeatures) pod(ctx context.Context, a *engine.Attributes) error {
	node := nodeName(a.Object)
	generation := func(obj object.Value) int64 { return obj.At("metadata", "generation").Int() }
	if node == "" || generation(a.Object) == generation(a.Old) {
		return nil
	}
	now, err := podInfo(a.Object)
	if err != nil {
		return err
	}
	old, err := podInfo(a.Old)
	if err != nil {
		return err
	}
	needs, err := nodedeclaredfeatures.DefaultFramework.InferForPodUpdate(old, now, p.version)
	if err != nil {
		return forbidden(a, "failed to infer pod capability requirements: "+err.Error())
	}
	if needs.IsEmpty() {
		return nil
	}
	stored, err := p.objects.get(ctx, nodeKind, "", node)
	switch {
	case err != nil:
		return forbidden(a, fmt.Sprintf("failed to get node %q: %v", node, err))
	case stored.IsNull():
		return forbidden(a, fmt.Sprintf("node %q not found", node))
	}
	typed := &corev1.Node{}
	typed.Name, typed.Status.DeclaredFeatures = node, declared(stored)
	result, err := nodedeclaredfeatures.DefaultFramework.MatchNode(needs, typed)
	if err != nil {
		return forbidden(a, fmt.Sprintf("failed to match pod requirements against node %q: %v", node, err))
	}
	if !result.IsMatch {
		return forbidden(a, fmt.Sprintf("pod update requires features %s which are not available on node %q",
			strings.Join(result.UnsatisfiedRequirements, ", "), node))
	}
	return nil
}

// podInfo is a Pod as the library takes it.
func podInfo(pod object.Value) (*nodedeclaredfeatures.PodInfo, error) {
	typed := &corev1.Pod{}
	if err := json.Unmarshal(object.AppendJSON(nil, pod), typed); err != nil {
		return nil, apierr.NewBadRequest("failed to convert pod: " + err.Error())
	}
	return &nodedeclaredfeatures.PodInfo{Spec: &typed.Spec, Status: &typed.Status}, nil
}

// declared are the features that a node declares.
func declared(node object.Value) []string {
	var names []string
	for _, v := range node.At("status", "declaredFeatures").Items() {
		names = append(names, v.Str())
	}
	return names
}

// slice refuses a ResourceSlice with a device that takes resources of a node which does not declare to support that.
func (p *declaredFeatures) slice(ctx context.Context, a *engine.Attributes) error {
	spec := a.Object.At("spec")
	for _, device := range spec.At("devices").Items() {
		fields := device
		if basic, ok := device.Get("basic"); ok { // v1beta1
			fields = basic
		}
		if fields.At("nodeAllocatableResources").Len() == 0 {
			continue
		}
		of := spec
		if spec.At("perDeviceNodeSelection").Bool() {
			of = fields
		}
		if err := p.device(ctx, a, device.At("name").Str(), of); err != nil {
			return err
		}
	}
	return nil
}

// device checks the nodes of one device; of has their selection.
func (p *declaredFeatures) device(ctx context.Context, a *engine.Attributes, name string, of object.Value) error {
	node, selector := of.At("nodeName").Str(), of.At("nodeSelector")
	switch {
	case node != "":
		stored, err := p.objects.get(ctx, nodeKind, "", node)
		switch {
		case err != nil:
			return forbidden(a, fmt.Sprintf("failed to get node %q for device %q: %v", node, name, err))
		case stored.IsNull():
			return forbidden(a, fmt.Sprintf("node %q not found for device %q", node, name))
		}
		return supports(a, stored)
	case selector.IsNull() && !of.At("allNodes").Bool():
		return forbidden(a, fmt.Sprintf(
			"device %q in ResourceSlice has NodeAllocatableResources but does not map to any nodes", name))
	}
	selects, err := nodeSelector(selector)
	if err != nil {
		return err
	}
	nodes, err := p.objects.list(ctx, nodeKind, "")
	if err != nil {
		return forbidden(a, fmt.Sprintf("failed to list nodes for device %q: %v", name, err))
	}
	for _, node := range nodes {
		if selects(node) {
			if err := supports(a, node); err != nil {
				return err
			}
		}
	}
	return nil
}

// supports refuses a node that does not declare to support resources of it in devices.
func supports(a *engine.Attributes, node object.Value) error {
	const feature = dranodeallocatableresources.DRANodeAllocatableResourcesFeature
	if slices.Contains(declared(node), feature) {
		return nil
	}
	return forbidden(a, fmt.Sprintf("node %q does not support %s feature", node.At("metadata", "name").Str(), feature))
}

// nodeSelector makes the function of a selector of nodes; null selects all.
func nodeSelector(selector object.Value) (func(node object.Value) bool, error) {
	if selector.IsNull() {
		return func(object.Value) bool { return true }, nil
	}
	typed := &corev1.NodeSelector{}
	if err := json.Unmarshal(object.AppendJSON(nil, selector), typed); err != nil {
		return nil, apierr.NewBadRequest("failed to convert node selector: " + err.Error())
	}
	made, err := nodeaffinity.NewNodeSelector(typed)
	if err != nil {
		return nil, apierr.NewBadRequest("failed to create node selector: " + err.Error())
	}
	return func(node object.Value) bool {
		one := &corev1.Node{}
		one.Name, one.Labels = node.At("metadata", "name").Str(), map[string]string{}
		for _, m := range node.At("metadata", "labels").Members() {
			one.Labels[m.Key] = m.Value.Str()
		}
		return made.Match(one)
	}, nil
}
