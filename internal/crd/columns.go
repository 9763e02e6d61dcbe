package crd

import (
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/engine"
	"plinth/object"
)

// columnsOf returns the columns of a Table of custom objects of a version, and a function that fills them (MED-6): the
// name, and the additionalPrinterColumns, or the age if these are empty. As in the reference, a path that does not
// parse ends the list of columns.
func columnsOf(version object.Value) (columns []engine.Column, cells func(obj object.Value) []any) {
	given := version.At("additionalPrinterColumns").Items()
	if len(given) == 0 {
		given = []object.Value{ageColumn()}
	}
	return printerColumns(given)
}

// ageColumn is the default column.
func ageColumn() object.Value {
	return printerColumn("Age", "date", metadataDoc("creationTimestamp"), ".metadata.creationTimestamp")
}

// metadataDoc is the description of a field of metadata.
func metadataDoc(field string) string { return metav1.ObjectMeta{}.SwaggerDoc()[field] }

// printerColumn creates a column in the form of a definition.
func printerColumn(name, typ, description, path string) object.Value {
	return object.Fields("name", object.StringOf(name), "type", object.StringOf(typ),
		"description", object.StringOf(description), "jsonPath", object.StringOf(path))
}

// printerColumns converts columns of a definition. The first column is always the name of the object. Paths are parsed
// when an object is first shown, because the objects of most types never are; before that, only a path that might not
// parse is tried.
func printerColumns(given []object.Value) (columns []engine.Column, cells func(obj object.Value) []any) {
	columns = append(make([]engine.Column, 0, 1+len(given)),
		engine.Column{Name: "Name", Type: "string", Format: "name", Description: metadataDoc("name")})
	for i, c := range given {
		path := c.At("jsonPath").Str()
		if !plainPath(path) || len(path) > maxJSONPath {
			if _, err := parseJSONPath(path); err != nil {
				given = given[:i]
				break
			}
		}
		column := engine.Column{
			Name: c.At("name").Str(), Type: c.At("type").Str(), Format: c.At("format").Str(),
			Description: c.At("description").Str(), Priority: int32(c.At("priority").Int()),
		}
		if column.Description == "" {
			column.Description = "Custom resource definition column (in JSONPath format): " + path
		}
		columns = append(columns, column)
	}
	paths := sync.OnceValue(func() []*jsonPath {
		parsed := make([]*jsonPath, len(given))
		for i, c := range given {
			parsed[i], _ = parseJSONPath(c.At("jsonPath").Str()) // checked above
		}
		return parsed
	})
	return columns, func(obj object.Value) []any {
		row := append(make([]any, 0, len(columns)), obj.At("metadata", "name").Str())
		for i, path := range paths() {
			var cell any
			if v, ok := path.first(obj); ok {
				cell = cellOf(v, columns[1+i].Type)
			}
			row = append(row, cell)
		}
		return row
	}
}

// cellOf is the cell for a value in a column of this type; nil if the value does not fit.
func cellOf(v object.Value, typ string) any {
	switch typ {
	case "string":
		return printed(v)
	case "integer":
		switch v.Kind() {
		case object.Int:
			return v.Int()
		case object.Float, object.Number:
			return int64(v.Float())
		}
	case "number":
		switch v.Kind() {
		case object.Int, object.Float, object.Number:
			return v.Float()
		}
	case "boolean":
		if v.Kind() == object.Bool {
			return v.Bool()
		}
	case "date":
		if v.Kind() == object.String {
			return since(v.Str())
		}
	}
	return nil
}

// since is the cell for a time: its age.
func since(text string) any {
	var t time.Time
	if text != "" && text != "null" {
		var err error
		if t, err = time.Parse(time.RFC3339, text); err != nil {
			return "<invalid>"
		}
	}
	if t.IsZero() {
		return "<unknown>"
	}
	return engine.Age{Since: t}
}

// printed is the cell for a value in a column of strings. A list or map is printed as JSON.
func printed(v object.Value) string {
	switch v.Kind() {
	case object.Null:
		return "<no value>"
	case object.List, object.Map:
		if exact, err := v.Untyped(); err == nil {
			v = exact
		}
		return string(object.AppendJSON(nil, v))
	}
	return fmt.Sprint(v.Native())
}
