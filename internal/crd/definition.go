package crd

import (
	"slices"

	"plinth/internal/store"
	"plinth/object"
)

// Path is the resource part of the store keys of definitions.
const Path = "apiextensions.k8s.io/customresourcedefinitions"

// names is what a definition is called, in one group.
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

// value is the names as an object has them: singular, listKind and lists only where there are some.
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

// condition is the condition of this type in the status of a definition; null: there is none.
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

// served says whether a definition is served: it is established, or has all its names.
func served(obj object.Value) bool {
	status := obj.At("status")
	return isTrue(status, "Established") || isTrue(status, "NamesAccepted")
}

// outline is the object of a stored definition without its schemas and managers: most of its bytes, which only few ask
// for. Null: it cannot be read, and defines nothing. It does not hold on to the bytes of the version.
func outline(v *store.Version) object.Value {
	if v.Sidecar.Unreadable != nil {
		return object.Nil
	}
	parsed, err := object.ParseJSON(object.AppendOutline(nil, v.Data, "schema", "managedFields"))
	if err != nil {
		return object.Nil
	}
	return parsed.Value
}
