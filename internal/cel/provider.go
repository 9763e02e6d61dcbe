package cel

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
)

// provider resolves the types below self for the compiler. The name of a type is its path: `selfType7.spec.ports.@idx`
// is the type of the items of spec.ports. Types are resolved on demand, because rules use few of the types of a large
// schema.
type provider struct {
	types.Provider // the environment's, for other names
	self           *shape
	name           string // the name of self's type
}

// typeOf is the CEL type of a shape, by this name.
func typeOf(s *shape, name string) *types.Type {
	switch s.form {
	case object_:
		return types.NewObjectType(name)
	case map_:
		return types.NewMapType(types.StringType, typeOf(s.elem, name+".@elem"))
	case list, set, keyed:
		return types.NewListType(typeOf(s.elem, name+".@idx"))
	case text:
		return types.StringType
	case base64_:
		return types.BytesType
	case duration:
		return types.DurationType
	case date, dateTime:
		return types.TimestampType
	case integer:
		return types.IntType
	case number:
		return types.DoubleType
	case boolean:
		return types.BoolType
	}
	return types.DynType
}

// scalars are types that expressions may name but the libraries do not declare.
var scalars = map[string]*types.Type{
	"bool": types.BoolType, "bytes": types.BytesType, "double": types.DoubleType, "duration": types.DurationType,
	"int": types.IntType, "null_type": types.NullType, "string": types.StringType, "timestamp": types.TimestampType,
	"uint": types.UintType, "list": types.NewListType(types.AnyType),
	"map": types.NewMapType(types.AnyType, types.AnyType),
}

// find resolves a path.
func (p *provider) find(name string) *shape {
	rest, ok := strings.CutPrefix(name, p.name)
	if !ok {
		return nil
	}
	at := p.self
	for rest != "" {
		if rest[0] != '.' {
			return nil
		}
		step, after, more := strings.Cut(rest[1:], ".")
		if rest = ""; more {
			rest = "." + after
		}
		var next *shape
		switch {
		case at.form == map_ && step == "@elem", step == "@idx" && (at.form == list || at.form == set || at.form == keyed):
			next = at.elem
		case at.form == object_:
			next, _ = at.declared(step)
		}
		if next == nil {
			return nil
		}
		at = next
	}
	if at.form != object_ && at.elem == nil {
		return nil
	}
	return at
}

// FindStructType implements types.Provider.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if s := p.find(name); s != nil {
		return types.NewTypeTypeWithParam(typeOf(s, name)), true
	}
	if t := scalars[name]; t != nil {
		return types.NewTypeTypeWithParam(t), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider. As in the reference it returns no names.
func (p *provider) FindStructFieldNames(string) ([]string, bool) { return []string{}, false }

// FindStructFieldType implements types.Provider. A field whose name is a reserved word may be written without
// escaping.
func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	s := p.find(name)
	if s == nil {
		if scalars[name] != nil {
			return nil, false
		}
		return p.Provider.FindStructFieldType(name, field)
	}
	if s.form == map_ {
		return &types.FieldType{Type: typeOf(s.elem, name+".@elem")}, true
	}
	of, ok := s.declared(field)
	if !ok && reserved[field] {
		field = "__" + field + "__"
		of, ok = s.declared(field)
	}
	if !ok {
		return nil, false
	}
	return &types.FieldType{Type: typeOf(of, name+"."+field)}, true
}

var reserved = map[string]bool{
	"true": true, "false": true, "null": true, "in": true, "as": true, "break": true, "const": true, "continue": true,
	"else": true, "for": true, "function": true, "if": true, "import": true, "let": true, "loop": true, "package": true,
	"namespace": true, "return": true, "var": true, "void": true, "while": true,
}

// sizeEstimator gives the cost estimator the sizes that the schema allows.
type sizeEstimator struct{ self *shape }

var keyShape = &shape{form: text}

// EstimateSize implements checker.CostEstimator: the size of the value at the end of a path from self.
func (z sizeEstimator) EstimateSize(of checker.AstNode) *checker.SizeEstimate {
	path := of.Path()
	if len(path) == 0 {
		return nil
	}
	at := z.self
	for _, step := range path[1:] {
		switch step {
		case "@items", "@values":
			at = at.elem
		case "@keys":
			if at.form != map_ {
				return nil
			}
			at = keyShape
		default:
			next, ok := at.declared(step)
			if !ok {
				return nil
			}
			at = next
		}
		if at == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(at.maxElements)}
}

// EstimateCallCost implements checker.CostEstimator. The libraries estimate the cost of calls.
func (z sizeEstimator) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// extend returns an environment with the variables self and oldSelf of this shape.
func extend(env *cel.Env, self *shape, name string, optional bool) (*cel.Env, error) {
	of := typeOf(self, name)
	old := of
	if optional {
		old = types.NewOptionalType(of)
	}
	return env.Extend(
		cel.Variable("self", of),
		cel.Variable("oldSelf", old),
		cel.CustomTypeProvider(&provider{Provider: env.CELTypeProvider(), self: self, name: name}),
	)
}
