package merge

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/gotypes"
	"plinth/object"
	"plinth/schema"
)

// node is a structural schema, in the form of a CustomResourceDefinition. Both engines get their types from this
// description.
type node struct {
	Type       string           `json:"type,omitempty"` // "object", "array", a scalar, or "" for any type
	Properties map[string]*node `json:"properties,omitempty"`
	Additional *node            `json:"additionalProperties,omitempty"`
	Items      *node            `json:"items,omitempty"`
	ListType   string           `json:"x-kubernetes-list-type,omitempty"`
	ListKeys   []string         `json:"x-kubernetes-list-map-keys,omitempty"`
	MapType    string           `json:"x-kubernetes-map-type,omitempty"`
	Preserve   bool             `json:"x-kubernetes-preserve-unknown-fields,omitempty"`
	IntString  bool             `json:"x-kubernetes-int-or-string,omitempty"`
	Default    any              `json:"default,omitempty"`
	Ref        string           `json:"$ref,omitempty"` // for metadata, the name of its model
}

// clone returns a deep copy.
func (n *node) clone() *node {
	if n == nil {
		return nil
	}
	c := *n
	c.Properties = nil
	for name, p := range n.Properties {
		if c.Properties == nil {
			c.Properties = map[string]*node{}
		}
		c.Properties[name] = p.clone()
	}
	c.Additional, c.Items = n.Additional.clone(), n.Items.clone()
	return &c
}

// names lists the properties in order, so that random choices do not depend on the order of a Go map.
func (n *node) names() []string { return slices.Sorted(maps.Keys(n.Properties)) }

const (
	metaModel  = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	annotation = "kubectl.kubernetes.io/last-applied-configuration"
)

// compile makes plinth's type.
func (n *node) compile() *schema.Type {
	if n.Ref != "" {
		return gotypes.OfType(reflect.TypeFor[metav1.ObjectMeta]())
	}
	if n.IntString { // it has no type: ownership depends on the value, and validation on the keywords
		return &schema.Type{Kind: schema.Any}
	}
	switch n.Type {
	case "object":
		if n.Additional != nil {
			return &schema.Type{Kind: schema.Map, Elem: n.Additional.compile(), AtomicMap: n.MapType == "atomic"}
		}
		if len(n.Properties) == 0 {
			return &schema.Type{Kind: schema.Map, Elem: &schema.Type{Kind: schema.Any}, AtomicMap: n.MapType == "atomic"}
		}
		t := &schema.Type{Kind: schema.Struct, AtomicMap: n.MapType == "atomic"}
		if n.Preserve {
			t.Elem = &schema.Type{Kind: schema.Any}
		}
		for _, name := range n.names() {
			p := n.Properties[name]
			t.Fields = append(t.Fields, schema.Field{Name: name, Type: p.compile(), Pointer: true, OmitEmpty: true,
				Default: valueOf(p.Default)})
		}
		return t
	case "array":
		t := &schema.Type{Kind: schema.List, Elem: n.Items.compile(), ListKeys: n.ListKeys}
		switch n.ListType {
		case "set":
			t.ListType = schema.Set
		case "map":
			t.ListType = schema.Associative
		}
		return t
	case "string":
		return &schema.Type{Kind: schema.String}
	case "integer":
		return &schema.Type{Kind: schema.Int, Bits: 64}
	case "number":
		return &schema.Type{Kind: schema.Float, Bits: 64}
	case "boolean":
		return &schema.Type{Kind: schema.Bool}
	}
	return &schema.Type{Kind: schema.Any, AtomicMap: n.MapType == "atomic"}
}

// version is one API version of a kind.
type version struct {
	name    string
	root    *node             // nil if the kind has no schema, or is built in
	renames map[string]string // fields of spec: their name in the first version, and here
	typ     *schema.Type
}

// kind is a type that objects have.
type kind struct {
	group, name string
	versions    []*version // the first one is stored
	builtin     bool
	status      bool // whether it has a status with a subresource
	// forgetful kinds do not return errNotServed for a version that has been removed, nor do CustomResourceDefinitions.
	forgetful bool
	// fragile is a field of spec in the first version without which the conversion of an object fails, as may happen with
	// a webhook; "" for none.
	fragile string
	// broken is called before each conversion, which fails if it returns an error; nil disables it.
	broken func() error
	scale  map[string]string // path of replicas below spec, by API version; nil without a scale subresource

	once     sync.Once
	upstream *upstreamKind
}

// apiVersion returns the group and version for the name of a version.
func (k *kind) apiVersion(version string) string {
	if k.group == "" {
		return version
	}
	return k.group + "/" + version
}

// version finds a version by its API version; nil if it is not served.
func (k *kind) version(apiVersion string) *version {
	for _, v := range k.versions {
		if k.apiVersion(v.name) == apiVersion {
			return v
		}
	}
	return nil
}

// finish derives what follows from the schemas.
func (k *kind) finish() {
	for _, v := range k.versions {
		switch {
		case k.builtin:
		case v.root == nil:
			v.typ = &schema.Type{Kind: schema.Any}
		default:
			v.typ = v.root.compile()
		}
	}
}

// errNotServed is the error for a version that the kind does not have (any longer).
type errNotServed struct{ apiVersion string }

func (e errNotServed) Error() string { return "no kind of version " + e.apiVersion + " is registered" }

// convert converts an object to another version. Renamed fields of spec get their new names, the others are not
// changed.
func (k *kind) convert(v object.Value, to string) (object.Value, error) {
	from, target := k.version(v.At("apiVersion").Str()), k.version(to)
	if target == nil {
		return object.Nil, errNotServed{to}
	}
	if from == nil {
		return object.Nil, errNotServed{v.At("apiVersion").Str()}
	}
	if from == target {
		return v, nil
	}
	if k.fragile != "" {
		if _, ok := v.At("spec").Get(cmp.Or(from.renames[k.fragile], k.fragile)); !ok {
			return object.Nil, errors.New(fragileMessage)
		}
	}
	v = v.With("apiVersion", object.StringOf(to))
	spec := v.At("spec")
	if spec.Kind() != object.Map {
		return v, nil
	}
	var members []object.Member
	for _, m := range spec.Members() {
		members = append(members, object.Member{Key: target.renamed(from.renamed(m.Key)), Value: m.Value})
	}
	return v.With("spec", object.MapOf(members...)), nil
}

// renamed maps the name of a field of spec in this version to the name in the first version, and the other way round:
// names are swapped, so that conversion to another version and back loses nothing.
func (v *version) renamed(name string) string {
	for first, here := range v.renames {
		switch name {
		case first:
			return here
		case here:
			return first
		}
	}
	return name
}

// fragileMessage is the error of a fragile conversion.
const fragileMessage = "conversion webhook failed: a field is missing"

// resets returns the fields that a write to this subresource ("" for the object itself) does not own, with all fields
// below them.
func (k *kind) resets(subresource string) []string {
	switch {
	case !k.status:
		return nil
	case subresource == "status":
		return []string{"metadata", "spec"}
	}
	return []string{"status"}
}

// valueOf converts a value decoded by encoding/json.
func valueOf(v any) object.Value {
	switch v := v.(type) {
	case nil:
		return object.Nil
	case bool:
		return object.BoolOf(v)
	case int64:
		return object.IntOf(v)
	case int:
		return object.IntOf(int64(v))
	case float64:
		if v == float64(int64(v)) {
			return object.IntOf(int64(v))
		}
		return object.FloatOf(v)
	case string:
		return object.StringOf(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("no JSON: %v", err))
	}
	return parse(string(text))
}

// parse reads a JSON literal; numbers with a fraction become floats.
func parse(text string) object.Value {
	parsed, err := object.ParseJSON([]byte(strings.Clone(text)))
	if err != nil {
		panic(fmt.Sprintf("no JSON: %v in %s", err, text))
	}
	v, err := parsed.Value.Untyped()
	if err != nil {
		panic(err)
	}
	return v
}
