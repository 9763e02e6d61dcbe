package crd

import (
	"slices"

	"plinth/internal/store"
	"plinth/object"
)

// Path is the resource part of the store keys of definitions.
const Path = "apiextensions.k8s.io/customresourcedefinitions"

// names are the names of a definition.
type names struct {
	plural, singular, kind, listKind string
	short, categories                []string
}

// namesOf reads spec.names or status.acceptedNames.
func namesOf(v object.Value) names {
	return names{
		plural: v.At("plural").Str(), singular: v.At("singular").Str(), kind: v.At("kind").Str(),
		listKind: v.At("listKind").Str(),
		short:    texts(v.At("shortNames")), categories: texts(v.At("categories")),
	}
}

// value converts names to their form in an object. Empty optional names are omitted.
func (n *names) value() object.Value {
	members := []object.Member{{Key: "plural", Value: object.StringOf(n.plural)},
		{Key: "kind", Value: object.StringOf(n.kind)}}
	for _, m := range [...]object.Member{
		{Key: "singular", Value: object.StringOf(n.singular)}, {Key: "listKind", Value: object.StringOf(n.listKind)},
		{Key: "shortNames", Value: object.Strings(n.short...)},
		{Key: "categories", Value: object.Strings(n.categories...)},
	} {
		if m.Value.Len() > 0 {
			members = append(members, m)
		}
	}
	return object.MapOf(members...)
}

func (n *names) equal(o *names) bool {
	return n.plural == o.plural && n.singular == o.singular && n.kind == o.kind && n.listKind == o.listKind &&
		slices.Equal(n.short, o.short) && slices.Equal(n.categories, o.categories)
}

func texts(list object.Value) []string {
	if list.Len() == 0 {
		return nil
	}
	all := make([]string, list.Len())
	for i, item := range list.Items() {
		all[i] = item.Str()
	}
	return all
}

// condition is the condition of this type in a status; null if there is none.
func condition(status object.Value, typ string) object.Value {
	for _, c := range status.At("conditions").Items() {
		if c.At("type").Str() == typ {
			return c
		}
	}
	return object.Nil
}

func isTrue(status object.Value, typ string) bool {
	return condition(status, typ).At("status").Str() == "True"
}

// served says whether a definition is served: it is established, or all its names are accepted.
func served(obj object.Value) bool {
	status := obj.At("status")
	return isTrue(status, "Established") || isTrue(status, "NamesAccepted")
}

// outline parses a stored definition without its schemas and managedFields, which are most of its bytes and rarely
// needed. It is null if the definition cannot be parsed; then it defines nothing. The result does not reference the
// stored bytes.
func outline(v *store.Version) object.Value {
	if v.Sidecar.Unreadable != nil {
		return object.Nil
	}
	parsed, err := object.ParseJSON(object.AppendOutline(nil, v.Data(), "schema", "managedFields"))
	if err != nil {
		return object.Nil
	}
	return parsed.Value
}
