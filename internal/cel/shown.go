package cel

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"plinth/object"
)

// Shown is the value of an expression, to be shown to who has written it.
type Shown struct {
	Value object.Value // as JSON: what JSON does not have is text
	Type  string       // of CEL: "int", "list", "kubernetes.Quantity"
	Cost  int64        // with that of the variables that it was the first to use
}

// MaxShown is about how many bytes a value may have that is shown.
const MaxShown = 16 << 10

// ErrTooLargeToShow is the error of a value above MaxShown.
var ErrTooLargeToShow = errors.New("the value is too large to be shown")

// Show evaluates an expression of any type. stop is an error after which nothing else can be evaluated (see Test).
func (e *Evaluation) Show(x *AdmissionExpression) (shown Shown, err, stop error) {
	before := e.budget
	value, err, stop := e.run(x)
	shown.Cost = before - e.budget
	if err != nil || stop != nil {
		return shown, err, stop
	}
	left := MaxShown
	shown.Type = value.Type().TypeName()
	shown.Value, err = jsonOf(value, &left)
	return shown, err, nil
}

// Left is what is left of the budget.
func (e *Evaluation) Left() int64 { return e.budget }

// jsonOf converts a value, of at most left bytes. The limit holds while it converts: a short expression makes a list of
// a thousand times the same object, which costs nothing before it is written out.
func jsonOf(v ref.Val, left *int) (object.Value, error) {
	const least = 4 // of each value
	if *left -= least; *left < 0 {
		return object.Nil, ErrTooLargeToShow
	}
	text := func(s string) (object.Value, error) {
		if *left -= len(s); *left < 0 {
			return object.Nil, ErrTooLargeToShow
		}
		return object.StringOf(s), nil
	}
	switch v := v.(type) {
	case types.Null:
		return object.Nil, nil
	case types.Bool:
		return object.BoolOf(bool(v)), nil
	case types.Int:
		return object.IntOf(int64(v)), nil
	case types.Uint:
		if v <= math.MaxInt64 {
			return object.IntOf(int64(v)), nil
		}
	case types.Double:
		if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return object.FloatOf(f), nil
		}
	case types.String:
		return text(string(v))
	case types.Bytes:
		if len(v) > *left {
			return object.Nil, ErrTooLargeToShow
		}
		return text(base64.StdEncoding.EncodeToString(v))
	case *types.Optional:
		if !v.HasValue() {
			return object.Nil, nil
		}
		return jsonOf(v.GetValue(), left)
	case traits.Mapper:
		return jsonOfMap(v, left)
	case traits.Lister:
		var items []object.Value
		for i := v.Iterator(); i.HasNext() == types.True; {
			item, err := jsonOf(i.Next(), left)
			if err != nil {
				return object.Nil, err
			}
			items = append(items, item)
		}
		return object.ListOf(items...), nil
	}
	return text(textOf(v))
}

func jsonOfMap(m traits.Mapper, left *int) (object.Value, error) {
	var members []object.Member
	for i := m.Iterator(); i.HasNext() == types.True; {
		key := i.Next()
		name := textOf(key)
		if *left -= len(name); *left < 0 {
			return object.Nil, ErrTooLargeToShow
		}
		value, err := jsonOf(m.Get(key), left)
		if err != nil {
			return object.Nil, err
		}
		members = append(members, object.Member{Key: name, Value: value})
	}
	return object.MapOf(members...), nil
}

// textOf is a value as text, as CEL's string() converts it, or as Go prints it.
func textOf(v ref.Val) string {
	if s, ok := v.ConvertToType(types.StringType).(types.String); ok {
		return string(s)
	}
	if s, ok := v.Value().(fmt.Stringer); ok {
		return s.String()
	}
	return v.Type().TypeName()
}
