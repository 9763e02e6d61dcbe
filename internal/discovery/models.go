package discovery

import (
	"maps"
	"slices"
	"sort"
	"strings"

	"plinth/object"
	"plinth/schema"
)

func newBuilder(d *Documents, find Finder, dialect dialect, versions []*groupVersion,
	kinds map[string][]gvk) *builder {
	return &builder{
		documents: d, find: find, dialect: dialect, versions: versions,
		wanted: map[string]bool{}, rendered: map[*parameter]object.Value{}, kinds: kinds,
	}
}

// gvk is a kind in a group version.
type gvk struct{ group, version, kind string }

// groupVersionKinds maps the names of models to their kinds, without the models of custom types.
func groupVersionKinds(versions []*groupVersion) map[string][]gvk {
	kinds := map[string][]gvk{}
	add := func(model string, k gvk) {
		if model != "" && !slices.Contains(kinds[model], k) {
			kinds[model] = append(kinds[model], k)
		}
	}
	for _, kind := range []string{"APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status", "DeleteOptions",
		"WatchEvent"} {
		add(metaModels+kind, gvk{"", "v1", kind})
	}
	for _, gv := range versions {
		if gv.isCustom() {
			continue
		}
		// These two are in every group version, because a body and a watch are decoded by the scheme of the URL's
		// version.
		for _, kind := range []string{"DeleteOptions", "WatchEvent"} {
			add(metaModels+kind, gvk{gv.group, gv.version, kind})
		}
		for _, r := range gv.resources {
			if isCustom(r) {
				continue
			}
			add(r.Model, gvk{r.Group, r.Version, r.Kind})
			add(besideModel(r.Model, r.ListKind), gvk{r.Group, r.Version, r.ListKind})
			for _, s := range r.Subresources {
				add(s.Model, gvk{s.Group, s.Version, s.Kind})
			}
		}
	}
	for _, list := range kinds {
		sort.Slice(list, func(i, j int) bool {
			a, b := list[i], list[j]
			if a.group != b.group {
				return a.group < b.group
			}
			return a.version < b.version
		})
	}
	return kinds
}

// kindsOf are the kinds of a model. If the document's group versions do not have it, it may be a built-in kind of
// another group version, of which the model is a part.
func (b *builder) kindsOf(model string) []gvk {
	if kinds := b.kinds[model]; kinds != nil {
		return kinds
	}
	return b.documents.builtinKinds()[model]
}

// models emits the fragments of all models that are referred to, directly or by others, sorted by name.
func (b *builder) models(emit func(name string, model object.Value)) {
	types := map[string]*schema.Type{}
	known := b.types()
	var visit func(t *schema.Type)
	visit = func(t *schema.Type) {
		if t == nil {
			return
		}
		if isModel(t) {
			t = t.Unmarked()
			if types[t.Name] != nil {
				return
			}
			types[t.Name] = t
		}
		visit(t.Elem)
		for _, f := range t.Fields {
			visit(f.Type)
		}
	}
	custom := b.customModels()
	if len(custom) > 0 {
		b.wanted[modelObjectMeta], b.wanted[modelListMeta] = true, true
	}
	for name := range b.wanted {
		if custom[name] != nil {
			continue
		}
		if typ := b.find(name); typ != nil {
			visit(typ)
		} else if known := known[name]; known != nil {
			visit(known())
		}
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(types)), maps.Keys(custom))
	sort.Strings(names)
	for _, name := range names {
		if model := custom[name]; model != nil {
			emit(name, model())
		} else {
			emit(name, b.model(types[name]))
		}
	}
}

// types maps the names of models to the types of resources and subresources.
func (b *builder) types() map[string]func() *schema.Type {
	types := map[string]func() *schema.Type{}
	for _, gv := range b.versions {
		for _, r := range gv.resources {
			if r.Schema == nil {
				continue
			}
			if !isCustom(r) {
				types[r.Model] = r.Schema
			}
			for _, s := range r.Subresources {
				if s.Schema != nil && s.Model != r.Model {
					types[s.Model] = s.Schema
				}
			}
		}
	}
	return types
}

// isModel says whether a type is described under its name and referred to. Named scalars, lists and maps are described
// in place.
func isModel(t *schema.Type) bool {
	if t.Name == "" {
		return false
	}
	switch t.Kind {
	case schema.Any, schema.Struct, schema.Quantity, schema.IntOrString, schema.Time, schema.MicroTime:
		return true
	}
	return false
}

// model is the fragment of a named type.
func (b *builder) model(t *schema.Type) object.Value {
	members := appendDoc(nil, modelDoc(t))
	members = b.shape(members, t)
	if t.Kind == schema.Struct && t.Marked {
		members = append(members, mapType(t))
	}
	if kinds := b.kindsOf(t.Name); len(kinds) > 0 {
		list := make([]object.Value, len(kinds))
		for i, k := range kinds {
			list[i] = responseKind(k.group, k.version, k.kind)
		}
		members = append(members, object.Member{Key: "x-kubernetes-group-version-kind", Value: object.ListOf(list...)})
	}
	if u, ok := unions[t.Name]; ok {
		members = append(members, object.Member{Key: "x-kubernetes-unions", Value: u.value()})
	}
	return object.MapOf(members...)
}

// shape describes a type without its name and description.
func (b *builder) shape(members []object.Member, t *schema.Type) []object.Member {
	text := func(key, value string) {
		members = append(members, object.Member{Key: key, Value: object.StringOf(value)})
	}
	switch t.Kind {
	case schema.Struct:
		text("type", "object")
		members = b.properties(members, t)
	case schema.Any:
		if t.Name != "" && !t.Typeless {
			text("type", "object")
		}
	case schema.Map:
		text("type", "object")
		members = append(members, object.Member{Key: "additionalProperties", Value: b.element(t.Elem)})
	case schema.List:
		text("type", "array")
		members = append(members, object.Member{Key: "items", Value: b.element(t.Elem)})
	case schema.String:
		text("type", "string")
		if len(t.Enum) > 0 {
			members = append(members, object.Member{Key: "enum", Value: object.Strings(t.Enum...)})
		}
	case schema.Bool:
		text("type", "boolean")
	case schema.Int:
		text("type", "integer")
		text("format", map[uint8]string{32: "int32", 64: "int64"}[t.Bits])
	case schema.Float:
		text("type", "number")
		text("format", "double")
	case schema.Bytes:
		text("type", "string")
		text("format", "byte")
	case schema.Time, schema.MicroTime:
		text("type", "string")
		text("format", "date-time")
	case schema.Quantity:
		members = append(members, b.dialect.either("string", "number")...)
	case schema.IntOrString:
		text("format", "int-or-string")
		members = append(members, b.dialect.either("integer", "string")...)
	}
	return members
}

// element describes the items of a list or the values of a map.
func (b *builder) element(t *schema.Type) object.Value {
	if isModel(t) {
		return b.dialect.ref(t.Name)
	}
	return object.MapOf(b.shape(nil, t)...)
}

func (b *builder) properties(members []object.Member, t *schema.Type) []object.Member {
	var required []string
	properties := make([]object.Member, 0, len(t.Fields))
	for i := range t.Fields {
		f := &t.Fields[i]
		properties = append(properties, object.Member{Key: f.Name, Value: b.property(t, f)})
		if f.Required {
			required = append(required, f.Name)
		}
	}
	if len(properties) > 0 {
		members = append(members, object.Member{Key: "properties", Value: object.MapOf(properties...)})
	}
	return appendStrings(members, "required", required)
}

// property is the fragment of a field.
func (b *builder) property(parent *schema.Type, f *schema.Field) object.Value {
	t := f.Type
	doc := f.Doc()
	if doc == "" {
		doc = undocumented[parent.Name+"."+f.Name]
	}
	if t.Kind == schema.String && len(t.Enum) > 0 {
		doc = enumDoc(doc, t.Enum)
	}
	members := appendDoc(nil, doc)
	if isModel(t) {
		members = b.dialect.refer(members, t.Name, b.defaultOf(f))
		if t != t.Unmarked() {
			members = append(members, mapType(t))
		}
	} else {
		members = b.shape(members, t)
		if v := b.defaultOf(f); !v.IsNull() {
			members = append(members, object.Member{Key: "default", Value: v})
		}
	}
	if t.Marked {
		switch t.Kind {
		case schema.Map:
			members = append(members, mapType(t))
		case schema.List, schema.Bytes:
			word := [...]string{schema.Atomic: "atomic", schema.Set: "set", schema.Associative: "map"}[t.ListType]
			members = append(members, object.Member{Key: "x-kubernetes-list-type", Value: object.StringOf(word)})
			members = appendStrings(members, "x-kubernetes-list-map-keys", t.ListKeys)
		}
	}
	for _, tag := range [...][2]string{{"x-kubernetes-patch-strategy", f.PatchStrategy},
		{"x-kubernetes-patch-merge-key", f.PatchMergeKey}} {
		if tag[1] != "" {
			members = append(members, object.Member{Key: tag[0], Value: object.StringOf(tag[1])})
		}
	}
	return object.MapOf(members...)
}

// defaultOf is the default in the document: that of the field's marker, or else the zero value of a field that is
// always written. OpenAPI v2 has no defaults.
func (b *builder) defaultOf(f *schema.Field) object.Value {
	if !b.dialect.defaults() {
		return object.Nil
	}
	if !f.Default.IsNull() {
		return f.Default
	}
	if f.Pointer {
		return object.Nil
	}
	switch f.Type.Kind {
	case schema.Struct:
		return object.MapOf()
	case schema.String, schema.Bool, schema.Int, schema.Float:
		if !f.OmitEmpty {
			return f.Type.Zero()
		}
	}
	return object.Nil
}

func mapType(t *schema.Type) object.Member {
	word := "granular"
	if t.AtomicMap {
		word = "atomic"
	}
	return object.Member{Key: "x-kubernetes-map-type", Value: object.StringOf(word)}
}

func appendDoc(members []object.Member, doc string) []object.Member {
	if doc == "" {
		return members
	}
	return append(members, object.Member{Key: "description", Value: object.StringOf(doc)})
}

// enumDoc adds the allowed values to the description of a field.
func enumDoc(doc string, values []string) string {
	var b strings.Builder
	b.WriteString(doc)
	if doc != "" {
		b.WriteString("\n\n")
	}
	b.WriteString("Possible enum values:")
	for _, v := range values {
		b.WriteString("\n - `\"" + v + "\"`")
	}
	return b.String()
}

// undocumented has the descriptions of models and fields whose Go types have no SwaggerDoc method.
var undocumented = map[string]string{
	"io.k8s.apimachinery.pkg.api.resource.Quantity": "A number with a fixed point and an optional suffix, decimal (n, u, m, k, M, G, T, P, E), " +
		"binary (Ki, Mi, Gi, Ti, Pi, Ei) or an exponent: \"250m\", \"1.5Gi\", \"1e3\". It is kept with the largest suffix that needs no fraction.",
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString": "An integer of 32 bits, or a string.",
	metaModels + "Time":                            "A time in the notation of RFC 3339, in UTC and whole seconds.",
	metaModels + "MicroTime":                       "A time in the notation of RFC 3339, in UTC and microseconds.",
	"io.k8s.apimachinery.pkg.runtime.RawExtension": "Any object. Its type depends on the field.",
	modelWatch: "A change of an object that is watched.",
	modelWatch +
		".object": "The object as it is now (ADDED, MODIFIED) or as it was last (DELETED), an object with nothing but " +
		"a resourceVersion (BOOKMARK), or a Status (ERROR).",
	modelVersion:                            "The version of a server.",
	modelVersion + ".major":                 "The major version of the API.",
	modelVersion + ".minor":                 "The minor version of the API.",
	modelVersion + ".emulationMajor":        "The major version that the server behaves like.",
	modelVersion + ".emulationMinor":        "The minor version that the server behaves like.",
	modelVersion + ".minCompatibilityMajor": "The major version of the oldest server that this one can work beside.",
	modelVersion + ".minCompatibilityMinor": "The minor version of the oldest server that this one can work beside.",
}

func modelDoc(t *schema.Type) string {
	if doc := t.Doc(); doc != "" {
		return doc
	}
	return undocumented[t.Name]
}

// union is a struct of which one field is set. A discriminator, if there is one, names that field.
type union struct {
	discriminator string
	fields        map[string]string // values of the discriminator, by field
}

// unions are only published: neither clients nor this server use them.
var unions = map[string]union{
	"io.k8s.api.core.v1.AppArmorProfile":      {"type", map[string]string{"localhostProfile": "LocalhostProfile"}},
	"io.k8s.api.core.v1.PodSchedulingGroup":   {"", map[string]string{"podGroupName": "PodGroupName"}},
	"io.k8s.api.core.v1.SeccompProfile":       {"type", map[string]string{"localhostProfile": "LocalhostProfile"}},
	"io.k8s.api.flowcontrol.v1.LimitResponse": {"type", map[string]string{"queuing": "Queuing"}},
	"io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec": {
		"type", map[string]string{"exempt": "Exempt", "limited": "Limited"},
	},
	"io.k8s.api.flowcontrol.v1.Subject": {
		"kind", map[string]string{"group": "Group", "serviceAccount": "ServiceAccount", "user": "User"},
	},
	"io.k8s.api.scheduling.v1alpha3.WorkloadPodGroupDisruptionMode": {"",
		map[string]string{"all": "All", "single": "Single"}},
	"io.k8s.api.scheduling.v1alpha3.WorkloadPodGroupSchedulingPolicy": {"",
		map[string]string{"basic": "Basic", "gang": "Gang"}},
}

func (u union) value() object.Value {
	var fields []object.Member
	for field, value := range u.fields {
		fields = append(fields, object.Member{Key: field, Value: object.StringOf(value)})
	}
	members := []object.Member{{Key: "fields-to-discriminateBy", Value: object.MapOf(fields...)}}
	if u.discriminator != "" {
		members = append(members, object.Member{Key: "discriminator", Value: object.StringOf(u.discriminator)})
	}
	return object.ListOf(object.MapOf(members...))
}
