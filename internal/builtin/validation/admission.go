package validation

import (
	"fmt"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/cel"
	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/internal/webhook"
	"plinth/object"
)

// This file has the rules of admissionregistration.k8s.io.

var (
	failurePolicies     = []string{"Fail", "Ignore"}
	matchPolicies       = []string{"Equivalent", "Exact"}
	reinvocations       = []string{"IfNeeded", "Never"}
	noSideEffects       = []string{"None", "NoneOnDryRun"}
	sideEffects         = []string{"None", "NoneOnDryRun", "Some", "Unknown"}
	reviewVersions      = []string{"v1", "v1beta1"}
	operations          = []string{"*", "CONNECT", "CREATE", "DELETE", "UPDATE"}
	mutatingOperations  = []string{"*", "CONNECT", "CREATE", "UPDATE"}
	ruleScopes          = []string{"*", "Cluster", "Namespaced"}
	validationReasons   = []string{"Forbidden", "Invalid", "RequestEntityTooLarge"}
	validationActions   = []string{"Audit", "Deny", "Warn"}
	paramNotFound       = []string{"Deny", "Allow"}
	patchKinds          = []string{"ApplyConfiguration", "JSONPatch"}
	auditFields         = []goField{{name: "Key", member: "key"}, {name: "ValueExpression", member: "valueExpression"}}
	reservedIdentifiers = []string{"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for",
		"function", "if", "import",
		"let", "loop", "package", "namespace", "return", "var", "void", "while"}
)

const (
	maxMatchConditions   = 64
	maxAuditAnnotations  = 20
	maxAuditExpression   = 5 << 10
	maxWebhookTimeout    = 30
	segmentsOfFullName   = 3
	nameOrSelector       = "name and selector are mutually exclusive"
	validationOrAudit    = "validations or auditAnnotations must contain at least one item"
	denyAndWarn          = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"
	blankIfSpecified     = "must be non-empty if specified"
	wildcardAmongOthers  = "if '*' is present, must not specify other "
	doubleWildcardAmong  = "if '*/*' is present, must not specify other resources"
	requiresNameNonEmpty = "requires metadata.name be non-empty"
	staticSuffix         = ".static.k8s.io"
)

// stance has the errors that webhooks may keep because stored ones have them.
type stance struct {
	anySideEffects, anyVersions, sameNames, anyLabelValues, conditionsKept bool
	// expressions are those of stored match conditions, which may use what only this release has.
	expressions map[string]bool
}

func stanceOf(hooks, before []object.Value) stance {
	s := stance{expressions: map[string]bool{}}
	var names nameSet
	for _, hook := range before {
		s.anySideEffects = s.anySideEffects || !slices.Contains(noSideEffects, text(hook, "sideEffects"))
		versions := hook.At("admissionReviewVersions")
		s.anyVersions = s.anyVersions || versions.Len() > 0 && !containsAny(versions, reviewVersions)
		s.sameNames = names.add(text(hook, "name")) || s.sameNames
		for _, key := range [...]string{"namespaceSelector", "objectSelector"} {
			var f errorList
			f.labelSelector(hook.At(key), nil, false)
			s.anyLabelValues = s.anyLabelValues || len(f.List) > 0
		}
		for _, c := range hook.At("matchConditions").Items() {
			s.expressions[text(c, "expression")] = true
		}
	}
	s.conditionsKept = slices.EqualFunc(hooks, before,
		func(a, b object.Value) bool { return same(a.At("matchConditions"), b.At("matchConditions")) })
	return s
}

func containsAny(v object.Value, of []string) bool {
	return slices.ContainsFunc(v.Items(), func(item object.Value) bool { return slices.Contains(of, item.Str()) })
}

// dynamicName refuses, for a new object, the names that are reserved for configuration in files.
func (f *errorList) dynamicName(obj object.Value) {
	if name := text(obj.At("metadata"), "name"); strings.HasSuffix(name, staticSuffix) {
		f.Invalid((*fielderrors.Location)(nil).To("metadata").To("name"), name,
			fmt.Sprintf(
				"names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API",
				staticSuffix))
	}
}

func webhooksCreate(f *errorList, obj object.Value) {
	f.webhooks(obj.At("webhooks").Items(), stance{})
	f.dynamicName(obj)
}

func webhooksUpdate(f *errorList, obj, old object.Value) {
	hooks := obj.At("webhooks").Items()
	f.webhooks(hooks, stanceOf(hooks, old.At("webhooks").Items()))
}

func (f *errorList) webhooks(hooks []object.Value, s stance) {
	var names nameSet
	for i, hook := range hooks {
		p := (*fielderrors.Location)(nil).To("webhooks").Item(i)
		f.webhook(hook, s, p)
		f.reviewVersions(hook.At("admissionReviewVersions"), s.anyVersions, p.To("admissionReviewVersions"))
		if name := text(hook, "name"); name != "" && !s.sameNames && names.add(name) {
			f.Duplicate(p.To("name"), name)
		}
	}
}

func (f *errorList) webhook(hook object.Value, s stance, p *fielderrors.Location) {
	f.fullName(p.To("name"), text(hook, "name"))
	for i, rule := range hook.At("rules").Items() {
		f.operationsRule(rule, p.To("rules").Item(i))
	}
	f.onlyIfSet(p.To("failurePolicy"), hook.At("failurePolicy"), failurePolicies)
	f.onlyIfSet(p.To("matchPolicy"), hook.At("matchPolicy"), matchPolicies)
	f.onlyIfSet(p.To("reinvocationPolicy"), hook.At("reinvocationPolicy"), reinvocations)
	allowed := noSideEffects
	if s.anySideEffects {
		allowed = sideEffects
	}
	if !has(hook, "sideEffects") {
		f.Required(p.To("sideEffects"), "must specify one of "+strings.Join(allowed, ", "))
	}
	f.onlyIfSet(p.To("sideEffects"), hook.At("sideEffects"), allowed)
	if timeout := number(hook, "timeoutSeconds"); timeout < 1 || timeout > maxWebhookTimeout {
		f.Invalid(p.To("timeoutSeconds"), timeout, "the timeout value must be between 1 and 30 seconds")
	}
	f.labelSelector(hook.At("namespaceSelector"), p.To("namespaceSelector"), s.anyLabelValues)
	f.labelSelector(hook.At("objectSelector"), p.To("objectSelector"), s.anyLabelValues)
	webhook.CheckClient(&f.Errors, hook.At("clientConfig"), p.To("clientConfig"))
	if !s.conditionsKept {
		f.matchConditions(hook.At("matchConditions"), p.To("matchConditions"))
		f.matchExpressions(hook.At("matchConditions"), false, s.expressions, p.To("matchConditions"))
	}
}

// fullName demands a domain of at least three parts.
func (f *errorList) fullName(p *fielderrors.Location, name string) {
	if name == "" {
		f.Required(p, "")
	} else if wrong := objectmeta.SubdomainErrors(name); len(wrong) > 0 {
		f.Invalid(p, name, strings.Join(wrong, ","))
	} else if strings.Count(name, ".") < segmentsOfFullName-1 {
		f.Invalid(p, name, "should be a domain with at least three segments separated by dots")
	}
}

func (f *errorList) reviewVersions(versions object.Value, any bool, p *fielderrors.Location) {
	if versions.Len() == 0 {
		f.Required(p, "must specify one of "+strings.Join(reviewVersions, ", "))
		return
	}
	var met nameSet
	for i, item := range versions.Items() {
		version := item.Str()
		if met.add(version) {
			f.Invalid(p.Item(i), version, "duplicate version")
			continue
		}
		f.Each(p.Item(i), version, utilvalidation.IsDNS1035Label(version))
	}
	if !any && !containsAny(versions, reviewVersions) {
		f.Invalid(p, list(versions), "must include at least one of "+strings.Join(reviewVersions, ", "))
	}
}

// operationsRule checks the operations and resources that a webhook or a policy matches.
func (f *errorList) operationsRule(rule object.Value, p *fielderrors.Location) {
	f.wildcardAlone(rule.At("operations"), "operations", p.To("operations"))
	for i, item := range rule.At("operations").Items() {
		f.only(p.To("operations").Item(i), item.Str(), operations)
	}
	f.wildcardAlone(rule.At("apiGroups"), "API groups", p.To("apiGroups"))
	f.wildcardAlone(rule.At("apiVersions"), "API versions", p.To("apiVersions"))
	for i, item := range rule.At("apiVersions").Items() {
		f.requiredText(p.To("apiVersions").Item(i), item.Str())
	}
	f.ruleResources(rule.At("resources"), p.To("resources"))
	f.onlyIfSet(p.To("scope"), rule.At("scope"), ruleScopes)
}

// wildcardAlone demands items, and that * is the only item if it is present.
func (f *errorList) wildcardAlone(items object.Value, what string, p *fielderrors.Location) {
	if items.Len() == 0 {
		f.Required(p, "")
	}
	if items.Len() > 1 && contains(items, "*") {
		f.Invalid(p, list(items), wildcardAmongOthers+what)
	}
}

func (f *errorList) ruleResources(resources object.Value, p *fielderrors.Location) {
	if resources.Len() == 0 {
		f.Required(p, "")
	}
	var all, any nameSet // resources with all subresources (RESOURCE/*); subresources of all resources (*/SUBRESOURCE)
	var double, single, plain bool
	for i, item := range resources.Items() {
		name := item.Str()
		if name == "" {
			f.Required(p.Item(i), "")
			continue
		}
		double = double || name == "*/*"
		single = single || name == "*"
		resource, sub, below := strings.Cut(name, "/")
		if !below {
			plain = name != "*" // of the last one only, as in the reference
			continue
		}
		if all.has(resource) {
			f.Invalid(p.Item(i), name, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, name))
		}
		if any.has(sub) {
			f.Invalid(p.Item(i), name, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, name))
		}
		if sub == "*" {
			all.add(resource)
		}
		if resource == "*" {
			any.add(sub)
		}
	}
	if double && resources.Len() > 1 {
		f.Invalid(p, list(resources), doubleWildcardAmong)
	}
	if single && plain {
		f.Invalid(p, list(resources), "if '*' is present, must not specify other resources without subresources")
	}
}

func (f *errorList) matchConditions(conditions object.Value, p *fielderrors.Location) {
	if n := conditions.Len(); n > maxMatchConditions {
		f.TooMany(p, n, maxMatchConditions)
	}
	var names nameSet
	for i, condition := range conditions.Items() {
		p := p.Item(i)
		f.requiredExpression(condition, "expression", "", p)
		name := text(condition, "name")
		if name == "" {
			f.Required(p.To("name"), "")
			continue
		}
		f.qualified(p.To("name"), name)
		if names.add(name) {
			f.Duplicate(p.To("name"), name)
		}
	}
}

// matchExpressions demands that match conditions compile, which may name params or not; stored are those of the old
// object.
func (f *errorList) matchExpressions(conditions object.Value, params bool, stored map[string]bool,
	p *fielderrors.Location) {
	scope := f.newScope(params, false)
	for i, c := range conditions.Items() {
		if source := strings.TrimSpace(text(c, "expression")); source != "" {
			f.compiles(scope.Compile(cel.Condition, source, stored[source]), source, p.Item(i).To("expression"))
		}
	}
}

// newScope returns the scope of a policy or a webhook.
func (f *errorList) newScope(params, variables bool) *cel.Scope {
	scope := cel.NewScope(params, variables)
	scope.Latest = f.LatestExpressions
	return scope
}

// compiles demands that an expression has compiled. source is its text as the object has it.
func (f *errorList) compiles(x *cel.AdmissionExpression, source string, p *fielderrors.Location) {
	if err := x.Err(); err != nil {
		f.Invalid(p, source, err.Error())
	}
}

// requiredExpression demands an expression, whose content is not checked, and says whether there is one.
func (f *errorList) requiredExpression(of object.Value, key, detail string, p *fielderrors.Location) bool {
	if strings.TrimSpace(text(of, key)) == "" {
		f.Required(p.To(key), detail)
		return false
	}
	return true
}

// expressionsAt are the texts of these members of the items of a list.
func expressionsAt(list object.Value, path ...string) map[string]bool {
	found := map[string]bool{}
	for _, item := range list.Items() {
		found[item.At(path...).Str()] = true
	}
	return found
}

func validatingPolicyCreate(f *errorList, obj object.Value) {
	f.validatingPolicy(obj, object.Nil)
	f.dynamicName(obj)
}

func validatingPolicyUpdate(f *errorList, obj, old object.Value) { f.validatingPolicy(obj, old) }

func (f *errorList) validatingPolicy(obj, old object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	spec, before := obj.At("spec"), old.At("spec")
	scope := f.newScope(has(spec, "paramKind"), length(spec, "variables") > 0)
	stored := storedExpressions{
		validations: expressionsAt(before.At("validations"), "expression"),
		messages:    expressionsAt(before.At("validations"), "messageExpression"),
		annotations: expressionsAt(before.At("auditAnnotations"), "valueExpression"),
	}
	f.policyStart(spec, before, scope, stored, p)
	validations, annotations := spec.At("validations"), spec.At("auditAnnotations")
	if validations.Len() == 0 && annotations.Len() == 0 {
		f.Required(p.To("validations"), validationOrAudit)
		f.Required(p.To("auditAnnotations"), validationOrAudit)
		return
	}
	for i, v := range validations.Items() {
		f.policyValidation(v, scope, stored, p.To("validations").Item(i))
	}
	if annotations.Len() > maxAuditAnnotations {
		f.Invalid(p.To("auditAnnotations"), goForm{annotations, auditFields},
			fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations))
	}
	var keys nameSet
	for i, annotation := range annotations.Items() {
		p := p.To("auditAnnotations").Item(i)
		name, key := text(obj.At("metadata"), "name"), text(annotation, "key")
		if name == "" {
			f.Invalid(p.To("key"), key, requiresNameNonEmpty)
		} else {
			f.qualified(p.To("key"), name+"/"+key)
		}
		if f.requiredExpression(annotation, "valueExpression", "valueExpression is not specified", p) {
			source := text(annotation, "valueExpression")
			if trimmed := strings.TrimSpace(source); len(trimmed) > maxAuditExpression {
				f.Required(p.To("valueExpression"), fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpression))
			} else {
				f.compiles(scope.Compile(cel.Annotation, trimmed, stored.annotations[source]), source,
					p.To("valueExpression"))
			}
		}
		if keys.add(key) {
			f.Duplicate(p.To("key"), key)
		}
	}
}

// storedExpressions are the expressions of a stored policy, by what they are for: these may use functions that only
// this release has.
type storedExpressions struct{ validations, messages, annotations, mutations map[string]bool }

// policyStart checks the fields that both kinds of policies have, and adds the variables to the scope. Some of the
// fields are pointers in Go, but never nil after the defaults.
func (f *errorList) policyStart(spec, before object.Value, scope *cel.Scope, stored storedExpressions,
	p *fielderrors.Location) {
	f.only(p.To("failurePolicy"), text(spec, "failurePolicy"), failurePolicies)
	if kind := spec.At("paramKind"); !kind.IsNull() {
		f.paramKind(kind, p.To("paramKind"))
	}
	if constraints := spec.At("matchConstraints"); constraints.IsNull() {
		f.Required(p.To("matchConstraints"), "")
	} else {
		f.matchResources(constraints, p.To("matchConstraints"))
		if length(constraints, "resourceRules") == 0 {
			f.Required(p.To("matchConstraints").To("resourceRules"), "")
		}
	}
	if !same(spec.At("paramKind"), before.At("paramKind")) ||
		!same(spec.At("matchConditions"), before.At("matchConditions")) {
		f.matchConditions(spec.At("matchConditions"), p.To("matchConditions"))
		f.matchExpressions(spec.At("matchConditions"), has(spec, "paramKind"),
			expressionsAt(before.At("matchConditions"), "expression"), p.To("matchConditions"))
	}
	for i, variable := range spec.At("variables").Items() {
		p := p.To("variables").Item(i)
		if name := text(variable, "name"); strings.TrimSpace(name) == "" {
			f.Required(p.To("name"), "name is not specified")
		} else if !isIdentifier(name) {
			f.Invalid(p.To("name"), name, "must be a valid CEL identifier")
		}
		if f.requiredExpression(variable, "expression", "expression is not specified", p) {
			source := text(variable, "expression")
			f.compiles(scope.Add(text(variable, "name"), source, stored.validations[source]), source, p.To("expression"))
		}
	}
}

// isIdentifier says whether a text, which is not empty, is an identifier of CEL.
func isIdentifier(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] != '_' && (!objectmeta.IsLetterOrDigit(s[i]) || i == 0 && s[i] <= '9') {
			return false
		}
	}
	return !slices.Contains(reservedIdentifiers, s)
}

func (f *errorList) paramKind(kind object.Value, p *fielderrors.Location) {
	at, full := p.To("apiVersion"), text(kind, "apiVersion")
	group, version, grouped := strings.Cut(full, "/")
	if !grouped {
		group, version = "", full
	}
	switch {
	case full == "":
		f.Required(at, "")
	case strings.Count(full, "/") > 1:
		f.Invalid(at, full, "unexpected GroupVersion string: "+full)
	default:
		if wrong := objectmeta.SubdomainErrors(group); group != "" && len(wrong) > 0 {
			f.Invalid(at, group, strings.Join(wrong, ","))
		}
		if version == "" {
			f.Invalid(at, full, "version must be specified")
		} else if wrong := utilvalidation.IsDNS1035Label(version); len(wrong) > 0 {
			f.Invalid(at, version, strings.Join(wrong, ","))
		}
	}
	name := text(kind, "kind")
	if name == "" {
		f.Required(p.To("kind"), "")
	} else if wrong := utilvalidation.IsDNS1035Label(strings.ToLower(name)); len(wrong) > 0 {
		f.Invalid(p.To("kind"), name, "may have mixed case, but should otherwise match: "+strings.Join(wrong, ","))
	}
}

func (f *errorList) matchResources(match object.Value, p *fielderrors.Location) {
	if match.IsNull() {
		return
	}
	f.only(p.To("matchPolicy"), text(match, "matchPolicy"), matchPolicies)
	f.labelSelector(match.At("namespaceSelector"), p.To("namespaceSelector"), false)
	f.labelSelector(match.At("objectSelector"), p.To("objectSelector"), false)
	for _, key := range [...]string{"resourceRules", "excludeResourceRules"} {
		for i, rule := range match.At(key).Items() {
			p := p.To(key).Item(i)
			var names nameSet
			for j, item := range rule.At("resourceNames").Items() {
				name := item.Str()
				f.Each(p.To("resourceNames").Item(j), name, objectmeta.PathSegmentErrors(name, false))
				if names.add(name) {
					f.Duplicate(p.To("resourceNames").Item(j), name)
				}
			}
			f.operationsRule(rule, p)
		}
	}
}

func (f *errorList) policyValidation(v object.Value, scope *cel.Scope, stored storedExpressions,
	p *fielderrors.Location) {
	if f.requiredExpression(v, "expression", "expression is not specified", p) {
		source := text(v, "expression")
		f.compiles(scope.Compile(cel.Condition, source, stored.validations[source]), source, p.To("expression"))
	}
	if source := text(v, "messageExpression"); source != "" {
		if strings.TrimSpace(source) == "" {
			f.Invalid(p.To("messageExpression"), source, blankIfSpecified)
		} else {
			f.compiles(scope.Compile(cel.Message, source, stored.messages[source]), source, p.To("messageExpression"))
		}
	}
	message := text(v, "message")
	if trimmed := strings.TrimSpace(message); message != "" && trimmed == "" {
		f.Invalid(p.To("message"), message, blankIfSpecified)
	} else if strings.ContainsAny(trimmed, "\n\r") {
		f.Invalid(p.To("message"), message, "must not contain line breaks")
	}
	f.onlyIfSet(p.To("reason"), v.At("reason"), validationReasons)
}

func validatingPolicyStatus(f *errorList, obj, _ object.Value) {
	p := (*fielderrors.Location)(nil).To("status")
	status := obj.At("status")
	for i, warning := range status.At("typeChecking", "expressionWarnings").Items() {
		p := p.To("typeChecking").To("expressionWarnings").Item(i)
		f.requiredText(p.To("warning"), text(warning, "warning"))
		f.requiredText(p.To("fieldRef"), strings.TrimSpace(text(warning, "fieldRef")))
	}
	f.conditions(status.At("conditions"), p.To("conditions"))
}

func mutatingPolicyCreate(f *errorList, obj object.Value) {
	f.mutatingPolicy(obj, object.Nil)
	f.dynamicName(obj)
}

func mutatingPolicyUpdate(f *errorList, obj, old object.Value) { f.mutatingPolicy(obj, old) }

func (f *errorList) mutatingPolicy(obj, old object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	spec, before := obj.At("spec"), old.At("spec")
	scope := f.newScope(has(spec, "paramKind"), true)
	// As in the reference, the expressions of a JSONPatch do not count as stored.
	stored := storedExpressions{mutations: expressionsAt(before.At("mutations"), "applyConfiguration", "expression")}
	f.policyStart(spec, before, scope, stored, p)
	f.mutatingRules(spec.At("matchConstraints"), p.To("matchConstraints"))
	mutations := spec.At("mutations")
	if mutations.Len() == 0 {
		f.Required(p.To("mutations"), "mutations must contain at least one item")
	}
	for i, mutation := range mutations.Items() {
		f.mutation(mutation, scope, stored, p.To("mutations").Item(i))
	}
	f.oneOf(p.To("reinvocationPolicy"), text(spec, "reinvocationPolicy"), reinvocations)
}

// mutatingRules demands operations on an object that can be changed.
func (f *errorList) mutatingRules(match object.Value, p *fielderrors.Location) {
	for _, rule := range match.At("resourceRules").Items() {
		for _, item := range rule.At("operations").Items() {
			f.only(p.To("resourceRules").To("operations"), item.Str(), mutatingOperations)
		}
	}
}

func (f *errorList) mutation(mutation object.Value, scope *cel.Scope, stored storedExpressions,
	p *fielderrors.Location) {
	var wanted, other string
	role := cel.JSONPatch
	kind := text(mutation, "patchType")
	switch kind {
	case "JSONPatch":
		wanted, other = "jsonPatch", "applyConfiguration"
	case "ApplyConfiguration":
		wanted, other, role = "applyConfiguration", "jsonPatch", cel.ApplyConfiguration
	default:
		f.oneOf(p.To("patchType"), kind, patchKinds)
		return
	}
	if patch := mutation.At(wanted); patch.IsNull() {
		f.Required(p.To(wanted), "must be specified when patchType is "+kind)
	} else if f.requiredExpression(patch, "expression", "", p.To(wanted)) {
		source := text(patch, "expression")
		trimmed := strings.TrimSpace(source)
		f.compiles(scope.Compile(role, trimmed, stored.mutations[source]), trimmed, p.To(wanted).To("expression"))
	}
	if has(mutation, other) {
		f.Invalid(p.To(other), "{"+other+"}", "must not be specified when patchType is "+kind)
	}
}

func validatingBindingCreate(f *errorList, obj object.Value) {
	f.validatingBinding(obj)
	f.dynamicName(obj)
}

func validatingBindingUpdate(f *errorList, obj, _ object.Value) { f.validatingBinding(obj) }

func (f *errorList) validatingBinding(obj object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	spec := obj.At("spec")
	f.policyBinding(spec, p)
	actions := spec.At("validationActions")
	p = p.To("validationActions")
	var met nameSet
	for i, item := range actions.Items() {
		f.only(p.Item(i), item.Str(), validationActions)
		if met.add(item.Str()) {
			f.Duplicate(p.Item(i), fielderrors.Word(item.Str()))
		}
	}
	if met.has("Deny") && met.has("Warn") {
		f.Invalid(p, list(actions), denyAndWarn)
	}
	if actions.Len() == 0 {
		f.Required(p, "")
	}
}

func mutatingBindingCreate(f *errorList, obj object.Value) {
	f.mutatingBinding(obj)
	f.dynamicName(obj)
}

func mutatingBindingUpdate(f *errorList, obj, _ object.Value) { f.mutatingBinding(obj) }

func (f *errorList) mutatingBinding(obj object.Value) {
	p := (*fielderrors.Location)(nil).To("spec")
	spec := obj.At("spec")
	f.policyBinding(spec, p)
	f.mutatingRules(spec.At("matchResources"), p.To("matchResources"))
}

// policyBinding checks the fields that both kinds of bindings have.
func (f *errorList) policyBinding(spec object.Value, p *fielderrors.Location) {
	if name := text(spec, "policyName"); name == "" {
		f.Required(p.To("policyName"), "")
	} else {
		f.subdomain(p.To("policyName"), name)
	}
	if ref := spec.At("paramRef"); !ref.IsNull() {
		f.paramRef(ref, p.To("paramRef"))
	}
	f.matchResources(spec.At("matchResources"), p.To("matchResources"))
}

func (f *errorList) paramRef(ref object.Value, p *fielderrors.Location) {
	name, selector := text(ref, "name"), ref.At("selector")
	if name != "" {
		f.Each(p.To("name"), name, objectmeta.PathSegmentErrors(name, false))
		if !selector.IsNull() {
			f.Forbidden(p.To("name"), nameOrSelector)
		}
	}
	if !selector.IsNull() {
		f.labelSelector(selector, p.To("selector"), false)
		if name != "" {
			f.Forbidden(p.To("selector"), nameOrSelector)
		}
	}
	if name == "" && selector.IsNull() {
		f.Required(p, "one of name or selector must be specified")
	}
	f.oneOf(p.To("parameterNotFoundAction"), text(ref, "parameterNotFoundAction"), paramNotFound)
}
