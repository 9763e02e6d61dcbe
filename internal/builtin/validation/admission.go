package validation

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/object"
)

// This file has the rules of admissionregistration.k8s.io. None of them compiles CEL.

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
	auditFields         = []goField{{name: "Key", member: "key", zero: `""`}, {name: "ValueExpression", member: "valueExpression", zero: `""`}}
	reservedIdentifiers = []string{"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
		"let", "loop", "package", "namespace", "return", "var", "void", "while"}
)

const (
	maxMatchConditions   = 64
	maxAuditAnnotations  = 20
	maxAuditExpression   = 5 << 10
	maxWebhookTimeout    = 30
	segmentsOfFullName   = 3
	urlForm              = "; desired format: https://host[/path]"
	nameOrSelector       = "name and selector are mutually exclusive"
	validationOrAudit    = "validations or auditAnnotations must contain at least one item"
	denyAndWarn          = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"
	blankIfSpecified     = "must be non-empty if specified"
	wildcardAmongOthers  = "if '*' is present, must not specify other "
	doubleWildcardAmong  = "if '*/*' is present, must not specify other resources"
	requiresNameNonEmpty = "requires metadata.name be non-empty"
	staticSuffix         = ".static.k8s.io"
)

// stance is what webhooks may do because stored ones do it.
type stance struct {
	anySideEffects, anyVersions, sameNames, anyLabelValues, conditionsKept bool
}

func stanceOf(hooks, was []object.Value) stance {
	var s stance
	var names seen
	for _, hook := range was {
		s.anySideEffects = s.anySideEffects || !slices.Contains(noSideEffects, text(hook, "sideEffects"))
		versions := hook.At("admissionReviewVersions")
		s.anyVersions = s.anyVersions || versions.Len() > 0 && !containsAny(versions, reviewVersions)
		s.sameNames = names.add(text(hook, "name")) || s.sameNames
		for _, key := range [...]string{"namespaceSelector", "objectSelector"} {
			var f faults
			f.labelSelector(hook.At(key), nil, false)
			s.anyLabelValues = s.anyLabelValues || len(f.list) > 0
		}
	}
	s.conditionsKept = slices.EqualFunc(hooks, was, func(a, b object.Value) bool { return same(a.At("matchConditions"), b.At("matchConditions")) })
	return s
}

func containsAny(v object.Value, of []string) bool {
	return slices.ContainsFunc(v.Items(), func(item object.Value) bool { return slices.Contains(of, item.Str()) })
}

// dynamicName demands that a new object has none of the names that are kept for files which a server reads as it starts.
func (f *faults) dynamicName(obj object.Value) {
	if name := text(obj.At("metadata"), "name"); strings.HasSuffix(name, staticSuffix) {
		f.invalid((*place)(nil).to("metadata").to("name"), name,
			fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", staticSuffix))
	}
}

func webhooksCreate(f *faults, obj object.Value) {
	f.webhooks(obj.At("webhooks").Items(), stance{})
	f.dynamicName(obj)
}

func webhooksUpdate(f *faults, obj, old object.Value) {
	hooks := obj.At("webhooks").Items()
	f.webhooks(hooks, stanceOf(hooks, old.At("webhooks").Items()))
}

func (f *faults) webhooks(hooks []object.Value, s stance) {
	var names seen
	for i, hook := range hooks {
		p := (*place)(nil).to("webhooks").item(i)
		f.webhook(hook, s, p)
		f.reviewVersions(hook.At("admissionReviewVersions"), s.anyVersions, p.to("admissionReviewVersions"))
		if name := text(hook, "name"); name != "" && !s.sameNames && names.add(name) {
			f.duplicate(p.to("name"), name)
		}
	}
}

func (f *faults) webhook(hook object.Value, s stance, p *place) {
	f.fullName(p.to("name"), text(hook, "name"))
	for i, rule := range hook.At("rules").Items() {
		f.operationsRule(rule, p.to("rules").item(i))
	}
	f.onlyIfSet(p.to("failurePolicy"), hook.At("failurePolicy"), failurePolicies)
	f.onlyIfSet(p.to("matchPolicy"), hook.At("matchPolicy"), matchPolicies)
	f.onlyIfSet(p.to("reinvocationPolicy"), hook.At("reinvocationPolicy"), reinvocations)
	allowed := noSideEffects
	if s.anySideEffects {
		allowed = sideEffects
	}
	if !has(hook, "sideEffects") {
		f.required(p.to("sideEffects"), "must specify one of "+strings.Join(allowed, ", "))
	}
	f.onlyIfSet(p.to("sideEffects"), hook.At("sideEffects"), allowed)
	if timeout := hook.At("timeoutSeconds"); !timeout.IsNull() && (timeout.Int() < 1 || timeout.Int() > maxWebhookTimeout) {
		f.invalid(p.to("timeoutSeconds"), timeout.Int(), "the timeout value must be between 1 and 30 seconds")
	}
	f.labelSelector(hook.At("namespaceSelector"), p.to("namespaceSelector"), s.anyLabelValues)
	f.labelSelector(hook.At("objectSelector"), p.to("objectSelector"), s.anyLabelValues)
	f.webhookClient(hook.At("clientConfig"), p.to("clientConfig"))
	if !s.conditionsKept {
		f.matchConditions(hook.At("matchConditions"), p.to("matchConditions"))
	}
}

// fullName demands a domain of three parts.
func (f *faults) fullName(p *place, name string) {
	if name == "" {
		f.required(p, "")
	} else if wrong := subdomainFaults(name); len(wrong) > 0 {
		f.invalid(p, name, strings.Join(wrong, ","))
	} else if strings.Count(name, ".") < segmentsOfFullName-1 {
		f.invalid(p, name, "should be a domain with at least three segments separated by dots")
	}
}

func (f *faults) reviewVersions(versions object.Value, any bool, p *place) {
	if versions.Len() == 0 {
		f.required(p, "must specify one of "+strings.Join(reviewVersions, ", "))
		return
	}
	var met seen
	for i, item := range versions.Items() {
		version := item.Str()
		if met.add(version) {
			f.invalid(p.item(i), version, "duplicate version")
			continue
		}
		f.each(p.item(i), version, utilvalidation.IsDNS1035Label(version))
	}
	if !any && !containsAny(versions, reviewVersions) {
		f.invalid(p, list(versions), "must include at least one of "+strings.Join(reviewVersions, ", "))
	}
}

func (f *faults) webhookClient(client object.Value, p *place) {
	address, service := client.At("url"), client.At("service")
	switch {
	case address.IsNull() == service.IsNull():
		f.required(p, "exactly one of url or service is required")
	case !address.IsNull():
		f.webhookURL(address.Str(), p.to("url"))
	default:
		f.webhookService(service, p.to("service"))
	}
}

func (f *faults) webhookURL(address string, p *place) {
	u, err := url.Parse(address)
	if err != nil {
		f.required(p, "url must be a valid URL: "+err.Error()+urlForm)
		return
	}
	if u.Scheme != "https" {
		f.invalid(p, u.Scheme, "'https' is the only allowed URL scheme"+urlForm)
	}
	if u.Host == "" {
		f.invalid(p, u.Host, "host must be specified"+urlForm)
	}
	if u.User != nil {
		f.invalid(p, u.User.String(), "user information is not permitted in the URL")
	}
	if u.Fragment != "" {
		f.invalid(p, u.Fragment, "fragments are not permitted in the URL")
	}
	if u.RawQuery != "" {
		f.invalid(p, u.RawQuery, "query parameters are not permitted in the URL")
	}
}

// webhookService names the two members the wrong way round, as the reference does: it complains about the namespace where
// the name is missing.
func (f *faults) webhookService(service object.Value, p *place) {
	if text(service, "namespace") == "" {
		f.required(p.to("name"), "")
	}
	if text(service, "name") == "" {
		f.required(p.to("namespace"), "")
	}
	if port := number(service, "port"); port < 1 || port > maxPort {
		f.invalid(p.to("port"), port, "port is not valid: "+utilvalidation.InclusiveRangeError(1, maxPort))
	}
	path := text(service, "path")
	if path == "" || path == "/" {
		return
	}
	p = p.to("path")
	if path == "//" {
		f.invalid(p, path, "segment[0] may not be empty")
		return
	}
	if path[0] != '/' {
		f.invalid(p, path, "must start with a '/'")
	}
	i := 0
	for segment := range strings.SplitSeq(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "" {
			f.invalid(p, path, fmt.Sprintf("segment[%d] may not be empty", i))
		} else {
			for _, wrong := range subdomainFaults(segment) {
				f.invalid(p, path, fmt.Sprintf("segment[%d]: %v", i, wrong))
			}
		}
		i++
	}
}

// operationsRule checks which operations on which resources go to a webhook or a policy.
func (f *faults) operationsRule(rule object.Value, p *place) {
	f.wildcardAlone(rule.At("operations"), "operations", p.to("operations"))
	for i, item := range rule.At("operations").Items() {
		f.only(p.to("operations").item(i), item.Str(), operations)
	}
	f.wildcardAlone(rule.At("apiGroups"), "API groups", p.to("apiGroups"))
	f.wildcardAlone(rule.At("apiVersions"), "API versions", p.to("apiVersions"))
	for i, item := range rule.At("apiVersions").Items() {
		f.requiredText(p.to("apiVersions").item(i), item.Str())
	}
	f.ruleResources(rule.At("resources"), p.to("resources"))
	f.onlyIfSet(p.to("scope"), rule.At("scope"), ruleScopes)
}

// wildcardAlone demands items, and that * is the only one if it is one.
func (f *faults) wildcardAlone(items object.Value, what string, p *place) {
	if items.Len() == 0 {
		f.required(p, "")
	}
	if items.Len() > 1 && contains(items, "*") {
		f.invalid(p, list(items), wildcardAmongOthers+what)
	}
}

func (f *faults) ruleResources(resources object.Value, p *place) {
	if resources.Len() == 0 {
		f.required(p, "")
	}
	var all, any seen // resources of which all subresources are named; subresources that are named of any resource
	double, single, plain := false, false, false
	for i, item := range resources.Items() {
		name := item.Str()
		if name == "" {
			f.required(p.item(i), "")
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
			f.invalid(p.item(i), name, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, name))
		}
		if any.has(sub) {
			f.invalid(p.item(i), name, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, name))
		}
		if sub == "*" {
			all.add(resource)
		}
		if resource == "*" {
			any.add(sub)
		}
	}
	if double && resources.Len() > 1 {
		f.invalid(p, list(resources), doubleWildcardAmong)
	}
	if single && plain {
		f.invalid(p, list(resources), "if '*' is present, must not specify other resources without subresources")
	}
}

func (f *faults) matchConditions(conditions object.Value, p *place) {
	if n := conditions.Len(); n > maxMatchConditions {
		f.tooMany(p, n, maxMatchConditions)
	}
	var names seen
	for i, condition := range conditions.Items() {
		p := p.item(i)
		f.requiredExpression(condition, "expression", "", p)
		name := text(condition, "name")
		if name == "" {
			f.required(p.to("name"), "")
			continue
		}
		f.qualified(p.to("name"), name)
		if names.add(name) {
			f.duplicate(p.to("name"), name)
		}
	}
}

// requiredExpression demands that there is an expression; what it says is not looked at.
func (f *faults) requiredExpression(of object.Value, key, detail string, p *place) {
	if strings.TrimSpace(text(of, key)) == "" {
		f.required(p.to(key), detail)
	}
}

func validatingPolicyCreate(f *faults, obj object.Value) {
	f.validatingPolicy(obj, object.Nil)
	f.dynamicName(obj)
}

func validatingPolicyUpdate(f *faults, obj, old object.Value) { f.validatingPolicy(obj, old) }

func (f *faults) validatingPolicy(obj, old object.Value) {
	p := (*place)(nil).to("spec")
	spec := obj.At("spec")
	f.policyStart(spec, old.At("spec"), p)
	validations, annotations := spec.At("validations"), spec.At("auditAnnotations")
	if validations.Len() == 0 && annotations.Len() == 0 {
		f.required(p.to("validations"), validationOrAudit)
		f.required(p.to("auditAnnotations"), validationOrAudit)
		return
	}
	for i, v := range validations.Items() {
		f.policyValidation(v, p.to("validations").item(i))
	}
	if annotations.Len() > maxAuditAnnotations {
		f.invalid(p.to("auditAnnotations"), goForm{annotations, auditFields}, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations))
	}
	var keys seen
	for i, annotation := range annotations.Items() {
		p := p.to("auditAnnotations").item(i)
		name, key := text(obj.At("metadata"), "name"), text(annotation, "key")
		if name == "" {
			f.invalid(p.to("key"), key, requiresNameNonEmpty)
		} else {
			f.qualified(p.to("key"), name+"/"+key)
		}
		f.requiredExpression(annotation, "valueExpression", "valueExpression is not specified", p)
		if len(strings.TrimSpace(text(annotation, "valueExpression"))) > maxAuditExpression {
			f.required(p.to("valueExpression"), fmt.Sprintf("must not exceed %d bytes in length", maxAuditExpression))
		}
		if keys.add(key) {
			f.duplicate(p.to("key"), key)
		}
	}
}

// policyStart checks what both kinds of policies have.
func (f *faults) policyStart(spec, was object.Value, p *place) {
	f.requiredEnum(spec, "failurePolicy", failurePolicies, p)
	if kind := spec.At("paramKind"); !kind.IsNull() {
		f.paramKind(kind, p.to("paramKind"))
	}
	if constraints := spec.At("matchConstraints"); constraints.IsNull() {
		f.required(p.to("matchConstraints"), "")
	} else {
		f.matchResources(constraints, p.to("matchConstraints"))
		if length(constraints, "resourceRules") == 0 {
			f.required(p.to("matchConstraints").to("resourceRules"), "")
		}
	}
	if was.IsNull() || !same(spec.At("paramKind"), was.At("paramKind")) || !same(spec.At("matchConditions"), was.At("matchConditions")) {
		f.matchConditions(spec.At("matchConditions"), p.to("matchConditions"))
	}
	for i, variable := range spec.At("variables").Items() {
		p := p.to("variables").item(i)
		if name := text(variable, "name"); strings.TrimSpace(name) == "" {
			f.required(p.to("name"), "name is not specified")
		} else if !isIdentifier(name) {
			f.invalid(p.to("name"), name, "must be a valid CEL identifier")
		}
		f.requiredExpression(variable, "expression", "expression is not specified", p)
	}
}

// requiredEnum demands a member that may be missing by its type, and its value; an empty one is not supported.
func (f *faults) requiredEnum(of object.Value, key string, supported []string, p *place) {
	if v := of.At(key); v.IsNull() {
		f.required(p.to(key), "")
	} else {
		f.only(p.to(key), v.Str(), supported)
	}
}

func isIdentifier(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] != '_' && (!letterOrDigit(s[i]) || i == 0 && s[i] <= '9') {
			return false
		}
	}
	return s != "" && !slices.Contains(reservedIdentifiers, s)
}

func (f *faults) paramKind(kind object.Value, p *place) {
	at, full := p.to("apiVersion"), text(kind, "apiVersion")
	group, version, grouped := strings.Cut(full, "/")
	if !grouped {
		group, version = "", full
	}
	switch {
	case full == "":
		f.required(at, "")
	case strings.Count(full, "/") > 1:
		f.invalid(at, full, "unexpected GroupVersion string: "+full)
	default:
		if wrong := subdomainFaults(group); group != "" && len(wrong) > 0 {
			f.invalid(at, group, strings.Join(wrong, ","))
		}
		if version == "" {
			f.invalid(at, full, "version must be specified")
		} else if wrong := utilvalidation.IsDNS1035Label(version); len(wrong) > 0 {
			f.invalid(at, version, strings.Join(wrong, ","))
		}
	}
	name := text(kind, "kind")
	if name == "" {
		f.required(p.to("kind"), "")
	} else if wrong := utilvalidation.IsDNS1035Label(strings.ToLower(name)); len(wrong) > 0 {
		f.invalid(p.to("kind"), name, "may have mixed case, but should otherwise match: "+strings.Join(wrong, ","))
	}
}

func (f *faults) matchResources(match object.Value, p *place) {
	if match.IsNull() {
		return
	}
	f.requiredEnum(match, "matchPolicy", matchPolicies, p)
	for _, key := range [...]string{"namespaceSelector", "objectSelector"} {
		if selector := match.At(key); selector.IsNull() {
			f.required(p.to(key), "")
		} else {
			f.labelSelector(selector, p.to(key), false)
		}
	}
	for _, key := range [...]string{"resourceRules", "excludeResourceRules"} {
		for i, rule := range match.At(key).Items() {
			p := p.to(key).item(i)
			var names seen
			for j, item := range rule.At("resourceNames").Items() {
				name := item.Str()
				f.each(p.to("resourceNames").item(j), name, segmentFaults(name, false))
				if names.add(name) {
					f.duplicate(p.to("resourceNames").item(j), name)
				}
			}
			f.operationsRule(rule, p)
		}
	}
}

func (f *faults) policyValidation(v object.Value, p *place) {
	f.requiredExpression(v, "expression", "expression is not specified", p)
	if expression := text(v, "messageExpression"); expression != "" && strings.TrimSpace(expression) == "" {
		f.invalid(p.to("messageExpression"), expression, blankIfSpecified)
	}
	message := text(v, "message")
	if trimmed := strings.TrimSpace(message); message != "" && trimmed == "" {
		f.invalid(p.to("message"), message, blankIfSpecified)
	} else if strings.ContainsAny(trimmed, "\n\r") {
		f.invalid(p.to("message"), message, "must not contain line breaks")
	}
	f.onlyIfSet(p.to("reason"), v.At("reason"), validationReasons)
}

func validatingPolicyStatus(f *faults, obj, _ object.Value) {
	p := (*place)(nil).to("status")
	status := obj.At("status")
	for i, warning := range status.At("typeChecking", "expressionWarnings").Items() {
		p := p.to("typeChecking").to("expressionWarnings").item(i)
		f.requiredText(p.to("warning"), text(warning, "warning"))
		f.requiredText(p.to("fieldRef"), strings.TrimSpace(text(warning, "fieldRef")))
	}
	f.conditions(status.At("conditions"), p.to("conditions"))
}

func mutatingPolicyCreate(f *faults, obj object.Value) {
	f.mutatingPolicy(obj, object.Nil)
	f.dynamicName(obj)
}

func mutatingPolicyUpdate(f *faults, obj, old object.Value) { f.mutatingPolicy(obj, old) }

func (f *faults) mutatingPolicy(obj, old object.Value) {
	p := (*place)(nil).to("spec")
	spec := obj.At("spec")
	f.policyStart(spec, old.At("spec"), p)
	f.mutatingRules(spec.At("matchConstraints"), p.to("matchConstraints"))
	mutations := spec.At("mutations")
	if mutations.Len() == 0 {
		f.required(p.to("mutations"), "mutations must contain at least one item")
	}
	for i, mutation := range mutations.Items() {
		f.mutation(mutation, p.to("mutations").item(i))
	}
	f.oneOf(p.to("reinvocationPolicy"), text(spec, "reinvocationPolicy"), reinvocations)
}

// mutatingRules demands operations that have an object to change.
func (f *faults) mutatingRules(match object.Value, p *place) {
	for _, rule := range match.At("resourceRules").Items() {
		for _, item := range rule.At("operations").Items() {
			f.only(p.to("resourceRules").to("operations"), item.Str(), mutatingOperations)
		}
	}
}

func (f *faults) mutation(mutation object.Value, p *place) {
	wanted, other := "", ""
	kind := text(mutation, "patchType")
	switch kind {
	case "JSONPatch":
		wanted, other = "jsonPatch", "applyConfiguration"
	case "ApplyConfiguration":
		wanted, other = "applyConfiguration", "jsonPatch"
	default:
		f.oneOf(p.to("patchType"), kind, patchKinds)
		return
	}
	if patch := mutation.At(wanted); patch.IsNull() {
		f.required(p.to(wanted), "must be specified when patchType is "+kind)
	} else {
		f.requiredExpression(patch, "expression", "", p.to(wanted))
	}
	if has(mutation, other) {
		f.invalid(p.to(other), "{"+other+"}", "must not be specified when patchType is "+kind)
	}
}

func validatingBindingCreate(f *faults, obj object.Value) {
	f.validatingBinding(obj)
	f.dynamicName(obj)
}

func validatingBindingUpdate(f *faults, obj, _ object.Value) { f.validatingBinding(obj) }

func (f *faults) validatingBinding(obj object.Value) {
	p := (*place)(nil).to("spec")
	spec := obj.At("spec")
	f.policyBinding(spec, p)
	actions := spec.At("validationActions")
	p = p.to("validationActions")
	var met seen
	for i, item := range actions.Items() {
		f.only(p.item(i), item.Str(), validationActions)
		if met.add(item.Str()) {
			f.duplicate(p.item(i), word(item.Str()))
		}
	}
	if met.has("Deny") && met.has("Warn") {
		f.invalid(p, list(actions), denyAndWarn)
	}
	if actions.Len() == 0 {
		f.required(p, "")
	}
}

func mutatingBindingCreate(f *faults, obj object.Value) {
	f.mutatingBinding(obj)
	f.dynamicName(obj)
}

func mutatingBindingUpdate(f *faults, obj, _ object.Value) { f.mutatingBinding(obj) }

func (f *faults) mutatingBinding(obj object.Value) {
	p := (*place)(nil).to("spec")
	spec := obj.At("spec")
	f.policyBinding(spec, p)
	f.mutatingRules(spec.At("matchResources"), p.to("matchResources"))
}

// policyBinding checks what both kinds of bindings have.
func (f *faults) policyBinding(spec object.Value, p *place) {
	if name := text(spec, "policyName"); name == "" {
		f.required(p.to("policyName"), "")
	} else {
		f.subdomain(p.to("policyName"), name)
	}
	if ref := spec.At("paramRef"); !ref.IsNull() {
		f.paramRef(ref, p.to("paramRef"))
	}
	f.matchResources(spec.At("matchResources"), p.to("matchResources"))
}

func (f *faults) paramRef(ref object.Value, p *place) {
	name, selector := text(ref, "name"), ref.At("selector")
	if name != "" {
		f.each(p.to("name"), name, segmentFaults(name, false))
		if !selector.IsNull() {
			f.forbidden(p.to("name"), nameOrSelector)
		}
	}
	if !selector.IsNull() {
		f.labelSelector(selector, p.to("selector"), false)
		if name != "" {
			f.forbidden(p.to("selector"), nameOrSelector)
		}
	}
	if name == "" && selector.IsNull() {
		f.required(p, "one of name or selector must be specified")
	}
	f.oneOf(p.to("parameterNotFoundAction"), text(ref, "parameterNotFoundAction"), paramNotFound)
}
