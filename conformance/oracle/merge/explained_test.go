package merge

import (
	"slices"
	"strings"

	"plinth/object"
	"plinth/schema"
)

// explained is an intended difference.
type explained struct {
	name string
	why  string
	is   func(h *history, d *difference) bool
}

// prunes begins upstream's error when it cannot remove the fields that a manager gives up.
const prunes = "failed to prune fields"

// explanations lists all intended differences. A run counts them; in 50,000 histories each has to occur.
var explanations = []explained{
	{
		name: "wedged by its own object",
		why: "The stored object, or the one that an update wants to store, is not valid in the schema as it has become: a null in what is " +
			"now a set, a list in a set, items without a key in what is now a map; in the version of the request, or in that of another " +
			"manager. Upstream refuses every apply from then on, and stops tracking updates without a word. projectcalico/calico#12700",
		is: func(_ *history, d *difference) bool {
			why := d.want.why()
			return strings.Contains(why, "failed to create typed live object") ||
				strings.Contains(why, "failed to convert live object") ||
				strings.Contains(why, "failed to convert new object") ||
				len(d.kinds.versions) > 1 && strings.Contains(why, "associative list with") && !strings.Contains(why, "pruned")
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
		name: "an item of which nothing is left",
		why: "A list item loses its last field to pruning, as its key is a default, and is null for upstream, which can neither convert such " +
			"a list to another version nor compare it: the apply is refused. kubernetes-sigs/structured-merge-diff#305",
		is: func(_ *history, d *difference) bool {
			why := d.want.why()
			return d.op.verb == apply && (strings.Contains(why, prunes) || strings.Contains(why, "failed to compare objects")) &&
				strings.Contains(why, "null element")
		},
	},
	{
		name: "ancient changes of the same second",
		why: "Of more than ten managers the oldest are merged into ancient-changes. If that entry is itself not the oldest one of its " +
			"version, by time in seconds and then by name, upstream merges it with itself and deletes it: what it has owned by then is owned by nobody. " +
			"Introduced with kubernetes/kubernetes#81816",
		is: func(_ *history, d *difference) bool {
			theirs := ancient(d.want.live)
			return d.want.err == nil && slices.ContainsFunc(ancient(d.got.live), func(path string) bool {
				return !slices.Contains(theirs, path)
			})
		},
	},
	{
		name: "replicas of a scale",
		why: "Whoever owns the replicas by an update loses them to an entry of the same name, without a time and in the version of the " +
			"request, whenever the scale subresource is written, even if nothing changes; one of the two is lost with the next write. " +
			"Upstream takes the scale's autoscaling/v1 and the object's version for two managers. Introduced with kubernetes/kubernetes#98377",
		is: func(_ *history, d *difference) bool {
			if d.op.verb != scale && d.op.verb != rescale || d.want.err != nil || d.got.err != nil {
				return false
			}
			bare := func(o outcome) string {
				return string(object.AppendJSON(nil, o.live.WithoutAt("metadata", "managedFields")))
			}
			return bare(d.want) == bare(d.got) && slices.Equal(shares(d.want.live), shares(d.got.live))
		},
	},
	{
		name: "an item that leaves its key to the default",
		why: "A list item is without its key, for which the schema has a default, in an intent or as somebody else has stored it. Where the " +
			"manager has owned all that is in it (or the key, filled in by the API server), upstream prunes that, holds the empty item for " +
			"null, and takes it out of the list although others own it or the intent has it. kubernetes-sigs/structured-merge-diff#305",
		is: func(_ *history, d *difference) bool {
			v := d.kinds.version(d.kinds.apiVersion(d.op.version))
			return d.op.verb == apply && d.want.err == nil && v != nil &&
				(omitsKey(v.typ, d.op.body) || omitsKey(v.typ, d.got.live))
		},
	},
	{
		name: "a conversion of half an object",
		why: "Upstream takes out all that the manager has owned and converts what is left, to add back what others own, even where the intent " +
			"gives up nothing. A conversion that needs one of those fields fails, and with it the apply; where it is the kind that is gone, " +
			"upstream panics. Here what is not given up is not taken out. kubernetes/kubernetes#117260",
		is: func(_ *history, d *difference) bool {
			why := d.want.why()
			return d.op.verb == apply && (strings.Contains(why,
				prunes+": failed add back owned items: failed to convert pruned object") ||
				strings.Contains(why, "panic: ") && strings.Contains(why, ".addBackDanglingItems("))
		},
	},
	{
		name: "owned and gone",
		why: "A manager applies a map as empty in which is what nobody owns any longer, or but an empty list. When it does so again, upstream " +
			"takes the map out with all that is in it, and the manager owns what is not there although its intent has it. Here an apply that " +
			"gives up nothing takes nothing out. Akin to kubernetes-sigs/structured-merge-diff#305",
		is: func(_ *history, d *difference) bool {
			return d.op.verb == apply && d.want.err == nil && d.got.err == nil && loses(d.want.live, d.got.live, d.op.body)
		},
	},
	{
		name: "an apply and a failed conversion",
		why: "Objects with duplicate items in a list are let through in the version of the request only. In another version, which " +
			"a manager has written in, upstream's conversion fails on them. kubernetes/kubernetes#113482",
		is: func(_ *history, d *difference) bool {
			return len(d.kinds.versions) > 1 && strings.Contains(d.want.why(), "duplicate entries for key")
		},
	},
}

// why returns the error of an operation, even if it is not returned to the client.
func (o outcome) why() string {
	switch {
	case o.err != nil:
		return o.err.Error()
	case o.lost != nil:
		return o.lost.Error()
	}
	return ""
}

// explanation finds the explanation of a difference; nil if it has none.
func (h *history) explanation(d *difference) *explained {
	for i := range explanations {
		if explanations[i].is(h, d) {
			return &explanations[i]
		}
	}
	return nil
}

// loses says whether one object lacks a field that the intent and the other object have.
func loses(theirs, ours, intent object.Value) bool {
	return slices.ContainsFunc(intent.Members(), func(m object.Member) bool {
		here, ok := ours.Get(m.Key)
		there, kept := theirs.Get(m.Key)
		return ok && (!kept || loses(there, here, m.Value))
	})
}

// omitsKey says whether an associative list has an item that leaves a key to its default, or sets it to the default.
func omitsKey(t *schema.Type, v object.Value) bool {
	switch {
	case t == nil:
	case v.Kind() == object.Map:
		for _, m := range v.Members() {
			of := t.Elem
			if f := t.Field(m.Key); f != nil {
				of = f.Type
			}
			if omitsKey(of, m.Value) {
				return true
			}
		}
	case v.Kind() == object.List:
		for _, item := range v.Items() {
			if omitsKey(t.Elem, item) {
				return true
			}
			for _, key := range t.ListKeys {
				said, ok := item.Get(key)
				if f := t.Elem.Field(key); item.Kind() == object.Map && (!ok || f != nil && object.Equal(said, f.Implied())) {
					return true
				}
			}
		}
	}
	return false
}

// ancient lists the fields that ancient-changes owns, by version.
func ancient(live object.Value) []string {
	var paths []string
	for _, e := range live.At("metadata", "managedFields").Items() {
		if e.At("manager").Str() == "ancient-changes" && e.At("operation").Str() == "Update" {
			paths = appendPaths(paths, e.At("apiVersion").Str()+"|"+e.At("subresource").Str()+"|", e.At("fieldsV1"))
		}
	}
	return paths
}

// shares lists the owners and their fields, without times, and for updates without the version.
func shares(live object.Value) []string {
	var all []string
	for _, e := range live.At("metadata", "managedFields").Items() {
		who := e.At("manager").Str() + "|" + e.At("operation").Str() + "|" + e.At("subresource").Str() + "|"
		if e.At("operation").Str() == "Apply" {
			who += e.At("apiVersion").Str() + "|" + e.At("time").Str() + "|"
		}
		all = appendPaths(all, who, e.At("fieldsV1"))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func appendPaths(all []string, prefix string, fields object.Value) []string {
	if fields.Len() == 0 {
		return append(all, prefix)
	}
	for _, m := range fields.Members() {
		if m.Key == "." {
			all = append(all, prefix)
			continue
		}
		all = appendPaths(all, prefix+m.Key+" ", m.Value)
	}
	return all
}
