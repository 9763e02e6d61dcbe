package merge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"plinth/object"
)

// The operations by which a manager comes to own something.
const (
	OperationApply  = "Apply"
	OperationUpdate = "Update"
)

// Entry is one entry of metadata.managedFields (SSA-1).
type Entry struct {
	Manager     string
	Operation   string // OperationApply or OperationUpdate
	APIVersion  string // in which the fields are named
	Subresource string
	Time        string // of the last change, in UTC as RFC 3339 has it, to the second; "" if it is not known
	Fields      Set
}

// sameManager says whether two entries are of one manager: an applier is the same one in every version.
func (e *Entry) sameManager(f *Entry) bool {
	return e.Manager == f.Manager && e.Operation == f.Operation && e.Subresource == f.Subresource &&
		(e.Operation == OperationApply || e.APIVersion == f.APIVersion)
}

// entry is an Entry at work. It remembers what it was read from, so that one that does not change keeps its text.
type entry struct {
	Entry
	set     Set
	stored  Set          // what fieldsV1 says
	printed object.Value // fieldsV1
}

// ParseManagedFields reads metadata.managedFields. Of two entries of one manager the later one counts.
func ParseManagedFields(v object.Value) ([]Entry, error) {
	entries, err := parseManaged(v, new(room))
	out := make([]Entry, len(entries))
	for i, e := range entries {
		out[i] = e.Entry
		out[i].Fields = e.set
	}
	return out, err
}

func parseManaged(v object.Value, r *room) ([]*entry, error) {
	if v.Kind() != object.List && !v.IsNull() {
		return nil, errors.New("managedFields must be a list")
	}
	entries := make([]*entry, 0, v.Len()+1)
	for i, item := range v.Items() {
		e := &entry{Entry: Entry{
			Manager: item.At("manager").Str(), Operation: item.At("operation").Str(), APIVersion: item.At("apiVersion").Str(),
			Subresource: item.At("subresource").Str(), Time: item.At("time").Str(),
		}}
		switch fieldsType := item.At("fieldsType").Str(); {
		case e.Operation != OperationApply && e.Operation != OperationUpdate:
			return nil, errors.New("operation must be `Apply` or `Update`")
		case e.APIVersion == "":
			return nil, errors.New("apiVersion must not be empty")
		case fieldsType == "":
			return nil, fmt.Errorf("missing fieldsType in managed fields entry %d", i)
		case fieldsType != "FieldsV1":
			return nil, fmt.Errorf("invalid fieldsType %q in managed fields entry %d", fieldsType, i)
		}
		p := fieldsParser{room: r}
		var err error
		if e.stored, err = p.parse(item.At("fieldsV1")); err != nil {
			return nil, fmt.Errorf("fieldsV1 of managed fields entry %d: %w", i, err)
		}
		if e.set = e.stored; !p.odd {
			e.printed = item.At("fieldsV1")
		}
		if at := indexOf(entries, &e.Entry); at >= 0 {
			entries[at] = e
		} else {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

func indexOf(entries []*entry, e *Entry) int {
	return slices.IndexFunc(entries, func(f *entry) bool { return f.sameManager(e) })
}

// printManaged is metadata.managedFields: appliers first, each group by age.
func printManaged(entries []*entry) object.Value {
	slices.SortStableFunc(entries, func(a, b *entry) int {
		return cmp.Or(
			cmp.Compare(a.Operation, b.Operation),
			cmp.Compare(a.Time, b.Time),
			cmp.Compare(a.Manager, b.Manager),
			cmp.Compare(a.APIVersion, b.APIVersion),
			cmp.Compare(a.Subresource, b.Subresource),
		)
	})
	items := make([]object.Value, len(entries))
	for i, e := range entries {
		items[i] = e.print()
	}
	return object.ListOf(items...)
}

func (e *entry) print() object.Value {
	if !e.set.is(e.stored) || e.printed.IsNull() {
		e.printed = e.set.FieldsV1()
	}
	members := make([]object.Member, 0, 7)
	put := func(key, text string) {
		if text != "" {
			members = append(members, object.Member{Key: key, Value: object.StringOf(text)})
		}
	}
	put("apiVersion", e.APIVersion)
	put("fieldsType", "FieldsV1")
	members = append(members, object.Member{Key: "fieldsV1", Value: e.printed})
	put("manager", e.Manager)
	put("operation", e.Operation)
	put("subresource", e.Subresource)
	put("time", e.Time)
	return object.MapOf(members...)
}

// maxUpdaters is how many entries of updates an object has; the oldest ones become one (SSA-6).
const maxUpdaters = 10

// ancient is the manager of what was too long ago to tell who did it.
const ancient = "ancient-changes"

// cap merges the oldest updaters, each version for itself, until there are few enough.
func (o *operation) cap() {
	var updaters []*entry
	for _, e := range o.entries {
		if e.Operation == OperationUpdate {
			updaters = append(updaters, e)
		}
	}
	n := len(updaters)
	if n <= maxUpdaters {
		return
	}
	slices.SortStableFunc(updaters, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.identifier(), b.identifier()))
	})
	firsts := map[string]*entry{} // by version
	for _, e := range updaters {
		if n <= maxUpdaters {
			return
		}
		first := firsts[e.APIVersion]
		if first == nil {
			firsts[e.APIVersion] = e
			continue
		}
		bucket := &Entry{Manager: ancient, Operation: OperationUpdate, APIVersion: e.APIVersion}
		if e.sameManager(bucket) {
			// The bucket is as old as what is to be put into it.
			firsts[e.APIVersion], first, e = e, e, first
		}
		at := indexOf(o.entries, bucket)
		if at < 0 {
			at = slices.Index(o.entries, first)
			o.entries[at] = &entry{Entry: *bucket, set: first.set}
		}
		merged := *o.entries[at]
		merged.set, merged.Time = e.set.Union(merged.set), e.Time
		o.entries[at] = &merged
		o.drop(e)
		n--
	}
}

// identifier orders entries of one second as Kubernetes does, which names them by a JSON text.
func (e *Entry) identifier() string {
	text := []byte("{")
	for _, m := range [...][2]string{{"manager", e.Manager}, {"operation", e.Operation}, {"apiVersion", e.APIVersion}, {"subresource", e.Subresource}} {
		if m[1] == "" || m[0] == "apiVersion" && e.Operation == OperationApply {
			continue
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = object.AppendString(text, m[0])
		text = object.AppendString(append(text, ':'), m[1])
	}
	return string(append(text, '}'))
}

func (o *operation) drop(e *entry) {
	if at := slices.Index(o.entries, e); at >= 0 {
		o.entries = slices.Delete(o.entries, at, at+1)
	}
}
