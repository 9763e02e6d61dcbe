package discovery

import (
	"encoding/binary"
	"math"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"plinth/object"
)

// message maps the members of a map to the fields of a protobuf message. Members without a field are omitted.
type message struct {
	fields map[string]protoField
	// entries is the field of a map whose keys are data: each member becomes a message with the key as field 1 and the
	// value as field 2.
	entries protoField
	// extensions is the field for members whose key begins with "x-". Each becomes a message as for entries, whose
	// value is any.
	extensions int
}

// protoField is one field. A list becomes a repeated field, unless wrap is set without of, or any without each.
type protoField struct {
	number int
	of     *message // nil: a scalar, or any
	double bool     // encoded as a double even if the value is an integer
	any    bool     // a gnostic Any: a message with the value as YAML in field 2
	each   bool     // a list of any
	wrap   []int    // numbers of nested messages around the value, outermost first
	choose func(v object.Value) protoField
}

// appendMessage appends the fields of a map.
func appendMessage(dst []byte, m *message, v object.Value) []byte {
	for _, member := range v.Members() {
		field, known := m.fields[member.Key]
		switch {
		case known:
			dst = appendField(dst, field, member.Value)
		case m.entries.number != 0:
			dst = appendNested(dst, m.entries.number, func(dst []byte) []byte {
				dst = appendBytes(dst, 1, member.Key)
				inner := m.entries
				inner.number = 2
				return appendField(dst, inner, member.Value)
			})
		case m.extensions != 0 && strings.HasPrefix(member.Key, "x-"):
			dst = appendNested(dst, m.extensions, func(dst []byte) []byte {
				dst = appendBytes(dst, 1, member.Key)
				return appendField(dst, protoField{number: 2, any: true}, member.Value)
			})
		}
	}
	return dst
}

func appendField(dst []byte, f protoField, v object.Value) []byte {
	if v.Kind() == object.List && (f.each || !f.any && (len(f.wrap) == 0 || f.of != nil)) {
		f.each = false
		for _, item := range v.Items() {
			dst = appendField(dst, f, item)
		}
		return dst
	}
	if f.choose != nil {
		number := f.number
		f = f.choose(v)
		f.number = number
	}
	if len(f.wrap) > 0 {
		return appendNested(dst, f.number, func(dst []byte) []byte {
			inner := f
			inner.number, inner.wrap = f.wrap[0], f.wrap[1:]
			return appendField(dst, inner, v)
		})
	}
	switch {
	case f.any:
		return appendNested(dst, f.number, func(dst []byte) []byte {
			return appendBytes(dst, 2, anyText(v))
		})
	case f.of != nil:
		return appendNested(dst, f.number, func(dst []byte) []byte { return appendMessage(dst, f.of, v) })
	case f.double:
		v = object.FloatOf(v.Float())
	}
	return appendScalar(dst, f.number, v)
}

// anyText is the text of a gnostic Any: YAML in block style, as gnostic prints it.
func anyText(v object.Value) string {
	text, err := yaml.Marshal(yamlNode(v))
	if err != nil {
		panic("discovery: " + err.Error()) // cannot happen: a node of JSON values can be printed
	}
	return string(text)
}

// yamlNode is a value as the YAML library takes it. Go's maps would lose the order of the members.
func yamlNode(v object.Value) *yaml.Node {
	switch v.Kind() {
	case object.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, m := range v.Members() {
			n.Content = append(n.Content, yamlNode(object.StringOf(m.Key)), yamlNode(m.Value))
		}
		return n
	case object.List:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v.Items() {
			n.Content = append(n.Content, yamlNode(item))
		}
		return n
	case object.String:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v.Str()}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: string(object.AppendJSON(nil, v))}
}

func appendScalar(dst []byte, number int, v object.Value) []byte {
	const varint, fixed64 = 0, 1
	switch v.Kind() {
	case object.Bool:
		b := uint64(0)
		if v.Bool() {
			b = 1
		}
		return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(number<<3|varint)), b)
	case object.Int:
		return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(number<<3|varint)), uint64(v.Int()))
	case object.Float:
		return binary.LittleEndian.AppendUint64(binary.AppendUvarint(dst, uint64(number<<3|fixed64)),
			math.Float64bits(v.Float()))
	}
	return appendBytes(dst, number, v.Str())
}

const lengthDelimited = 2

func appendBytes(dst []byte, number int, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(number<<3|lengthDelimited))
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// appendNested appends a field that holds a message. The body is appended first and then moved to insert its length,
// which is unknown before.
func appendNested(dst []byte, number int, body func([]byte) []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(number<<3|lengthDelimited))
	start := len(dst)
	dst = body(dst)
	size := len(dst) - start
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(size))
	dst = append(dst, length[:n]...)
	copy(dst[start+n:], dst[start:start+size])
	copy(dst[start:], length[:n])
	return dst
}

// appendProtobuf appends a discovery document in the protobuf encoding of Kubernetes: a magic number and a
// runtime.Unknown that holds the message.
func appendProtobuf(dst []byte, kind string, v object.Value) []byte {
	dst = append(dst, "k8s\x00"...)
	dst = appendNested(dst, 1, func(dst []byte) []byte {
		if apiVersion := v.At("apiVersion").Str(); apiVersion != "" {
			dst = appendBytes(dst, 1, apiVersion)
		}
		return appendBytes(dst, 2, kind)
	})
	return appendNested(dst, 2, func(dst []byte) []byte { return appendMessage(dst, discoveryMessages()[kind], v) })
}

func fields(names ...string) map[string]protoField {
	m := make(map[string]protoField, len(names))
	for i, name := range names {
		if name != "" {
			m[name] = protoField{number: i + 1}
		}
	}
	return m
}

// with sets the message type of the named field.
func (m *message) with(name string, of *message, wrap ...int) *message {
	f := m.fields[name]
	f.of, f.wrap = of, wrap
	m.fields[name] = f
	return m
}

// discoveryMessages are the messages of the discovery documents. Field numbers are from generated.proto of meta/v1 and
// apidiscovery/v2.
var discoveryMessages = sync.OnceValue(func() map[string]*message {
	address := &message{fields: fields("clientCIDR", "serverAddress")}
	versionEntry := &message{fields: fields("groupVersion", "version")}
	group := (&message{fields: fields("name", "versions", "preferredVersion")}).
		with("versions", versionEntry).with("preferredVersion", versionEntry)
	resource := (&message{fields: fields("name", "namespaced", "kind", "verbs", "shortNames", "singularName", "categories",
		"group", "version", "storageVersionHash")})
	resource.fields["verbs"] = protoField{number: 4, wrap: []int{1}}

	kind := &message{fields: fields("group", "version", "kind")}
	subresource := (&message{fields: fields("subresource", "responseKind", "", "verbs")}).with("responseKind", kind)
	aggregated := (&message{fields: fields("resource", "responseKind", "scope", "singularResource", "verbs", "shortNames",
		"categories", "subresources")}).with("responseKind", kind).with("subresources", subresource)
	groupVersion := (&message{fields: fields("version", "resources", "freshness")}).with("resources", aggregated)
	groupDiscovery := (&message{fields: fields("metadata", "versions")}).
		with("metadata", &message{fields: fields("name")}).with("versions", groupVersion)
	return map[string]*message{
		"APIVersions": (&message{fields: fields("versions", "serverAddressByClientCIDRs")}).
			with("serverAddressByClientCIDRs", address),
		"APIGroup":        group,
		"APIGroupList":    (&message{fields: fields("groups")}).with("groups", group),
		"APIResourceList": (&message{fields: fields("groupVersion", "resources")}).with("resources", resource),
		"APIGroupDiscoveryList": (&message{fields: fields("metadata", "items")}).with("metadata", &message{}).with("items",
			groupDiscovery),
	}
})
