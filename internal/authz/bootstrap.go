package authz

import (
	_ "embed"
	"slices"
	"strings"

	"plinth/internal/features"
	"plinth/object"
)

// bootstrapText is the bootstrap policy of the reference. A line without indentation begins an object, with its kind
// and name; the indented lines after it describe it:
//
//	label NAME VALUE              a label beside the one that all have
//	aggregates NAME=VALUE         a label of the roles whose rules are added to it
//	rule VERBS GROUPS RESOURCES [NAMES]
//	path VERBS PATHS
//	gives KIND NAME               the role of a binding
//	to KIND [NAMESPACE/]NAME      a subject of a binding
//
// Lists are separated by commas, and "-" is the group "". A line with "if GATES" before it belongs to the policy if all
// these feature gates are on: the object, or the rule. An item of a list that ends in ?GATE does if this gate is on.
//
//go:embed bootstrap.txt
var bootstrapText string

// Default is a role or a binding of the bootstrap policy.
type Default struct {
	Resource        string // "clusterroles"
	Namespace, Name string
	Body            object.Value
}

// autoUpdate is the annotation that keeps the server from updating a default role or binding, if it is "false".
const autoUpdate = "rbac.authorization.kubernetes.io/autoupdate"

// policyGates are the feature gates that the bootstrap policy names.
var policyGates = [...]features.Gate{
	features.CSIVolumeHealth,
	features.ClusterTrustBundle,
	features.ComponentFlagz,
	features.ComponentStatusz,
	features.CompositePodGroup,
	features.DRADeviceTaintRules,
	features.DRADeviceTaints,
	features.DRAResourceClaimGranularStatusAuthorization,
	features.DRAResourcePoolStatus,
	features.DRAWorkloadResourceClaims,
	features.EvictionRequestAPI,
	features.GenericWorkload,
	features.KubeletServiceAccountTokenForCredentialProviders,
	features.PodCertificateRequest,
	features.StorageVersionAPI,
	features.StorageVersionMigrator,
	features.WorkloadWithJob,
}

// gateOn says whether a gate that the bootstrap policy names is on.
func gateOn(set features.Set, name string) bool {
	for _, gate := range policyGates {
		if gate.String() == name {
			return set.On(gate)
		}
	}
	return false
}

// unless returns a line without its condition; ok is false if that is not met.
func unless(line string, set features.Set) (rest string, ok bool) {
	condition, conditional := strings.CutPrefix(line, "if ")
	if !conditional {
		return line, true
	}
	gates, rest, _ := strings.Cut(condition, " ")
	for gate := range strings.SplitSeq(gates, ",") {
		if !gateOn(set, gate) {
			return "", false
		}
	}
	return rest, true
}

// Bootstrap lists the roles and bindings of the bootstrap policy, in the order in which the reference creates them.
func Bootstrap(set features.Set) (all []Default) {
	text := bootstrapText
	for text != "" {
		var head string
		head, text, _ = strings.Cut(text, "\n")
		if strings.HasPrefix(head, "#") {
			continue
		}
		end := 0 // end of the object's lines
		for end < len(text) && text[end] == '\t' {
			end += strings.IndexByte(text[end:], '\n') + 1
		}
		body := text[:end]
		text = text[end:]
		head, ok := unless(head, set)
		if !ok {
			continue
		}
		kind, name, _ := strings.Cut(head, " ")
		d := Default{Resource: strings.ToLower(kind) + "s", Name: name}
		if namespace, name, ok := strings.Cut(name, "/"); ok {
			d.Namespace, d.Name = namespace, name
		}
		d.Body = d.body(body, set)
		all = append(all, d)
	}
	return all
}

// body creates the object from its indented lines.
func (d *Default) body(text string, set features.Set) object.Value {
	items := func(list string) []string { return items(list, set) }
	str := object.StringOf
	labels := object.Fields("kubernetes.io/bootstrapping", str("rbac-defaults"))
	var selectors, rules, subjects []object.Value
	var ref object.Value
	for line := range strings.Lines(text) {
		line, ok := unless(line[1:], set)
		if !ok {
			continue
		}
		w := strings.Fields(line)
		switch w[0] {
		case "label":
			labels = labels.With(w[1], str(w[2]))
		case "aggregates":
			name, value, _ := strings.Cut(w[1], "=")
			selectors = append(selectors, object.Fields("matchLabels", object.Fields(name, str(value))))
		case "rule":
			r := Rule{Verbs: items(w[1]), APIGroups: items(w[2]), Resources: items(w[3])}
			if len(w) > 4 {
				r.ResourceNames = items(w[4])
			}
			rules = append(rules, r.value())
		case "path":
			rules = append(rules, (&Rule{Verbs: items(w[1]), NonResourceURLs: items(w[2])}).value())
		case "gives":
			ref = object.Fields("apiGroup", str(RBACGroup), "kind", str(w[1]), "name", str(w[2]))
		case "to":
			namespace, name, ok := strings.Cut(w[2], "/")
			if ok && w[1] == serviceAccountKind {
				subjects = append(subjects, object.Fields("kind", str(w[1]), "name", str(name), "namespace", str(namespace)))
			} else {
				subjects = append(subjects, object.Fields("apiGroup", str(RBACGroup), "kind", str(w[1]), "name", str(w[2])))
			}
		}
	}
	meta := object.Fields("name", str(d.Name), "labels", labels, "annotations", object.Fields(autoUpdate, str("true")))
	if d.Namespace != "" {
		meta = meta.With("namespace", str(d.Namespace))
	}
	obj := object.Fields("metadata", meta)
	if !ref.IsNull() {
		obj = obj.With("roleRef", ref)
		if len(subjects) > 0 {
			obj = obj.With("subjects", object.ListOf(subjects...))
		}
		return obj
	}
	if len(selectors) > 0 {
		obj = obj.With("aggregationRule", object.Fields("clusterRoleSelectors", object.ListOf(selectors...)))
	}
	if len(rules) > 0 {
		obj = obj.With("rules", object.ListOf(rules...))
	}
	return obj
}

func items(list string, set features.Set) (all []string) {
	for item := range strings.SplitSeq(list, ",") {
		item, gate, gated := strings.Cut(item, "?")
		switch {
		case gated && !gateOn(set, gate):
		case item == "-":
			all = append(all, "")
		default:
			all = append(all, item)
		}
	}
	return all
}

// ancestors are the roles and bindings that earlier releases did not have, each with the one from which it was split
// off.
var ancestors = map[[2]string]string{
	{"clusterroles", "system:aggregate-to-admin"}:        "admin",
	{"clusterroles", "system:aggregate-to-edit"}:         "edit",
	{"clusterroles", "system:aggregate-to-view"}:         "view",
	{"clusterrolebindings", "system:public-info-viewer"}: "system:discovery",
}

// Ancestor returns the name of the object of the bootstrap policy from which d was split off in a later release of
// Kubernetes; "" if it was not.
func (d *Default) Ancestor() string { return ancestors[[2]string{d.Resource, d.Name}] }

// Inherit returns the new object d with what it inherits from the object from which it was split off, so that an
// upgrade grants nothing that its operator had taken away: a role is a copy of the old role, unless that is aggregated
// already; a binding takes the subjects, labels and annotations. ok is false if d inherits nothing. It matches
// primeAggregatedClusterRoles and primeSplitClusterRoleBindings of the reference.
func (d *Default) Inherit(from object.Value) (body object.Value, ok bool) {
	if d.Resource == "clusterroles" {
		if !from.At("aggregationRule").IsNull() {
			return object.Nil, false
		}
		return from.WithoutAt("metadata", "resourceVersion"), true
	}
	body = d.Body.Without("subjects")
	if subjects := from.At("subjects"); !subjects.IsNull() {
		body = body.With("subjects", subjects)
	}
	meta := object.Fields("name", object.StringOf(d.Name))
	for _, key := range []string{"labels", "annotations"} {
		if v := from.At("metadata", key); !v.IsNull() {
			meta = meta.With(key, v)
		}
	}
	return body.With("metadata", meta), true
}

// Remedy is what to do about an object that differs from the bootstrap policy.
type Remedy uint8

// The remedies.
const (
	Leave   Remedy = iota // nothing is missing
	Update                // something is missing, or an aggregationRule is removed
	Replace               // a binding to another role: roleRef is immutable, so it is deleted and created again
)

// Reconcile compares an existing role or binding with the bootstrap policy. It returns the object with everything that
// is missing, and what to do. Additions by users are kept, except for an aggregationRule of a role that has none in the
// policy. An object with the annotation autoupdate "false" is not changed. It matches package reconciliation of the
// reference.
func Reconcile(existing, wanted object.Value) (object.Value, Remedy) {
	meta := existing.At("metadata")
	if meta.At("annotations", autoUpdate).Str() == "false" {
		return existing, Leave
	}
	ref := wanted.At("roleRef")
	if !object.Equal(ref, existing.At("roleRef")) {
		return wanted, Replace
	}
	next := existing
	for _, key := range []string{"labels", "annotations"} {
		for _, m := range wanted.At("metadata", key).Members() {
			if _, ok := meta.At(key).Get(m.Key); !ok {
				next = next.WithAt(m.Value, "metadata", key, m.Key)
			}
		}
	}
	switch {
	case !ref.IsNull():
		next = withMissing(next, wanted, "subjects")
	default:
		next = withMissingRules(next, wanted)
		if wanted.At("aggregationRule").IsNull() {
			next = next.Without("aggregationRule")
		} else {
			next = withMissing(next, wanted, "aggregationRule", "clusterRoleSelectors")
		}
	}
	if object.Equal(next, existing) {
		return existing, Leave
	}
	return next, Update
}

// withMissing adds the items of the wanted list at a path that the object lacks.
func withMissing(obj, wanted object.Value, path ...string) object.Value {
	have := obj.At(path...).Items()
	next := have[:len(have):len(have)]
	for _, item := range wanted.At(path...).Items() {
		if !slices.ContainsFunc(next, func(h object.Value) bool { return object.Equal(h, item) }) {
			next = append(next, item)
		}
	}
	if len(next) == len(have) {
		return obj
	}
	return obj.WithAt(object.ListOf(next...), path...)
}

// withMissingRules adds the parts of the wanted rules that the role's rules do not cover.
func withMissingRules(obj, wanted object.Value) object.Value {
	have := obj.At("rules")
	if object.Equal(have, wanted.At("rules")) {
		return obj
	}
	missing := uncovered(rulesOf(have), rulesOf(wanted.At("rules")))
	if len(missing) == 0 {
		return obj
	}
	next := slices.Clip(have.Items())
	for i := range missing {
		next = append(next, missing[i].value())
	}
	return obj.With("rules", object.ListOf(next...))
}
