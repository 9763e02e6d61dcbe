package crd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"plinth/internal/crd/validation"
	"plinth/internal/engine"
	"plinth/object"
)

// report is what the server says of a definition in its status: which names it has, and what that means. obj is null
// when the definition goes away.
//
// A name belongs to who had it first. So a definition gets those of the names it asks for that nobody else in its group
// has, and keeps what it has until it asks for another one. When it gives a name up, those who wait for one are looked
// at again, in the order of the names of their objects, each after the names that the one before it has got.
func (d *Definitions) report(obj, old object.Value, now time.Time) engine.Report {
	subject := obj
	if obj.IsNull() {
		subject = old
	}
	group, name := subject.At("spec", "group").Str(), subject.At("metadata", "name").Str()
	report := engine.Report{}
	var is names
	was := namesOf(old.At("status", "acceptedNames"))
	book := &ledger{claims: d.claims.Now(), group: group, now: now}
	if !obj.IsNull() {
		report.Status = book.statusOf(obj, name)
		is = namesOf(report.Status.At("acceptedNames"))
	}
	if is.equal(&was) {
		return report
	}
	report.Guard = "customresourcedefinitions/" + group
	book.note(name, is)
	for _, w := range book.claims.waiters(group, name) {
		other := outline(w.version)
		status := book.statusOf(other, w.version.Key.Name)
		if object.Equal(status, other.At("status")) {
			continue
		}
		book.note(w.version.Key.Name, namesOf(status.At("acceptedNames")))
		report.Others = append(report.Others, engine.ReportedOther{Version: w.version, Status: status})
	}
	return report
}

// ledger is who has which names of a group in the middle of a report: as the claims have it, but for those definitions
// of which the report has already said what they have.
type ledger struct {
	claims *claims
	group  string
	now    time.Time
	said   []*entry
}

// entry is a definition and the names that it has from now on.
type entry struct {
	object string
	has    names
}

// note says which names a definition has from now on.
func (l *ledger) note(object string, has names) { l.said = append(l.said, &entry{object, has}) }

// used says whether another definition has a name.
func (l *ledger) used(kinds bool, name, but string) bool {
	for _, e := range l.said {
		if e.object == but {
			continue
		}
		if kinds && (e.has.kind == name || e.has.listKind == name) {
			return true
		}
		if !kinds && (e.has.plural == name || e.has.singular == name || slices.Contains(e.has.short, name)) {
			return true
		}
	}
	index := &l.claims.resources
	if kinds {
		index = &l.claims.kinds
	}
	found := false
	prefix := place(l.group, name, "")
	index.Ascend(prefix, func(key string, _ *claim) bool {
		object, here := strings.CutPrefix(key, prefix)
		found = here && object != but && !slices.ContainsFunc(l.said, func(e *entry) bool { return e.object == object })
		return here && !found
	})
	return found
}

// statusOf is the status of a definition with the names that it can have.
func (l *ledger) statusOf(obj object.Value, name string) object.Value {
	status := obj.At("status")
	wanted, has := namesOf(obj.At("spec", "names")), namesOf(status.At("acceptedNames"))
	got, reason, message := l.accept(wanted, has, name)
	conditions := status.At("conditions")
	set := func(typ, value, reason, message string) {
		conditions = withCondition(conditions, typ, value, reason, message, l.now)
	}
	established := isTrue(status, "Established")
	if reason, message, ok, concerned := approval(obj); concerned {
		set("KubernetesAPIApprovalPolicyConformant", ok, reason, message)
	}
	switch {
	case reason != "":
		set("NamesAccepted", "False", reason, message)
		if condition(status, "Established").IsNull() {
			set("Established", "False", "NotAccepted", "not all names are accepted")
		}
	default:
		set("NamesAccepted", "True", "NoConflicts", "no conflicts found")
		if !established {
			set("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
		}
	}
	return status.Edit([]object.Member{{Key: "conditions", Value: conditions},
		{Key: "acceptedNames", Value: got.value()}})
}

// accept is the names that a definition can have of those that it wants, given those that it has; with the reason why
// it has not all of them: the last one that there is, as in the reference.
func (l *ledger) accept(wanted, has names, object string) (got names, reason, message string) {
	got = has
	take := func(kinds bool, want string, is *string, why string) {
		if want != *is && l.used(kinds, want, object) {
			reason, message = why, inUse(want)
			return
		}
		*is = want
	}
	take(false, wanted.plural, &got.plural, "PluralConflict")
	take(false, wanted.singular, &got.singular, "SingularConflict")
	var conflicts []string
	for _, short := range wanted.short {
		if !slices.Contains(has.short, short) && l.used(false, short, object) {
			conflicts = append(conflicts, inUse(short))
		}
	}
	switch len(conflicts) {
	case 0:
		got.short = wanted.short
	case 1:
		reason, message = "ShortNamesConflict", conflicts[0]
	default:
		reason, message = "ShortNamesConflict", "["+strings.Join(conflicts, ", ")+"]"
	}
	take(true, wanted.kind, &got.kind, "KindConflict")
	take(true, wanted.listKind, &got.listKind, "ListKindConflict")
	got.categories = wanted.categories
	return got, reason, message
}

func inUse(name string) string { return fmt.Sprintf("%q is already in use", name) }

// withCondition sets a condition, which changes its time only with its status.
func withCondition(conditions object.Value, typ, status, reason, message string, now time.Time) object.Value {
	since := object.StringOf(now.UTC().Format(time.RFC3339))
	items := conditions.Items()
	at := slices.IndexFunc(items, func(c object.Value) bool { return c.At("type").Str() == typ })
	if at >= 0 && items[at].At("status").Str() == status {
		since = items[at].At("lastTransitionTime")
	}
	c := object.Fields("type", object.StringOf(typ), "status", object.StringOf(status), "lastTransitionTime", since,
		"reason", object.StringOf(reason), "message", object.StringOf(message))
	switch {
	case at < 0:
		return object.ListOf(append(slices.Clone(items), c)...)
	case object.Equal(items[at], c):
		return conditions
	}
	return conditions.WithItem(at, c)
}

// approval is the condition that tells whether an API in a group of the Kubernetes project was approved. concerned is
// false for all other groups.
func approval(obj object.Value) (reason, message, status string, concerned bool) {
	if !validation.ProtectedGroup(obj.At("spec", "group").Str()) {
		return "", "", "", false
	}
	const (
		protected = "protected groups must have approval annotation \"" + validation.ApprovalAnnotation + "\""
		see       = ", see https://github.com/kubernetes/enhancements/pull/1111"
	)
	switch state, where := validation.ApprovalOf(obj); state {
	case validation.ApprovalMissing:
		return "MissingAnnotation", protected + see, "False", true
	case validation.ApprovalBypassed:
		return "UnapprovedAnnotation", fmt.Sprintf("not approved: %q", where), "False", true
	case validation.ApprovalGiven:
		return "ApprovedAnnotation", fmt.Sprintf("approved in %v", where), "True", true
	}
	return "InvalidAnnotation",
		protected + ` with either a URL or a reason starting with "unapproved"` + see, "False", true
}

// terminating is a definition when its deletion begins: it waits for its objects to be gone. As in the reference, it is
// neither a new generation, nor given a time.
func terminating(obj object.Value) object.Value {
	meta := obj.At("metadata").Without("deletionGracePeriodSeconds")
	if generation := meta.At("generation").Int(); generation > 1 {
		meta = meta.With("generation", object.IntOf(generation-1))
	}
	finalizers := meta.At("finalizers")
	if !slices.ContainsFunc(finalizers.Items(), func(f object.Value) bool { return f.Str() == Finalizer }) {
		meta = meta.With("finalizers",
			object.ListOf(append(slices.Clone(finalizers.Items()), object.StringOf(Finalizer))...))
	}
	began, err := time.Parse(time.RFC3339, meta.At("deletionTimestamp").Str())
	if err != nil {
		return obj
	}
	conditions := withCondition(obj.At("status", "conditions"), "Terminating", "True", "InstanceDeletionPending",
		"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon", began)
	return obj.With("metadata", meta).WithAt(conditions, "status", "conditions")
}

// Finalizer keeps a definition until its objects are gone.
const Finalizer = "customresourcecleanup.apiextensions.k8s.io"
