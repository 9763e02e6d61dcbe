package webhooks

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/internal/recent"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/object"
)

// Group is the group of the configurations.
const Group = admissionregistration.GroupName

// defaultTimeout is how long a hook may take that says nothing.
const defaultTimeout = 10 * time.Second

// hook is one webhook of a configuration.
type hook struct {
	id                  string // CONFIGURATION/NAME/NUMBER, unique in a set
	name, configuration string
	client              object.Value // its clientConfig
	rules               []rule
	equivalent          bool // matchPolicy
	ignore              bool // failurePolicy: a call that fails is no refusal
	again               bool // reinvocationPolicy IfNeeded
	sideEffects         string
	timeout             time.Duration
	version             string // of the AdmissionReviews that it gets; "": it knows none that we know
	namespaces, objects labels.Selector
	selectorErr         error
	conditions          func() []condition // compiled on first use
}

// condition is a match condition.
type condition struct {
	name string
	*cel.AdmissionExpression
}

// rule is a rule with operations.
type rule struct {
	groups, versions, resources, operations []string
	scope                                   string
}

// set has the hooks of all configurations of one kind, by the name of the configuration and then in its order.
type set struct {
	byName  []*configuration
	hooks   func() []*hook
	matched *recent.Cache[url, []candidate]
}

// configuration is one object with webhooks.
type configuration struct {
	name  string
	hooks func() ([]*hook, error)
}

// newSet makes a set of configurations, which are sorted by name.
func newSet(all []*configuration) *set {
	s := &set{byName: all, matched: &recent.Cache[url, []candidate]{}}
	s.hooks = sync.OnceValue(func() (hooks []*hook) {
		for _, c := range all {
			// One that cannot be read has no hooks: the reference's informer would not have it, either.
			if of, err := c.hooks(); err == nil {
				hooks = append(hooks, of...)
			}
		}
		return hooks
	})
	return s
}

// compile implements view.Compile.
func compile(before *set, changes iter.Seq[view.Change]) *set {
	var all []*configuration
	if before != nil {
		all = slices.Clone(before.byName)
	}
	for change := range changes {
		i, found := slices.BinarySearchFunc(all, change.Name, func(c *configuration, name string) int {
			return strings.Compare(c.name, name)
		})
		if found {
			all = slices.Delete(all, i, i+1)
		}
		if change.Version != nil {
			all = slices.Insert(all, i, &configuration{change.Name, view.Parse(change.Version, readConfiguration).Get})
		}
	}
	return newSet(all)
}

// readConfiguration reads the hooks of a stored configuration.
func readConfiguration(v *store.Version) ([]*hook, error) {
	obj, err := engine.ObjectOf(v)
	if err != nil {
		return nil, err
	}
	return hooksOf(obj), nil
}

// hooksOf reads the hooks of a configuration. Names may occur more than once in it.
func hooksOf(obj object.Value) []*hook {
	var hooks []*hook
	count := map[string]int{}
	configuration := obj.At("metadata", "name").Str()
	for _, w := range obj.At("webhooks").Items() {
		name := w.At("name").Str()
		hooks = append(hooks, &hook{
			id: fmt.Sprintf("%s/%s/%d", configuration, name, count[name]), name: name, configuration: configuration,
			client: w.At("clientConfig"), rules: rulesOf(w.At("rules")), version: reviewVersion(w),
			equivalent:  w.At("matchPolicy").Str() == string(admissionregistration.Equivalent),
			ignore:      w.At("failurePolicy").Str() == string(admissionregistration.Ignore),
			again:       w.At("reinvocationPolicy").Str() == string(admissionregistration.IfNeededReinvocationPolicy),
			sideEffects: w.At("sideEffects").Str(),
			timeout:     cmp.Or(time.Duration(w.At("timeoutSeconds").Int())*time.Second, defaultTimeout),
			conditions:  sync.OnceValue(func() []condition { return conditionsOf(w.At("matchConditions")) }),
		})
		h := hooks[len(hooks)-1]
		count[name]++
		h.namespaces, h.selectorErr = selector(w.At("namespaceSelector"))
		if h.selectorErr == nil {
			h.objects, h.selectorErr = selector(w.At("objectSelector"))
		}
	}
	return hooks
}

// reviewVersion is the first version in admissionReviewVersions that there is.
func reviewVersion(w object.Value) string {
	for _, v := range w.At("admissionReviewVersions").Items() {
		if v.Str() == "v1" || v.Str() == "v1beta1" {
			return v.Str()
		}
	}
	return ""
}

func rulesOf(v object.Value) []rule {
	var rules []rule
	for _, r := range v.Items() {
		rules = append(rules, rule{
			groups: texts(r.At("apiGroups")), versions: texts(r.At("apiVersions")), resources: texts(r.At("resources")),
			operations: texts(r.At("operations")), scope: r.At("scope").Str(),
		})
	}
	return rules
}

func texts(v object.Value) []string {
	all := make([]string, 0, v.Len())
	for _, item := range v.Items() {
		all = append(all, item.Str())
	}
	return all
}

func conditionsOf(v object.Value) []condition {
	var all []condition
	for _, c := range v.Items() {
		all = append(all, condition{c.At("name").Str(), cel.StoredMatchCondition(c.At("expression").Str())})
	}
	return all
}

// selector reads a LabelSelector.
func selector(v object.Value) (labels.Selector, error) {
	var of metav1.LabelSelector
	of.MatchLabels = pairs(v.At("matchLabels"))
	for _, e := range v.At("matchExpressions").Items() {
		of.MatchExpressions = append(of.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.At("key").Str(), Operator: metav1.LabelSelectorOperator(e.At("operator").Str()),
			Values: texts(e.At("values")),
		})
	}
	return metav1.LabelSelectorAsSelector(&of)
}

// labelsOf are the labels of an object. Many selectors look at them, so they are not copied.
func labelsOf(obj object.Value) labels.Labels { return objectLabels{obj.At("metadata", "labels")} }

// objectLabels implements labels.Labels.
type objectLabels struct{ of object.Value }

func (l objectLabels) Has(label string) bool {
	_, ok := l.of.Get(label)
	return ok
}

func (l objectLabels) Get(label string) string {
	v, _ := l.of.Get(label)
	return v.Str()
}

func (l objectLabels) Lookup(label string) (value string, ok bool) {
	v, ok := l.of.Get(label)
	return v.Str(), ok
}

// pairs is a map of strings.
func pairs(v object.Value) map[string]string {
	members := v.Members()
	set := make(map[string]string, len(members))
	for _, m := range members {
		set[m.Key] = m.Value.Str()
	}
	return set
}

// NamespaceReader reads a Namespace; null: there is none.
type NamespaceReader func(ctx context.Context, name string) (object.Value, error)
