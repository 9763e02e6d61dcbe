package schema

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"plinth/internal/invariants"
	"plinth/object"
)

// This file compiles the Go types of built-in APIs (k8s.io/api and its like). For example,
//
//	type Widget struct {
//		metav1.TypeMeta `json:",inline"`
//		Spec  WidgetSpec `json:"spec" protobuf:"bytes,1,opt,name=spec"`
//		Ports []Port `json:"ports" patchStrategy:"merge" patchMergeKey:"port" protobuf:"bytes,2,rep,name=ports"`
//		Size  *int32 `json:"size,omitempty" protobuf:"varint,3,opt,name=size"`
//	}
//
// becomes a Struct of the fields
//
//	apiVersion, kind    String, OmitEmpty, embedded: "TypeMeta."
//	ports               List, Associative, ListKeys: [port], Number: 2
//	size                Int, Bits: 32, Pointer, OmitEmpty, Number: 3
//	spec                Struct, Number: 1
//
// of which ports and spec are always written: its zero value is {ports: null, spec: {…}}.
//
// A type is compiled by reflection once, when a request first needs it. Generated code for the same tables would be a
// few megabytes of source, and would be read into memory at the start of the process.

// Markers are the markers in the comment of a Go type or field (`+listType=map`).
type Markers struct {
	ListType, MapType  string // "atomic", "set", "map"; "atomic", "granular". MapType stands for +structType as well
	ListKeys           []string
	Default            string // JSON; "" if there is none
	Optional, Required bool
	TellsEmpty         bool     // not a marker: see Field
	Enum               []string // of a type marked +enum: the values of its constants, sorted
	Doc                string   // the description, of types that have no SwaggerDoc method
}

// Facts has the data that is only in the sources of Go types: markers are comments, which the Go compiler drops.
// Package gotypes has them in a table that go generate writes. A nil map has no markers.
type Facts interface {
	// Of returns the markers of a named type, and those of its fields by Go field name.
	Of(t reflect.Type) (Markers, map[string]Markers)
}

// Compiler compiles Go types and remembers them: a Go type has one Type, so that the types of all kinds together share
// PodSpec, ObjectMeta and the like. It is safe for concurrent use.
//
// Types refer to each other, and to themselves: the schema of a CustomResourceDefinition has properties, which are
// schemas. So a type cannot be compiled after everything below it. Instead, each Type is entered into types before its
// fields are compiled, and results that need complete types (zero values, which fields are always written, whether
// there are defaults below) are computed at the end of a batch (finish). Invariant: outside of mu,
//
//	t ∈ types ⇒ t.complete, and so is every type that can be reached from t
//
// A type is compiled when a request first needs it, to keep the start of the process short.
type Compiler struct {
	facts Facts
	asked sync.Map // reflect.Type to *Type: results of Type, which later requests find without mu
	mu    sync.Mutex
	types map[reflect.Type]*Type // under mu
}

// NewCompiler makes a compiler that takes its markers from facts.
func NewCompiler(facts Facts) *Compiler {
	return &Compiler{facts: facts, types: map[reflect.Type]*Type{}}
}

// FromGo compiles one Go type and everything below it.
func FromGo(t reflect.Type, facts Facts) *Type { return NewCompiler(facts).Type(t) }

// Type returns the compiled form of a Go type. The first call for a type compiles it, and everything below it that is
// not compiled yet. It panics on a shape of type that no Kubernetes API has, which is a programming error.
func (c *Compiler) Type(t reflect.Type) *Type {
	if known, ok := c.asked.Load(t); ok {
		return known.(*Type)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.types[t]
	if out == nil {
		b := batch{Compiler: c}
		out = b.compile(t)
		b.finish()
	}
	c.asked.Store(t, out)
	return out
}

// batch is one compilation, done under Compiler.mu. A type that refers to itself is used before it is complete: results
// that depend on complete types are left to finish.
type batch struct {
	*Compiler
	made   []*Type    // those of this batch, incomplete until finish
	copies []typeCopy // see typeCopy
}

// typeCopy is a struct, a list or a map to which a field has added a marker. from may not have its fields or its
// elements yet when the copy is made, as it may contain the field: finish copies them.
type typeCopy struct{ to, from *Type }

// compile returns the type that stands for t, known or new. A new one is entered before anything below it is compiled,
// so that a type which refers to itself finds itself. Named types have markers, besides those of the fields that use
// them.
func (b *batch) compile(t reflect.Type) *Type {
	if known := b.types[t]; known != nil {
		return known
	}
	out := &Type{golang: t}
	if t.Name() != "" && t.PkgPath() != "" {
		out.GoName = t.Name()
	}
	b.types[t] = out
	b.made = append(b.made, out)
	var own Markers
	var ofFields map[string]Markers
	if b.facts != nil && out.GoName != "" {
		own, ofFields = b.facts.Of(t)
	}
	out.Name, out.Enum, out.doc = modelName(t), own.Enum, own.Doc
	out.Typeless = isTypeless(t)
	switch out.Kind = specialKind(t); {
	case out.Kind != 0:
	case isEither(t):
		out.Either = b.either(t)
	case isRaw(t):
		out.AtomicMap = t.Name() == "RawExtension" // FieldsV1 and JSON are granular like the values that they hold
	default:
		b.shape(out, t, ofFields)
	}
	out.mark(own, "")
	return out
}

// shape fills in the structure of the Go type. Types below are compiled on the way, and may be incomplete when it
// returns (Compiler); fields are sorted by name, as the walks need them.
func (b *batch) shape(out *Type, t reflect.Type, ofFields map[string]Markers) {
	switch t.Kind() {
	case reflect.String:
		out.Kind = String
	case reflect.Bool:
		out.Kind = Bool
	case reflect.Int, reflect.Int32, reflect.Int64:
		out.Kind, out.Bits = Int, uint8(t.Bits())
	case reflect.Float64:
		out.Kind = Float
	case reflect.Interface:
		out.Kind = Any
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			out.Kind = Bytes
			return
		}
		out.Kind, out.Wrapped = List, isMessage(t) // first: the elements may have fields of this type
		out.Elem = b.compile(t.Elem())
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			panic(fmt.Sprintf("schema: keys of %v are no strings", t))
		}
		out.Kind = Map
		out.Elem = b.compile(t.Elem())
	case reflect.Struct:
		out.Kind = Struct
		b.fields(out, t, ofFields, "", nil)
		slices.SortFunc(out.Fields, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
		out.names = namesOf(out.Fields)
	default:
		panic(fmt.Sprintf("schema: %v is a kind of type that no API has", t))
	}
}

// fields adds the fields of a Go struct, including those of embedded structs. An outer field hides an embedded one, as
// in encoding/json. In Go, a field that two embedded structs have at one depth is hidden; no API has this case. markers
// are those of t by Go field name; embedded and within are the path at which t is embedded in out, for error messages
// and for protobuf, which does not see through embedding.
func (b *batch) fields(out *Type, t reflect.Type, markers map[string]Markers, embedded string, within []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if f.Anonymous && name == "" {
			var below map[string]Markers
			if b.facts != nil {
				_, below = b.facts.Of(f.Type)
			}
			b.fields(out, f.Type, below, embedded+f.Name+".", append(slices.Clone(within),
				protobufNumber(f.Tag.Get("protobuf"))))
			continue
		}
		if name == "" {
			name = f.Name
		}
		if at := slices.IndexFunc(out.Fields, func(f Field) bool { return f.Name == name }); at >= 0 {
			if len(out.Fields[at].embedded) <= len(embedded) {
				continue
			}
			out.Fields = slices.Delete(out.Fields, at, at+1)
		}
		field := b.field(f, t, name, options, embedded, markers[f.Name])
		field.Within = within
		out.Fields = append(out.Fields, field)
	}
}

// GoOrder returns the indices of the Fields of a built-in Struct in the order in which its Go type declares them, which
// is the order in which Go's encoding prints them: embedded structs are in the place of their embedding.
func (t *Type) GoOrder() []int { return t.goOrder(nil, t.golang, "") }

func (t *Type) goOrder(indices []int, owner reflect.Type, embedded string) []int {
	for i := range owner.NumField() {
		f := owner.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			indices = t.goOrder(indices, f.Type, embedded+f.Name+".")
			continue
		}
		// A field that another one hides is not among Fields.
		if at, ok := t.find(cmp.Or(name, f.Name), 0); ok && t.Fields[at].owner == owner && t.Fields[at].embedded == embedded {
			indices = append(indices, at)
		}
	}
	return indices
}

// field compiles one field of a Go struct. A field without omitempty is required, unless a marker overrides this; see
// Field.Required. A default that is not valid JSON is an error in the sources, and panics. A pointer is a property of
// the field and not of the type: *int32 and int32 have one Type.
func (b *batch) field(f reflect.StructField, owner reflect.Type, name, options, embedded string, m Markers) Field {
	out := Field{
		Name: name, OmitEmpty: hasOption(options, "omitempty"), OmitZero: hasOption(options, "omitzero"),
		Number:        protobufNumber(f.Tag.Get("protobuf")),
		PatchStrategy: f.Tag.Get("patchStrategy"), PatchMergeKey: f.Tag.Get("patchMergeKey"),
		owner: owner, embedded: embedded, doc: m.Doc, TellsEmpty: m.TellsEmpty,
	}
	out.Required = m.Required || !m.Optional && !out.OmitEmpty
	t := f.Type
	if t.Kind() == reflect.Pointer {
		out.Pointer, t = true, t.Elem()
	}
	out.Type = b.withMarkers(b.compile(t), m, &out)
	if m.Default != "" {
		parsed, err := object.ParseJSON([]byte(m.Default))
		if err != nil {
			panic(fmt.Sprintf("schema: default of %v.%s: %v", owner, f.Name, err))
		}
		out.Default = parsed.Value
	}
	return out
}

// withMarkers is the type, or its copy if the field has a marker for how it merges. []string is one Go type and one
// Type, but metadata.finalizers is a set, and the args of a container are atomic: a marker of the field must not change
// the type for all other fields.
func (b *batch) withMarkers(t *Type, m Markers, f *Field) *Type {
	switch t.Kind {
	case List:
		if m.ListType == "" && f.PatchStrategy == "" {
			return t
		}
	case Map, Struct:
		if m.MapType == "" {
			return t
		}
	case Bytes: // a list in Go, so it may have its marker, which OpenAPI publishes
		if m.ListType == "" {
			return t
		}
	default:
		return t
	}
	marked := *t
	marked.unmarked = t
	marked.mark(m, f.PatchStrategy)
	if marked.Kind == List && !marked.Marked && f.PatchMergeKey != "" {
		marked.ListType, marked.ListKeys = Associative, []string{f.PatchMergeKey}
	}
	b.copies = append(b.copies, typeCopy{to: &marked, from: t})
	b.made = append(b.made, &marked)
	return &marked
}

// mark applies markers. An unmarked list gets the type that its patch strategy implies: a list that is merged by
// patches but has no key there is a set. Markers take precedence: OpenAPI publishes them. The same rule is in
// kube-openapi's package schemaconv, by which the reference merges (SSA-8).
func (t *Type) mark(m Markers, strategy string) {
	switch {
	case m.ListType == "set":
		t.ListType, t.Marked = Set, true
	case m.ListType == "map":
		t.ListType, t.ListKeys, t.Marked = Associative, m.ListKeys, true
	case m.ListType == "atomic":
		t.ListType, t.Marked = Atomic, true
	case t.Kind == List && hasOption(strategy, "merge"):
		t.ListType = Set
	}
	if m.MapType != "" {
		t.AtomicMap, t.Marked = m.MapType == "atomic", true
	}
}

// finish computes the results that need complete types, for the types of this batch; those of earlier ones are complete
// and may be in use. Whether defaults apply below a type is the least fixed point of
//
//	fills(t) = some field has a default ∨ fills(some type directly below t)
//
// A recursion would not end for types that contain themselves, as JSONSchemaProps does in its properties; so the
// computation starts with false everywhere and repeats until no value changes, which takes at most as many rounds as
// types are nested. A type that contains only itself correctly stays false: it has no default.
//
// The copies get their fields and elements first, as all later steps need fields. complete is set last: from then on
// other goroutines may read the type, once mu is released.
func (b *batch) finish() {
	for _, c := range b.copies {
		c.to.Fields, c.to.names, c.to.Elem = c.from.Fields, c.from.names, c.from.Elem
	}
	done := map[*Type]bool{}
	for _, t := range b.made {
		t.setZero(done)
	}
	for changed := true; changed; {
		changed = false
		for _, t := range b.made {
			if !t.fills && t.fillsByNow() {
				t.fills, changed = true, true
			}
		}
	}
	for t := range done {
		t.complete = true
		if invariants.Enabled {
			t.checkCompiled()
		}
	}
}

// fillsByNow says whether defaults apply at or below t, as far as the fixed point has been computed.
func (t *Type) fillsByNow() bool {
	if t.Elem != nil && t.Elem.fills {
		return true
	}
	return slices.ContainsFunc(t.Fields, func(f Field) bool { return !f.Default.IsNull() || f.Type.fills })
}

// setZero computes the zero value and, for a struct, which fields are always written. It descends only into fields that
// are stored inline: pointers, lists and maps have the zero value null. Since a Go struct cannot contain itself without
// one of these, the recursion ends.
func (t *Type) setZero(done map[*Type]bool) {
	if t.complete || done[t] {
		return
	}
	done[t] = true
	switch t.Kind {
	case Struct:
		var members []object.Member
		for i := range t.Fields {
			f := &t.Fields[i]
			if !f.Pointer {
				f.Type.setZero(done)
			}
			zero := f.zero()
			if f.OmitZero || f.OmitEmpty && (f.Pointer || isEmpty(zero, f.Type)) {
				continue
			}
			t.always = append(t.always, uint16(i))
			members = append(members, object.Member{Key: f.Name, Value: zero})
		}
		t.zero = object.MapOf(members...)
	case String:
		t.zero = object.StringOf("")
	case Bool:
		t.zero = object.BoolOf(false)
	case Int, Float, IntOrString:
		t.zero = object.IntOf(0)
	case Quantity:
		t.zero = object.StringOf("0")
	}
}

// specialKinds are the types with a special encoding, by package path and name, so that this package need not import
// them.
var specialKinds = map[string]Kind{
	"k8s.io/apimachinery/pkg/api/resource.Quantity":   Quantity,
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString": IntOrString,
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":       Time,
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":  MicroTime,
}

func specialKind(t reflect.Type) Kind { return specialKinds[t.PkgPath()+"."+t.Name()] }

// isRaw says whether a type has its own UnmarshalJSON for any JSON: RawExtension, FieldsV1, and apiextensions' JSON.
// Types in specialKinds have one as well; the caller checks for them first.
func isRaw(t reflect.Type) bool {
	type unmarshaler interface{ UnmarshalJSON([]byte) error }
	return t.Kind() == reflect.Struct && reflect.PointerTo(t).Implements(reflect.TypeFor[unmarshaler]())
}

// isTypeless says whether a type declares in OpenAPI that it has no type: apiextensions' JSON may be a string or a
// number, while RawExtension is an object.
func isTypeless(t reflect.Type) bool {
	type typed interface{ OpenAPISchemaType() []string }
	return t.Kind() == reflect.Struct && t.Implements(reflect.TypeFor[typed]()) &&
		len(reflect.Zero(t).Interface().(typed).OpenAPISchemaType()) == 0
}

// isMessage says whether protobuf encodes a type that is not a struct as a message: type ExtraValue []string. Its items
// are one level further down in protobuf than those of []string.
func isMessage(t reflect.Type) bool {
	type marshaler interface{ Marshal() ([]byte, error) }
	return t.Implements(reflect.TypeFor[marshaler]())
}

// modelName returns the OpenAPI name of a type; "" for a type without one, such as []string.
func modelName(t reflect.Type) string {
	type named interface{ OpenAPIModelName() string }
	if t.Kind() == reflect.Interface || !t.Implements(reflect.TypeFor[named]()) {
		return ""
	}
	return reflect.Zero(t).Interface().(named).OpenAPIModelName()
}

// documented is implemented by the types of k8s.io/api: descriptions by JSON name of the field, and of the type by "".
// They are read when OpenAPI is built, and not copied into Type: they are megabytes of text.
type documented interface{ SwaggerDoc() map[string]string }

func docOf(t reflect.Type, name string) string {
	if t == nil || t.Kind() == reflect.Interface || !t.Implements(reflect.TypeFor[documented]()) {
		return ""
	}
	return reflect.Zero(t).Interface().(documented).SwaggerDoc()[name]
}

// Doc is the description of the type for OpenAPI, "" if there is none.
func (t *Type) Doc() string { return cmp.Or(t.doc, docOf(t.golang, "")) }

// Doc is the description of the field for OpenAPI, "" if there is none.
func (f *Field) Doc() string { return cmp.Or(f.doc, docOf(f.owner, f.Name)) }

// GoName is the name of the field in the Go struct, which errors about protobuf use; "" if there is none. It searches
// the struct, as it is called for errors only.
func (f *Field) GoName() string {
	if f.owner == nil {
		return ""
	}
	for i := range f.owner.NumField() {
		field := f.owner.Field(i)
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == f.Name {
			return field.Name
		}
	}
	return ""
}

// GoEmbedded are the names of the embedded structs that hold the field, one for each number of Within.
func (f *Field) GoEmbedded() []string { return strings.Split(strings.TrimSuffix(f.embedded, "."), ".") }

// goString is the name of the type in errors of encoding/json: "v1.DeploymentSpec", "[]string".
func (t *Type) goString() string {
	if t.golang == nil {
		return t.Kind.String()
	}
	return t.golang.String()
}

var kindNames = [...]string{"any", "struct", "map", "list", "string", "bool", "int", "float", "bytes", "quantity",
	"int-or-string", "time", "micro-time"}

// String names the kind.
func (k Kind) String() string { return kindNames[k] }

// hasOption says whether a comma-separated list, as in a tag, has an option.
func hasOption(list, option string) bool {
	for o := range strings.SplitSeq(list, ",") {
		if o == option {
			return true
		}
	}
	return false
}

// protobufNumber takes the field number out of a tag: 2 of "bytes,2,opt,name=spec". It is 0 without such a tag.
func protobufNumber(tag string) int {
	_, rest, _ := strings.Cut(tag, ",")
	digits, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}
