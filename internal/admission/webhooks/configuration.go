package webhooks

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"

	"plinth/internal/admission/hooks"
	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/internal/recent"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/internal/webhook"
	"plinth/object"
)

// defaultTimeout is how long a hook may take that says nothing.
const defaultTimeout = 10 * time.Second

// hook is one webhook of a configuration.
type hook struct {
	id                  string // CONFIGURATION/NAME/NUMBER, unique in a set
	name, configuration string
	static              bool // it is in a file
	client              *webhook.Config
	rules               []hooks.Rule
	equivalent          bool // matchPolicy
	ignore              bool // failurePolicy: a call that fails is no refusal
	again               bool // reinvocationPolicy IfNeeded
	sideEffects         string
	timeout             time.Duration
	version             string // of the AdmissionReviews that it gets; "": it knows none that we know
	selectors           hooks.Selectors
	conditions          func() []*cel.AdmissionExpression // compiled on first use
	length              atomic.Int64                      // of the last review
}

// set has the hooks of all configurations of one kind, by the name of the configuration and then in its order.
type set struct {
	byName  []*configuration
	all     func() []*hook
	matched *recent.Cache[hooks.URL, []candidate]
}

// configuration is one object with webhooks.
type configuration struct {
	name  string // of one in the API
	hooks func() ([]*hook, error)
}

// newSet makes a set of configurations, which are sorted by name.
func newSet(byName []*configuration) *set {
	s := &set{byName: byName, matched: &recent.Cache[hooks.URL, []candidate]{}}
	s.all = sync.OnceValue(func() (all []*hook) {
		for _, c := range byName {
			// If one could not be read, the view would have said so, and nobody would ask for candidates (Plugin.Ready).
			if of, err := c.hooks(); err == nil {
				all = append(all, of...)
			}
		}
		return all
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
	var all []*hook
	count := map[string]int{}
	configuration := obj.At("metadata", "name").Str()
	for _, w := range obj.At("webhooks").Items() {
		name := w.At("name").Str()
		all = append(all, &hook{
			id: fmt.Sprintf("%s/%s/%d", configuration, name, count[name]), name: name, configuration: configuration,
			client: webhook.NewConfig(w.At("clientConfig")), rules: hooks.RulesOf(w.At("rules")), version: reviewVersion(w),
			equivalent:  w.At("matchPolicy").Str() == string(admissionregistration.Equivalent),
			ignore:      w.At("failurePolicy").Str() == string(admissionregistration.Ignore),
			again:       w.At("reinvocationPolicy").Str() == string(admissionregistration.IfNeededReinvocationPolicy),
			sideEffects: w.At("sideEffects").Str(),
			timeout:     cmp.Or(time.Duration(w.At("timeoutSeconds").Int())*time.Second, defaultTimeout),
			selectors:   hooks.SelectorsOf(w),
			conditions:  sync.OnceValue(func() []*cel.AdmissionExpression { return conditionsOf(w.At("matchConditions")) }),
		})
		count[name]++
	}
	return all
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

func conditionsOf(v object.Value) []*cel.AdmissionExpression {
	var all []*cel.AdmissionExpression
	for _, c := range v.Items() {
		all = append(all, scope.Compile(cel.Condition, c.At("expression").Str(), true))
	}
	return all
}
