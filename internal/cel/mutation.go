package cel

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"plinth/object"
)

// The types of the values that a mutation makes: Object, whose parts are Object.spec and so on and may have any fields,
// and the operations of a JSON Patch.
const (
	objectTypeName    = "Object"
	jsonPatchTypeName = "JSONPatch"
)

var jsonPatchType = types.NewObjectType(jsonPatchTypeName)

// patchTypes makes the types known to an environment.
func patchTypes(env *cel.Env) (*cel.Env, error) {
	return cel.CustomTypeProvider(&patchProvider{env.CELTypeProvider()})(env)
}

// patchProvider finds the types, and before them those of another provider.
type patchProvider struct{ types.Provider }

// isObject says whether a type is Object or a part of it.
func isObject(name string) bool {
	return name == objectTypeName || strings.HasPrefix(name, objectTypeName+".")
}

// FindStructType implements types.Provider.
func (p *patchProvider) FindStructType(name string) (*types.Type, bool) {
	switch {
	case name == jsonPatchTypeName:
		return types.NewTypeTypeWithParam(jsonPatchType), true
	case isObject(name):
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *patchProvider) FindStructFieldNames(name string) ([]string, bool) {
	switch {
	case name == jsonPatchTypeName:
		return []string{"op", "from", "path", "value"}, true
	case isObject(name):
		return nil, true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p *patchProvider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	switch {
	case name == jsonPatchTypeName:
		// A field that there is not has no type, rather than not being found, as in the reference: the error differs.
		t := &types.FieldType{}
		switch field {
		case "op", "from", "path":
			t.Type = types.StringType
		case "value":
			t.Type = types.DynType
		}
		return t, true
	case isObject(name):
		return dynamic.NewObjectType(name).Field(field)
	}
	return p.Provider.FindStructFieldType(name, field)
}

// NewValue implements types.Provider.
func (p *patchProvider) NewValue(name string, fields map[string]ref.Val) ref.Val {
	switch {
	case name == jsonPatchTypeName:
		return newPatchOperation(fields)
	case isObject(name):
		return dynamic.NewObjectType(name).Val(fields)
	}
	return p.Provider.NewValue(name, fields)
}

// patchOperation is a value of the type JSONPatch: one operation.
type patchOperation struct {
	op, from, path string
	value          ref.Val // nil: none
}

func newPatchOperation(fields map[string]ref.Val) ref.Val {
	o := &patchOperation{}
	texts := map[string]*string{"op": &o.op, "from": &o.from, "path": &o.path}
	for name, value := range fields {
		to, isText := texts[name]
		text, ok := value.Value().(string)
		switch {
		case name == "value":
			o.value = value
		case !isText:
			return types.NewErr("unexpected JSONPatchType field: %s", name)
		case !ok:
			return types.NewErr("unexpected type %T for JSONPatchType '%s' field", value.Value(), name)
		default:
			*to = text
		}
	}
	return o
}

// ConvertToNative implements ref.Val.
func (o *patchOperation) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("cannot convert to native type: %v", to)
}

// ConvertToType implements ref.Val.
func (o *patchOperation) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case jsonPatchType:
		return o
	case types.TypeType:
		return types.NewTypeTypeWithParam(jsonPatchType)
	}
	return types.NewErr("unsupported type: %s", to.TypeName())
}

// Equal implements ref.Val.
func (o *patchOperation) Equal(other ref.Val) ref.Val {
	p, ok := other.(*patchOperation)
	if !ok || o.op != p.op || o.from != p.from || o.path != p.path || (o.value == nil) != (p.value == nil) {
		return types.False
	}
	if o.value == nil {
		return types.True
	}
	return o.value.Equal(p.value)
}

// Get implements traits.Indexer.
func (o *patchOperation) Get(index ref.Val) ref.Val {
	switch index.Value() {
	case "op":
		return types.String(o.op)
	case "path":
		return types.String(o.path)
	case "from":
		return types.String(o.from)
	case "value":
		return o.value
	}
	return types.NewErr("unsupported indexer: %s", index)
}

// IsSet implements traits.FieldTester.
func (o *patchOperation) IsSet(field ref.Val) ref.Val {
	switch field.Value() {
	case "op":
		return types.Bool(o.op != "")
	case "path":
		return types.Bool(o.path != "")
	case "from":
		return types.Bool(o.from != "")
	case "value":
		return types.Bool(o.value != nil)
	}
	return types.NewErr("unsupported field: %s", field)
}

// Type implements ref.Val.
func (o *patchOperation) Type() ref.Type { return jsonPatchType }

// Value implements ref.Val.
func (o *patchOperation) Value() any { return o }

// Patch evaluates an expression of the role JSONPatch, and returns the patch as JSON.
func (e *Evaluation) Patch(x *AdmissionExpression) ([]byte, error) {
	result, err := e.mutation(x)
	if err != nil {
		return nil, err
	}
	list, ok := result.(traits.Lister)
	if !ok {
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	operations := []map[string]any{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		o, ok := it.Next().(*patchOperation)
		if !ok {
			return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
		}
		operation := map[string]any{"op": o.op, "path": o.path}
		if o.from != "" {
			operation["from"] = o.from
		}
		if o.value != nil {
			if err := checkNames(o.value); err != nil {
				return nil, err
			}
			value, err := o.value.ConvertToNative(reflect.TypeFor[*structpb.Value]())
			if err != nil {
				return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
			}
			operation["value"] = value
		}
		operations = append(operations, operation)
	}
	text, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
	}
	return text, nil
}

// Intent evaluates an expression of the role ApplyConfiguration, and returns the fields that it sets.
func (e *Evaluation) Intent(x *AdmissionExpression) (object.Value, error) {
	result, err := e.mutation(x)
	if err != nil {
		return object.Nil, err
	}
	made, ok := result.(*dynamic.ObjectVal)
	if !ok {
		return object.Nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", result.Type())
	}
	if err := checkNames(made); err != nil {
		return object.Nil, err
	}
	fields, ok := made.Value().(map[string]any)
	if !ok {
		return object.Nil, fmt.Errorf("invalid return type: %T", result)
	}
	return fromNative(fields)
}

// mutation evaluates an expression of which an error is no evaluation's, but its compilation's.
func (e *Evaluation) mutation(x *AdmissionExpression) (ref.Val, error) {
	if x.err != nil {
		return nil, x.err
	}
	value, err, stop := e.run(x)
	return value, errors.Join(err, stop)
}

// checkNames demands that the parts of an Object are where their names say: Object.spec at spec.
func checkNames(v ref.Val) error {
	if made, ok := v.(*dynamic.ObjectVal); ok {
		if err := made.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return fmt.Errorf("type mismatch: %w", err)
		}
	}
	return nil
}

// fromNative is the value of what an Object has been converted to.
func fromNative(v any) (object.Value, error) {
	switch v := v.(type) {
	case nil:
		return object.Nil, nil
	case structpb.NullValue:
		return object.IntOf(0), nil // which is how the reference's merge takes it
	case time.Time, []byte:
		return object.MapOf(), nil // it is of the wrong type wherever it stands
	case time.Duration:
		return object.IntOf(int64(v)), nil
	case uint64:
		if v <= math.MaxInt64 {
			return object.IntOf(int64(v)), nil
		}
	case bool:
		return object.BoolOf(v), nil
	case int64:
		return object.IntOf(v), nil
	case float64:
		if whole := int64(v); float64(whole) == v { // it may be for a field that holds integers
			return object.IntOf(whole), nil
		}
		return object.FloatOf(v), nil
	case string:
		return object.StringOf(v), nil
	case []any:
		return listOf(len(v), func(i int) any { return v[i] })
	case []ref.Val:
		return listOf(len(v), func(i int) any { return v[i].Value() })
	case map[string]any:
		members := make([]object.Member, 0, len(v))
		for key, of := range v {
			value, err := fromNative(of)
			if err != nil {
				return object.Nil, err
			}
			members = append(members, object.Member{Key: key, Value: value})
		}
		return object.MapOf(members...), nil
	case error:
		return object.Nil, v
	}
	return object.Nil, fmt.Errorf("a value of an Object cannot be of type %T", v)
}

func listOf(n int, item func(int) any) (object.Value, error) {
	items := make([]object.Value, n)
	for i := range items {
		var err error
		if items[i], err = fromNative(item(i)); err != nil {
			return object.Nil, err
		}
	}
	return object.ListOf(items...), nil
}
