package validation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// This file has the rules of EvictionRequests and Evictions. Those of single fields are generated in the reference: an
// update checks what it has changed alone (revised).
//
// The other rules are about the responders in the status of an Eviction. In the order of their priorities each of them
// becomes active and then reaches a final state; the list of their reports has the same names.

const (
	maxEvictionConditions = 100
	maxEvictionRequesters = 100
	maxPodResponders      = 10
	maxEvictionResponders = maxPodResponders + 1 // that of the reference, too
	maxResponderMessage   = 4000
	maxResponderPriority  = 100000
	ownPriorities         = 1000 // below are those of the reference

	// imperativeResponder evicts by means of the subresource of Pods, if no other responder does.
	imperativeResponder  = "imperative-eviction.k8s.io/evictor"
	imperativePriority   = 100
	heartbeatDeadline    = 20 * time.Minute
	responderSkew        = 30 * time.Second
	longestEviction      = 10 * 365 * 24 * time.Hour
	reportedFirst        = "%q has to be tracked in status.responders first"
	notBeforeStart       = "cannot be set before %s is set"
	afterStart           = "must occur after %s"
	setToPresent         = "must be set to the present time"
	clearedOnceSet       = "field cannot be cleared once set"
	modifiedOnceSet      = "field cannot be modified once set"
	reservedDomains      = "domain names *.k8s.io, *.kubernetes.io are reserved"
	reservedPriorities   = "priorities 0-999 are reserved for responders with *.k8s.io suffix"
	responderStillActive = "must stay Active because the responder is in progress and it should report" +
		" status.responders.heartbeatTime or status.responders.completionTime"
)

var (
	evictionIntents = []string{"Eviction", "Withdrawn"}
	finalStates     = []string{"Canceled", "Completed", "Interrupted"}
	responderStates = []string{"Active", "Canceled", "Completed", "Inactive", "Interrupted"}
	targetChoice    = []string{"pod"}

	podResponderOrder = members("name", "priority")

	requesterOrder = members("name", "intent")
	responderOrder = members("name", "priority", "state")
	reportOrder    = members("name", "startTime", "heartbeatTime", "expectedCompletionTime", "completionTime", "message")

	responderFields = []goField{{name: "Name", member: "name"}, {name: "Priority", member: "priority"},
		{name: "State", member: "state"}}
	reportFields = []goField{{name: "Name", member: "name"}, {name: "StartTime", member: "startTime"},
		{name: "HeartbeatTime", member: "heartbeatTime"},
		{name: "ExpectedCompletionTime", member: "expectedCompletionTime"},
		{name: "CompletionTime", member: "completionTime"}, {name: "Message", member: "message"}}
)

func evictionRequestCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.unnamed(obj)
	f.evictionRequestSpec(created(obj.At("spec")), (*fielderrors.Location)(nil).To("spec"))
}

func evictionRequestUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.evictionRequestSpec(changedFrom(obj.At("spec"), old.At("spec")), (*fielderrors.Location)(nil).To("spec"))
}

func evictionRequestStatus(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.evictionProgress(changedFrom(obj.At("status"), old.At("status")), (*fielderrors.Location)(nil).To("status"))
}

func evictionCreate(f *errorList, obj object.Value) {
	f.qualifiedFinalizers(obj)
	f.unnamed(obj)
	f.evictionTarget(created(obj.At("spec", "target")), (*fielderrors.Location)(nil).To("spec").To("target"))
}

func evictionUpdate(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	f.evictionTarget(changedFrom(obj.At("spec", "target"), old.At("spec", "target")),
		(*fielderrors.Location)(nil).To("spec").To("target"))
}

func evictionStatus(f *errorList, obj, old object.Value) {
	f.qualifiedFinalizers(obj)
	r, p := changedFrom(obj.At("status"), old.At("status")), (*fielderrors.Location)(nil).To("status")
	f.evictionProgress(r, p)
	f.requesters(r.member("requesters"), p.To("requesters"))
	f.declaredResponders(r.member("targetResponders"), p.To("targetResponders"))
	f.declaredReports(r.member("responders"), p.To("responders"))

	final := f.finalConditions(r.value.At("conditions"), r.old.At("conditions"), p.To("conditions"))
	f.responders(r, final, p.To("targetResponders"))
	f.reports(r, p.To("responders"))
}

// unnamed is the error of generated rules for an object without a name, which the common rules of metadata refuse, too.
func (f *errorList) unnamed(obj object.Value) {
	if name := text(obj.At("metadata"), "name"); name == "" {
		f.longName((*fielderrors.Location)(nil).To("metadata").To("name"), name)
	}
}

// evictionRequestSpec checks who wants what to be evicted.
func (f *errorList) evictionRequestSpec(r revised, p *fielderrors.Location) {
	f.evictionTarget(r.member("target"), p.To("target"))
	if requester, at := r.member("requester"), p.To("requester"); !requester.unchanged() {
		name := requester.value.Str()
		if r.update {
			f.changed(at)
		}
		if name == "" {
			f.Required(at, "")
		} else if !r.update {
			f.ownDomain(name, at)
			f.prefixedKey(name, at)
		}
	}
	if intent := r.member("intent"); !intent.unchanged() {
		f.oneOf(p.To("intent"), intent.value.Str(), evictionIntents)
	}
}

// evictionTarget checks the immutable target: a Pod.
func (f *errorList) evictionTarget(r revised, p *fielderrors.Location) {
	if !f.immutableMember(r, p) {
		return
	}
	f.union(r.value, targetChoice, p)
	pod, p := r.value.At("pod"), p.To("pod")
	if pod.IsNull() {
		return
	}
	if name := text(pod, "name"); name == "" {
		f.Required(p.To("name"), "")
	} else {
		f.longName(p.To("name"), name)
	}
	if text(pod, "uid") == "" {
		f.Required(p.To("uid"), "")
	} else {
		f.lowercaseUUID(p.To("uid"), text(pod, "uid"))
	}
}

// ownDomain refuses a requester or a responder in the domains of Kubernetes.
func (f *errorList) ownDomain(name string, p *fielderrors.Location) {
	domain, _, _ := strings.Cut(name, "/")
	domain = strings.TrimRight(strings.TrimSpace(strings.ToLower(domain)), ".")
	for _, reserved := range [...]string{"k8s.io", "kubernetes.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			f.Invalid(p, name, reservedDomains)
			return
		}
	}
}

func (f *errorList) prefixedKey(name string, p *fielderrors.Location) {
	f.Each(p, name, content.IsPrefixedLabelKey(name))
}

// requiredKey is prefixedKey for a member that must be set, in an item of a list.
func (f *errorList) requiredKey(r revised, p *fielderrors.Location) {
	switch name := r.value.Str(); {
	case r.unchanged():
	case name == "":
		f.Required(p, "")
	default:
		f.prefixedKey(name, p)
	}
}

// evictionProgress checks what both kinds have in their status.
func (f *errorList) evictionProgress(r revised, p *fielderrors.Location) {
	conditions, at := r.member("conditions"), p.To("conditions")
	f.conditions(conditions.value, at)
	if !conditions.unchanged() {
		f.tooMany(conditions.value, maxEvictionConditions, at)
	}
	observed, at := r.member("observedGeneration"), p.To("observedGeneration")
	switch n, before := observed.value.Int(), observed.old; {
	case observed.unchanged():
	case observed.value.IsNull():
		f.Invalid(at, nil, clearedOnceSet)
	default:
		f.atLeast(observed.value, 1, at)
		if !before.IsNull() && n < before.Int() {
			f.Invalid(at, n, fmt.Sprintf("may not be decreased from %d", before.Int()))
		}
	}
}

// mapped checks a list whose items have names, by generated rules, and says whether its items must be checked.
func (f *errorList) mapped(r revised, limit int, order []jsonField, p *fielderrors.Location) bool {
	if r.unchanged() || f.tooMany(r.value, limit, p) {
		return false
	}
	f.uniqueItems(r.value, "name", p, order)
	return true
}

func (f *errorList) requesters(r revised, p *fielderrors.Location) {
	if !f.mapped(r, maxEvictionRequesters, requesterOrder, p) {
		return
	}
	for i := range r.value.Items() {
		item, p := r.item(i), p.Item(i)
		f.requiredKey(item.member("name"), p.To("name"))
		if intent := item.member("intent"); !intent.unchanged() {
			f.oneOf(p.To("intent"), intent.value.Str(), evictionIntents)
		}
	}
}

// declaredResponders are the generated rules of the responders.
func (f *errorList) declaredResponders(r revised, p *fielderrors.Location) {
	if !f.mapped(r, maxEvictionResponders, responderOrder, p) {
		return
	}
	for i := range r.value.Items() {
		item, p := r.item(i), p.Item(i)
		f.requiredKey(item.member("name"), p.To("name"))
		switch priority, p := item.member("priority"), p.To("priority"); {
		case priority.unchanged():
		case priority.value.IsNull():
			f.Required(p, "")
			f.setOnce(priority, p)
		case f.setOnce(priority, p):
			f.responderPriority(priority.value, p)
		}
		if state := item.member("state"); !state.unchanged() {
			f.oneOf(p.To("state"), state.value.Str(), responderStates)
		}
	}
}

// podResponders are the rules of the responders that a Pod, or a template of Pods, names.
func (f *errorList) podResponders(r revised, p *fielderrors.Location) {
	if !f.mapped(r, maxPodResponders, podResponderOrder, p) {
		return
	}
	for i := range r.value.Items() {
		item, p := r.item(i), p.Item(i)
		if name := item.member("name"); !name.unchanged() {
			f.ownDomain(name.value.Str(), p.To("name"))
			f.requiredKey(name, p.To("name"))
		}
		switch priority, p := item.member("priority"), p.To("priority"); {
		case priority.unchanged():
		case priority.value.IsNull():
			f.Required(p, "")
		default:
			if n := priority.value.Int(); n >= 0 && n < ownPriorities {
				f.Invalid(p, n, reservedPriorities)
			}
			f.responderPriority(priority.value, p)
		}
	}
}

func (f *errorList) responderPriority(priority object.Value, p *fielderrors.Location) {
	f.atLeast(priority, 0, p)
	if n := priority.Int(); n > maxResponderPriority {
		f.Invalid(p, n, content.MaxError(maxResponderPriority))
	}
}

// setOnce demands that an update neither changes nor removes a member that is set, and says whether it was not set.
func (f *errorList) setOnce(r revised, p *fielderrors.Location) bool {
	switch {
	case r.unchanged() || r.old.IsNull():
		return true
	case r.value.IsNull():
		f.Invalid(p, nil, clearedOnceSet)
	default:
		f.Invalid(p, nil, modifiedOnceSet)
	}
	return false
}

// declaredReports are the generated rules of what the responders report.
func (f *errorList) declaredReports(r revised, p *fielderrors.Location) {
	if !f.mapped(r, maxEvictionResponders, reportOrder, p) {
		return
	}
	for i := range r.value.Items() {
		item, p := r.item(i), p.Item(i)
		f.requiredKey(item.member("name"), p.To("name"))
		f.setOnce(item.member("startTime"), p.To("startTime"))
		f.setOnce(item.member("completionTime"), p.To("completionTime"))
		if message := item.member("message"); !message.unchanged() &&
			len([]rune(message.value.Str())) > maxResponderMessage {
			f.TooLongCharacters(p.To("message"), maxResponderMessage)
		}
	}
}

// finalConditions refuses that an eviction that has succeeded or failed goes on, and says whether it has.
func (f *errorList) finalConditions(conditions, old object.Value, p *fielderrors.Location) (final bool) {
	const success, failure = "TargetEvicted", "Failed"
	isTrue := func(kind string) bool { return text(conditionOf(conditions, kind), "status") == "True" }
	final = isTrue(success) || isTrue(failure)
	for _, before := range old.Items() {
		kind := text(before, "type")
		if kind != success && kind != failure || text(before, "status") != "True" {
			continue
		}
		now := conditionOf(conditions, kind)
		if now.IsNull() || text(now, "status") == "False" || text(now, "reason") != text(before, "reason") {
			f.Invalid(p, fielderrors.ShowList(conditions, conditionOrder), kind+" condition status cannot be reverted")
			final = true
		}
	}
	return final
}

// conditionOf finds the first condition of a type; null if there is none.
func conditionOf(conditions object.Value, kind string) object.Value {
	for _, c := range conditions.Items() {
		if text(c, "type") == kind {
			return c
		}
	}
	return object.Nil
}

// itemNamed finds the last item with a name; null if there is none.
func itemNamed(items object.Value, name string) object.Value {
	found := object.Nil
	for _, item := range items.Items() {
		if named(item) == name {
			found = item
		}
	}
	return found
}

// hasItems says whether there is an item for each name of others.
func hasItems(items, others object.Value) bool {
	for _, item := range others.Items() {
		if itemNamed(items, named(item)).IsNull() {
			return false
		}
	}
	return true
}

// repeats says whether two items have the same name.
func repeats(items object.Value) bool {
	var names nameSet
	for _, item := range items.Items() {
		if names.add(text(item, "name")) {
			return true
		}
	}
	return false
}

// responders checks the responders with their states. final says that the eviction is over.
func (f *errorList) responders(r revised, final bool, p *fielderrors.Location) {
	responders, old := r.value.At("targetResponders"), r.old.At("targetResponders")
	if old.Len() > 0 {
		if responders.Len() != old.Len() {
			f.Invalid(p, goForm{responders, responderFields}, "must preserve the same length and the same keys")
			return
		}
		if !hasItems(responders, old) {
			f.Invalid(p, goForm{responders, responderFields}, "must preserve the same keys")
			return
		}
	}
	if responders.Len() > maxEvictionResponders || repeats(responders) {
		return
	}
	order := turnsOf(old, responders, final)
	for i, responder := range order.sorted {
		at := slices.IndexFunc(responders.Items(), func(v object.Value) bool { return named(v) == named(responder) })
		allowed, because := order.allowed(i)
		f.responder(responder, itemNamed(r.value.At("responders"), named(responder)), allowed, because, final,
			p.Item(at))
	}
}

// turns are the responders in their order, with the states that they had before.
type turns struct {
	sorted, old   []object.Value
	active        int  // the one that was active; -1: none was
	passed, final bool // it is not active any more; the eviction is over
}

func turnsOf(old, responders object.Value, final bool) turns {
	t := turns{sorted: slices.Clone(responders.Items()), old: slices.Clone(old.Items()), final: final}
	slices.SortFunc(t.sorted, compareResponders)
	slices.SortFunc(t.old, compareResponders)
	t.active = slices.IndexFunc(t.old, func(v object.Value) bool { return text(v, "state") == "Active" })
	t.passed = t.active >= 0 && text(t.sorted[t.active], "state") != "Active"
	return t
}

// processed says whether no responder will become active any more: the last one had its turn.
func (t *turns) processed() bool {
	if len(t.old) == 0 {
		return false
	}
	return t.final || slices.Contains(finalStates, text(t.old[len(t.old)-1], "state"))
}

// allowed returns the states that the i-th responder may have, and why.
func (t *turns) allowed(i int) (states []string, because string) {
	const over = "the eviction request has finished processing"
	next := i == 0 && len(t.old) == 0 || i == t.active+1 && t.passed
	switch {
	case i < t.active || t.active < 0 && t.processed():
		return []string{text(t.old[i], "state")}, "final state is immutable"
	case i == t.active && t.passed:
		return finalStates, "this responder must reach a final state"
	case i == t.active && t.final:
		return finalStates, over
	case i == t.active:
		return []string{"Active"}, "the eviction request stays active"
	case next && t.final:
		return []string{"Inactive"}, over
	case next:
		return []string{"Active"}, "this responder is next in line"
	}
	return []string{"Inactive"}, "the previously active has not finished processing"
}

// compareResponders orders responders by their priority, the highest first, those without one last, and then by their
// names: domains by their labels from the last to the first.
func compareResponders(a, b object.Value) int {
	if first, second := a.At("priority"), b.At("priority"); !object.Equal(first, second) {
		switch {
		case first.IsNull():
			return 1
		case second.IsNull():
			return -1
		}
		return cmp.Compare(second.Int(), first.Int())
	}
	domainA, keyA, _ := strings.Cut(named(a), "/")
	domainB, keyB, _ := strings.Cut(named(b), "/")
	labelsA, labelsB := strings.Split(domainA, "."), strings.Split(domainB, ".")
	slices.Reverse(labelsA)
	slices.Reverse(labelsB)
	return cmp.Or(slices.Compare(labelsA, labelsB), cmp.Compare(keyA, keyB))
}

// responder checks one responder; report is what it has reported.
func (f *errorList) responder(responder, report object.Value, allowed []string, because string, final bool,
	p *fielderrors.Location) {
	if report.IsNull() {
		f.Invalid(p, goForm{responder, responderFields}, fmt.Sprintf(reportedFirst, named(responder)))
		return
	}
	priority, at := responder.At("priority"), p.To("priority")
	switch n := priority.Int(); {
	case priority.IsNull() || n < 0:
	case named(responder) == imperativeResponder && n != imperativePriority:
		f.Invalid(at, n, fmt.Sprintf("core k8s responder is expected to have priority: %d", imperativePriority))
	case named(responder) != imperativeResponder && n < ownPriorities:
		f.Invalid(at, n, reservedPriorities)
	}
	state, at := text(responder, "state"), p.To("state")
	if !slices.Contains(allowed, state) {
		f.Invalid(at, fielderrors.Word(state),
			fmt.Sprintf("must be one of: %s, because %s", strings.Join(allowed, ", "), because))
		return
	}
	begun := has(report, "startTime") && !has(report, "completionTime")
	if begun && state != "Active" && !final {
		last := moment(report.At("startTime"))
		if has(report, "heartbeatTime") {
			last = moment(report.At("heartbeatTime"))
		}
		if f.clock().Before(last.Add(heartbeatDeadline - responderSkew)) {
			f.Forbidden(at, responderStillActive)
		}
	}
	if state == "Completed" && !has(report, "completionTime") {
		f.Invalid(at, fielderrors.Word(state),
			"cannot become Completed because the responder didn't report status.responders.completionTime")
	}
}

func (f *errorList) clock() time.Time {
	if f.Now == nil {
		return time.Now()
	}
	return f.Now()
}

// near says whether a time is the present one, but for what clocks differ.
func (f *errorList) near(t time.Time) bool { return t.Sub(f.clock()).Abs() < responderSkew }

// reports checks what the responders report.
func (f *errorList) reports(r revised, p *fielderrors.Location) {
	responders, reports := r.value.At("targetResponders"), r.value.At("responders")
	if responders.Len() != reports.Len() {
		f.Invalid(p, goForm{reports, reportFields},
			"must be the same length as status.targetResponders and contain the same keys")
		return
	}
	if !hasItems(reports, responders) {
		f.Invalid(p, goForm{reports, reportFields}, "must contain the same keys as status.targetResponders")
		return
	}
	if reports.Len() > maxEvictionResponders || repeats(reports) {
		return
	}
	for i, report := range reports.Items() {
		state := text(itemNamed(responders, named(report)), "state")
		old := itemNamed(r.old.At("responders"), named(report))
		f.report(revised{value: report, old: old, known: !old.IsNull()}, state == "Active", p.Item(i))
	}
}

// report checks what one responder reports. Only the active one may change its report.
func (f *errorList) report(r revised, active bool, p *fielderrors.Location) {
	if r.known && !r.unchanged() && !active {
		f.Invalid(p, goForm{r.value, reportFields}, fielderrors.Immutable)
		return
	}
	start, at := r.member("startTime"), p.To("startTime")
	switch {
	case !start.old.IsNull(): // generated rules
	case start.value.IsNull() && active:
		f.Required(at, "is required for an active responder")
	case !start.value.IsNull() && !f.near(moment(start.value)):
		f.Invalid(at, fielderrors.Show(start.value), setToPresent)
	}
	started := fmt.Sprint(f.Path(at))
	f.heartbeat(r.member("heartbeatTime"), start.value, started, p.To("heartbeatTime"))
	f.expectedEnd(r.member("expectedCompletionTime"), start.value, started, p.To("expectedCompletionTime"))
	f.completion(r.member("completionTime"), start.value, started, p.To("completionTime"))
}

func (f *errorList) heartbeat(r revised, start object.Value, started string, p *fielderrors.Location) {
	if !r.old.IsNull() && r.value.IsNull() {
		f.Required(p, "is required once set")
	}
	if r.value.IsNull() || object.Equal(r.value, r.old) {
		return
	}
	now, shown := moment(r.value), fielderrors.Show(r.value)
	switch {
	case start.IsNull():
		f.Invalid(p, shown, fmt.Sprintf(notBeforeStart, started))
	case !r.old.IsNull() && now.Before(moment(r.old)):
		f.Invalid(p, shown, "cannot be decreased")
	case now.Before(moment(start)):
		f.Invalid(p, shown, fmt.Sprintf(afterStart, started))
	case !f.near(now):
		f.Invalid(p, shown, setToPresent)
	}
}

func (f *errorList) expectedEnd(r revised, start object.Value, started string, p *fielderrors.Location) {
	if r.value.IsNull() || object.Equal(r.value, r.old) {
		return
	}
	end, shown := moment(r.value), fielderrors.Show(r.value)
	switch {
	case start.IsNull():
		f.Invalid(p, shown, fmt.Sprintf(notBeforeStart, started))
	case end.Before(moment(start)):
		f.Invalid(p, shown, fmt.Sprintf(afterStart, started))
	case end.Before(f.clock().Add(-responderSkew)):
		f.Invalid(p, shown, "cannot be set to the past time")
	case end.After(f.clock().Add(longestEviction)):
		f.Invalid(p, shown, "must complete within 10 years")
	}
}

func (f *errorList) completion(r revised, start object.Value, started string, p *fielderrors.Location) {
	if r.value.IsNull() || !r.old.IsNull() && !object.Equal(r.value, r.old) { // generated rules
		return
	}
	end, shown := moment(r.value), fielderrors.Show(r.value)
	switch {
	case start.IsNull():
		f.Invalid(p, shown, fmt.Sprintf(notBeforeStart, started))
	case end.Before(moment(start)):
		f.Invalid(p, shown, fmt.Sprintf(afterStart, started))
	case r.old.IsNull() && !f.near(end):
		f.Invalid(p, shown, setToPresent)
	}
}
