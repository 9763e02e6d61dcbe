package policies

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	admissionregistration "k8s.io/api/admissionregistration/v1"

	"plinth/internal/admission/hooks"
	"plinth/internal/cel"
	"plinth/internal/engine"
	"plinth/internal/recent"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/object"
)

// matcher says which requests a policy is about, or a binding.
type matcher struct {
	rules, excluded []hooks.Rule
	equivalent      bool // matchPolicy
	named           bool // a rule names objects
	selectors       hooks.Selectors
}

// matcherOf reads MatchResources.
func matcherOf(v object.Value) *matcher {
	m := &matcher{
		rules: hooks.RulesOf(v.At("resourceRules")), excluded: hooks.RulesOf(v.At("excludeResourceRules")),
		equivalent: v.At("matchPolicy").Str() == string(admissionregistration.Equivalent),
		selectors:  hooks.SelectorsOf(v),
	}
	m.named = hooks.Named(m.rules) || hooks.Named(m.excluded)
	return m
}

// in returns the type in whose version a request is seen; nil if no rule matches. Without rules every request matches.
// name is that of the object; nil: the matcher may match for some name.
func (m *matcher) in(types *engine.Types, u hooks.URL, name *string) *engine.Resource {
	if name != nil || !hooks.Named(m.excluded) {
		if hooks.Match(m.excluded, m.equivalent, types, u, name) != nil {
			return nil
		}
	}
	if len(m.rules) == 0 {
		return u.Resource
	}
	return hooks.Match(m.rules, m.equivalent, types, u, name)
}

// policy is a policy of either kind.
type policy struct {
	name    string
	matcher *matcher
	ignore  bool   // failurePolicy: an error is no refusal
	again   bool   // reinvocationPolicy IfNeeded
	params  string // the apiVersion and the kind of its params; "": it has none
	program *cel.Lazy[program]
	// found says that there has been a type for its params: if it goes, there are no params, which is no error.
	found atomic.Pointer[engine.Resource]
}

// binding is a binding of either kind.
type binding struct {
	name, policy string
	matcher      *matcher // nil: all requests of the policy
	ref          object.Value
	actions      []string
}

// bound is a policy with its bindings, of which there is at least one.
type bound struct {
	*policy
	bindings []*binding
}

// set has the policies that are in effect, by name.
type set struct {
	policies *named[policy]
	bindings *named[binding]
	all      []bound
	matched  *recent.Cache[hooks.URL, []candidate]
}

// candidate is a policy that may be for a request, with the type in whose version it sees it.
type candidate struct {
	*bound
	in *engine.Resource
}

func newSet(policies *named[policy], bindings *named[binding]) *set {
	s := &set{policies: policies, bindings: bindings, matched: &recent.Cache[hooks.URL, []candidate]{}}
	of := map[string][]*binding{}
	for _, b := range bindings.read() {
		of[b.policy] = append(of[b.policy], b)
	}
	for _, p := range policies.read() {
		if len(of[p.name]) > 0 {
			s.all = append(s.all, bound{p, of[p.name]})
		}
	}
	return s
}

// candidates returns the policies that may be for a request, in their order.
func (s *set) candidates(types *engine.Types, u hooks.URL) []candidate {
	if len(s.all) == 0 {
		return nil
	}
	found, ok := s.matched.Get(u)
	if ok {
		return found
	}
	for i := range s.all {
		if in := s.all[i].matcher.in(types, u, nil); in != nil {
			found = append(found, candidate{&s.all[i], in})
		}
	}
	s.matched.Set(u, found, 1)
	return found
}

// named are all objects of one kind, by name, each parsed on first use.
type named[T any] struct{ all []entry[T] }

type entry[T any] struct {
	name string
	get  func() (*T, error)
}

// read returns the objects. If one could not be read, the view would have said so, and nobody would ask for candidates
// (Plugin.Ready).
func (n *named[T]) read() (all []*T) {
	for _, e := range n.all {
		if v, err := e.get(); err == nil {
			all = append(all, v)
		}
	}
	return all
}

// compile returns a view.Compile of objects that parse reads.
func compile[T any](parse func(object.Value) *T) view.Compile[*named[T]] {
	read := func(v *store.Version) (*T, error) {
		obj, err := engine.ObjectOf(v)
		if err != nil {
			return nil, err
		}
		return parse(obj), nil
	}
	return func(before *named[T], changes iter.Seq[view.Change]) *named[T] {
		now := &named[T]{}
		if before != nil {
			now.all = slices.Clone(before.all)
		}
		for change := range changes {
			i, found := slices.BinarySearchFunc(now.all, change.Name, func(e entry[T], name string) int {
				return strings.Compare(e.name, name)
			})
			if found {
				now.all = slices.Delete(now.all, i, i+1)
			}
			if change.Version != nil {
				now.all = slices.Insert(now.all, i, entry[T]{change.Name, view.Parse(change.Version, read).Get})
			}
		}
		return now
	}
}

// newPolicy reads a policy of either kind.
func newPolicy(obj object.Value, cache *cel.Cache) *policy {
	spec := obj.At("spec")
	p := &policy{
		name: obj.At("metadata", "name").Str(), matcher: matcherOf(spec.At("matchConstraints")),
		ignore: spec.At("failurePolicy").Str() == string(admissionregistration.Ignore),
		again:  spec.At("reinvocationPolicy").Str() == string(admissionregistration.IfNeededReinvocationPolicy),
	}
	if kind := spec.At("paramKind"); !kind.IsNull() {
		p.params = kind.At("apiVersion").Str() + ", Kind=" + kind.At("kind").Str()
	}
	p.program = cel.NewSharedLazy(cache, object.AppendJSON(nil, spec), func() (*program, int) { return newProgram(spec) })
	return p
}

// newBinding reads a binding of either kind.
func newBinding(obj object.Value) *binding {
	spec := obj.At("spec")
	b := &binding{
		name: obj.At("metadata", "name").Str(), policy: spec.At("policyName").Str(), ref: spec.At("paramRef"),
	}
	for _, action := range spec.At("validationActions").Items() {
		b.actions = append(b.actions, action.Str())
	}
	if match := spec.At("matchResources"); !match.IsNull() {
		b.matcher = matcherOf(match)
	}
	return b
}

// program is the compiled expressions of a policy.
type program struct {
	scope       *cel.Scope
	conditions  []*cel.AdmissionExpression
	validations []validation
	annotations []auditAnnotation
	mutations   []mutation
}

// validation is a rule of a validating policy.
type validation struct {
	expression   *cel.AdmissionExpression
	message      *cel.AdmissionExpression // nil: none
	text, source string                   // the message for want of another one, and the text of the expression
	reason       string
}

// auditAnnotation is an annotation that a validating policy adds to the audit event.
type auditAnnotation struct {
	key   string
	value *cel.AdmissionExpression
}

// mutation is a step of a mutating policy: an intent, or a JSON Patch.
type mutation struct {
	intent, patch *cel.AdmissionExpression // one of them
}

// newProgram compiles the expressions of a policy, and counts them. An expression that does not compile is an error of
// each evaluation.
func newProgram(spec object.Value) (*program, int) {
	p := &program{scope: cel.NewScope(!spec.At("paramKind").IsNull(), true)}
	count := 0
	expression := func(role cel.Role, source string) *cel.AdmissionExpression {
		count++
		return p.scope.Compile(role, source, true)
	}
	for _, v := range spec.At("variables").Items() {
		count++
		p.scope.Add(v.At("name").Str(), v.At("expression").Str(), true)
	}
	for _, c := range spec.At("matchConditions").Items() {
		p.conditions = append(p.conditions, expression(cel.Condition, c.At("expression").Str()))
	}
	for _, v := range spec.At("validations").Items() {
		rule := validation{
			source: v.At("expression").Str(), text: v.At("message").Str(),
			reason: cmp.Or(v.At("reason").Str(), "Invalid"),
		}
		rule.expression = expression(cel.Condition, rule.source)
		if message := v.At("messageExpression").Str(); message != "" {
			rule.message = expression(cel.Message, message)
		}
		p.validations = append(p.validations, rule)
	}
	for _, a := range spec.At("auditAnnotations").Items() {
		p.annotations = append(p.annotations, auditAnnotation{a.At("key").Str(),
			expression(cel.Annotation, a.At("valueExpression").Str())})
	}
	for _, m := range spec.At("mutations").Items() {
		if m.At("patchType").Str() == string(admissionregistration.PatchTypeJSONPatch) {
			p.mutations = append(p.mutations, mutation{
				patch: expression(cel.JSONPatch, m.At("jsonPatch", "expression").Str()),
			})
		} else {
			p.mutations = append(p.mutations, mutation{
				intent: expression(cel.ApplyConfiguration, m.At("applyConfiguration", "expression").Str()),
			})
		}
	}
	return p, count
}
