package schema

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
)

// patterns are the compiled patterns of all schemas of the process. They are kept apart from types, because types are
// compiled and dropped with each change of a definition, and most definitions share a few patterns, such as that of DNS
// labels.
var patterns = patternCache{limit: 8 << 20}

// patternCache caches compiled patterns, up to a bound on their memory. A pattern is compiled when a value is first
// checked against it, and not with its definition: for most definitions in a cluster, objects use only a few of the
// places.
//
// The problem: compiling a pattern for each value takes many times as long as matching. But an unbounded map, which the
// reference has (compileRegexp of kube-openapi), grows with every pattern that was ever in a definition, and a user who
// may update a definition can put a new pattern into it each time. A compiled pattern is up to a thousand times as
// large as its text: a{1000}.
//
// So there are two generations. A look-up moves the pattern into the young one. When the young generation is full, it
// becomes the old one, and the old one is dropped. With room for two patterns in each:
//
//	looked up    a    b      c      a      d
//	young        a    a b    c      c a    d
//	old                      a b    a b    c a
//
// b was not looked up again, and was dropped. An exact LRU would need a list under a lock that each look-up takes; here
// a look-up in the young generation, which is nearly every one, takes a read lock.
//
//	size(young) ≤ limit/2 ∧ size(old) ≤ limit/2
//
// The cached patterns are shared by all goroutines, as a Regexp may be.
type patternCache struct {
	limit int // bytes that both generations may take, as compilePattern estimates them

	mu         sync.RWMutex
	young, old map[string]compiledPattern
	size       int // of young
}

type compiledPattern struct {
	re   *regexp.Regexp
	size int
}

// instruction is the approximate size of one instruction of a compiled pattern in bytes, with the data that the library
// derives from the program to match it.
const instruction = 100

// get is the compiled pattern, or the error of compiling it, which is not cached. A pattern above half the limit is not
// cached either: it would evict all others. No lock is held while a pattern is compiled, so that two callers may
// compile the same one; the second one uses its own and does not cache it.
func (c *patternCache) get(pattern string) (*regexp.Regexp, error) {
	c.mu.RLock()
	known, young := c.young[pattern]
	found := young
	if !young {
		known, found = c.old[pattern]
	}
	c.mu.RUnlock()
	if young {
		return known.re, nil
	}
	if !found {
		var err error
		pattern = strings.Clone(pattern) // strings of a type point into the text of the definition, which would be kept
		if known, err = compilePattern(pattern); err != nil {
			return nil, err
		}
	}
	if known.size > c.limit/2 {
		return known.re, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.young == nil || c.size+known.size > c.limit/2 {
		c.young, c.old, c.size = map[string]compiledPattern{}, c.young, 0
	}
	if _, ok := c.young[pattern]; !ok {
		c.young[pattern] = known
		c.size += known.size
	}
	return known.re, nil
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
