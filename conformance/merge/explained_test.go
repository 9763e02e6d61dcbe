package merge

import "strings"

// explained is a difference that is meant.
type explained struct {
	name string
	why  string
	is   func(h *history, d *difference) bool
}

// explanations are all of them. Each is exercised by the histories of a run, which counts them.
var explanations = []explained{
	{
		name: "wedged by its own object",
		why: "The stored object is not valid in the schema as it has become (a null in what is now a set, items without a key in what " +
			"is now a map). Upstream refuses every apply from then on, and stops tracking updates without a word.",
		is: func(_ *history, d *difference) bool {
			return strings.Contains(d.want.why(), "failed to create typed live object") ||
				strings.Contains(d.want.why(), "failed to convert live object") ||
				strings.Contains(d.want.why(), "failed to convert new object")
		},
	},
	{
		name: "a version that is gone",
		why: "A manager has written in an API version that the CustomResourceDefinition no longer has. Upstream fails to convert to it " +
			"and refuses every apply; here that manager is gone. kubernetes/kubernetes#111937",
		is: func(_ *history, d *difference) bool {
			return strings.Contains(d.want.why(), "request to convert CR to an invalid group/version") ||
				strings.Contains(d.want.why(), "is unstructured and is not suitable for converting to")
		},
	},
	{
		name: "ancient changes of the same second",
		why: "Of more than ten managers the oldest are merged into ancient-changes. If that entry is itself not the oldest one of its " +
			"version, by time in seconds and then by name, upstream merges it with itself and deletes it: what it has owned is owned by nobody.",
		is: func(_ *history, d *difference) bool {
			has := func(o outcome) bool { return strings.Contains(o.String(), "- \"ancient-changes\" Update ") }
			return d.want.err == nil && has(d.got) && !has(d.want)
		},
	},
	{
		name: "an apply and a failed conversion",
		why: "Objects with duplicate items in a list are let through in the version of the request only. In another version, which " +
			"a manager has written in, upstream's conversion fails on them.",
		is: func(_ *history, d *difference) bool {
			return len(d.kinds.versions) > 1 && strings.Contains(d.want.why(), "duplicate entries for key")
		},
	},
}

// why is the error that an operation has met, even one that the client is not told of.
func (o outcome) why() string {
	switch {
	case o.err != nil:
		return o.err.Error()
	case o.lost != nil:
		return o.lost.Error()
	}
	return ""
}

// explanation finds the one that a difference has; nil if it has none.
func (h *history) explanation(d *difference) *explained {
	for i := range explanations {
		if explanations[i].is(h, d) {
			return &explanations[i]
		}
	}
	return nil
}
