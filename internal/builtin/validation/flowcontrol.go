package validation

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

const (
	exempt        = "exempt"
	catchAll      = "catch-all"
	maxPrecedence = 10000
	maxQueues     = 10_000_000
	maxHashBits   = 60
	// keepZeroAnnotation is an annotation of the version v1beta3, whose conversion removes it: no other version may
	// have it.
	keepZeroAnnotation = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
)

var (
	distinguishers = []string{"ByNamespace", "ByUser"}
	flowVerbs      = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update",
		"watch"}
	flowSubjects    = []string{"Group", "ServiceAccount", "User"}
	enablements     = []string{"Exempt", "Limited"}
	limitResponses  = []string{"Queue", "Reject"}
	subjectMembers  = [...][2]string{{"ServiceAccount", "serviceAccount"}, {"User", "user"}, {"Group", "group"}}
	flowSchemaRules = Kind{create: flowSchemaCreate,
		update: func(f *errorList, obj, _ object.Value) { flowSchemaCreate(f, obj) },
		status: func(f *errorList, obj, _ object.Value) { f.flowConditions(obj) }}
	priorityLevelRules = Kind{create: priorityLevelCreate,
		update: func(f *errorList, obj, _ object.Value) { priorityLevelCreate(f, obj) },
		status: func(f *errorList, obj, _ object.Value) { f.flowConditions(obj) }}
)

// The mandatory flow schemas, whose specs are fixed.
var fixedFlowSchemas = map[string]object.Value{
	exempt: object.Fields(
		"matchingPrecedence", object.IntOf(1),
		"priorityLevelConfiguration", object.Fields("name", object.StringOf(exempt)),
		"rules", object.ListOf(object.Fields(
			"subjects", object.ListOf(groupSubject("system:masters")),
			"resourceRules", object.ListOf(object.Fields("verbs", object.Strings("*"), "apiGroups", object.Strings("*"),
				"resources", object.Strings("*"), "clusterScope", object.BoolOf(true), "namespaces",
				object.Strings("*"))),
			"nonResourceRules", object.ListOf(object.Fields("verbs", object.Strings("*"), "nonResourceURLs",
				object.Strings("*"))),
		)),
	),
	catchAll: object.Fields(
		"matchingPrecedence", object.IntOf(maxPrecedence),
		"priorityLevelConfiguration", object.Fields("name", object.StringOf(catchAll)),
		"distinguisherMethod", object.Fields("type", object.StringOf("ByUser")),
		"rules", object.ListOf(object.Fields(
			"subjects", object.ListOf(groupSubject("system:unauthenticated"), groupSubject("system:authenticated")),
			"resourceRules", object.ListOf(object.Fields("verbs", object.Strings("*"), "apiGroups", object.Strings("*"),
				"resources", object.Strings("*"), "clusterScope", object.BoolOf(true), "namespaces",
				object.Strings("*"))),
			"nonResourceRules", object.ListOf(object.Fields("verbs", object.Strings("*"), "nonResourceURLs",
				object.Strings("*"))),
		)),
	),
}

func groupSubject(name string) object.Value {
	return object.Fields("kind", object.StringOf("Group"), "group", object.Fields("name", object.StringOf(name)))
}

func flowSchemaCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	p := (*fielderrors.Location)(nil).To("spec")
	spec, name := obj.At("spec"), text(obj.At("metadata"), "name")
	precedence := number(spec, "matchingPrecedence")
	if precedence <= 0 {
		f.Invalid(p.To("matchingPrecedence"), precedence, "must be a positive value")
	}
	if precedence > maxPrecedence {
		f.Invalid(p.To("matchingPrecedence"), precedence, fmt.Sprintf("must not be greater than %v", maxPrecedence))
	}
	if precedence == 1 && name != exempt {
		f.Invalid(p.To("matchingPrecedence"), precedence,
			"only the schema named 'exempt' may have matchingPrecedence 1")
	}
	if method := spec.At("distinguisherMethod"); !method.IsNull() && !holds(distinguishers, text(method, "type")) {
		f.InvalidEnum(p.To("distinguisherMethod").To("type"),
			goForm{method, typeField}, distinguishers)
	}
	if level := text(spec.At("priorityLevelConfiguration"), "name"); level == "" {
		f.Required(p.To("priorityLevelConfiguration").To("name"), "must reference a priority level")
	} else {
		f.subdomain(p.To("priorityLevelConfiguration").To("name"), level)
	}
	for i, rule := range spec.At("rules").Items() {
		f.flowRule(rule, p.To("rules").Item(i))
	}
	if fixed, ok := fixedFlowSchemas[name]; ok && !same(spec, fixed) {
		f.Invalid(p, goForm{spec, flowSchemaFields}, "spec of '"+name+"' must equal the fixed value")
	}
	f.flowConditions(obj)
}

func (f *errorList) flowRule(rule object.Value, p *fielderrors.Location) {
	subjects := rule.At("subjects")
	if subjects.Len() == 0 {
		f.Required(p.To("subjects"), "subjects must contain at least one value")
	}
	for i, subject := range subjects.Items() {
		f.flowSubject(subject, p.To("subjects").Item(i))
	}
	resources, urls := rule.At("resourceRules"), rule.At("nonResourceRules")
	if resources.Len()+urls.Len() == 0 {
		f.Required(p, "at least one of resourceRules and nonResourceRules has to be non-empty")
	}
	for i, resource := range resources.Items() {
		f.flowResources(resource, p.To("resourceRules").Item(i))
	}
	for i, url := range urls.Items() {
		p := p.To("nonResourceRules").Item(i)
		f.flowVerbs(url, p)
		f.starAlone(url, "nonResourceURLs", "nonResourceURLs must contain at least one value",
			"other non-resource URLs", p)
		if paths := url.At("nonResourceURLs"); !contains(paths, "*") {
			for j, item := range paths.Items() {
				f.urlPath(p.To("nonResourceURLs").Item(j), item.Str())
			}
		}
	}
}

func (f *errorList) flowSubject(subject object.Value, p *fielderrors.Location) {
	kind := text(subject, "kind")
	if !holds(flowSubjects, kind) {
		f.Unsupported(p.To("kind"), kind, flowSubjects)
		return
	}
	for _, member := range subjectMembers {
		v := subject.At(member[1])
		at := p.To(member[1])
		switch {
		case member[0] != kind && !v.IsNull():
			f.Forbidden(at, member[1]+" is forbidden when subject kind is not '"+member[0]+"'")
		case member[0] != kind:
		case v.IsNull():
			f.Required(at, member[1]+" is required when subject kind is '"+kind+"'")
		default:
			name := text(v, "name")
			f.requiredText(at.To("name"), name)
			if kind != "ServiceAccount" {
				continue
			}
			if name != "" && name != "*" {
				f.subdomain(at.To("name"), name)
			}
			if namespace := text(v, "namespace"); namespace == "" {
				f.Required(at.To("namespace"), "must specify namespace for service account")
			} else {
				f.label(at.To("namespace"), namespace)
			}
		}
	}
}

// starAlone demands a list that is not empty, and that a star is its only item if it is present.
func (f *errorList) starAlone(rule object.Value, key, missing, others string, p *fielderrors.Location) {
	values := rule.At(key)
	if values.Len() == 0 {
		f.Required(p.To(key), missing)
	} else if values.Len() > 1 && contains(values, "*") {
		f.Invalid(p.To(key), fielderrors.Show(values), "if '*' is present, must not specify "+others)
	}
}

func (f *errorList) flowVerbs(rule object.Value, p *fielderrors.Location) {
	verbs := rule.At("verbs")
	f.starAlone(rule, "verbs", "verbs must contain at least one value", "other verbs", p)
	known := func(v object.Value) bool { return holds(flowVerbs, v.Str()) }
	if !contains(verbs, "*") && slices.ContainsFunc(verbs.Items(), func(v object.Value) bool { return !known(v) }) {
		f.InvalidEnum(p.To("verbs"), fielderrors.Show(verbs), flowVerbs)
	}
}

func (f *errorList) flowResources(rule object.Value, p *fielderrors.Location) {
	f.flowVerbs(rule, p)
	f.starAlone(rule, "apiGroups", "resource rules must supply at least one api group", "other api groups", p)
	f.starAlone(rule, "resources", "resource rules must supply at least one resource", "other resources", p)
	namespaces := rule.At("namespaces")
	switch {
	case namespaces.Len() == 0:
		if !truth(rule, "clusterScope") {
			f.Required(p.To("namespaces"),
				"resource rules that are not cluster scoped must supply at least one namespace")
		}
	case contains(namespaces, "*"):
		if namespaces.Len() > 1 {
			f.Invalid(p.To("namespaces"), fielderrors.Show(namespaces),
				"if '*' is present, must not specify other namespaces")
		}
	default:
		for i, item := range namespaces.Items() {
			for _, wrong := range objectmeta.LabelErrors(item.Str()) {
				f.Invalid(p.To("namespaces").Item(i), item.Str(),
					"each member of this list must be '*' or a DNS-1123 label; "+wrong)
			}
		}
	}
}

func (f *errorList) urlPath(p *fielderrors.Location, path string) {
	stars := strings.Count(path, "*")
	switch {
	case path == "":
		f.Invalid(p, path, "must not be empty")
	case path[0] != '/':
		f.Invalid(p, path, "must start with slash")
	case strings.Contains(path, " "):
		f.Invalid(p, path, "must not contain white-space")
	case strings.Contains(path, "//"):
		f.Invalid(p, path, "must not contain double slash")
	case stars > 1 || stars == 1 && !strings.HasSuffix(path, "/*"):
		f.Invalid(p, path, "wildcard can only do suffix matching")
	}
}

func (f *errorList) flowConditions(obj object.Value) {
	var types nameSet
	for i, condition := range obj.At("status", "conditions").Items() {
		p := (*fielderrors.Location)(nil).To("status").To("conditions").Item(i).To("type")
		kind := text(condition, "type")
		if types.add(kind) {
			f.Duplicate(p, fielderrors.Word(kind))
		}
		f.requiredText(p, kind)
	}
}

func priorityLevelCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	if has(obj.At("metadata", "annotations"), keepZeroAnnotation) {
		f.Forbidden((*fielderrors.Location)(nil).To("metadata").To("annotations"),
			"annotation '"+keepZeroAnnotation+"' is forbidden")
	}
	p := (*fielderrors.Location)(nil).To("spec")
	spec, name := obj.At("spec"), text(obj.At("metadata"), "name")
	kind := text(spec, "type")
	if (name == exempt) != (kind == "Exempt") {
		f.Invalid(p.To("type"), fielderrors.Word(kind), "must be 'Exempt' if and only if `name` is 'exempt'")
	}
	limited, unlimited := spec.At("limited"), spec.At("exempt")
	switch kind {
	case "Exempt":
		f.concurrencyShares(unlimited, p.To("exempt"))
	case "Limited":
		f.limited(limited, p.To("limited"))
	default:
		f.oneOf(p.To("type"), kind, enablements)
	}
	f.goesWith(unlimited, kind == "Exempt", false, p.To("exempt"))
	f.goesWith(limited, kind == "Limited", true, p.To("limited"))
	if !limited.IsNull() {
		response, at := limited.At("limitResponse"), p.To("limited").To("limitResponse")
		f.requiredText(at.To("type"), text(response, "type"))
		f.goesWith(response.At("queuing"), text(response, "type") == "Queue", true, at.To("queuing"))
	}
	f.fixedPriorityLevel(spec, name, p)
	f.flowConditions(obj)
}

// goesWith forbids a member unless the type is the named one, and can require it for that type.
func (f *errorList) goesWith(member object.Value, named, needed bool, p *fielderrors.Location) {
	switch {
	case !named && !member.IsNull():
		f.Forbidden(p, "")
	case named && needed && member.IsNull():
		f.Required(p, "")
	}
}

func (f *errorList) concurrencyShares(config object.Value, p *fielderrors.Location) {
	if shares := number(config, "nominalConcurrencyShares"); shares < 0 {
		f.Invalid(p.To("nominalConcurrencyShares"), shares, "must be a non-negative integer")
	}
	f.lendable(config, p)
}

func (f *errorList) lendable(config object.Value, p *fielderrors.Location) {
	if percent := number(config, "lendablePercent"); percent < 0 || percent > 100 {
		f.Invalid(p.To("lendablePercent"), percent, "must be between 0 and 100, inclusive")
	}
}

func (f *errorList) limited(config object.Value, p *fielderrors.Location) {
	if shares := number(config, "nominalConcurrencyShares"); shares < 0 {
		f.Invalid(p.To("nominalConcurrencyShares"), shares, "must be a non-negative integer")
	}
	response := config.At("limitResponse")
	at := p.To("limitResponse")
	queuing := response.At("queuing")
	switch kind := text(response, "type"); {
	case kind == "Queue" && !queuing.IsNull():
		f.queuing(queuing, at.To("queuing"))
	case kind != "":
		f.only(at.To("type"), kind, limitResponses)
	}
	f.lendable(config, p)
	if percent := number(config, "borrowingLimitPercent"); percent < 0 {
		f.Invalid(p.To("borrowingLimitPercent"), percent, "if specified, must be a non-negative integer")
	}
}

func (f *errorList) queuing(queuing object.Value, p *fielderrors.Location) {
	queues, hand := number(queuing, "queues"), number(queuing, "handSize")
	if limit := number(queuing, "queueLengthLimit"); limit <= 0 {
		f.Invalid(p.To("queueLengthLimit"), limit, "must be positive")
	}
	if queues <= 0 {
		f.Invalid(p.To("queues"), queues, "must be positive")
	} else if queues > maxQueues {
		f.Invalid(p.To("queues"), queues, fmt.Sprintf("must not be greater than %d", maxQueues))
	}
	switch {
	case hand <= 0:
		f.Invalid(p.To("handSize"), hand, "must be positive")
	case hand > queues:
		f.Invalid(p.To("handSize"), hand, fmt.Sprintf("should not be greater than queues (%d)", queues))
	case entropyBits(queues, hand) > maxHashBits:
		f.Invalid(p.To("handSize"), hand,
			fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", queues,
				hand, maxHashBits))
	}
}

// entropyBits is the number of random bits that are needed to deal a hand from a deck.
func entropyBits(deck, hand int64) int {
	return int(math.Ceil(math.Log2(float64(deck)) * float64(hand)))
}

// fixedPriorityLevel refuses changes of the mandatory priority levels, except of the field exempt in the one of that
// name.
func (f *errorList) fixedPriorityLevel(spec object.Value, name string, p *fielderrors.Location) {
	switch name {
	case exempt:
		if !same(spec.Without("exempt"), object.Fields("type", object.StringOf("Exempt"))) {
			f.Invalid(p, goForm{spec, priorityLevelFields},
				"spec of 'exempt' except the 'spec.exempt' field must equal the fixed value")
		}
	case catchAll:
		fixed := object.Fields("type", object.StringOf("Limited"), "limited", object.Fields("nominalConcurrencyShares",
			object.IntOf(5),
			"lendablePercent", object.IntOf(0), "limitResponse", object.Fields("type", object.StringOf("Reject"))))
		if !same(spec, fixed) {
			f.Invalid(p, goForm{spec, priorityLevelFields}, "spec of 'catch-all' must equal the fixed value")
		}
	}
}
