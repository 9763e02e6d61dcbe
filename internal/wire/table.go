package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/object"
)

// Include says how much of the object comes with each row of a Table.
type Include uint8

// The parts of an object that a row may hold.
const (
	IncludeMetadata Include = iota
	IncludeObject
	IncludeNone
)

// ParseInclude reads the includeObject parameter; "" is the metadata.
func ParseInclude(text string) (i Include, ok bool) {
	switch text {
	case "", "Metadata":
		return IncludeMetadata, true
	case "Object":
		return IncludeObject, true
	case "None":
		return IncludeNone, true
	}
	return 0, false
}

// Table prints objects as rows (MED-6).
type Table struct {
	Lean bool // objects come without managedFields

	version string
	include Include
	columns []engine.Column
	cells   func(obj object.Value) []any
	now     time.Time        // the time from which ages are counted
	by      *engine.Resource // whose columns these are
	// common says that the type defines no columns: they are Name and Created At.
	common    bool
	isDefault func(candidate, current object.Value) bool
	order     func(a, b object.Value) int
	marked    *store.Key // the default object of the list; nil: none
}

// NewTable is a table with the columns of a resource type, or of one of its subresources. Types that define no columns,
// and representations of another kind, have a name and the time of creation.
func NewTable(rq *engine.Request, version string, include Include) *Table {
	r := rq.Resource
	t := &Table{
		version: version, include: include, columns: r.Columns, cells: r.Cells, now: time.Now(), by: r,
		isDefault: r.IsDefault, order: r.RowOrder,
	}
	if rq.Subresource != nil && rq.Subresource.Represent != nil {
		t.columns, t.cells, t.isDefault = rq.Subresource.Columns, rq.Subresource.Cells, nil
		t.order = nil
	}
	if t.columns == nil || t.cells == nil {
		t.columns, t.cells, t.common = plainColumns(), plainCells, true
	}
	return t
}

func plainColumns() []engine.Column {
	descriptions := metav1.ObjectMeta{}.SwaggerDoc()
	return []engine.Column{
		{Name: "Name", Type: "string", Format: "name", Description: descriptions["name"]},
		{Name: "Created At", Type: "date", Description: descriptions["creationTimestamp"]},
	}
}

func plainCells(obj object.Value) []any {
	meta := obj.At("metadata")
	created := meta.At("creationTimestamp").Str()
	if created == "" { // the object of a bookmark has none
		created = "0001-01-01T00:00:00Z"
	}
	return []any{meta.At("name").Str(), created}
}

// head prints the part before the rows. Only the first event of a watch carries the columns.
func (t *Table) head(dst []byte, m *ListMeta, columns bool) []byte {
	dst = appendType(dst, "Table", t.version)
	dst = append(dst, `,"metadata":`...)
	dst = m.append(dst)
	if !columns {
		return append(dst, `,"columnDefinitions":null,"rows":[`...)
	}
	dst = append(dst, `,"columnDefinitions":[`...)
	for i, c := range t.columns {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = object.AppendString(dst, c.Name)
		dst = append(dst, `,"type":`...)
		dst = object.AppendString(dst, c.Type)
		dst = append(dst, `,"format":`...)
		dst = object.AppendString(dst, c.Format)
		dst = append(dst, `,"description":`...)
		dst = object.AppendString(dst, c.Description)
		dst = append(dst, `,"priority":`...)
		dst = strconv.AppendInt(dst, int64(c.Priority), 10)
		dst = append(dst, '}')
	}
	return append(dst, `],"rows":[`...)
}

// Arrange goes through the whole list before it is printed, if a row depends on the others: it marks the default
// object, and returns the list in the order in which it is shown.
func (t *Table) Arrange(items iter.Seq[*engine.Object]) (iter.Seq[*engine.Object], error) {
	if t.isDefault == nil && t.order == nil {
		return items, nil
	}
	type item struct {
		object *engine.Object
		value  object.Value
	}
	var all []item
	best := object.Nil
	for o := range items {
		obj, err := parse(o)
		if err != nil {
			return nil, err
		}
		if all = append(all, item{o, obj}); t.isDefault != nil && t.isDefault(obj, best) {
			best, t.marked = obj, &o.Key
		}
	}
	if t.order != nil {
		slices.SortStableFunc(all, func(a, b item) int { return t.order(a.value, b.value) })
	}
	return func(yield func(*engine.Object) bool) {
		for _, i := range all {
			if !yield(i.object) {
				return
			}
		}
	}, nil
}

func parse(o *engine.Object) (object.Value, error) {
	parsed, err := object.ParseJSON(o.Data())
	if err != nil {
		return object.Nil, fmt.Errorf("the stored object %s: %w", o.Key, err)
	}
	return parsed.Value, nil
}

// row prints one object.
func (t *Table) row(dst []byte, o *engine.Object, cache *EncodedCache) ([]byte, error) {
	row, err := t.printed(o, cache)
	if err != nil {
		return dst, err
	}
	dst = t.appendCells(dst, row[metadataSize:])
	switch t.include {
	case IncludeObject:
		dst = AppendObject(dst, o, t.Lean)
	case IncludeMetadata:
		dst = appendPartial(dst, o, t.version, int(binary.LittleEndian.Uint32(row)), t.Lean)
	default:
		dst = append(dst, "null"...)
	}
	return append(dst, '}'), nil
}

// printed is the kept form of the row of an object: the offset at which its metadata ends, in metadataSize bytes, and
// the text of the cells. It is made once for every stored version, and kept with it: a second list of 5,000 Pods parses
// only those that have changed since the first.
func (t *Table) printed(o *engine.Object, cache *EncodedCache) ([]byte, error) {
	marked := t.marked != nil && *t.marked == o.Key
	if row := encodedRow(o, t.by); row != nil && !marked {
		return row, nil
	}
	obj, err := parse(o)
	if err != nil {
		return nil, err
	}
	cells := t.cells(obj)
	if marked {
		cells[0] = cells[0].(string) + " (default)"
	}
	row := binary.LittleEndian.AppendUint32(make([]byte, 0, 160), uint32(endOfMetadata(o, nil)))
	row = appendText(row, cells)
	if !marked {
		cache.keepRow(o, t.by, bytes.Clone(row))
	}
	return row, nil
}

// metadataSize is the number of bytes that hold the end of the metadata at the head of a kept row.
const metadataSize = 4

// In the text of a row an age is a hole: this byte, which JSON never contains, and in 8 bytes the time in microseconds,
// doubled, and one more if it is a time that may be due (engine.Age).
const (
	hole     = 0
	holeSize = 1 + 8
)

// appendText prints cells, with holes where there are ages.
func appendText(dst []byte, cells []any) []byte {
	for i, cell := range cells {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendCell(dst, cell)
	}
	return dst
}

func appendCell(dst []byte, cell any) []byte {
	switch c := cell.(type) {
	case nil:
		return append(dst, "null"...)
	case string:
		return object.AppendString(dst, c)
	case int64:
		return strconv.AppendInt(dst, c, 10)
	case float64:
		return object.AppendJSON(dst, object.FloatOf(c))
	case bool:
		return strconv.AppendBool(dst, c)
	case engine.Age:
		dst = object.AppendString(dst, c.Before)
		dst = append(dst[:len(dst)-1], hole)
		at := c.Since.UnixMicro() << 1
		if c.Due {
			at++
		}
		dst = binary.LittleEndian.AppendUint64(dst, uint64(at))
		after := len(dst)
		dst = object.AppendString(dst, c.After)
		return slices.Delete(dst, after, after+1)
	}
	panic(fmt.Sprintf("wire: a cell of type %T; string, int64, float64, bool, engine.Age and nil are possible", cell))
}

// appendCells begins a row: it prints the text with the current ages in its holes.
func (t *Table) appendCells(dst, text []byte) []byte {
	dst = append(dst, `{"cells":[`...)
	for {
		at := bytes.IndexByte(text, hole)
		if at < 0 {
			break
		}
		dst = append(dst, text[:at]...)
		kept := int64(binary.LittleEndian.Uint64(text[at+1:]))
		dst = engine.AppendAge(dst, time.UnixMicro(kept>>1), kept&1 != 0, t.now)
		text = text[at+holeSize:]
	}
	dst = append(dst, text...)
	return append(dst, `],"object":`...)
}

// AppendTable prints a table of one object.
func AppendTable(dst []byte, o *engine.Object, t *Table) ([]byte, error) {
	dst = t.head(dst, &ListMeta{Revision: o.Revision}, true)
	dst, err := t.row(dst, o, nil)
	return append(dst, "]}"...), err
}
