package proto

import (
	"bytes"
	"encoding/base64"
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

// maxNesting bounds how deep messages may be nested in a body (WRITE-6). No type of the API comes near it.
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
// [schema.Type.Decode] decides what the zero value of a field means. Of an object of another kind only apiVersion and
// kind are read; the engine refuses it by those. Errors are worded as those of the generated code.
func Parse(t *schema.Type, body []byte) (object.Value, error) {
	switch {
	case len(body) == 0:
		return object.Nil, errors.New("empty data")
	case !bytes.HasPrefix(body, magic):
		return object.Nil,
			errors.New("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
	case len(body) == len(magic):
		return object.Nil, errors.New("empty body")
	}
	var apiVersion, kind string
	var raw []byte
	err := eachField("Unknown", body[len(magic):], func(number protowire.Number, f wireField) error {
		if (number == 1 || number == 2) && f.typ != protowire.BytesType {
			return wrongWire(f, [...]string{1: "TypeMeta", 2: "Raw"}[number])
		}
		switch number {
		case 1:
			return eachField("TypeMeta", f.bytes, func(number protowire.Number, f wireField) error {
				switch number {
				case 1:
					apiVersion = string(f.bytes)
				case 2:
					kind = string(f.bytes)
				}
				return nil
			})
		case 2:
			raw = f.bytes
		}
		return nil
	})
	if err != nil {
		return object.Nil, err
	}
	value := object.MapOf()
	if kind == "" || kind == t.GoName {
		if value, err = message(t, raw, 0); err != nil {
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

func wrongWire(f wireField, name string) error {
	return fmt.Errorf("proto: wrong wireType = %d for field %s", f.typ, name)
}

// wireField is the value of one field on the wire: a number or bytes.
type wireField struct {
	typ   protowire.Type
	n     uint64
	bytes []byte
}

// eachField calls visit for each field of a message, in the order of the message.
func eachField(name string, b []byte, visit func(protowire.Number, wireField) error) error {
	for len(b) > 0 {
		tag, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return broken(n)
		}
		number, typ := protowire.Number(tag>>3), protowire.Type(tag&7)
		switch {
		case typ == protowire.EndGroupType:
			return fmt.Errorf("proto: %s: wiretype end group for non-group", name)
		case number <= 0:
			return fmt.Errorf("proto: %s: illegal tag %d (wire type %d)", name, number, tag)
		}
		b = b[n:]
		f := wireField{typ: typ}
		switch typ {
		case protowire.VarintType:
			f.n, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.n, n = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			var short uint32
			short, n = protowire.ConsumeFixed32(b)
			f.n = uint64(short)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		case protowire.StartGroupType: // which no API has; a field that is passed over may be one
			n = group(b)
		default: // what is known of the field says whether it was to be something else
			if err := visit(number, f); err != nil {
				return err
			}
			return fmt.Errorf("proto: illegal wireType %d", typ)
		}
		if n < 0 {
			return broken(n)
		}
		b = b[n:]
		if err := visit(number, f); err != nil {
			return err
		}
	}
	return nil
}

// broken words what protowire says of bytes that it cannot read.
func broken(code int) error {
	if err := protowire.ParseError(code); errors.Is(err, io.ErrUnexpectedEOF) {
		return io.ErrUnexpectedEOF
	}
	return errors.New("proto: integer overflow")
}

// group is the size of a group behind its tag. As in the generated code, any tag that ends a group ends it.
func group(b []byte) int {
	size := 0
	for depth := 1; depth > 0; {
		tag, n := protowire.ConsumeVarint(b[size:])
		if n < 0 {
			return n
		}
		size += n
		switch typ := protowire.Type(tag & 7); typ {
		case protowire.StartGroupType:
			depth++
		case protowire.EndGroupType:
			depth--
		default:
			if n = protowire.ConsumeFieldValue(1, typ, b[size:]); n < 0 {
				return n
			}
			size += n
		}
	}
	return size
}

// numbers is a message type as the wire sees it: what stands under each field number of a struct, where JSON sees
// through embedded structs and protobuf does not.
type numbers map[protowire.Number]slot

// slot is a field of the struct, or an embedded struct with field numbers of its own.
type slot struct {
	field    *schema.Field
	embedded numbers
}

var numbersOf sync.Map // *schema.Type → numbers

func numbersFor(t *schema.Type) numbers {
	if known, ok := numbersOf.Load(t); ok {
		return known.(numbers)
	}
	all := numbers{}
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.Number == 0 || slices.Contains(f.Within, 0) {
			continue // apiVersion and kind: they are in the envelope
		}
		at := all
		for _, n := range f.Within {
			outer := at[protowire.Number(n)]
			if outer.embedded == nil {
				outer.embedded = numbers{}
				at[protowire.Number(n)] = outer
			}
			at = outer.embedded
		}
		at[protowire.Number(f.Number)] = slot{field: f}
	}
	known, _ := numbersOf.LoadOrStore(t, all)
	return known.(numbers)
}

// message reads a struct.
func message(t *schema.Type, b []byte, depth int) (object.Value, error) {
	if depth > maxNesting {
		return object.Nil, errors.New("messages are nested too deep")
	}
	if t.Kind != schema.Struct {
		return object.Nil, fmt.Errorf("%s is no message", t.GoName)
	}
	c := collector{depth: depth}
	if err := c.fields(t.GoName, numbersFor(t), b); err != nil {
		return object.Nil, err
	}
	return c.value(), nil
}

// collector gathers the fields of one message: repeated ones come one by one, and not necessarily in a row.
type collector struct {
	members []object.Member
	singles []part
	lists   []list
	maps    []list
	depth   int
}

// part is a message that has come as the value of a field that is there once.
type part struct {
	field *schema.Field
	bytes []byte
}

type list struct {
	field   *schema.Field
	items   []object.Value
	entries []object.Member
}

func (c *collector) fields(name string, all numbers, b []byte) error {
	return eachField(name, b, func(number protowire.Number, f wireField) error {
		s, known := all[number]
		switch {
		case !known:
			return nil
		case s.embedded != nil:
			if f.typ != protowire.BytesType {
				return wrongWire(f, strconv.Itoa(int(number)))
			}
			return c.fields(name, s.embedded, f.bytes)
		}
		return c.field(s.field, f)
	})
}

func (c *collector) field(field *schema.Field, f wireField) error {
	t := field.Type
	of := t
	if t.Kind == schema.List && !t.Wrapped {
		of = t.Elem
	}
	if want := wireType(of); f.typ != want && !(of != t && isScalarNumber(of) && f.typ == protowire.BytesType) {
		return wrongWire(f, field.GoName())
	}
	switch {
	case t.Kind == schema.List && !t.Wrapped:
		if f.typ == protowire.BytesType && isScalarNumber(t.Elem) {
			return c.packed(field, f.bytes)
		}
		item, err := scalarOrMessage(t.Elem, f, c.depth)
		if err != nil {
			return err
		}
		l := slotOf(&c.lists, field)
		l.items = append(l.items, item)
	case t.Kind == schema.Map:
		entry, err := entryOf(t, f, c.depth)
		if err != nil {
			return fmt.Errorf("an entry: %w", err)
		}
		l := slotOf(&c.maps, field)
		l.entries = append(l.entries, entry)
	default:
		c.join(field, &f)
		value, err := scalarOrMessage(t, f, c.depth)
		if err != nil {
			return err
		}
		c.members = append(c.members, object.Member{Key: field.Name, Value: value})
	}
	return nil
}

// join puts the parts of a message together that comes in several: that is what reading one after the other means.
func (c *collector) join(field *schema.Field, f *wireField) {
	switch field.Type.Kind {
	case schema.Struct, schema.List, schema.IntOrString, schema.Duration, schema.Any:
	default: // the last one counts
		return
	}
	for i := range c.singles {
		if p := &c.singles[i]; p.field == field {
			p.bytes = slices.Concat(p.bytes, f.bytes)
			f.bytes = p.bytes
			return
		}
	}
	c.singles = append(c.singles, part{field, f.bytes})
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

func (c *collector) value() object.Value {
	for _, l := range c.lists {
		c.members = append(c.members, object.Member{Key: l.field.Name, Value: object.ListOf(l.items...)})
	}
	for _, m := range c.maps {
		c.members = append(c.members, object.Member{Key: m.field.Name, Value: object.MapOf(m.entries...)})
	}
	return object.MapOf(c.members...)
}

func isScalarNumber(t *schema.Type) bool {
	return t.Kind == schema.Int || t.Kind == schema.Bool
}

// packed reads a repeated number written as one run, which protobuf allows any writer to do.
func (c *collector) packed(field *schema.Field, b []byte) error {
	l := slotOf(&c.lists, field)
	for len(b) > 0 {
		n, size := protowire.ConsumeVarint(b)
		if size < 0 {
			return broken(size)
		}
		b = b[size:]
		item, err := scalarOrMessage(field.Type.Elem, wireField{typ: protowire.VarintType, n: n}, c.depth)
		if err != nil {
			return err
		}
		l.items = append(l.items, item)
	}
	return nil
}

// entryOf reads an entry of a map: a message of a key and a value, either of which may be left out when it is empty.
func entryOf(t *schema.Type, f wireField, depth int) (object.Member, error) {
	entry := object.Member{Value: t.Elem.Zero()}
	switch t.Elem.Kind { // where the generated code begins with an empty value, and not with none
	case schema.Bytes:
		entry.Value = object.StringOf("")
	case schema.List:
		entry.Value = object.ListOf()
	}
	err := eachField("entry", f.bytes, func(number protowire.Number, f wireField) (err error) {
		switch number {
		case 1:
			if f.typ != protowire.BytesType {
				err = wrongWire(f, "key")
			}
			entry.Key = textOf(f.bytes)
		case 2:
			entry.Value, err = scalarOrMessage(t.Elem, f, depth)
		}
		return err
	})
	return entry, err
}

// scalarOrMessage reads one value that is no plain list or map.
func scalarOrMessage(t *schema.Type, f wireField, depth int) (object.Value, error) {
	if f.typ != wireType(t) {
		return object.Nil, wrongWire(f, "value")
	}
	switch t.Kind {
	case schema.Int:
		if t.Bits == 32 {
			return object.IntOf(int64(int32(f.n))), nil
		}
		return object.IntOf(int64(f.n)), nil
	case schema.Bool:
		return object.BoolOf(f.n != 0), nil
	case schema.Float:
		return floatOf(t, f.n)
	case schema.String:
		return object.StringOf(textOf(f.bytes)), nil
	case schema.Bytes:
		return object.StringOf(base64.StdEncoding.EncodeToString(f.bytes)), nil
	case schema.Struct:
		return message(t, f.bytes, depth+1)
	case schema.List: // Wrapped
		return wrapped(t, f.bytes, depth+1)
	case schema.Any:
		if t.Either != nil {
			return either(t, f.bytes, depth+1)
		}
	}
	return special(t, f.bytes)
}

// textOf is the text of a field. Bytes that are no UTF-8 become what JSON makes of them.
func textOf(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string([]rune(string(b)))
}

// wrapped reads a list that has a message of its own: its items are field 1.
func wrapped(t *schema.Type, b []byte, depth int) (object.Value, error) {
	items := []object.Value{}
	err := eachField(t.GoName, b, func(number protowire.Number, f wireField) error {
		if number != 1 {
			return nil
		}
		item, err := scalarOrMessage(t.Elem, f, depth)
		items = append(items, item)
		return err
	})
	return object.ListOf(items...), err
}

// either reads a value of one of two forms.
func either(t *schema.Type, b []byte, depth int) (object.Value, error) {
	e := t.Either
	var obj, other object.Value
	if e.Other.Kind == schema.Bool {
		other = object.BoolOf(false)
	}
	var items []object.Value
	err := eachField(t.GoName, b, func(number protowire.Number, f wireField) (err error) {
		switch {
		case int(number) == e.ObjectNumber:
			obj, err = scalarOrMessage(e.Object, f, depth)
		case int(number) != e.OtherNumber:
		case e.Other.Kind == schema.Bool:
			other, err = scalarOrMessage(e.Other, f, depth)
		default:
			var item object.Value
			item, err = scalarOrMessage(e.Other.Elem, f, depth)
			items = append(items, item)
			other = object.ListOf(items...)
		}
		return err
	})
	if !obj.IsNull() && len(items) == 0 {
		return obj, err
	}
	return other, err
}

// special reads the types whose message is no mirror of their JSON.
func special(t *schema.Type, b []byte) (object.Value, error) {
	var numbers [4]int64
	var texts [4][]byte
	name := t.GoName
	if t.Kind == schema.Time || t.Kind == schema.MicroTime {
		name = "Timestamp"
	}
	err := eachField(name, b, func(number protowire.Number, f wireField) error {
		if number >= 4 {
			return nil
		}
		if want := specialWire(t.Kind, number); want != f.typ && want >= 0 {
			return wrongWire(f, specialFields(t.Kind)[number])
		}
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
		if len(b) == 0 { // no time, which is not the same as no member
			return timeOf(t.Kind, time.Time{}), nil
		}
		return timeOf(t.Kind, time.Unix(numbers[1], int64(int32(numbers[2])))), nil
	case schema.Duration:
		return object.StringOf(time.Duration(numbers[1]).String()), nil
	case schema.Any: // RawExtension, FieldsV1: JSON
		if texts[1] == nil {
			return object.Nil, nil
		}
		parsed, err := object.ParseJSON(slices.Clone(texts[1]))
		if err != nil && t.GoName == "FieldsV1" {
			// It is no set of fields, and a string is none either: managedFields that cannot be read are passed over,
			// and do not keep the object from being written.
			return object.StringOf(textOf(texts[1])), nil
		}
		return parsed.Value, err
	}
	return object.Nil, fmt.Errorf("%s has no protobuf form", t.GoName)
}

// specialWire is the wire type of a field of those, or -1 for a field that they have not.
func specialWire(kind schema.Kind, number protowire.Number) protowire.Type {
	switch {
	case kind == schema.IntOrString && number == 3, number == 1 && (kind == schema.Quantity || kind == schema.Any):
		return protowire.BytesType
	case number == 1, number == 2 && kind != schema.Duration && kind != schema.Quantity && kind != schema.Any:
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
		return [4]string{"", "Type", "IntVal", "StrVal"}
	case schema.Time, schema.MicroTime:
		return [4]string{1: "Seconds", 2: "Nanos"}
	case schema.Duration:
		return [4]string{1: "Duration"}
	}
	return [4]string{1: "Raw"}
}

// timeOf prints a time as JSON has it. A Time has no nanoseconds, whatever the message says.
func timeOf(kind schema.Kind, at time.Time) object.Value {
	if kind == schema.MicroTime {
		return object.StringOf(at.UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
	}
	return object.StringOf(at.UTC().Format(time.RFC3339))
}

// floatOf keeps a float as its literal, as a parsed body would have it.
func floatOf(t *schema.Type, bits uint64) (object.Value, error) {
	f := math.Float64frombits(bits)
	if t.Bits == 32 {
		f = float64(math.Float32frombits(uint32(bits)))
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return object.Nil, errors.New("is no finite number")
	}
	return object.NumberOf(strconv.FormatFloat(f, 'g', -1, 64)), nil
}
