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

// form says what a value is to CEL.
type form uint8

const (
	unknown form = iota // of no declared type: it is there, and can be compared, but expressions do not get at it
	object_             // named fields
	map_                // any keys, one element type
	list
	set   // a list whose order is nothing, of scalars
	keyed // a list whose order is nothing, of objects told apart by keys
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

// shape is a type as CEL sees it: what values become in expressions, what the checker knows of them, and the bounds of
// their sizes that costs are estimated with. A shape is made from a [schema.Type] once and not changed; equal types of
// one definition share one.
type shape struct {
	form     form
	nullable bool
	// hidden shapes are those that expressions do not get at: unknown ones, and lists and maps of such.
	hidden bool
	// typed says that an object has declared fields: then keys are names of fields, escaped to be identifiers, and a
	// field that is null is a field that is not there.
	typed  bool
	fields []property // object: sorted by name
	elem   *shape     // map_, list, set, keyed
	keys   []string   // keyed: names of the fields, escaped
	listOf string     // list, set, keyed: the type of the items as schemas name it

	// maxElements is how many bytes, items or entries a value can have at most, minSize how many bytes of JSON it
	// takes at least.
	maxElements, minSize int64
}

// property is a field of an object.
type property struct {
	name    string
	escaped string // as an identifier; empty where there is no way to write it as one
	shape   *shape
}

// field finds a declared field of an object.
func (s *shape) field(name string) (*shape, bool) {
	i := sort.Search(len(s.fields), func(i int) bool { return s.fields[i].name >= name })
	if i < len(s.fields) && s.fields[i].name == name {
		return s.fields[i].shape, true
	}
	return nil, false
}

// declared finds a field by the identifier that expressions know it by.
func (s *shape) declared(identifier string) (*shape, bool) {
	for i := range s.fields {
		if f := &s.fields[i]; f.escaped == identifier && !f.shape.hidden {
			return f.shape, true
		}
	}
	return nil, false
}

// Sizes of JSON that are the same for all schemas, in bytes.
const (
	maxRequest = limits.MaxRequestSizeBytes
	maxText    = maxRequest - 2 // without the quotes
	bytesARune = 4              // maxLength counts code points, costs count bytes
	maxName    = 253
)

// shapes makes shapes from types, and shares those of types that are shared.
type shapes map[*schema.Type]*shape

// of is the shape of values of a type.
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
		// A key takes two quotes at least, an entry a colon and a comma. The reference counts six.
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

// bound is what a schema says, or else what fits a request.
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

// object makes the shape of an object. One that is a whole object of the API, the top or an embedded one, has a type,
// a kind, a name and a generateName, whatever its schema says, and nothing else of its metadata is to be seen.
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

// member is the shape of a field; nil stands for the metadata of an object.
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

// add appends a field to an object. required says that every object has it, by itself and not by a default.
func (s *shape) add(name string, of *shape, required bool) {
	escaped, _ := kube.Escape(name)
	s.fields = append(s.fields, property{name: name, escaped: escaped, shape: of})
	if required && !of.hidden {
		s.minSize += int64(len(name)) + of.minSize + 4
	}
}

// typeName is what schemas call a type.
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

// cardinality is how many values of a shape fit a request, side by side with a comma between them.
func (s *shape) cardinality() uint64 { return uint64(maxRequest / (s.minSize + 1)) }

// unescape is the name of the field that an identifier stands for.
func unescape(identifier string) (string, bool) {
	if !strings.Contains(identifier, "__") {
		return identifier, true
	}
	return kube.Unescape(identifier)
}

// times multiplies costs, up to the largest.
func times(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	if math.MaxUint64/a < b {
		return math.MaxUint64
	}
	return a * b
}
