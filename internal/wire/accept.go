package wire

import (
	"strconv"
	"strings"
)

// maxClauses is how many media ranges of an Accept header are read; what follows is passed over.
const maxClauses = 8

// clause is one media range of an Accept header with the parameters that mean something here.
type clause struct {
	kind, sub string // "application", "json"; either may be "*"
	quality   float64
	params    string // what stands behind the first semicolon
}

// clauses is an Accept header taken apart, the most wanted first.
type clauses struct {
	list  [maxClauses]clause
	count int
}

// parse takes a header apart: by quality, and of equals the one that names a type before one with a wildcard. As in the
// reference, a quality of 0 is the least wanted one and no refusal, one that is no number is 1, and what is no media
// range is passed over.
func (cs *clauses) parse(header string) {
	for len(header) > 0 && cs.count < maxClauses {
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
		c := clause{kind: kind, sub: sub, quality: 1, params: params}
		for key, value := range c.eachParam {
			if key != "q" {
				continue
			}
			if q, err := strconv.ParseFloat(value, 64); err == nil && q >= 0 && q <= 1 {
				c.quality = q
			}
		}
		cs.insert(c)
	}
}

// insert keeps the list in order; of equals the earlier one stays in front.
func (cs *clauses) insert(c clause) {
	at := cs.count
	for at > 0 && cs.list[at-1].less(c) {
		cs.list[at] = cs.list[at-1]
		at--
	}
	cs.list[at] = c
	cs.count++
}

// less says whether c is wanted less than d.
func (c clause) less(d clause) bool {
	if c.quality != d.quality {
		return c.quality < d.quality
	}
	return c.wildcards() > d.wildcards()
}

func (c clause) wildcards() int {
	switch {
	case c.kind == "*":
		return 2
	case c.sub == "*":
		return 1
	}
	return 0
}

// eachParam yields the parameters in order.
func (c clause) eachParam(yield func(key, value string) bool) {
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

// names says whether the clause asks for this type of the group "application", parameters aside.
func (c clause) names(sub string) bool {
	return (c.kind == "application" && (c.sub == sub || c.sub == "*")) || (c.kind == "*" && c.sub == "*")
}

// Literal says whether an Accept header names a media type that this package prints, letter by letter, or says */*. The
// reference looks at the header in this way before it negotiates, so that application/* and upper case are refused.
func Literal(accept string) bool {
	if accept == "" {
		return true
	}
	for part := range strings.SplitSeq(accept, ",") {
		name, _, _ := strings.Cut(part, ";")
		switch strings.Trim(name, " ") {
		case "*/*", JSON.String(), YAML.String():
			return true
		}
	}
	return false
}
