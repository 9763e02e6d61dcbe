package patches

import (
	"slices"
	"strings"

	"plinth/object"
)

// explained is an intended difference.
type explained struct {
	name, why string
	is        func(c strategic, want, got outcome) bool
}

// explanations lists all intended differences. A run counts them; among 50,000 cases each has to occur.
var explanations = []explained{
	{
		name: "a crash",
		why: "Upstream compares merge keys and the items of lists as Go interfaces, which panics where they are lists or maps, and " +
			"asks for the kind of a list's first item even if that is null. The client gets 500 for a request that crashed the " +
			"API server's handler; here it gets 400 with the reason.",
		is: func(_ strategic, want, got outcome) bool { return want.crashed && got.status == 400 },
	},
	{
		name: "room behind a list with duplicates",
		why: "A live list of scalars holds one twice, and the patch deletes from it and adds to it without an element order. Upstream " +
			"appends in place if the deletions have left room, and then takes the order of the live list from what its search for " +
			"duplicates has made of that. Here the order is the same whether or not there is room.",
		is: func(c strategic, want, got outcome) bool {
			deletes := strings.Contains(string(object.AppendJSON(nil, c.patch)), `"$deleteFromPrimitiveList/`)
			return deletes && want.status == 200 && got.status == 200 && reordered(c.live, read(want.text), read(got.text))
		},
	},
}

func explain(c strategic, want, got outcome) (string, bool) {
	for _, e := range explanations {
		if e.is(c, want, got) {
			return e.name, true
		}
	}
	return "", false
}

// reordered says whether two objects differ only in the order of scalar lists in which the live object has a duplicate
// item.
func reordered(live, a, b object.Value) bool {
	switch {
	case object.Equal(a, b):
		return true
	case a.Kind() == object.Map && b.Kind() == object.Map && a.Len() == b.Len():
		for _, m := range a.Members() {
			other, ok := b.Get(m.Key)
			if !ok || !reordered(live.At(m.Key), m.Value, other) {
				return false
			}
		}
		return true
	case a.Kind() == object.List && b.Kind() == object.List:
		sorted := texts(live)
		return len(slices.Compact(sorted)) < live.Len() && slices.Equal(texts(a), texts(b))
	}
	return false
}

// texts returns the items of a list as text, sorted.
func texts(list object.Value) []string {
	var all []string
	for _, item := range list.Items() {
		all = append(all, string(object.AppendJSON(nil, item)))
	}
	slices.Sort(all)
	return all
}

func read(text string) object.Value {
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		panic(err) // impossible: it was encoded before
	}
	return parsed.Value
}
