package proto

import (
	"encoding/base64"
	"sync"
	"time"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"plinth/object"
	"plinth/schema"
)

// reader reads messages as the generated code writes them, which nearly all messages in etcd are. A server on etcd
// reads all of them when it starts. [ParseMessage] reads any message, in any order, and its result has to be decoded
// and settled, which takes ten times as long. In a message of the generated code
//
//	fields ascend by number, each once (of a list, the items are in a row; of a map, the entries, by ascending keys)
//
// so one pass suffices. It puts values into slots, one for each field of the struct, in the order of names. When the
// struct ends, its members are the slots, with what the type says about absent fields and zero values:
//
//	Read(t, raw) gives v, ok  ⇒  v = Settle(Decode(ParseMessage(t, raw)))
//
// For any other message it is not ok, and the caller computes the right side. exact says that the generated code would
// write the same bytes for v.
//
// The texts of v are parts of the message, and its members and items are in buffers of the reader, so v is valid until
// the reader is released.
type reader struct {
	exact    bool
	fieldsV1 func(text []byte) (v object.Value, exact bool)

	slots   []slotValue     // a run for each open struct
	items   []object.Value  // of open lists
	entries []object.Member // of open maps
	// The parts of the result. They only grow: what has been cut from them stays where it is.
	members []object.Member
	values  []object.Value
	text    []byte
}

// slotValue is the value of a field; unset: the message does not have the field.
type slotValue struct {
	v   object.Value
	set bool
}

// readPlan is a struct type as the reader needs it.
type readPlan struct {
	fields []readField // in the order of names
	level  readLevel
}

// readField is a field.
type readField struct {
	name    string
	t       *schema.Type // of the field, or of the items, or of the values
	shape   shape
	plan    *readPlan // of t, if it is a struct; set when the plan is complete
	pointer bool
	// omitEmpty leaves out a scalar that is zero, omitZero a struct or a time.
	omitEmpty, omitZero bool
	absent              object.Value // the value of a field that the message does not have
	always              bool         // it has one
}

// readLevel is the fields of a message by number.
type readLevel struct {
	steps    []readStep
	required int // fields that the generated code always writes
}

type readStep struct {
	known, required bool
	wire            protowire.Type
	field           int        // -1: an embedded struct
	embedded        *readLevel // of an embedded struct
}

// readPlans keeps plans.
var readPlans = struct {
	sync.Map // *schema.Type → *readPlan
	mu       sync.Mutex
	made     map[*schema.Type]*readPlan // complete whenever mu is free
}{made: map[*schema.Type]*readPlan{}}

func readPlanOf(t *schema.Type) *readPlan {
	if p, ok := readPlans.Load(t); ok {
		return p.(*readPlan)
	}
	readPlans.mu.Lock()
	defer readPlans.mu.Unlock()
	p := makeReadPlan(t)
	readPlans.Store(t, p)
	return p
}

// makeReadPlan makes the plan of a type and of everything below it. A type may contain itself.
func makeReadPlan(t *schema.Type) *readPlan {
	if p := readPlans.made[t]; p != nil {
		return p
	}
	p := &readPlan{}
	readPlans.made[t] = p
	written := planOf(t)
	for i := range t.Fields {
		f := &t.Fields[i]
		field := readField{name: f.Name, t: f.Type, shape: written.fields[i].shape, pointer: f.Pointer,
			omitEmpty: f.OmitEmpty, omitZero: f.OmitZero}
		if field.absent, field.always = t.Zero().Get(f.Name); field.shape != single {
			field.t = f.Type.Elem
		}
		if field.t.Kind == schema.Struct {
			field.plan = makeReadPlan(field.t)
		}
		p.fields = append(p.fields, field)
	}
	p.level = makeLevel(written.order, written, p)
	return p
}

func makeLevel(order []step, written *plan, p *readPlan) readLevel {
	var level readLevel
	for _, s := range order {
		for len(level.steps) <= s.number {
			level.steps = append(level.steps, readStep{})
		}
		to := &level.steps[s.number]
		to.known, to.field, to.wire = true, s.field, protowire.BytesType
		if s.field < 0 {
			embedded := makeLevel(s.embedded, written, p)
			to.embedded, to.required = &embedded, true
		} else {
			to.wire, to.required = wireType(p.fields[s.field].t), len(written.fields[s.field].absent) > 0
		}
		if to.required {
			level.required++
		}
	}
	return level
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// Read reads the message of an object as the generated code writes it, and calls use with the result: the object, with
// apiVersion and kind, as Decode and Settle of its type return it, and whether its message is exactly what the
// generated code would write. Nothing of v may be kept after use returns. fieldsV1 returns the value for the text of a
// set of managedFields, and whether the reference would write this text. ok is false, and use is not called, if the
// message is another one; that does not mean that it is invalid.
func Read(t *schema.Type, envelope Envelope, raw []byte, fieldsV1 func(text []byte) (object.Value, bool),
	use func(v object.Value, exact bool)) (ok bool) {
	r := readers.Get().(*reader)
	defer r.release()
	r.exact, r.fieldsV1 = true, fieldsV1
	p := readPlanOf(t)
	base := r.open(p)
	for i := range p.fields {
		switch p.fields[i].name {
		case "apiVersion":
			r.slots[base+i] = slotValue{object.StringOf(envelope.APIVersion), true}
		case "kind":
			r.slots[base+i] = slotValue{object.StringOf(envelope.Kind), true}
		}
	}
	if !r.level(p, &p.level, raw, base) {
		return false
	}
	use(r.close(p, base), r.exact)
	return true
}

// release returns the buffers to the pool, without references into the message.
func (r *reader) release() {
	clear(r.slots[:cap(r.slots)])
	clear(r.items[:cap(r.items)])
	clear(r.entries[:cap(r.entries)])
	clear(r.members)
	clear(r.values)
	r.slots, r.items, r.entries, r.members, r.values = r.slots[:0], r.items[:0], r.entries[:0], r.members[:0], r.values[:0]
	r.text, r.fieldsV1 = r.text[:0], nil
	if cap(r.members)*int(unsafe.Sizeof(object.Member{})) <= maxScratch {
		readers.Put(r)
	}
}

// open makes the slots of a struct.
func (r *reader) open(p *readPlan) (base int) {
	base = len(r.slots)
	for range p.fields {
		r.slots = append(r.slots, slotValue{})
	}
	return base
}

// close is the value of the struct whose slots begin at base.
func (r *reader) close(p *readPlan, base int) object.Value {
	start := len(r.members)
	for i := range p.fields {
		f, s := &p.fields[i], &r.slots[base+i]
		if !s.set {
			if f.always {
				r.members = append(r.members, object.Member{Key: f.name, Value: f.absent})
			}
			continue
		}
		if !f.pointer && f.shape == single && (f.omitEmpty && isZeroScalar(s.v, f.t) ||
			f.omitZero && object.Equal(s.v, f.t.Zero())) {
			continue
		}
		r.members = append(r.members, object.Member{Key: f.name, Value: s.v})
	}
	r.slots = r.slots[:base]
	return object.MapOf(r.members[start:len(r.members):len(r.members)]...)
}

// isZeroScalar says whether omitempty leaves out a value of a type.
func isZeroScalar(v object.Value, t *schema.Type) bool {
	switch t.Kind {
	case schema.String, schema.Bytes:
		return v.Len() == 0
	case schema.Int:
		return v.Int() == 0
	case schema.Bool:
		return !v.Bool()
	}
	return false
}

// level reads the fields of a message into the slots at base.
func (r *reader) level(p *readPlan, level *readLevel, b []byte, base int) bool {
	missing := level.required
	for last := 0; len(b) > 0; {
		tag, n := shortVarint(b)
		number := int(tag >> 3)
		if n == 0 || number <= last || number >= len(level.steps) {
			return false
		}
		step := &level.steps[number]
		if !step.known || protowire.Type(tag&7) != step.wire {
			return false
		}
		if last = number; step.required {
			missing--
		}
		var ok bool
		if step.field < 0 {
			var content []byte
			if content, b, ok = delimited(b[n:]); !ok || !r.level(p, step.embedded, content, base) {
				return false
			}
			continue
		}
		f := &p.fields[step.field]
		var v object.Value
		switch f.shape {
		case single:
			v, b, ok = r.value(f, b[n:])
			if f.pointer && v.IsNull() { // a pointer to the zero time, which is not stable
				return false
			}
		case repeated:
			v, b, ok = r.list(f, b, b[:n])
		default:
			v, b, ok = r.table(f, b, b[:n])
		}
		if !ok {
			return false
		}
		// A null time stands for an absent field, though it has a tag.
		r.slots[base+step.field] = slotValue{v, !v.IsNull()}
	}
	r.exact = r.exact && missing == 0
	return true
}

// list reads the items of a list, which all begin with a tag.
func (r *reader) list(f *readField, b, tag []byte) (_ object.Value, rest []byte, ok bool) {
	start := len(r.items)
	for hasTag(b, tag) {
		var item object.Value
		if item, b, ok = r.value(f, b[len(tag):]); !ok {
			return object.Nil, nil, false
		}
		r.items = append(r.items, item)
	}
	from := len(r.values)
	r.values = append(r.values, r.items[start:]...)
	r.items = r.items[:start]
	return object.ListOf(r.values[from:len(r.values):len(r.values)]...), b, true
}

// table reads the entries of a map: messages of a key and a value.
func (r *reader) table(f *readField, b, tag []byte) (_ object.Value, rest []byte, ok bool) {
	start := len(r.entries)
	valueTag := byte(2<<3) | byte(wireType(f.t))
	for hasTag(b, tag) {
		var entry, key []byte
		if entry, b, ok = delimited(b[len(tag):]); !ok || len(entry) == 0 || entry[0] != firstTag {
			return object.Nil, nil, false
		}
		if key, entry, ok = delimited(entry[1:]); !ok || len(entry) == 0 || entry[0] != valueTag || !utf8.Valid(key) {
			return object.Nil, nil, false
		}
		v, rest, ok := r.value(f, entry[1:])
		name := shared(key)
		if !ok || len(rest) > 0 || len(r.entries) > start && r.entries[len(r.entries)-1].Key >= name {
			return object.Nil, nil, false
		}
		r.entries = append(r.entries, object.Member{Key: name, Value: v})
	}
	from := len(r.members)
	r.members = append(r.members, r.entries[start:]...)
	r.entries = r.entries[:start]
	return object.MapOf(r.members[from:len(r.members):len(r.members)]...), b, true
}

// hasTag says whether the next field begins with a tag.
func hasTag(b, tag []byte) bool {
	return len(b) >= len(tag) && b[0] == tag[0] && (len(tag) == 1 || b[1] == tag[1])
}

// value reads one value after its tag.
func (r *reader) value(f *readField, b []byte) (v object.Value, rest []byte, ok bool) {
	switch f.t.Kind {
	case schema.Int, schema.Bool:
		n, size, err := varint(b)
		if err != nil || size > 1 && b[size-1] == 0 { // the shortest form ends with another byte
			return v, nil, false
		}
		v = number(f.t, n)
		return v, b[size:], n <= 1 || f.t.Kind == schema.Int && uint64(v.Int()) == n
	}
	content, rest, ok := delimited(b)
	if !ok {
		return v, nil, false
	}
	switch f.t.Kind {
	case schema.String:
		return object.StringOf(shared(content)), rest, utf8.Valid(content)
	case schema.Bytes:
		start := len(r.text)
		r.text = base64.StdEncoding.AppendEncode(r.text, content)
		return object.StringOf(shared(r.text[start:])), rest, len(content) > 0 || f.shape == entries
	case schema.Struct:
		base := r.open(f.plan)
		if !r.level(f.plan, &f.plan.level, content, base) {
			return v, nil, false
		}
		return r.close(f.plan, base), rest, true
	case schema.Quantity:
		v, ok = r.quantity(f.t, content)
	case schema.IntOrString:
		v, ok = intOrStringOf(content)
	case schema.Time, schema.MicroTime:
		v, ok = r.moment(f.t.Kind, content)
	case schema.Any:
		v, ok = r.any(f.t, content)
	default:
		return v, nil, false
	}
	return v, rest, ok
}

// quantity reads a Quantity, whose message is a text.
func (r *reader) quantity(t *schema.Type, b []byte) (object.Value, bool) {
	if len(b) == 0 || b[0] != firstTag {
		return object.Nil, false
	}
	text, rest, ok := delimited(b[1:])
	if !ok || len(rest) > 0 {
		return object.Nil, false
	}
	v := object.StringOf(shared(text))
	decoded, err := t.Decode(v)
	r.exact = r.exact && decoded.Value == v
	return decoded.Value, err == nil
}

// intOrStringOf reads an IntOrString with all its three fields.
func intOrStringOf(b []byte) (object.Value, bool) {
	if len(b) < 6 || b[0] != 1<<3 || b[1] > 1 || b[2] != 2<<3 {
		return object.Nil, false
	}
	n, size, err := varint(b[3:])
	if err != nil || size > 1 && b[2+size] == 0 || len(b) < 3+size+2 || b[3+size] != 3<<3|byte(protowire.BytesType) {
		return object.Nil, false
	}
	text, rest, ok := delimited(b[3+size+1:])
	switch {
	case !ok || len(rest) > 0 || !utf8.Valid(text):
		return object.Nil, false
	case b[1] == 1:
		return object.StringOf(shared(text)), n == 0
	}
	v := object.IntOf(int64(int32(n)))
	return v, len(text) == 0 && uint64(v.Int()) == n
}

// moment reads a time; the message of the zero time is empty.
func (r *reader) moment(kind schema.Kind, b []byte) (object.Value, bool) {
	if len(b) == 0 {
		return object.Nil, true
	}
	if b[0] != 1<<3 {
		return object.Nil, false
	}
	seconds, size, err := varint(b[1:])
	if err != nil || size > 1 && b[size] == 0 || len(b) < size+3 || b[size+1] != 2<<3 {
		return object.Nil, false
	}
	nanos, n, err := varint(b[size+2:])
	if err != nil || n > 1 && b[size+1+n] == 0 || len(b) != size+2+n || nanos >= 1e9 {
		return object.Nil, false
	}
	at, layout := time.Unix(int64(seconds), int64(nanos)).UTC(), time.RFC3339
	if year := at.Year(); year < 1 || year > 9999 || at.IsZero() {
		return object.Nil, false
	}
	if kind == schema.MicroTime {
		if layout = "2006-01-02T15:04:05.000000Z07:00"; nanos%1000 != 0 {
			return object.Nil, false
		}
	} else if nanos != 0 {
		return object.Nil, false
	}
	start := len(r.text)
	r.text = at.AppendFormat(r.text, layout)
	return object.StringOf(shared(r.text[start:])), true
}

// any reads the text of a set of managedFields, or of untyped content.
func (r *reader) any(t *schema.Type, b []byte) (object.Value, bool) {
	if t.Either != nil || len(b) == 0 || b[0] != firstTag {
		return object.Nil, false
	}
	text, rest, ok := delimited(b[1:])
	if !ok || len(rest) > 0 || len(text) == 0 {
		return object.Nil, false
	}
	if t.GoName == "FieldsV1" && r.fieldsV1 != nil {
		v, exact := r.fieldsV1(text)
		r.exact = r.exact && exact
		return v, !v.IsNull()
	}
	return object.Nil, false
}

// shortVarint reads a number of one or two bytes in its shortest form; size is 0 if it is longer.
func shortVarint(b []byte) (n uint64, size int) {
	switch {
	case b[0] < 0x80:
		return uint64(b[0]), 1
	case len(b) > 1 && b[1] < 0x80 && b[1] > 0:
		return uint64(b[0]&0x7f) | uint64(b[1])<<7, 2
	}
	return 0, 0
}

// delimited reads a length in its shortest form and the bytes after it.
func delimited(b []byte) (content, rest []byte, ok bool) {
	if len(b) > 0 && b[0] < 0x80 && int(b[0]) < len(b) {
		end := 1 + int(b[0])
		return b[1:end:end], b[end:], true
	}
	content, size, err := lengthDelimited(b)
	if err != nil {
		return nil, nil, false
	}
	if n := size - len(content); n > 1 && b[n-1] == 0 {
		return nil, nil, false
	}
	return content, b[size:], true
}

// shared is the text of bytes that do not change as long as the text is used.
func shared(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
