// Package columns holds the Table columns of the built-in types (MED-6), as the reference prints them, and the functions
// that fill their cells from an object.
//
// A cell is a string, an int64, a bool or nil. Functions get objects in the version of their type and the time against
// which ages are told; they change nothing.
package columns

import (
	"time"

	"plinth/internal/engine"
	"plinth/object"
)

// Table is the columns of one type, and what fills them. Its zero value is what types have that nobody gave columns:
// Name and Created At.
type Table struct {
	Columns []engine.Column
	Cells   func(obj object.Value, now time.Time) []any
}
