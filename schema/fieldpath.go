package schema

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// FieldPath reads a path into objects as definitions write it, step by step: the fieldPath of a CEL rule, and the
// jsonPath of a selectable field. A step is a name after a dot, or a name in brackets and single quotes:
//
//	.spec.replicas             spec, replicas
//	.spec.labels['a.b/c']      spec, labels, a.b/c
//	.spec['it\'s']             spec, it's
//	.spec.items[0]             an error: there are no indices
//	spec                       an error: a path begins with a dot
//
// Whether a step is a field or a key of a map is decided by the caller, which walks the schema in parallel.
//
// Steps are parsed lazily, because the first error of a path decides the message to the client, and it may be the
// caller's: for ".spec.nothing.[" the reference reports that nothing is not a field, and not that the bracket is open.
// Parsing all steps first would report the wrong error.
//
// The oracle is ValidFieldPath of apiextensions-apiserver's package cel, whose tokens and messages are kept. The time
// is linear in the path: each token is read once.
type FieldPath struct {
	rest   string // the rest of the text, after the last token
	quoted bool   // names in brackets are allowed
	open   bool   // the bracket of the last step has not been closed yet
}

// NewFieldPath is the path of this text. Without quoted, names in brackets are an error, as in selectable fields
// (WithFieldPathAllowArrayNotation).
func NewFieldPath(text string, quoted bool) FieldPath { return FieldPath{rest: text, quoted: quoted} }

var (
	errPathEnds  = errors.New("unexpected end of JSON path")
	errNoBracket = errors.New("array notation is not allowed")
)

// Next is the name of the next step. ok is false after the last one. After an error the FieldPath must not be used.
//
// The closing bracket of a step is read only with the step after it, so that the error of a name that does not exist
// takes precedence over that of an unclosed bracket.
func (p *FieldPath) Next() (name string, ok bool, err error) {
	var token string
	if p.open {
		if p.rest == "" {
			return "", false, errPathEnds
		}
		if token = p.token(); token != "]" {
			return "", false, fmt.Errorf("expected ] but got %s", token)
		}
		p.open = false
	}
	if p.rest == "" {
		return "", false, nil
	}
	switch token = p.token(); {
	case token != "." && token != "[":
		return "", false, fmt.Errorf("expected [ or . but got: %s", token)
	case token == "[" && !p.quoted:
		return "", false, errNoBracket
	case p.rest == "":
		return "", false, errPathEnds
	case token == ".":
		return p.token(), true, nil
	}
	p.open = true
	token = p.token()
	if len(token) < 2 || token[0] != '\'' || token[len(token)-1] != '\'' {
		return "", false, fmt.Errorf("expected single quoted string but got %s", token)
	}
	if name, err = unescapeName(token[1 : len(token)-1]); err != nil {
		return "", false, fmt.Errorf("invalid string literal: %w", err)
	}
	return name, true, nil
}

// token cuts the next token off rest, which must not be empty: a delimiter (one of ".[]"), a text including its single
// quotes, or everything before the next delimiter. A quote after a backslash does not end a text, not even if that
// backslash is itself escaped, as in the reference: the text of 'a\\' does not end there. A text that is not terminated
// extends to the end.
func (p *FieldPath) token() string {
	s, end := p.rest, len(p.rest)
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
	p.rest = s[end:]
	return s[:end]
}

// nameEscapes are pairs: the character after the backslash, and the character that the escape stands for. They are the
// escapes of one character in Go and no others: names have no \x or \u.
const nameEscapes = "a\ab\bf\fn\nr\rt\tv\v''\\\\"

// unescapeName resolves the escapes of a quoted name. A backslash at the end of a line or of the name stands for
// itself. If several escapes do not exist, the last one is reported.
func unescapeName(s string) (string, error) {
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
		if k := strings.Index(nameEscapes, escape); k >= 0 && k%2 == 0 {
			out.WriteByte(nameEscapes[k+1])
		} else {
			err = fmt.Errorf("invalid escape char \\%s", escape)
		}
	}
	return out.String(), err
}
