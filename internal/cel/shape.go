package cel

import (
	"math"
	"slices"
	"sort"
	"strings"

	limits "k8s.io/apiserver/pkg/apis/cel"
	kube "k8s.io/apiserver/pkg/cel"

	"plinth/schema"
)

// form is the kind of value that a type has in CEL.
type form uint8

const (
	unknown form = iota // no declared type: expressions can compare the value as a part of another one, but not access it
	object_             // named fields
	map_                // any keys, one element type
	list
	set   // a list of scalars, without order
	keyed // a list of objects with keys, without order
	text
	base64_
	duration
	date
	dateTime
	integer
	number
	boolean
	intOrString // of dynamic type
)

// shape is a type as CEL sees it: how values are converted, which types the compiler sees, and the largest sizes for
// estimates. A shape is created once from a [schema.Type] and not changed. The nodes of a definition that share a type
// share its shape.
type shape struct {
	form     form
	nullable bool
	// hidden shapes cannot be accessed by expressions: unknown ones, and lists and maps of such.
	hidden bool
	// typed says that an object has declared fields. Then the keys are names of fields, escaped to be identifiers, and
	// a field that is null counts as absent.
	typed  bool
	fields []property // object: sorted by name
	elem   *shape     // map_, list, set, keyed
	keys   []string   // keyed: names of the fields, escaped
	listOf string     // list, set, keyed: the items' type in the words of OpenAPI

	// maxElements is the largest number of bytes, items or entries of a value; minSize is the smallest number of bytes
	// of its JSON.
	maxElements, minSize int64
}

// property is a field of an object.
type property struct {
	name    string
	escaped string // the identifier in expressions; "" if the name cannot be escaped
	shape   *shape
}

// field finds a declared field by its name.
func (s *shape) field(name string) (*shape, bool) {
	i := sort.Search(len(s.fields), func(i int) bool { return s.fields[i].name >= name })
	if i < len(s.fields) && s.fields[i].name == name {
		return s.fields[i].shape, true
	}
	return nil, false
}

// declared finds a field by its identifier in expressions.
func (s *shape) declared(identifier string) (*shape, bool) {
	for i := range s.fields {
		if f := &s.fields[i]; f.escaped == identifier && !f.shape.hidden {
			return f.shape, true
		}
	}
	return nil, false
}

// Sizes of JSON in bytes.
const (
	maxRequest = limits.MaxRequestSizeBytes
	maxText    = maxRequest - 2 // without the quotes
	bytesARune = 4              // maxLength counts code points, costs count bytes
	maxName    = 253
)

// shapes creates shapes from types. Types that are shared have one shape.
type shapes map[*schema.Type]*shape

// of returns the shape of a type.
func (m shapes) of(t *schema.Type) *shape {
	if s := m[t]; s != nil {
		return s
	}
	c := t.Custom
	if c == nil {
		c = &schema.Constraints{}
	}
	s := &shape{nullable: c.Nullable}
	m[t] = s
	switch t.Kind {
	case schema.Struct:
		m.object(s, t, c)
	case schema.Map:
		s.form, s.elem, s.minSize = map_, m.of(t.Elem), 2
		s.hidden = s.elem.hidden
		// The reference counts six bytes for each entry: two quotes, a colon, a comma, and two more.
		s.maxElements = bound(c.MaxProperties, (maxRequest-2)/(s.elem.minSize+6))
	case schema.List:
		m.list(s, t, c)
	case schema.String:
		s.text(c)
	case schema.Int:
		s.form, s.minSize = integer, kube.MinNumberSize
	case schema.Float:
		s.form, s.minSize = number, kube.MinNumberSize
	case schema.Bool:
		s.form, s.minSize = boolean, kube.MinBoolSize
	case schema.IntOrString:
		s.form, s.minSize, s.maxElements = intOrString, 1, maxText
		if c.MaxLength != nil {
			s.maxElements = bound(c.MaxLength, 0) * bytesARune
		}
	default:
		s.form, s.hidden = unknown, true
	}
	return s
}

// bound is the limit in the schema, or else one from the size of a request.
func bound(said *int64, otherwise int64) int64 {
	if said == nil {
		return otherwise
	}
	return max(*said, 0)
}

func (m shapes) list(s *shape, t *schema.Type, c *schema.Constraints) {
	s.elem, s.minSize, s.listOf = m.of(t.Elem), 2, typeName(t.Elem)
	s.hidden = s.elem.hidden
	s.maxElements = bound(c.MaxItems, (maxRequest-2)/(s.elem.minSize+1))
	switch t.ListType {
	case schema.Set:
		s.form = set
	case schema.Associative:
		s.form = keyed
		for _, key := range t.ListKeys {
			if escaped, ok := kube.Escape(key); ok {
				key = escaped
			}
			s.keys = append(s.keys, key)
		}
	default:
		s.form = list
	}
}

func (s *shape) text(c *schema.Constraints) {
	switch c.Format {
	case "byte":
		s.form, s.minSize, s.maxElements = base64_, kube.MinStringSize, bound(c.MaxLength, maxText)
	case "duration":
		s.form, s.minSize, s.maxElements = duration, kube.MinDurationSizeJSON, kube.MaxDurationSizeJSON
	case "date":
		s.form, s.minSize, s.maxElements = date, kube.JSONDateSize, kube.JSONDateSize
	case "date-time":
		s.form, s.minSize, s.maxElements = dateTime, kube.MinDatetimeSizeJSON, kube.MaxDatetimeSizeJSON
	default:
		s.form, s.minSize, s.maxElements = text, kube.MinStringSize, maxText
		switch {
		case c.MaxLength != nil:
			s.maxElements = bound(c.MaxLength, 0) * bytesARune
		case len(c.Enum) > 0:
			s.maxElements = 0
			for _, v := range c.Enum {
				s.maxElements = max(s.maxElements, int64(len(v.Str())))
			}
		}
	}
}

// object sets the shape of an object. If it is a whole API object (the root, or an embedded one), it has apiVersion,
// kind, metadata.name and metadata.generateName whatever the schema says. As in the reference, it has other metadata
// only if the schema declares both of these names.
func (m shapes) object(s *shape, t *schema.Type, c *schema.Constraints) {
	s.form, s.minSize = object_, 2
	s.typed = len(t.Fields) > 0
	for i := range t.Fields {
		f := &t.Fields[i]
		of := f.Type
		if c.Embedded && f.Name == "metadata" {
			of = nil
		}
		s.add(f.Name, m.member(of, c), slices.Contains(c.Required, f.Name) && f.Default.IsNull())
	}
}

// member is the shape of a field; t is nil for the metadata of an API object.
func (m shapes) member(t *schema.Type, c *schema.Constraints) *shape {
	if t != nil {
		return m.of(t)
	}
	if said := c.Metadata; said != nil && isText(said, "name") && isText(said, "generateName") {
		return m.of(said)
	}
	metadata := &shape{form: object_, typed: true, minSize: 2}
	for i, name := range [...]string{"generateName", "name"} {
		longest := int64(maxName - 1 + i)
		if c.Metadata != nil {
			if f := c.Metadata.Field(name); f != nil && f.Type.Custom != nil {
				longest = min(longest, bound(f.Type.Custom.MaxLength, longest))
			}
		}
		metadata.add(name, &shape{form: text, minSize: kube.MinStringSize, maxElements: longest * bytesARune}, false)
	}
	return metadata
}

func isText(t *schema.Type, name string) bool {
	f := t.Field(name)
	return f != nil && f.Type.Kind == schema.String
}

// add appends a field to an object. required says that every object has the field without the help of a default.
func (s *shape) add(name string, of *shape, required bool) {
	escaped, _ := kube.Escape(name)
	s.fields = append(s.fields, property{name: name, escaped: escaped, shape: of})
	if required && !of.hidden {
		s.minSize += int64(len(name)) + of.minSize + 4
	}
}

// typeName is the type in the words of OpenAPI.
func typeName(t *schema.Type) string {
	switch t.Kind {
	case schema.Struct, schema.Map:
		return "object"
	case schema.List:
		return "array"
	case schema.String:
		return "string"
	case schema.Int:
		return "integer"
	case schema.Float:
		return "number"
	case schema.Bool:
		return "boolean"
	}
	return ""
}

// cardinality is how many values of a shape fit in a request, as items of a list.
func (s *shape) cardinality() uint64 { return uint64(maxRequest / (s.minSize + 1)) }

// unescape returns the name of the field with this identifier.
func unescape(identifier string) (string, bool) {
	if !strings.Contains(identifier, "__") {
		return identifier, true
	}
	return kube.Unescape(identifier)
}

// times multiplies costs, and saturates.
func times(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	if math.MaxUint64/a < b {
		return math.MaxUint64
	}
	return a * b
}
