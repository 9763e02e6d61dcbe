// Package columns holds the Table columns of the built-in types (MED-6), as the reference prints them, and the
// functions that fill their cells from an object.
//
// A cell is a string, an int64, a bool, an engine.Age or nil. Functions get only the object, in the version of their
// type, so that their results can be cached as long as the object. The description of a column is that of the field
// that it shows, if it shows one; it is read from the API types at run time.
//
// Each group has its file, and so have the larger kinds of the core group; shared functions are in columns.go.
package columns

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"

	"plinth/internal/engine"
	"plinth/object"
)

// Table is the columns of one type, and the functions that fill them. Its zero value has the common columns: Name and
// Created At.
type Table struct {
	Columns []engine.Column
	Cells   func(obj object.Value) []any
	// IsDefault and RowOrder are engine.Resource's.
	IsDefault func(candidate, current object.Value) bool
	RowOrder  func(a, b object.Value) int
}

// cell returns the cell of one column for an object.
type cell func(obj object.Value) any

type column struct {
	engine.Column
	cell cell
}

// of returns a table with these columns.
func of(columns ...column) Table {
	t := Table{Columns: make([]engine.Column, len(columns))}
	cells := make([]cell, len(columns))
	for i, c := range columns {
		t.Columns[i], cells[i] = c.Column, c.cell
	}
	t.Cells = func(obj object.Value) []any {
		row := make([]any, len(cells))
		for i, c := range cells {
			row[i] = c(obj)
		}
		return row
	}
	return t
}

// str, integer and boolean return columns of these OpenAPI types. The cells may have another type, as in the reference.
func str(name, description string, c cell) column {
	return column{engine.Column{Name: name, Type: "string", Description: description}, c}
}

func integer(name, description string, c cell) column {
	return column{engine.Column{Name: name, Type: "integer", Description: description}, c}
}

func boolean(name, description string, c cell) column {
	return column{engine.Column{Name: name, Type: "boolean", Description: description}, c}
}

// wide returns the column with priority 1: only wide output shows it.
func wide(c column) column {
	c.Priority = 1
	return c
}

// isName marks a column as the name of an object.
func isName(c column) column {
	c.Format = "name"
	return c
}

// documented is an API type with descriptions of its fields.
type documented interface{ SwaggerDoc() map[string]string }

// doc is the description of a field of an API type.
func doc[T documented](field string) string {
	var t T
	return t.SwaggerDoc()[field]
}

// The columns that nearly every type has.
var (
	name = isName(str("Name", doc[metav1.ObjectMeta]("name"), text("metadata", "name")))
	age  = str("Age", doc[metav1.ObjectMeta]("creationTimestamp"), since("metadata", "creationTimestamp"))
)

// The texts of cells without a value.
const (
	none    = "<none>"
	unset   = "<unset>"
	unknown = "<unknown>"
)

// text returns a cell with the string at a path.
func text(path ...string) cell {
	return func(obj object.Value) any { return obj.At(path...).Str() }
}

// textOr is text, with another text for an empty string.
func textOr(otherwise string, path ...string) cell {
	return func(obj object.Value) any { return or(obj.At(path...).Str(), otherwise) }
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// whole returns a cell with the integer at a path.
func whole(path ...string) cell {
	return func(obj object.Value) any { return obj.At(path...).Int() }
}

// size returns a cell with the number of items or members at a path.
func size(path ...string) cell {
	return func(obj object.Value) any { return int64(obj.At(path...).Len()) }
}

// truth returns a cell with the boolean at a path, or with otherwise if it is absent.
func truth(otherwise bool, path ...string) cell {
	return func(obj object.Value) any {
		if v := obj.At(path...); !v.IsNull() {
			return v.Bool()
		}
		return otherwise
	}
}

// since returns a cell with the age of the time at a path.
func since(path ...string) cell {
	return func(obj object.Value) any { return ago(obj.At(path...)) }
}

// ago returns the age of a time.
func ago(v object.Value) any {
	t := at(v)
	if t.IsZero() {
		return unknown
	}
	return engine.Age{Since: t}
}

// at parses a time; it returns the zero time if the time is absent.
func at(v object.Value) time.Time {
	t, err := time.Parse(time.RFC3339, v.Str())
	if err != nil {
		return time.Time{}
	}
	return t
}

// list returns the string at a path in each item of a list.
func list(items object.Value, path ...string) []string {
	out := make([]string, 0, items.Len())
	for _, item := range items.Items() {
		out = append(out, item.At(path...).Str())
	}
	return out
}

// joined returns a cell with the strings of a list, separated by commas.
func joined(path ...string) cell {
	return func(obj object.Value) any { return strings.Join(list(obj.At(path...)), ",") }
}

// labels prints a map of labels.
func labels(path ...string) cell {
	return func(obj object.Value) any {
		return or(apilabels.Set(stringMap(obj.At(path...))).String(), none)
	}
}

func stringMap(v object.Value) map[string]string {
	m := make(map[string]string, v.Len())
	for _, member := range v.Members() {
		m[member.Key] = member.Value.Str()
	}
	return m
}

// selector prints a LabelSelector; <none> if it selects everything.
func selector(path ...string) cell {
	return func(obj object.Value) any {
		text, err := selectorText(obj.At(path...))
		switch {
		case err != nil:
			return "<error>"
		case text == "":
			return none
		}
		return text
	}
}

func selectorText(v object.Value) (string, error) {
	s, err := metav1.LabelSelectorAsSelector(labelSelector(v))
	if err != nil {
		return "", err
	}
	return s.String(), nil
}

// labelSelector converts a LabelSelector to its Go type; nil if it is null.
func labelSelector(v object.Value) *metav1.LabelSelector {
	if v.IsNull() {
		return nil
	}
	s := &metav1.LabelSelector{MatchLabels: stringMap(v.At("matchLabels"))}
	for _, e := range v.At("matchExpressions").Items() {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: e.At("key").Str(), Operator: metav1.LabelSelectorOperator(e.At("operator").Str()),
			Values: list(e.At("values")),
		})
	}
	return s
}

// containers are the wide columns that name the containers of a Pod template and their images.
func containers(path ...string) []column {
	cellOf := func(field string) cell {
		return func(obj object.Value) any {
			return strings.Join(list(obj.At(path...).At("containers"), field), ",")
		}
	}
	return []column{
		wide(str("Containers", "Names of each container in the template.", cellOf("name"))),
		wide(str("Images", "Images referenced by each container in the template.", cellOf("image"))),
	}
}

// more joins the first items of a list, and adds how many are left out.
func more(items []string, most, all int) string {
	if all <= most {
		return strings.Join(items, ",")
	}
	return strings.Join(items, ",") + " + " + itoa(int64(all-most)) + " more..."
}

func isTrue(condition object.Value) bool { return condition.At("status").Str() == "True" }

// condition finds the first condition of a type.
func condition(conditions object.Value, typ string) (object.Value, bool) {
	for _, c := range conditions.Items() {
		if c.At("type").Str() == typ {
			return c, true
		}
	}
	return object.Nil, false
}

func deleted(obj object.Value) bool { return !obj.At("metadata", "deletionTimestamp").IsNull() }

// present returns a cell with the string at a path, even an empty one, or <unset> if it is absent.
func present(path ...string) cell { return presentOr(unset, path...) }

// marking returns a table that marks one object of a list as the default.
func marking(isDefault func(candidate, current object.Value) bool, t Table) Table {
	t.IsDefault = isDefault
	return t
}

// ordered returns a table whose lists are sorted by this function.
func ordered(order func(a, b object.Value) int, t Table) Table {
	t.RowOrder = order
	return t
}

// withoutLast returns a table without the definition of its last column; the cells keep it.
func withoutLast(t Table) Table {
	t.Columns = t.Columns[:len(t.Columns)-1]
	return t
}

// presentOr returns a cell with the string at a path, even an empty one, or another text if it is absent.
func presentOr(otherwise string, path ...string) cell {
	return func(obj object.Value) any {
		if v := obj.At(path...); !v.IsNull() {
			return v.Str()
		}
		return otherwise
	}
}

// mostShown is how many items of a list are printed at most.
const mostShown = 3
