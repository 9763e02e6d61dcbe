package wire

import (
	"slices"
	"strconv"
	"strings"

	"plinth/internal/apierr"
)

// maxClauses is how many media ranges of an Accept header are read; further ones are ignored.
const maxClauses = 8

// Clause is one media range of an Accept header.
type Clause struct {
	kind, sub string // "application", "json"; either may be "*"
	quality   float64
	params    string // the text after the first semicolon
}

// Accept is a parsed Accept header: its clauses by quality, the highest first.
type Accept struct {
	list  [maxClauses]Clause
	count int
}

// ParseAccept parses a header. An empty one accepts every media type.
func ParseAccept(header string) *Accept {
	if header == "" {
		header = "*/*"
	}
	a := &Accept{}
	a.parse(header)
	return a
}

// Clauses returns the clauses in order.
func (a *Accept) Clauses() []Clause { return a.list[:a.count] }

// parse parses a header. Clauses are ordered by quality; with equal quality, those without wildcards come first. As in
// the reference, a quality of 0 is the lowest one and does not refuse, an invalid one is 1, and text that is not a
// media range is ignored.
func (a *Accept) parse(header string) {
	for len(header) > 0 && a.count < maxClauses {
		var part string
		part, header, _ = strings.Cut(header, ",")
		name, params, _ := strings.Cut(part, ";")
		kind, sub, ok := strings.Cut(strings.TrimSpace(name), "/")
		if !ok && kind == "*" {
			sub, ok = "*", true
		}
		if !ok || kind == "" || sub == "" {
			continue
		}
		c := Clause{kind: kind, sub: sub, quality: 1, params: params}
		for key, value := range c.eachParam {
			if key != "q" {
				continue
			}
			if q, err := strconv.ParseFloat(value, 64); err == nil && q >= 0 && q <= 1 {
				c.quality = q
			}
		}
		a.insert(c)
	}
}

// insert keeps the list in order; among equals, the earlier one stays in front.
func (a *Accept) insert(c Clause) {
	at := a.count
	for at > 0 && a.list[at-1].less(c) {
		a.list[at] = a.list[at-1]
		at--
	}
	a.list[at] = c
	a.count++
}

// less says whether c is ordered after d.
func (c Clause) less(d Clause) bool {
	if c.quality != d.quality {
		return c.quality < d.quality
	}
	return c.wildcards() > d.wildcards()
}

func (c Clause) wildcards() int {
	switch {
	case c.kind == "*":
		return 2
	case c.sub == "*":
		return 1
	}
	return 0
}

// Param returns a parameter of the clause; "" if it has none of this name. If it is repeated, the last one counts.
func (c Clause) Param(name string) (found string) {
	for key, value := range c.eachParam {
		if key == name {
			found = value
		}
	}
	return found
}

// eachParam yields the parameters in order.
func (c Clause) eachParam(yield func(key, value string) bool) {
	rest := c.params
	for len(rest) > 0 {
		var param string
		param, rest, _ = strings.Cut(rest, ";")
		key, value, _ := strings.Cut(param, "=")
		if key = strings.TrimSpace(key); key != "" && !yield(key, strings.TrimSpace(value)) {
			return
		}
	}
}

// Names says whether the clause names this media type, parameters aside.
func (c Clause) Names(mediaType string) bool {
	kind, sub, _ := strings.Cut(mediaType, "/")
	return (c.kind == kind && (c.sub == sub || c.sub == "*")) || (c.kind == "*" && c.sub == "*")
}

// Literal says whether an Accept header contains one of these media types verbatim, or */*. The reference checks the
// header in this way before it negotiates, so that application/* and upper case are refused there.
func Literal(accept string, mediaTypes ...string) bool {
	if accept == "" {
		return true
	}
	for part := range strings.SplitSeq(accept, ",") {
		name, _, _ := strings.Cut(part, ";")
		name = strings.Trim(name, " ")
		if name == "*/*" || slices.Contains(mediaTypes, name) {
			return true
		}
	}
	return false
}

// NotLiteral returns the error for a header for which Literal is false, with the text of the reference.
func NotLiteral(mediaTypes ...string) *apierr.Error {
	return &apierr.Error{
		Code: 406, Reason: apierr.NotAcceptable, Details: &apierr.Details{},
		Message: "406: Not Acceptable\n\nAvailable representations: " + strings.Join(mediaTypes, ", "),
	}
}
