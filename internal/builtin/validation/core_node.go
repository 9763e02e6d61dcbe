package validation

import (
	"fmt"
	"regexp"
	"strings"

	netutils "k8s.io/utils/net"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

var (
	featureName = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(\/[a-zA-Z][a-zA-Z0-9]*)*$`)
	taintFields = []goField{{name: "Key", member: "key"}, {name: "Value", member: "value", zero: `""`},
		{name: "Effect", member: "effect"}, {name: "TimeAdded", member: "timeAdded"}}
	addressFields = []goField{{name: "Type", member: "type"}, {name: "Address", member: "address"}}
)

func nodeCreate(f *errorList, node object.Value) {
	f.qualifiedFinalizers(node)
	p := (*fielderrors.Location)(nil).To("metadata")
	f.taints(node.At("spec", "taints"), p.To("taints"))
	f.nodeResources(node)
	if capacity := node.At("status", "nodeInfo", "swap", "capacity"); !capacity.IsNull() {
		f.positive(p.To("nodeSwapStatus").To("capacity"), capacity.Int())
	}
	f.declaredFeatures(node.At("status", "declaredFeatures"))
	at := (*fielderrors.Location)(nil).To("spec").To("podCIDRs")
	cidrs := node.At("spec", "podCIDRs")
	for i, item := range cidrs.Items() {
		f.legacyCIDR(at.Item(i), item.Str(), object.Nil)
	}
	if cidrs.Len() > 1 {
		if both, err := netutils.IsDualStackCIDRStrings(list(cidrs)); err != nil {
			f.List = append(f.List,
				internalError(f.Path(at), fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%v",
					err)))
			f.Invalid(at, fielderrors.Show(cidrs), "may specify no more than one CIDR for each IP family")
		} else if !both || cidrs.Len() > 2 {
			f.Invalid(at, fielderrors.Show(cidrs), "may specify no more than one CIDR for each IP family")
		}
	}
}

func (f *errorList) taints(taints object.Value, p *fielderrors.Location) {
	met := map[[2]string]bool{}
	for i, taint := range taints.Items() {
		p := p.Item(i)
		key, value, effect := text(taint, "key"), text(taint, "value"), text(taint, "effect")
		f.qualified(p.To("key"), key)
		if wrong := objectmeta.LabelValueErrors(value); len(wrong) > 0 {
			f.Invalid(p.To("value"), value, strings.Join(wrong, ";"))
		}
		f.oneOf(p.To("effect"), effect, taintEffects)
		if met[[2]string{key, effect}] {
			f.Duplicate(p, goForm{taint, taintFields})
			f.List[len(f.List)-1].Detail = "taints must be unique by key and effect pair"
		}
		met[[2]string{key, effect}] = true
	}
}

func (f *errorList) nodeResources(node object.Value) {
	for _, key := range [...]string{"capacity", "allocatable"} {
		for _, m := range node.At("status", key).Members() {
			f.resourceAmount(m.Key, quantity(m.Value), (*fielderrors.Location)(nil).To("status").To(key).To(m.Key))
		}
	}
}

func (f *errorList) declaredFeatures(features object.Value) {
	items := features.Items()
	for i, item := range items {
		p := (*fielderrors.Location)(nil).To("status").To("declaredFeatures")
		name := item.Str()
		if len(name) > utilvalidation.DNS1123SubdomainMaxLength {
			f.Invalid(p.Item(i), name, fmt.Sprintf("invalid feature name %q: must be no more than %d characters", name,
				utilvalidation.DNS1123SubdomainMaxLength))
		} else if !featureName.MatchString(name) {
			f.Invalid(p.Item(i), name,
				fmt.Sprintf(
					"invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments separated by '/' "+
						"(e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes",
					name))
		}
		if i+1 == len(items) {
			return
		}
		if next := items[i+1].Str(); next < name {
			f.Invalid(p.Item(i+1), next, "list must be sorted alphabetically")
		} else if next == name {
			f.Duplicate(p.Item(i+1), next)
		}
	}
}

func nodeUpdate(f *errorList, node, old object.Value) {
	nodeCreate(f, node)
	f.nodeChanges(node, old)
}

func nodeStatus(f *errorList, node, old object.Value) {
	f.qualifiedFinalizers(node)
	f.nodeChanges(node, old)
}

// nodeChanges are the checks that the reference makes in every update of a Node, also of its status.
func (f *errorList) nodeChanges(node, old object.Value) {
	var root *fielderrors.Location
	f.nodeResources(node)
	f.declaredFeatures(node.At("status", "declaredFeatures"))
	met := map[[2]string]bool{}
	for i, address := range node.At("status", "addresses").Items() {
		key := [2]string{text(address, "type"), text(address, "address")}
		if met[key] {
			f.Duplicate(root.To("status").To("addresses").Item(i), goForm{address, addressFields})
		}
		met[key] = true
	}
	p := root.To("spec")
	spec, previous := node.At("spec"), old.At("spec")
	if length(previous, "podCIDRs") > 0 && !object.Equal(spec.At("podCIDRs"), previous.At("podCIDRs")) {
		f.Forbidden(p.To("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid")
	}
	if before, now := text(previous, "providerID"), text(spec, "providerID"); before != "" && now == "" {
		f.Invalid(p.To("providerID"), fielderrors.Show(object.Nil), "field cannot be cleared once set")
	} else if before != "" && now != before {
		f.Invalid(p.To("providerID"), fielderrors.Show(object.Nil), "field cannot be modified once set")
	}
	f.taints(spec.At("taints"), root.To("metadata").To("taints"))
	if text(spec, "externalID") != text(previous, "externalID") {
		f.Forbidden(p.To("externalID"), "may not be updated")
	}
}
