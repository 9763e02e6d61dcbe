package schema

import (
	"io"
	"regexp"
	"regexp/syntax"
	"strings"

	"plinth/internal/recent"
)

// patterns are the compiled patterns of all schemas of the process. They are kept apart from types, because types are
// compiled and dropped with each change of a definition, and most definitions share a few patterns, such as that of DNS
// labels.
var patterns = patternCache{recent.Cache[string, compiledPattern]{Limit: 4 << 20}}

// patternCache caches compiled patterns, up to a bound on their memory. A pattern is compiled when a value is first
// checked against it, and not with its definition: for most definitions in a cluster, objects use only a few of the
// places.
//
// The problem: compiling a pattern for each value takes many times as long as matching. But an unbounded map, which the
// reference has (compileRegexp of kube-openapi), grows with every pattern that was ever in a definition, and a user who
// may update a definition can put a new pattern into it each time. A compiled pattern is up to a thousand times as
// large as its text: a{1000}.
//
// So a pattern weighs what it takes in memory, as compilePattern estimates it. The cached patterns are shared by all
// goroutines, as a Regexp may be.
type patternCache struct {
	known recent.Cache[string, compiledPattern]
}

// compiledPattern is a pattern with the approximate size of its program in bytes.
type compiledPattern struct {
	re   *regexp.Regexp
	size int
}

// instruction is the approximate size of one instruction of a compiled pattern in bytes, with the data that the library
// derives from the program to match it.
const instruction = 100

// get is the compiled pattern, or the error of compiling it, which is not cached. No lock is held while a pattern is
// compiled, so that two callers may compile the same one; each uses its own.
func (c *patternCache) get(pattern string) (compiledPattern, error) {
	if p, ok := c.known.Get(pattern); ok {
		return p, nil
	}
	pattern = strings.Clone(pattern) // strings of a type point into the text of the definition, which would be kept
	p, err := compilePattern(pattern)
	if err != nil {
		return compiledPattern{}, err
	}
	c.known.Set(pattern, p, p.size)
	return p, nil
}

// compilePattern compiles a pattern and estimates its size by the number of instructions of its program. A Regexp does
// not expose that number: hence the second parse. The parser refuses more than 1000 repetitions, nested ones
// multiplied, so that the size is bounded by the length of the text.
func compilePattern(pattern string) (compiledPattern, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return compiledPattern{}, err
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return compiledPattern{}, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return compiledPattern{}, err
	}
	return compiledPattern{re, len(pattern) + instruction*len(program.Inst)}, nil
}

// longMatch is how many steps a match may take before it is made interruptible: a millisecond or two.
const longMatch = 1 << 18

// matches says whether a pattern matches a text. If validation is stopped meanwhile, the result means nothing.
//
// The problem: Go's regular expressions match in time linear in the text, but the factor is the size of the program,
// and a pattern of ten characters has one of a thousand instructions: a{1000}. With an object of a megabyte that takes
// half a minute. The reference answers the request at its deadline, and lets the match go on behind it; here a request
// has no other goroutine. The library offers no way to interrupt a match, but it also reads a text rune by rune: so a
// long match reads from a text that ends when it is to stop.
func (c *checker) matches(p compiledPattern, text string) bool {
	if c.stop == nil || (len(text)+1)*(p.size/instruction) < longMatch {
		return p.re.MatchString(text)
	}
	return !c.asked() && p.re.MatchReader(&stoppable{Reader: strings.NewReader(text), c: c})
}

// stoppable is a text that ends when validation is to stop.
type stoppable struct {
	*strings.Reader
	c     *checker
	runes int
}

// ReadRune asks only now and then: for a small program, a call of stop takes as long as several runes.
func (s *stoppable) ReadRune() (rune, int, error) {
	if s.runes++; s.runes%16 == 0 && s.c.asked() {
		return 0, 0, io.EOF
	}
	return s.Reader.ReadRune()
}
