package crd

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"plinth/object"
)

// jsonPath is a JSONPath of a definition (of a printer column or a selectable field).
//
// Problem: the author of a definition writes the path, and it is evaluated for each object. The reference's library
// parses paths, but its evaluation does not suit a server: it needs the object as Go maps, it modifies the parsed path
// when it evaluates a range, so requests could not share it, and its time is not bounded: [0,0] doubles the number of
// found values, so thirty of them in a row take forever.
//
// Therefore the library only parses, and the evaluation here works on values and counts what it visits:
//
//	Σ values visited ≤ maxVisited
//
// A path that would visit more has no result.
type jsonPath struct {
	fields  []string // the path, if it consists of member names only; else nil
	actions []*jsonpath.ListNode
}

const (
	maxVisited = 1 << 16
	// maxJSONPath limits the length of a path, because the library's parser recurses for each step of it.
	maxJSONPath = 16 << 10
)

var (
	errPathTooLong  = errors.New("the path is too long")
	errTooMuchFound = errors.New("the path visits too many values")
	errRange        = errors.New("range and end are not supported")
)

// parseJSONPath parses a path such as ".status.conditions[?(@.type=='Ready')].status".
func parseJSONPath(text string) (*jsonPath, error) {
	if len(text) > maxJSONPath {
		return nil, errPathTooLong
	}
	if plainPath(text) {
		return &jsonPath{fields: strings.Split(text[1:], ".")}, nil
	}
	parsed, err := jsonpath.Parse("", "{"+text+"}")
	if err != nil {
		return nil, err
	}
	p := &jsonPath{}
	for _, node := range parsed.Root.Nodes {
		if action, ok := node.(*jsonpath.ListNode); ok { // the other nodes are text between actions
			p.actions = append(p.actions, action)
		}
	}
	if len(p.actions) == 1 {
		p.fields = fieldsOf(p.actions[0])
	}
	return p, nil
}

// plainPath says whether a path consists of names after dots. Such a path needs no parser.
func plainPath(text string) bool {
	for i := 0; i < len(text); i++ {
		c := text[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
		if !letter && c != '.' || c == '.' && (i+1 == len(text) || text[i+1] == '.') {
			return false
		}
	}
	return text != "" && text[0] == '.'
}

// fieldsOf returns the names if a parsed path consists of names only; else nil.
func fieldsOf(action *jsonpath.ListNode) (names []string) {
	for _, node := range action.Nodes {
		field, ok := node.(*jsonpath.FieldNode)
		if !ok {
			return nil
		}
		names = append(names, field.Value)
	}
	return names
}

// first returns the first value that the path finds in an object. ok is false if no value is found, or if the path does
// not fit the object.
func (p *jsonPath) first(obj object.Value) (v object.Value, ok bool) {
	if p.fields != nil {
		v, ok = obj, true
		for _, name := range p.fields {
			if v, ok = v.Get(name); !ok {
				return object.Nil, false
			}
		}
		return v, ok
	}
	e := evaluation{left: maxVisited}
	for i, action := range p.actions {
		found, err := e.list([]object.Value{obj}, action)
		if err != nil {
			return object.Nil, false
		}
		if i == 0 && len(found) > 0 {
			v, ok = found[0], true
		}
	}
	return v, ok
}

// evaluation is one evaluation of a path. Its methods take the values found so far and return those that the next step
// finds. With an error they return the values that the reference's functions return with it, because a filter that
// tests for existence checks the values and ignores the error.
type evaluation struct {
	left int // how many more values may be visited
}

// visit counts visited values.
func (e *evaluation) visit(n int) error {
	if e.left -= n; e.left < 0 {
		return errTooMuchFound
	}
	return nil
}

func (e *evaluation) list(in []object.Value, list *jsonpath.ListNode) ([]object.Value, error) {
	var err error
	for _, node := range list.Nodes {
		if in, err = e.step(in, node); err != nil {
			return in, err
		}
	}
	return in, nil
}

func (e *evaluation) step(in []object.Value, node jsonpath.Node) ([]object.Value, error) {
	if err := e.visit(len(in)); err != nil {
		return nil, err
	}
	switch node := node.(type) {
	case *jsonpath.ListNode:
		return e.list(in, node)
	case *jsonpath.TextNode:
		return []object.Value{object.StringOf(node.Text)}, nil
	case *jsonpath.IntNode:
		return constant(in, object.IntOf(int64(node.Value))), nil
	case *jsonpath.FloatNode:
		return constant(in, object.FloatOf(node.Value)), nil
	case *jsonpath.BoolNode:
		return constant(in, object.BoolOf(node.Value)), nil
	case *jsonpath.FieldNode:
		var out []object.Value
		for _, v := range in {
			if member, ok := v.Get(node.Value); ok {
				out = append(out, member)
			}
		}
		return out, nil
	case *jsonpath.ArrayNode:
		return e.slice(in, node)
	case *jsonpath.FilterNode:
		return e.filtered(in, node)
	case *jsonpath.WildcardNode:
		var out []object.Value
		for _, v := range in {
			if err := e.visit(v.Len()); err != nil {
				return nil, err
			}
			out = appendChildren(out, v)
		}
		return out, nil
	case *jsonpath.RecursiveNode:
		return e.descend(in)
	case *jsonpath.UnionNode:
		return e.union(in, node)
	}
	return in, errRange // identifiers: range and end
}

func constant(in []object.Value, v object.Value) []object.Value {
	out := make([]object.Value, len(in))
	for i := range out {
		out[i] = v
	}
	return out
}

// appendChildren appends the items of a list or the values of a map.
func appendChildren(dst []object.Value, v object.Value) []object.Value {
	for _, m := range v.Members() {
		dst = append(dst, m.Value)
	}
	return append(dst, v.Items()...)
}

// descend returns the values and everything below them. As in the reference, empty values and scalars other than
// strings are omitted.
func (e *evaluation) descend(in []object.Value) (out []object.Value, err error) {
	for _, v := range in {
		if v.Len() == 0 || v.Kind() == object.Number {
			continue
		}
		if err := e.visit(v.Len()); err != nil {
			return nil, err
		}
		below, err := e.descend(appendChildren(nil, v))
		if err != nil {
			return nil, err
		}
		out = append(append(out, v), below...)
	}
	return out, nil
}

func (e *evaluation) union(in []object.Value, node *jsonpath.UnionNode) (out []object.Value, err error) {
	for _, list := range node.Nodes {
		found, err := e.list(in, list)
		if err != nil {
			return in, err
		}
		if err := e.visit(len(found)); err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// slice returns a part of each list, [from:to:step]. [n] is [n:n+1]; negative numbers count from the end.
func (e *evaluation) slice(in []object.Value, node *jsonpath.ArrayNode) (out []object.Value, err error) {
	for _, v := range in {
		if v.IsNull() {
			continue
		}
		if v.Kind() != object.List {
			return in, fmt.Errorf("%s is not array or slice", v.Kind())
		}
		from, to, step, length := node.Params[0].Value, node.Params[1].Value, 1, v.Len()
		if !node.Params[0].Known {
			from = 0
		}
		if from < 0 {
			from += length
		}
		if !node.Params[1].Known {
			to = length
		}
		if to < 0 || to == 0 && node.Params[1].Derived {
			to += length
		}
		if from == to { // as in the reference, further lists are ignored
			return out, nil
		}
		if from < 0 || from >= length || to < 0 || to > length || from > to {
			return in, fmt.Errorf("array index out of bounds: %d to %d, length %d", from, to, length)
		}
		if node.Params[2].Known {
			if step = node.Params[2].Value; step <= 0 {
				return in, errors.New("step must be > 0")
			}
		}
		if err := e.visit(to - from); err != nil {
			return nil, err
		}
		for i, item := range v.Items()[from:to] {
			if i%step == 0 {
				out = append(out, item)
			}
		}
	}
	return out, nil
}

// filtered returns the items of lists for which [?(left operator right)] holds, or for which [?(left)] finds a value.
func (e *evaluation) filtered(in []object.Value, node *jsonpath.FilterNode) (out []object.Value, err error) {
	for _, v := range in {
		if v.Kind() != object.List {
			return in, fmt.Errorf("%s is not array or slice and cannot be filtered", v.Kind())
		}
		for _, item := range v.Items() {
			if err := e.visit(1); err != nil {
				return nil, err
			}
			lefts, err := e.list([]object.Value{item}, node.Left)
			if errors.Is(err, errTooMuchFound) {
				return nil, err
			}
			if node.Operator == "exists" {
				if len(lefts) > 0 {
					out = append(out, item)
				}
				continue
			}
			if err != nil {
				return in, err
			}
			if len(lefts) == 0 {
				continue
			}
			rights, err := e.list([]object.Value{item}, node.Right)
			if err != nil {
				return in, err
			}
			if len(lefts) > 1 || len(rights) > 1 {
				return in, errors.New("can only compare one element at a time")
			}
			if len(rights) == 0 {
				continue
			}
			holds, err := compare(lefts[0], rights[0], node.Operator)
			if err != nil {
				return out, err
			}
			if holds {
				out = append(out, item)
			}
		}
	}
	return out, nil
}

// compare compares two scalars of the same kind.
func compare(a, b object.Value, operator string) (bool, error) {
	kind := scalarKind(a)
	if kind == object.Null || kind != scalarKind(b) {
		return false, errors.New("incompatible types for comparison")
	}
	less, equal := false, object.Equal(a, b)
	switch kind {
	case object.Int:
		less = a.Int() < b.Int()
	case object.Float:
		less, equal = a.Float() < b.Float(), a.Float() == b.Float()
	case object.String:
		less = a.Str() < b.Str()
	}
	switch operator {
	case "==":
		return equal, nil
	case "!=":
		return !equal, nil
	}
	if kind == object.Bool {
		return false, errors.New("invalid type for comparison")
	}
	switch operator {
	case "<":
		return less, nil
	case "<=":
		return less || equal, nil
	case ">":
		return !less && !equal, nil
	case ">=":
		return !less, nil
	}
	return false, fmt.Errorf("unrecognized filter operator %s", operator)
}

// scalarKind is the kind of a scalar for comparison; both kinds of non-integers are Float. It is Null for values that
// cannot be compared.
func scalarKind(v object.Value) object.Kind {
	switch k := v.Kind(); k {
	case object.Bool, object.Int, object.Float, object.String:
		return k
	case object.Number:
		return object.Float
	}
	return object.Null
}
