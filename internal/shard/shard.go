// Package shard parses and evaluates shard selectors (KEP-5866): the shardSelector parameter of lists and watches,
// with which several clients divide a collection among themselves. An object belongs to a shard when the hash of one
// of its fields lies in one of the ranges of the shard.
//
//	shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') || shardRange(…)
//
// A Selector is such an expression, parsed. A range includes its start and excludes its end, which may be 2^64.
//
// Caveat. The reference parses the expression as CEL, and then refuses all but the form above; here that form is the
// whole grammar. So strings with escapes, prefixes or triple quotes, which CEL accepts, are refused: no hexadecimal
// number needs them.
package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"plinth/internal/invariants"
)

// Field is the field of an object whose hash decides.
type Field string

// The fields that can be hashed.
const (
	UID       Field = "object.metadata.uid"
	Namespace Field = "object.metadata.namespace"
)

// Selector is the set of hashes of a shard. The zero value and nil stand for all hashes. It is not changed after
// Parse.
//
//	ranges[i].first ≤ ranges[i].last < ranges[i+1].first
//
// so that a hash is found by binary search: a client may send thousands of ranges, and each object of a list is
// compared with them. Evaluating the expression for each object would take time in the product of both.
type Selector struct {
	field  Field
	ranges []hashes
	text   string
}

// hashes is a range that includes both ends: an exclusive end of 2^64 is not a uint64.
type hashes struct{ first, last uint64 }

// Parse parses a selector. The errors are those of the reference, for the form above.
func Parse(text string) (*Selector, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, fmt.Errorf("empty shard selector is not allowed; omit the parameter for unfiltered lists")
	}
	p := &parser{rest: text}
	p.next()
	calls, err := p.or()
	switch {
	case err != nil:
		return nil, err
	case p.token.kind != end:
		return nil, p.unexpected("the end of the expression")
	}
	s := &Selector{field: calls[0].field}
	printed := make([]string, 0, len(calls))
	for _, c := range calls {
		if c.field != s.field {
			return nil, fmt.Errorf("all shard ranges must use the same field, got %q and %q", s.field, c.field)
		}
		// Start < end: 2^64 is represented by 0, and 0-1 is the last hash.
		s.ranges = append(s.ranges, hashes{first: c.start.value, last: c.end.value - 1})
		printed = append(printed, fmt.Sprintf("shardRange(%s, '%s', '%s')", c.field, c.start.text, c.end.text))
	}
	s.text = strings.Join(printed, " || ")
	s.ranges = join(s.ranges)
	for i, r := range s.ranges {
		if invariants.Enabled && (r.first > r.last || i > 0 && s.ranges[i-1].last >= r.first) {
			invariants.Fail("shard: range %d of %s is not behind the one before it", i, text)
		}
	}
	return s, nil
}

// join sorts ranges, and merges those that overlap. Adjacent ranges are not merged: a search finds the right one either
// way.
func join(ranges []hashes) []hashes {
	slices.SortFunc(ranges, func(a, b hashes) int { return cmp.Compare(a.first, b.first) })
	joined := ranges[:1]
	for _, r := range ranges[1:] {
		if top := &joined[len(joined)-1]; r.first <= top.last {
			top.last = max(top.last, r.last)
		} else {
			joined = append(joined, r)
		}
	}
	return joined
}

// Empty says whether the selector selects all objects.
func (s *Selector) Empty() bool { return s == nil || len(s.ranges) == 0 }

// String returns the selector as a list repeats it in its metadata.
func (s *Selector) String() string {
	if s == nil {
		return ""
	}
	return s.text
}

// Matches says whether an object is in the shard.
func (s *Selector) Matches(uid, namespace string) bool {
	if s.Empty() {
		return true
	}
	value := uid
	if s.field == Namespace {
		value = namespace
	}
	h := hash(value)
	_, found := slices.BinarySearchFunc(s.ranges, h, func(r hashes, h uint64) int {
		switch {
		case r.last < h:
			return -1
		case r.first > h:
			return 1
		}
		return 0
	})
	return found
}

// hash is FNV-1a of 64 bits, as in the reference: clients choose the ranges by it. That of hash/fnv allocates.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// call is one shardRange(…).
type call struct {
	field      Field
	start, end bound
}

// bound is one end of a range: 16 hexadecimal digits, or 2^64.
type bound struct {
	text  string
	value uint64 // 0 for 2^64
	above bool   // it is 2^64
}

// parseBound parses one end of a range; name is what errors call it. All values have 16 digits, so that they order as
// texts do; 2^64 has 17.
func parseBound(text, name string) (b bound, err error) {
	digits, ok := strings.CutPrefix(text, "0x")
	switch {
	case !ok:
		return b, fmt.Errorf("%s must have '0x' prefix, got %q", name, text)
	case digits == "":
		return b, fmt.Errorf("%s: hex value is required after '0x'", name)
	case len(digits) > 17:
		return b, fmt.Errorf("%s: hex value too long (%d chars, max 17): %q", name, len(digits), digits)
	}
	for _, c := range digits {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return b, fmt.Errorf("%s: invalid hex character %q in %q", name, string(c), text)
		}
	}
	switch {
	case len(digits) == 17 && digits != "10000000000000000":
		return b, fmt.Errorf("%s: 17-digit hex value must be '0x10000000000000000' (2^64), got %q", name, text)
	case len(digits) == 17:
		return bound{text: text, above: true}, nil
	case len(digits) < 16:
		return b, fmt.Errorf("%s must be a 0x-prefixed 16-digit hex value, got %q (did you mean %q?)",
			name, text, "0x"+strings.Repeat("0", 16-len(digits))+digits)
	}
	value, err := strconv.ParseUint(digits, 16, 64)
	return bound{text: text, value: value}, err
}
