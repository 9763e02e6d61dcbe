package proto

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"plinth/object"
	"plinth/schema"
)

// maxNesting bounds how deep messages may be nested in a body (WRITE-6). No type of the API is nested nearly as deep.
const maxNesting = 100

// magic begins every Kubernetes protobuf body (MED-3).
var magic = []byte("k8s\x00")

// MessageError is a message that cannot be read, in an envelope that can.
type MessageError struct {
	APIVersion, Kind string // of the envelope
	Err              error
}

func (e *MessageError) Error() string { return e.Err.Error() }

// Parse reads an object in Kubernetes' protobuf envelope as the value that its JSON would be, by the field numbers of
// its type. Unknown fields are skipped, as in the generated code. The result is a parsed body like one of JSON:
// [schema.Type.Decode] decides what the zero value of a field means. If the object is of another kind, only its
// apiVersion and kind are read, by which the engine refuses it. Errors are worded as those of the generated code.
func Parse(t *schema.Type, body []byte) (object.Value, error) {
	envelope, raw, err := ReadEnvelope(body)
	if err != nil {
		return object.Nil, err
	}
	apiVersion, kind := envelope.APIVersion, envelope.Kind
	value := object.MapOf()
	if kind == "" || kind == t.GoName {
		if value, err = ParseMessage(t, raw); err != nil {
			return object.Nil, &MessageError{apiVersion, kind, err}
		}
	}
	var named []object.Member
	if apiVersion != "" {
		named = append(named, object.Member{Key: "apiVersion", Value: object.StringOf(apiVersion)})
	}
	if kind != "" {
		named = append(named, object.Member{Key: "kind", Value: object.StringOf(kind)})
	}
	return value.Edit(named), nil
}

// ParseMessage reads the message of an object, which has no apiVersion and kind.
func ParseMessage(t *schema.Type, raw []byte) (object.Value, error) { return message(t, raw, 0) }

// Enveloped says whether a body begins as an envelope does.
func Enveloped(body []byte) bool { return bytes.HasPrefix(body, magic) }

// ReadEnvelope reads an envelope and returns the message in it, as a part of body.
func ReadEnvelope(body []byte) (v Envelope, raw []byte, err error) {
	switch {
	case len(body) == 0:
		return v, nil, errors.New("empty data")
	case !Enveloped(body):
		return v, nil,
			errors.New("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
	case len(body) == len(magic):
		return v, nil, errors.New("empty body")
	}
	err = eachField("Unknown", body[len(magic):], bytesFields(unknownFields), func(number protowire.Number,
		f wireField) error {
		switch number {
		case 1:
			return eachField("TypeMeta", f.bytes, bytesFields(typeMetaFields), func(number protowire.Number,
				f wireField) error {
				if number == 1 {
					v.APIVersion = textOf(f.bytes)
				} else {
					v.Kind = textOf(f.bytes)
				}
				return nil
			})
		case 2:
			raw = f.bytes
		}
		return nil
	})
	return v, raw, err
}

// The fields of an envelope, by number; all of them hold bytes.
var (
	unknownFields  = []string{1: "TypeMeta", 2: "Raw", 3: "ContentEncoding", 4: "ContentType"}
	typeMetaFields = []string{1: "APIVersion", 2: "Kind"}
)

// bytesFields are known fields that hold bytes.
func bytesFields(names []string) knownFields {
	return func(number protowire.Number, typ protowire.Type) (bool, error) {
		if int(number) >= len(names) {
			return false, nil
		}
		return true, checkWire(typ, protowire.BytesType, names[number])
	}
}

// knownFields says whether a message has a field of this number. It is an error if the field has another wire type.
type knownFields func(number protowire.Number, typ protowire.Type) (bool, error)

func checkWire(typ, want protowire.Type, name string) error {
	if typ != want {
		return fmt.Errorf("proto: wrong wireType = %d for field %s", typ, name)
	}
	return nil
}

// wireField is the value of one field on the wire: a number or bytes.
type wireField struct {
	typ   protowire.Type
	n     uint64
	bytes []byte
	open  []byte // bytes, and the rest of the message after them
}

// eachField calls visit for each known field of a message, in the order of the message, and skips the others. It checks
// for errors in the order of the generated code: in the tag, in the wire type, in the value.
func eachField(name string, b []byte, known knownFields, visit func(protowire.Number, wireField) error) error {
	for len(b) > 0 {
		tag, n, err := varint(b)
		if err != nil {
			return err
		}
		number, typ := protowire.Number(tag>>3), protowire.Type(tag&7)
		switch {
		case typ == protowire.EndGroupType:
			return fmt.Errorf("proto: %s: wiretype end group for non-group", name)
		case number <= 0:
			return fmt.Errorf("proto: %s: illegal tag %d (wire type %d)", name, number, tag)
		}
		ours, err := known(number, typ)
		if err != nil {
			return err
		}
		if !ours {
			if n, err = fieldSize(b); err != nil {
				return err
			}
			b = b[n:]
			continue
		}
		f, size, err := valueOf(typ, b[n:])
		if err != nil {
			return err
		}
		b = b[n+size:]
		if err := visit(number, f); err != nil {
			return err
		}
	}
	return nil
}

// valueOf reads the value of a field, whose wire type is one of those that known fields have.
func valueOf(typ protowire.Type, b []byte) (f wireField, size int, err error) {
	f.typ = typ
	switch typ {
	case protowire.VarintType:
		f.n, size, err = varint(b)
	case protowire.Fixed64Type:
		if len(b) < 8 {
			return f, size, io.ErrUnexpectedEOF
		}
		f.n, size = binary.LittleEndian.Uint64(b), 8
	default:
		f.bytes, size, err = lengthDelimited(b)
		f.open = b[size-len(f.bytes):]
	}
	return f, size, err
}

// varint reads a number as the generated code does: in ten bytes at most, of which bits beyond 64 are dropped
// (protowire refuses those).
func varint(b []byte) (v uint64, size int, err error) {
	for size < binary.MaxVarintLen64 {
		if size == len(b) {
			return v, size, io.ErrUnexpectedEOF
		}
		c := b[size]
		v |= uint64(c&0x7f) << (7 * size)
		size++
		if c < 0x80 {
			return v, size, nil
		}
	}
	return v, size, errors.New("proto: integer overflow")
}

// lengthDelimited reads a length and the bytes after it. size is the size of both.
func lengthDelimited(b []byte) (content []byte, size int, err error) {
	length, n, err := varint(b)
	switch end := n + int(length); {
	case err != nil:
		return nil, size, err
	case end < n:
		return nil, size, errors.New("proto: negative length found during unmarshaling")
	case end > len(b):
		return nil, size, io.ErrUnexpectedEOF
	default:
		return b[n:end], end, nil
	}
}

// fieldSize is the size of a field with its tag. The field may be a group. As in the generated code, any tag that ends
// a group ends the innermost one.
func fieldSize(b []byte) (int, error) {
	pos := 0
	for depth := 0; ; {
		tag, n, err := varint(b[pos:])
		if err != nil {
			return pos, err
		}
		pos += n
		size := 0
		switch typ := tag & 7; protowire.Type(typ) {
		case protowire.VarintType:
			_, size, err = varint(b[pos:])
		case protowire.Fixed64Type:
			size = 8
		case protowire.BytesType:
			_, size, err = lengthDelimited(b[pos:])
		case protowire.StartGroupType:
			depth++
		case protowire.EndGroupType:
			if depth == 0 {
				return pos, errors.New("proto: unexpected end of group")
			}
			depth--
		case protowire.Fixed32Type:
			size = 4
		default:
			return pos, fmt.Errorf("proto: illegal wireType %d", typ)
		}
		if err != nil {
			return pos, err
		}
		if pos += size; pos > len(b) {
			return pos, io.ErrUnexpectedEOF
		}
		if depth == 0 {
			return pos, nil
		}
	}
}

// numbers is a struct type by field number. JSON flattens embedded structs and protobuf does not, so an embedded struct
// has a number here.
type numbers map[protowire.Number]slot

// slot is a field of the struct, or an embedded struct, which has its own field numbers.
type slot struct {
	name     string // in Go
	wire     protowire.Type
	packed   bool // the field is a list of numbers, which may also be packed into one run of bytes
	field    *schema.Field
	embedded numbers
}

func (all numbers) known(number protowire.Number, typ protowire.Type) (bool, error) {
	s, ok := all[number]
	if !ok || s.packed && typ == protowire.BytesType {
		return ok, nil
	}
	return true, checkWire(typ, s.wire, s.name)
}

var numbersOf = new(sync.Map) // *schema.Type → numbers

func numbersFor(t *schema.Type) numbers {
	if known, ok := numbersOf.Load(t); ok {
		return known.(numbers)
	}
	known, _ := numbersOf.LoadOrStore(t, makeNumbers(t))
	return known.(numbers)
}

func makeNumbers(t *schema.Type) numbers {
	all := numbers{}
	switch {
	case t.Kind == schema.List: // Wrapped
		all.add(1, "Items", &schema.Field{Name: itemsOfList, Type: &schema.Type{Kind: schema.List, Elem: t.Elem}})
	case t.Either != nil:
		e := t.Either
		all.add(e.ObjectNumber, e.ObjectName, &schema.Field{Name: objectForm, Type: e.Object})
		all.add(e.OtherNumber, e.OtherName, &schema.Field{Name: otherForm, Type: e.Other})
	}
	for i := range t.Fields {
		f := &t.Fields[i]
		if slices.Contains(f.Within, 0) {
			continue // apiVersion and kind: they are in the envelope
		}
		at := all
		for depth, n := range f.Within {
			outer, ok := at[protowire.Number(n)]
			if !ok {
				outer = slot{name: f.GoEmbedded()[depth], wire: protowire.BytesType, embedded: numbers{}}
				at[protowire.Number(n)] = outer
			}
			at = outer.embedded
		}
		at.add(f.Number, f.GoName(), f)
	}
	return all
}

func (all numbers) add(number int, name string, f *schema.Field) {
	if t := f.Type; t.Kind == schema.List {
		wire := wireType(t.Elem)
		all[protowire.Number(number)] = slot{name: name, field: f, wire: wire, packed: wire == protowire.VarintType}
	} else {
		all[protowire.Number(number)] = slot{name: name, field: f, wire: wireType(t)}
	}
}

// Names for the fields of wrapped lists and of values of one of two forms, which have no name in JSON.
const (
	itemsOfList = "items"
	objectForm  = "object"
	otherForm   = "other"
)

// message reads a struct, or another message as if it were a struct. depth is the number of messages around it.
func message(t *schema.Type, b []byte, depth int) (object.Value, error) {
	if depth > maxNesting {
		return object.Nil, errors.New("messages are nested too deep")
	}
	c := collector{depth: depth + 1, reach: maxReach(len(b))}
	if err := c.fields(t.GoName, numbersFor(t), b); err != nil {
		return object.Nil, err
	}
	return c.value()
}

// collector gathers the fields of one message: the values of a repeated field arrive one by one, and not necessarily in
// a row.
type collector struct {
	members []object.Member
	parts   []parts
	lists   []list
	maps    []list
	depth   int // of the messages in this one
	reach   int // how many more bytes after their ends entries of maps may use
}

// maxReach bounds how many bytes after the ends of its map entries a message of this length may use (see entryOf). A
// damaged message stays below the bound; without it, each of n entries could have a key of n bytes.
func maxReach(length int) int { return 4096 + 16*length }

// parts are the messages that have arrived as values of a field that is not repeated. Protobuf merges them: they are
// read as if they were one concatenated message, once all have arrived. If each were read as it arrives, and then all
// once more, a body could double the work at each level; and reading each together with those before it takes time
// quadratic in their number.
type parts struct {
	field   *schema.Field
	bytes   []byte
	several bool // bytes are those of several messages, each of which is whole
}

type list struct {
	field   *schema.Field
	items   []object.Value
	entries []object.Member
}

func (c *collector) fields(name string, all numbers, b []byte) error {
	return eachField(name, b, all.known, func(number protowire.Number, f wireField) error {
		s := all[number]
		if s.embedded != nil {
			return c.fields(s.name, s.embedded, f.bytes)
		}
		return c.field(&s, f)
	})
}

func (c *collector) field(s *slot, f wireField) error {
	t := s.field.Type
	switch {
	case s.packed && f.typ == protowire.BytesType:
		return c.run(s.field, f.bytes)
	case t.Kind == schema.List:
		item, err := value(t.Elem, f, c.depth)
		if err != nil {
			return err
		}
		l := slotOf(&c.lists, s.field)
		l.items = append(l.items, item)
	case t.Kind == schema.Map:
		entry, err := entryOf(t, f, c.depth, &c.reach)
		if err != nil {
			return err
		}
		l := slotOf(&c.maps, s.field)
		l.entries = append(l.entries, entry)
	case t.Kind == schema.Struct, t.Kind == schema.IntOrString, t.Kind == schema.Quantity, t.Kind == schema.Any:
		return c.part(s.field, f.bytes)
	default: // if it is repeated, the last one counts
		v, err := value(t, f, c.depth)
		if err != nil {
			return err
		}
		c.members = append(c.members, object.Member{Key: s.field.Name, Value: v})
	}
	return nil
}

// part records a part of a message. Of several, each has to be whole: the last field of one may not go on in the next.
func (c *collector) part(field *schema.Field, b []byte) error {
	for i := range c.parts {
		p := &c.parts[i]
		if p.field != field {
			continue
		}
		if !p.several {
			if err := wholeFields(p.bytes); err != nil {
				return err
			}
		}
		p.bytes, p.several = append(p.bytes, b...), true
		return wholeFields(b)
	}
	c.parts = append(c.parts, parts{field: field, bytes: slices.Clip(b)})
	return nil
}

// wholeFields returns an error unless bytes are a sequence of fields.
func wholeFields(b []byte) error {
	for len(b) > 0 {
		n, err := fieldSize(b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func slotOf(all *[]list, field *schema.Field) *list {
	for i := range *all {
		if (*all)[i].field == field {
			return &(*all)[i]
		}
	}
	*all = append(*all, list{field: field})
	return &(*all)[len(*all)-1]
}

func (c *collector) value() (object.Value, error) {
	for _, p := range c.parts {
		v, err := value(p.field.Type, wireField{bytes: p.bytes}, c.depth)
		if err != nil {
			return object.Nil, err
		}
		c.members = append(c.members, object.Member{Key: p.field.Name, Value: v})
	}
	for _, l := range c.lists {
		c.members = append(c.members, object.Member{Key: l.field.Name, Value: object.ListOf(l.items...)})
	}
	for _, m := range c.maps {
		c.members = append(c.members, object.Member{Key: m.field.Name, Value: object.MapOf(m.entries...)})
	}
	return object.MapOf(c.members...), nil
}

// run reads a packed list of numbers, which protobuf allows any writer to send.
func (c *collector) run(field *schema.Field, b []byte) error {
	l := slotOf(&c.lists, field)
	for len(b) > 0 {
		n, size, err := varint(b)
		if err != nil {
			return err
		}
		b = b[size:]
		l.items = append(l.items, number(field.Type.Elem, n))
	}
	return nil
}

// entryOf reads an entry of a map: a message of a key and a value, either of which may be left out when it is empty.
//
// The generated code checks neither wire types in it nor its end: a key and a value that begin in the entry may reach
// beyond it, up to the end of the message around it. The same is allowed here, until reach bytes have been used in that
// way: a body of many entries that all reach to its end would take time and memory quadratic in its length.
func entryOf(t *schema.Type, f wireField, depth int, reach *int) (object.Member, error) {
	entry := object.Member{Value: t.Elem.Zero()}
	switch t.Elem.Kind { // where the generated code begins with an empty value and not with nil
	case schema.Bytes:
		entry.Value = object.StringOf("")
	case schema.List:
		entry.Value = object.ListOf()
	}
	for pos := 0; pos < len(f.bytes); {
		tag, n, err := varint(f.open[pos:])
		if err != nil {
			return entry, err
		}
		number := protowire.Number(tag >> 3)
		if number != 1 && number != 2 {
			n, err := fieldSize(f.open[pos:])
			if err != nil {
				return entry, err
			}
			if pos += n; pos > len(f.bytes) {
				return entry, io.ErrUnexpectedEOF
			}
			continue
		}
		content, size, err := lengthDelimited(f.open[pos+n:])
		if err != nil {
			return entry, err
		}
		pos += n + size
		if *reach -= max(0, pos-len(f.bytes)); *reach < 0 {
			return entry, errors.New("proto: entries of maps reach too far beyond their ends")
		}
		if number == 1 {
			entry.Key = textOf(content)
		} else if entry.Value, err = value(t.Elem, wireField{bytes: content}, depth); err != nil {
			return entry, err
		}
	}
	return entry, nil
}

// value reads one value that is not a plain list or map.
func value(t *schema.Type, f wireField, depth int) (object.Value, error) {
	switch t.Kind {
	case schema.Int, schema.Bool:
		return number(t, f.n), nil
	case schema.Float:
		return floatOf(f.n)
	case schema.String:
		return object.StringOf(textOf(f.bytes)), nil
	case schema.Bytes:
		return object.StringOf(base64.StdEncoding.EncodeToString(f.bytes)), nil
	case schema.Struct:
		return message(t, f.bytes, depth)
	case schema.List: // Wrapped
		list, err := message(t, f.bytes, depth)
		return object.ListOf(list.At(itemsOfList).Items()...), err
	case schema.Any:
		if t.Either != nil {
			forms, err := message(t, f.bytes, depth)
			return either(t.Either, forms), err
		}
	}
	return special(t, f.bytes)
}

func number(t *schema.Type, n uint64) object.Value {
	switch {
	case t.Kind == schema.Bool:
		return object.BoolOf(n != 0)
	case t.Bits == 32:
		return object.IntOf(int64(int32(n)))
	}
	return object.IntOf(int64(n))
}

// textOf is the text of a field. Bytes that are not UTF-8 are replaced as in JSON.
func textOf(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// either is a value of one of two forms, read from a message that may have both.
func either(e *schema.Either, forms object.Value) object.Value {
	obj, other := forms.At(objectForm), forms.At(otherForm)
	switch {
	case !obj.IsNull() && other.Kind() != object.List:
		return obj
	case e.Other.Kind == schema.Bool && other.IsNull():
		return object.BoolOf(false)
	}
	return other
}

// special reads the types whose message does not mirror their JSON.
func special(t *schema.Type, b []byte) (object.Value, error) {
	var numbers [4]int64
	var texts [4][]byte
	name := t.GoName
	if t.Kind == schema.Time || t.Kind == schema.MicroTime {
		name = "Timestamp"
	}
	known := func(number protowire.Number, typ protowire.Type) (bool, error) {
		want := specialWire(t.Kind, number)
		if want < 0 {
			return false, nil
		}
		return true, checkWire(typ, want, specialFields(t.Kind)[number])
	}
	err := eachField(name, b, known, func(number protowire.Number, f wireField) error {
		numbers[number], texts[number] = int64(f.n), f.bytes
		return nil
	})
	if err != nil {
		return object.Nil, err
	}
	switch t.Kind {
	case schema.Quantity:
		if texts[1] == nil {
			return object.StringOf("0"), nil
		}
		return object.StringOf(textOf(texts[1])), nil
	case schema.IntOrString:
		switch numbers[1] {
		case 0:
			return object.IntOf(int64(int32(numbers[2]))), nil
		case 1:
			return object.StringOf(textOf(texts[3])), nil
		}
		return object.Nil, fmt.Errorf("is neither a number nor text, but %d", numbers[1])
	case schema.Time, schema.MicroTime:
		if len(b) == 0 { // a null time, which differs from an absent member
			numbers[1] = time.Time{}.Unix()
		}
		return timeOf(t.Kind, numbers[1], int32(numbers[2])), nil
	default: // Any: RawExtension, FieldsV1, JSON
		if len(texts[1]) == 0 && (texts[1] == nil || t.GoName != "RawExtension") {
			return object.Nil, nil
		}
		parsed, err := object.ParseJSON(slices.Clone(texts[1]))
		if err != nil && t.GoName == "FieldsV1" {
			// The bytes are not JSON. They are returned as a string, which is not a set of fields either: managedFields
			// that cannot be read are ignored and do not prevent the write of the object.
			return object.StringOf(textOf(texts[1])), nil
		}
		return parsed.Value, err
	}
}

// specialWire is the wire type of a field of these types, or -1 for a field that they do not have.
func specialWire(kind schema.Kind, number protowire.Number) protowire.Type {
	switch {
	case kind == schema.IntOrString && number == 3, number == 1 && (kind == schema.Quantity || kind == schema.Any):
		return protowire.BytesType
	case number == 1, number == 2 && kind != schema.Quantity && kind != schema.Any:
		return protowire.VarintType
	}
	return -1
}

// specialFields are the names of their fields, by number.
func specialFields(kind schema.Kind) [4]string {
	switch kind {
	case schema.Quantity:
		return [4]string{1: "String_"}
	case schema.IntOrString:
		return [4]string{1: "Type", 2: "IntVal", 3: "StrVal"}
	case schema.Time, schema.MicroTime:
		return [4]string{1: "Seconds", 2: "Nanos"}
	}
	return [4]string{1: "Raw"}
}

// timeOf prints a time in its JSON form. A Time has no nanoseconds, even if the message has them; those of a MicroTime
// are cut to microseconds before they are added to the seconds, which matters where they are negative.
func timeOf(kind schema.Kind, seconds int64, nanos int32) object.Value {
	if kind == schema.MicroTime {
		at := time.Unix(seconds, int64(nanos)/1000*1000)
		return object.StringOf(at.UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
	}
	return object.StringOf(time.Unix(seconds, 0).UTC().Format(time.RFC3339))
}

// floatOf keeps a float as its literal, as a parsed body would have it.
func floatOf(bits uint64) (object.Value, error) {
	f := math.Float64frombits(bits)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return object.Nil, errors.New("is no finite number")
	}
	return object.NumberOf(strconv.FormatFloat(f, 'g', -1, 64)), nil
}
