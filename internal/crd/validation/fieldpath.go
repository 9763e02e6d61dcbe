package validation

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"plinth/object"
)

// target is where a path into objects leads.
type target struct {
	node  object.Value // the schema there; null if nothing is known of it
	path  string       // the path as the reference writes it
	first string       // its first element
}

var (
	errNoField   = errors.New("does not refer to a valid field")
	errPathEnds  = errors.New("unexpected end of JSON path")
	errNoBracket = errors.New("array notation is not allowed")
)

// follow goes along a path like .spec.labels['a.b'] into a schema. Names in brackets stand between single quotes and
// have escapes; they are allowed only where brackets is set. A name is that of a property, or, where there are none,
// the key of a map.
func follow(path string, schema object.Value, brackets bool) (target, error) {
	at := target{node: schema}
	for rest := path; rest != ""; {
		var token string
		token, rest = nextToken(rest)
		if token != "." && token != "[" {
			return target{}, fmt.Errorf("expected [ or . but got: %s", token)
		}
		if token == "[" && !brackets {
			return target{}, errNoBracket
		}
		if rest == "" {
			return target{}, errPathEnds
		}
		bracket := token == "["
		token, rest = nextToken(rest)
		if bracket {
			if len(token) < 2 || token[0] != '\'' || token[len(token)-1] != '\'' {
				return target{}, fmt.Errorf("expected single quoted string but got %s", token)
			}
			name, err := unescape(token[1 : len(token)-1])
			if err != nil {
				return target{}, fmt.Errorf("invalid string literal: %w", err)
			}
			token = name
		}
		if err := at.enter(token); err != nil {
			return target{}, err
		}
		if !bracket {
			continue
		}
		if rest == "" {
			return target{}, errPathEnds
		}
		if token, rest = nextToken(rest); token != "]" {
			return target{}, fmt.Errorf("expected ] but got %s", token)
		}
	}
	return at, nil
}

// enter goes one step down.
func (t *target) enter(name string) error {
	element := name
	if properties := t.node.At("properties"); properties.Len() > 0 {
		node, ok := properties.Get(name)
		if !ok {
			return errNoField
		}
		t.node = node
		if t.path != "" {
			element = "." + name
		}
	} else if additional := t.node.At("additionalProperties"); !additional.IsNull() {
		t.node = object.Nil
		if additional.Kind() == object.Map {
			t.node = additional
		}
		element = "[" + name + "]"
	} else {
		return errNoField
	}
	if t.path == "" {
		t.first = element
	}
	t.path += element
	return nil
}

// nextToken splits off a delimiter, a text in quotes, or what stands before the next delimiter.
func nextToken(s string) (token, rest string) {
	end := len(s)
	switch {
	case s[0] == '\'':
		for i := 1; i < len(s); i++ {
			if s[i] == '\'' && s[i-1] != '\\' {
				end = i + 1
				break
			}
		}
	case strings.IndexByte(".[]", s[0]) >= 0:
		end = 1
	default:
		if i := strings.IndexAny(s, ".[]"); i >= 0 {
			end = i
		}
	}
	return s[:end], s[end:]
}

// escapes are pairs: what stands behind the backslash, and what it means.
const escapes = "a\ab\bf\fn\nr\rt\tv\v''\\\\"

// unescape resolves the escapes of a quoted name. A backslash at the end of a line or of the name stands for itself.
func unescape(s string) (string, error) {
	var out strings.Builder
	var err error
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) || s[i+1] == '\n' {
			out.WriteByte(s[i])
			continue
		}
		_, size := utf8.DecodeRuneInString(s[i+1:])
		escape := s[i+1 : i+1+size]
		i += size
		if k := strings.Index(escapes, escape); k >= 0 && k%2 == 0 {
			out.WriteByte(escapes[k+1])
		} else {
			err = fmt.Errorf("invalid escape char \\%s", escape)
		}
	}
	return out.String(), err
}
