package shard

import (
	"errors"
	"fmt"
	"strings"
)

// The grammar, which a recursive descent parser with one token of look-ahead reads:
//
//	or    = unit { "||" unit }
//	unit  = "(" or ")" | name "(" path "," text "," text ")"
//	path  = name { "." name }
//	text  = a string in single or double quotes
//
// Comments begin with // and end with the line.

// maxDepth bounds the nesting of parentheses, and so the recursion.
const maxDepth = 100

// tokenKind is the kind of a token.
type tokenKind uint8

const (
	end tokenKind = iota
	name
	text
	symbol  // ( ) , . ||
	nothing // a character that cannot begin a token, or a string that does not end
)

// token is one token of the expression.
type token struct {
	kind tokenKind
	text string // the text between the quotes, for a string
}

// parser has the next token, and the text after it.
type parser struct {
	rest  string
	token token
	depth int
}

// next reads the next token.
func (p *parser) next() {
	for {
		p.rest = strings.TrimLeft(p.rest, " \t\r\n\f")
		if !strings.HasPrefix(p.rest, "//") {
			break
		}
		_, p.rest, _ = strings.Cut(p.rest, "\n")
	}
	if p.rest == "" {
		p.token = token{kind: end}
		return
	}
	switch c := p.rest[0]; {
	case isLetter(c):
		n := 1
		for n < len(p.rest) && (isLetter(p.rest[n]) || '0' <= p.rest[n] && p.rest[n] <= '9') {
			n++
		}
		p.take(name, n)
	case c == '\'' || c == '"':
		n := strings.IndexByte(p.rest[1:], c)
		if n < 0 || strings.ContainsAny(p.rest[1:1+n], "\\\r\n") {
			p.take(nothing, len(p.rest))
			return
		}
		p.take(text, n+2)
		p.token.text = p.token.text[1 : n+1]
	case strings.HasPrefix(p.rest, "||"):
		p.take(symbol, 2)
	case strings.IndexByte("(),.", c) >= 0:
		p.take(symbol, 1)
	default:
		p.take(nothing, 1)
	}
}

// take makes the first n bytes of the rest the next token.
func (p *parser) take(kind tokenKind, n int) {
	p.token, p.rest = token{kind: kind, text: p.rest[:n]}, p.rest[n:]
}

func isLetter(c byte) bool { return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// is says whether the next token is this symbol; if so, it moves on to the token after it.
func (p *parser) is(text string) bool {
	if p.token.kind != symbol || p.token.text != text {
		return false
	}
	p.next()
	return true
}

// unexpected is the error for the next token where another one is needed.
func (p *parser) unexpected(want string) error {
	if p.token.kind == end {
		return fmt.Errorf("the expression ends where %s is expected", want)
	}
	return fmt.Errorf("%q stands where %s is expected", p.token.text, want)
}

// or parses the rule of this name and returns its calls.
func (p *parser) or() (calls []call, err error) {
	for {
		more, err := p.unit()
		if err != nil {
			return nil, err
		}
		if calls = append(calls, more...); !p.is("||") {
			return calls, nil
		}
	}
}

// unit parses the rule of this name. Parentheses make no difference: || is the only operator.
func (p *parser) unit() ([]call, error) {
	if p.is("(") {
		if p.depth++; p.depth > maxDepth {
			return nil, errors.New("parentheses are nested too deep")
		}
		calls, err := p.or()
		if p.depth--; err == nil && !p.is(")") {
			err = p.unexpected(`"||" or ")"`)
		}
		return calls, err
	}
	function := p.token
	if function.kind != name {
		return nil, p.unexpected("shardRange() or a parenthesis")
	}
	p.next()
	switch {
	case !p.is("("):
		return nil, p.unexpected(`"("`)
	case function.text != "shardRange":
		return nil, fmt.Errorf("unsupported function %q; only shardRange() and || are allowed", function.text)
	}
	c, err := p.arguments()
	return []call{c}, err
}

// arguments parses the arguments of shardRange and the closing parenthesis.
func (p *parser) arguments() (c call, err error) {
	var path []string
	for more := true; more; more = p.is(".") {
		if p.token.kind != name {
			return c, p.unexpected("a field path (e.g. object.metadata.uid)")
		}
		path = append(path, p.token.text)
		p.next()
	}
	switch c.field = Field(strings.Join(path, ".")); c.field {
	case UID, Namespace:
	default:
		return c, fmt.Errorf("unsupported field path %q; supported: %s, %s", c.field, UID, Namespace)
	}
	if c.start, err = p.bound("hexStart"); err != nil {
		return c, err
	}
	if c.end, err = p.bound("hexEnd"); err != nil {
		return c, err
	}
	switch {
	case !p.is(")"):
		return c, p.unexpected(`")"`)
	case c.start.above || !c.end.above && c.start.value >= c.end.value:
		return c, fmt.Errorf("shard range start %s must be less than end %s", c.start.text, c.end.text)
	}
	return c, nil
}

// bound parses a comma and one end of a range.
func (p *parser) bound(which string) (bound, error) {
	if !p.is(",") {
		return bound{}, p.unexpected(`a comma and ` + which)
	}
	if p.token.kind != text {
		return bound{}, p.unexpected(which + ", a string (e.g. '0x0000000000000000')")
	}
	digits := p.token.text
	p.next()
	return parseBound(digits, which)
}
