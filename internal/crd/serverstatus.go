package crd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/crd/validation"
	"plinth/internal/engine"
	"plinth/internal/view"
	"plinth/object"
)

// serverStatus decides which names of a definition are accepted, and returns its status. obj is null if the definition
// is deleted.
//
// Problem: definitions of one group may request the same names, and two with the same accepted name would make its URL
// ambiguous. In the reference a controller decides after the definition is stored, so a client has to wait until the
// type is served. Here the decision is made in the commit of the definition.
//
// Invariant: in a group, each plural, singular and short name, and each kind and list kind, is accepted for at most
// one definition.
//
// A definition gets those names in its spec that are accepted for no other definition of the group; its short names are
// accepted all together or not at all. It keeps an accepted name until it gets another one in its place. If its
// accepted names change, it may have given some up: then the definitions that wait are decided again, in the order of
// their objects' names, each with the names that its predecessor received taken into account. Their new status is part
// of the same commit (Others).
//
// It is not enough to look in the index of names: it has committed definitions only, so two concurrent requests could
// be given the same name. Therefore all commits that change accepted names in a group write the same key (Guard); the
// second of two fails its precondition and starts again.
func (d *Definitions) serverStatus(obj, old object.Value, now time.Time) engine.ServerStatus {
	subject := obj
	if obj.IsNull() {
		subject = old
	}
	group, name := subject.At("spec", "group").Str(), subject.At("metadata", "name").Str()
	result := engine.ServerStatus{}
	var current names
	before := namesOf(old.At("status", "acceptedNames"))
	index, unknown := d.names.Now()
	decision := &nameDecision{index: index, group: group, now: now}
	if !obj.IsNull() {
		result.Status = decision.statusOf(obj, name)
		current = namesOf(result.Status.At("acceptedNames"))
	}
	if current.equal(&before) {
		return result
	}
	if err := unreadableIn(group, unknown); err != nil { // it may have any name
		if !obj.IsNull() {
			result.Refused = apierr.NewUnavailable(err.Error() + ", so it is not known which names are free in its group")
		}
		return result
	}
	result.Guard = "customresourcedefinitions/" + group
	decision.assign(name, current)
	for _, w := range decision.index.waiters(group, name) {
		other := outline(w.version)
		status := decision.statusOf(other, w.version.Key.Name)
		if object.Equal(status, other.At("status")) {
			continue
		}
		decision.assign(w.version.Key.Name, namesOf(status.At("acceptedNames")))
		result.Others = append(result.Others, engine.StatusOfOther{Version: w.version, Status: status})
	}
	return result
}

// unreadableIn returns the error of a view of definitions if one of a group cannot be read, else nil.
func unreadableIn(group string, err error) error {
	if unreadable := (*view.UnreadableError)(nil); errors.As(err, &unreadable) {
		for name := range unreadable.Why {
			if _, of, _ := strings.Cut(name, "."); of == group {
				return err
			}
		}
	}
	return nil
}

// nameDecision holds the accepted names of a group while a status is computed: those of the index, replaced by those
// that that computation has already decided.
type nameDecision struct {
	index    *nameIndex
	group    string
	now      time.Time
	assigned []*assignment
}

// assignment is a decision: a definition and its accepted names.
type assignment struct {
	object string
	has    names
}

// assign records a decision.
func (d *nameDecision) assign(object string, has names) {
	d.assigned = append(d.assigned, &assignment{object, has})
}

// used says whether a name is accepted for a definition other than but.
func (d *nameDecision) used(kinds bool, name, but string) bool {
	for _, e := range d.assigned {
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
	index := &d.index.resources
	if kinds {
		index = &d.index.kinds
	}
	found := false
	prefix := indexKey(d.group, name, "")
	index.Ascend(prefix, func(key string, _ *indexedNames) bool {
		object, here := strings.CutPrefix(key, prefix)
		found = here && object != but && !slices.ContainsFunc(d.assigned,
			func(e *assignment) bool { return e.object == object })
		return here && !found
	})
	return found
}

// statusOf returns the status of a definition with the names that can be accepted.
func (d *nameDecision) statusOf(obj object.Value, name string) object.Value {
	status := obj.At("status")
	wanted, has := namesOf(obj.At("spec", "names")), namesOf(status.At("acceptedNames"))
	got, reason, message := d.accept(wanted, has, name)
	conditions := status.At("conditions")
	set := func(typ, value, reason, message string) {
		conditions = withCondition(conditions, typ, value, reason, message, d.now)
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
		switch {
		case established:
		case validation.BadCABundle(obj.At("spec", "conversion", "webhook", "clientConfig")) != nil:
			set("Established", "False", "InvalidCABundle", "The conversion webhook CABundle is invalid")
		default:
			set("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
		}
	}
	return status.Edit([]object.Member{{Key: "conditions", Value: conditions},
		{Key: "acceptedNames", Value: got.value()}})
}

// accept decides which of the wanted names a definition gets. If some conflict, reason and message describe the last
// conflict, as in the reference.
func (d *nameDecision) accept(wanted, has names, object string) (got names, reason, message string) {
	got = has
	take := func(kinds bool, want string, current *string, why string) {
		if want != *current && d.used(kinds, want, object) {
			reason, message = why, inUse(want)
			return
		}
		*current = want
	}
	take(false, wanted.plural, &got.plural, "PluralConflict")
	take(false, wanted.singular, &got.singular, "SingularConflict")
	var conflicts []string
	for _, short := range wanted.short {
		if !slices.Contains(has.short, short) && d.used(false, short, object) {
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

// withCondition sets a condition. Its lastTransitionTime changes only with its status.
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

// approval is the condition that says whether an API in a group of the Kubernetes project was approved. concerned is
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

// terminating adds the finalizer and the condition to a definition that is being deleted. As in the reference, the
// deletion neither increments the generation nor sets a grace period.
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

// Finalizer keeps a definition until its objects are deleted.
const Finalizer = "customresourcecleanup.apiextensions.k8s.io"
