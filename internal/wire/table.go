package wire

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/engine"
	"plinth/object"
)

// Include says how much of the object comes with each row of a Table.
type Include uint8

// What a row may hold.
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
	version string
	include Include
	columns []engine.Column
	cells   func(obj object.Value, now time.Time) []any
	now     time.Time // what ages are counted from
}

// NewTable is a table of what a resource type, or one of its subresources, shows. Types without columns of their own, and
// views of another kind, have a name and the time of creation.
func NewTable(rq *engine.Request, version string, include Include) *Table {
	t := &Table{version: version, include: include, columns: rq.Resource.Columns, cells: rq.Resource.Cells, now: time.Now()}
	if rq.Subresource != nil && rq.Subresource.View != nil {
		t.columns, t.cells = rq.Subresource.Columns, rq.Subresource.Cells
	}
	if t.columns == nil || t.cells == nil {
		t.columns, t.cells = plainColumns(), plainCells
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

func plainCells(obj object.Value, _ time.Time) []any {
	meta := obj.At("metadata")
	return []any{meta.At("name").Str(), meta.At("creationTimestamp").Str()}
}

// head prints what comes before the rows. Only the first event of a watch carries the columns.
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

// row prints one object.
func (t *Table) row(dst []byte, o *engine.Object) ([]byte, error) {
	parsed, err := object.ParseJSON(o.Data)
	if err != nil {
		return dst, fmt.Errorf("the stored object %s: %w", o.Key, err)
	}
	dst = t.appendCells(dst, parsed.Value)
	switch t.include {
	case IncludeObject:
		dst = AppendObject(dst, o)
	case IncludeMetadata:
		dst = AppendPartial(dst, o, t.version)
	default:
		dst = append(dst, "null"...)
	}
	return append(dst, '}'), nil
}

// appendCells begins a row.
func (t *Table) appendCells(dst []byte, obj object.Value) []byte {
	dst = append(dst, `{"cells":[`...)
	for i, cell := range t.cells(obj, t.now) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendCell(dst, cell)
	}
	return append(dst, `],"object":`...)
}

func appendCell(dst []byte, cell any) []byte {
	switch c := cell.(type) {
	case nil:
		return append(dst, "null"...)
	case string:
		return object.AppendString(dst, c)
	case int64:
		return strconv.AppendInt(dst, c, 10)
	case bool:
		return strconv.AppendBool(dst, c)
	}
	panic(fmt.Sprintf("wire: a cell of type %T; string, int64, bool and nil are possible", cell))
}

// AppendTable prints a table of one object.
func AppendTable(dst []byte, o *engine.Object, t *Table) ([]byte, error) {
	dst = t.head(dst, &ListMeta{Revision: o.Revision}, true)
	dst, err := t.row(dst, o)
	return append(dst, "]}"...), err
}
