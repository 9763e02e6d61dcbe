package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"plinth/internal/apierr"
	"plinth/internal/shard"
	"plinth/internal/store"
	"plinth/object"
)

// selection is what a list or a watch selects. It decides by keys and sidecars and parses no object, except those whose
// sidecars have the fields of another version of the kind, or of an older definition.
//
//	o is selected  ⇔  its name, labels, shard and fields satisfy name, labels, shard and fields
//
// The same selection is applied on three levels, each of which may pass versions that the next one refuses:
//
//	reach     a prefix of names: which versions a list reads, and below which a watch is woken  (the tree of names)
//	term      one label or field: for which changes a watch is woken                            (the index of waiters)
//	matches   the selection itself, for each remaining version
//
// For kubectl get pods -n web -l app=x the list reads the names with the prefix web/ and compares the labels of each.
// The kubelet's watch of spec.nodeName=n1 sleeps until a Pod with that term changes, so with 1,000 nodes a change of a
// Pod wakes the watch of one. The reference has such an index for a few fields that are declared
// (cacher.Config.IndexerFuncs); here there is one for every label and field, with the values that watches wait for.
type selection struct {
	labels *conjunction // nil: all
	fields *conjunction // nil: all
	// asked is the resource whose fields or converted labels the selection needs; nil: it needs the fields that every type
	// has, or none.
	asked *Resource
	// relabels says that there is a label selector, and that a webhook may have given objects of this kind other labels
	// in the version of the request: the labels in a sidecar are those of the stored version.
	relabels bool
	name     string          // the one name that can match, or ""
	shard    *shard.Selector // nil: all
}

// selects compiles the selectors of a request, and refuses fields that its type does not have. An unknown field must be
// an error, and not an empty result: a client that selects by spec.nodename would otherwise get an empty list and act
// on it. The selector is a client's, of any length; compiling it takes O(n log n) (clause).
func (rq *Request) selects(o ListOptions) (selection, error) {
	s := selection{name: rq.Name, labels: compileLabels(o.Labels), shard: o.Shard}
	if s.relabels = s.labels != nil && rq.Resource.Stored != nil && rq.Resource.Stored.Converted != nil; s.relabels {
		s.asked = rq.Resource
	}
	if o.Fields == nil || o.Fields.Empty() {
		return s, nil
	}
	var err error
	if o.Fields, err = o.Fields.Transform(rq.Resource.currentField); err != nil {
		return selection{}, apierr.NewBadRequest(err.Error())
	}
	s.fields = compileFields(o.Fields)
	var known []store.Pair
	if rq.Resource.Fields != nil {
		known = rq.Resource.Fields(object.Nil)
	}
	for _, requirement := range o.Fields.Requirements() { // in the order of the request
		if !rq.Resource.selectable(known, requirement.Field) {
			return selection{}, apierr.NewBadRequest(rq.Resource.unknownField(requirement.Field))
		}
	}
	// A selection of one name is as cheap as a get: the list starts at that name.
	if name, ok := o.Fields.RequiresExactMatch("metadata.name"); ok && s.name == "" {
		s.name = name
	}
	if rq.Resource.Fields != nil {
		s.asked = rq.Resource
	}
	return s, nil
}

// currentField replaces the old name of a field, for fields.Selector.Transform.
func (r *Resource) currentField(name, value string) (current, sameValue string, err error) {
	if current, ok := r.OldFields[name]; ok {
		return current, value, nil
	}
	return name, value, nil
}

// selectable says whether the type has a selectable field of this name. Cluster-scoped types with additional fields
// have no metadata.namespace, as in the reference.
func (r *Resource) selectable(known []store.Pair, name string) bool {
	if name == "metadata.namespace" && !r.Namespaced && known != nil {
		return false
	}
	return name == "metadata.name" || name == "metadata.namespace" ||
		slices.ContainsFunc(known, func(k store.Pair) bool { return k.Name == name })
}

// unknownField is the error text for a field that is not selectable.
func (r *Resource) unknownField(name string) string {
	switch {
	case r.UnknownField != nil:
		return r.UnknownField(name)
	case r.Fields == nil:
		return fmt.Sprintf("%q is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", name)
	}
	return "field label not supported: " + name
}

// all says whether everything is selected.
func (s *selection) all() bool {
	return s.labels == nil && s.fields == nil && s.name == "" && s.shard.Empty()
}

// reach is a prefix of the names of all objects that can be selected:
//
//	o is selected  ⇒  reach is a prefix of o.Key.Name
//
// If only one name can be selected, reach is that name, so that a list reads, and a watch wakes for, almost nothing but
// that object. It is only a bound: "web" is a prefix of "web-1", too, so matches compares names once more. Over all
// namespaces a name is not a prefix of a key, which begins with the namespace, so the bound is everything.
func (rq *Request) reach(s *selection) string {
	if rq.Resource.Namespaced && rq.Namespace == "" {
		return ""
	}
	return rq.Resource.prefix(rq.Namespace) + s.name
}

// term is one label or field with a value that every selected version has, for the store's index: a watch with a term
// sleeps through the changes of objects without it. The zero Term means that there is none.
//
//	v is selected  ⇒  v has the term, or its sidecar does not show whether it has
//
// The store has one term for each watch, so term chooses the one that probably fewest objects have; a wrong guess costs
// wake-ups, and never events. Fields count only if the sidecars have those of the served version: Form and Selection
// tell the store which sidecars these are.
func (s *selection) term() (best store.Term) {
	if s.fields != nil && (s.asked == nil || s.asked.Served.selection == s.asked.Stored.Storage.selection) {
		least := len(coarseness) + 1
		for i := range s.fields.clauses {
			c := &s.fields.clauses[i]
			name, _, _ := strings.Cut(c.name, ".")
			// An absent field reads as empty and is in no index, so an empty value cannot be looked up. Names and namespaces are
			// in keys, and not in sidecars.
			if len(c.in) != 1 || c.in[0] == "" || name == "metadata" {
				continue
			}
			if coarse := coarseOf(c.name); coarse < least {
				best, least = store.Term{Name: c.name, Value: c.in[0]}, coarse
				if s.asked != nil {
					best.Form, best.Selection = s.asked.Stored.stamp(), s.asked.Served.selection
				}
			}
		}
	}
	if best != (store.Term{}) || s.labels == nil || s.relabels {
		return best
	}
	for i := range s.labels.clauses {
		if c := &s.labels.clauses[i]; len(c.in) == 1 {
			return store.Term{Label: true, Name: c.name, Value: c.in[0]}
		}
	}
	return best
}

// coarseness are endings of the names of fields whose values distinguish many objects, the finest first. kubectl
// describe selects by involvedObject.kind, involvedObject.name and involvedObject.uid together; the UID has the fewest
// events.
var coarseness = [...]string{"uid", "nodeName", ".name"}

// coarseOf is the rank of a field in coarseness; all other fields have the last rank.
func coarseOf(field string) int {
	for i, end := range coarseness {
		if strings.HasSuffix(field, end) {
			return i
		}
	}
	return len(coarseness)
}

// matches says whether a version is selected. An unreadable version is, unless it has another name: the verb then fails
// with an error that names it, so that it is not overlooked. The error is that of a conversion, or of ctx: whether the
// version is selected is not known then, and the verb must not go on as if it were.
//
// The parts are checked in the order of their cost: a comparison of names, a search of the labels, a hash for the
// shard, the fields of the sidecar, and at last, for objects in an old form, a parse or even a conversion. A nil
// version, the new one of a deletion or the old one of a create, is not selected.
func (s *selection) matches(ctx context.Context, v *store.Version) (bool, error) {
	selected, decided := s.matchesStored(v)
	if decided {
		return selected, nil
	}
	if s.asked.Stored.Converted != nil {
		made, err := s.asked.converted(ctx, v)
		if err != nil {
			return false, err
		}
		return s.matchesConverted(made)
	}
	obj, _, err := s.asked.live(ctx, v)
	if err != nil {
		return false, err
	}
	return s.matchesFields(v.Key, s.asked.fieldsOf(obj)), nil
}

// matchesStored is matches as far as the stored version and its sidecar decide. If they do not, the fields of the
// object in the version of the request decide.
func (s *selection) matchesStored(v *store.Version) (selected, decided bool) {
	if v == nil {
		return false, true
	}
	if s.all() {
		return true, true
	}
	if s.name != "" {
		if _, name := splitKey(v.Key.Name); name != s.name {
			return false, true
		}
	}
	if v.Sidecar.Unreadable != nil {
		return true, true
	}
	labels := s.labelsStored(v)
	if s.labels != nil && labels && !s.labels.match(v.Sidecar.Labels) {
		return false, true
	}
	if !s.shard.Empty() {
		// Both fields by which shards can be divided are in the sidecar and the key.
		if namespace, _ := splitKey(v.Key.Name); !s.shard.Matches(v.Sidecar.UID, namespace) {
			return false, true
		}
	}
	switch {
	case !labels:
		return false, false
	case s.fields == nil:
		return true, true
	}
	// The fields in the sidecar are used if they were computed for the served version, from an object in the current form:
	// a default that was added later may be the value of a field.
	if s.asked == nil || v.Sidecar.Selection == s.asked.Served.selection && s.asked.Stored.current(v) {
		return s.matchesFields(v.Key, v.Sidecar.Fields), true
	}
	return false, false
}

// labelsStored says whether the labels in the sidecar of a version are those that it has in the version of the request.
func (s *selection) labelsStored(v *store.Version) bool {
	return !s.relabels || s.asked.Served == s.asked.Stored.Storage && s.asked.Stored.current(v)
}

// matchesConverted decides by an object in the version of the request, of a kind with Kind.Converted.
func (s *selection) matchesConverted(made *Object) (bool, error) {
	if s.relabels && !s.labels.match(made.Sidecar.Labels) {
		return false, nil
	}
	if s.fields == nil {
		return true, nil
	}
	if made.Sidecar.Selection == s.asked.Served.selection {
		return s.matchesFields(made.Key, made.Sidecar.Fields), nil
	}
	// It was converted by an earlier state of the definition, with other selectable fields.
	obj, err := ObjectOf(made)
	if err != nil {
		return false, err
	}
	return s.matchesFields(made.Key, s.asked.fieldsOf(obj)), nil
}

// together says whether versions should be selected many at a time, as their selection may ask a webhook.
func (s *selection) together() bool {
	return s.relabels || s.fields != nil && s.asked != nil && s.asked.Stored.Converted != nil
}

// matchesAll is matches for many versions: those that have to be converted are converted together.
func (s *selection) matchesAll(ctx context.Context, all []*store.Version) ([]bool, error) {
	selected := make([]bool, len(all))
	var undecided []int
	for i, v := range all {
		var decided bool
		if selected[i], decided = s.matchesStored(v); !decided {
			undecided = append(undecided, i)
		}
	}
	made := slices.Clone(all)
	if err := s.asked.remake(ctx, made, undecided); err != nil {
		return nil, err
	}
	for _, i := range undecided {
		var err error
		if selected[i], err = s.matchesConverted(made[i]); err != nil {
			return nil, err
		}
	}
	return selected, nil
}

// lookAhead is matches for versions that are read one by one from a snapshot, in their order. When it meets one that
// has to be converted to be selected, it converts those that follow with it, a batch at a time: a webhook would be
// called for each object of the collection otherwise.
type lookAhead struct {
	rq       *Request
	sel      *selection
	snapshot *store.Snapshot
	within   string
	// decisions are about the next versions about which the stored ones do not decide.
	decisions []bool
}

func (rq *Request) lookAhead(sel *selection, snapshot *store.Snapshot, within string) lookAhead {
	return lookAhead{rq: rq, sel: sel, snapshot: snapshot, within: within}
}

func (a *lookAhead) matches(ctx context.Context, v *store.Version) (bool, error) {
	if !a.sel.together() {
		return a.sel.matches(ctx, v)
	}
	if selected, decided := a.sel.matchesStored(v); decided {
		return selected, nil
	}
	if len(a.decisions) == 0 {
		var batch []*store.Version
		bytes := 0
		err := ascend(ctx, a.snapshot, a.rq.Resource.Stored.Path, a.within, v.Key.Name, func(v *store.Version) bool {
			if _, decided := a.sel.matchesStored(v); !decided {
				batch, bytes = append(batch, v), bytes+v.Len()
			}
			return len(batch) < initialBatch && bytes < maxConverted
		})
		if err != nil {
			return false, err
		}
		if a.decisions, err = a.sel.matchesAll(ctx, batch); err != nil {
			return false, err
		}
	}
	selected := a.decisions[0]
	a.decisions = a.decisions[1:]
	return selected, nil
}

// fieldsOf are the selectable fields of an object in the version that the resource serves.
func (r *Resource) fieldsOf(obj object.Value) []store.Pair {
	if r.Fields == nil {
		return nil
	}
	return r.Fields(obj)
}

// matchesFields says whether an object with this key and these fields is selected by its fields.
func (s *selection) matchesFields(key store.Key, others []store.Pair) bool {
	for i := range s.fields.clauses {
		c := &s.fields.clauses[i]
		if !c.matches(fieldOf(c.name, key, others)) {
			return false
		}
	}
	return true
}

// fieldOf is the value of a field; "" if the object does not have it. As in the reference there is no difference
// between an absent field and an empty one: spec.nodeName= selects the Pods that are not scheduled.
func fieldOf(name string, key store.Key, others []store.Pair) string {
	switch name {
	case "metadata.name":
		_, name := splitKey(key.Name)
		return name
	case "metadata.namespace":
		namespace, _ := splitKey(key.Name)
		return namespace
	}
	for i := range others {
		if others[i].Name == name {
			return others[i].Value
		}
	}
	return ""
}
