//go:build mutants

package validation

import (
	"fmt"
	"go/scanner"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plinth/internal/builtin/validation/validationtest"
	"plinth/internal/mutants"
)

// explorer is a mutator that also uses the texts and numbers in the rules, and the values that error messages name as
// allowed.
type explorer struct {
	*mutator
	texts   []string
	numbers []int
	// near holds the texts in the rules that the case to be changed has reached.
	near []string
	// hints holds values that error messages name, by path.
	hints map[string][]any
}

func newExplorer(docs []map[string]any) *explorer {
	x := &explorer{mutator: newMutator(docs), hints: map[string][]any{}}
	files, _ := filepath.Glob("../../../internal/builtin/validation/*.go") // the pattern is valid
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || strings.HasSuffix(file, "_test.go") {
			continue
		}
		var s scanner.Scanner
		set := token.NewFileSet()
		s.Init(set.AddFile(file, -1, len(text)), text, nil, 0)
		for {
			_, tok, literal := s.Scan()
			if tok == token.EOF {
				break
			}
			switch tok {
			case token.STRING:
				if value, err := strconv.Unquote(literal); err == nil && len(value) < 40 && !strings.Contains(value, " ") &&
					!strings.Contains(value, "%") && !slices.Contains(x.texts, value) {
					x.texts = append(x.texts, value)
				}
			case token.INT:
				if n, err := strconv.ParseInt(literal, 0, 64); err == nil && !slices.Contains(x.numbers, int(n)) {
					x.numbers = append(x.numbers, int(n))
				}
			}
		}
	}
	return x
}

// choose returns the case to be changed next: every second time one of the latest, otherwise any.
func (x *explorer) choose(from []*prepared, seed uint64) *validationtest.Case {
	x.rng = rand.New(rand.NewPCG(seed, 0xc0de))
	p := pick(x.mutator, from)
	if n := len(from); n > 20 && x.rng.IntN(2) == 0 {
		p = from[n-1-x.rng.IntN(20)]
	}
	x.near = x.near[:0]
	for _, n := range p.Reached() {
		if s, ok := textOf(mutants.Names[n-1]); ok {
			x.near = append(x.near, s)
		}
	}
	return p.Case
}

// textOf returns the text that a mutant replaces. The result is false if that text is a message.
func textOf(mutant string) (string, bool) {
	_, source, ok := strings.Cut(mutant, ": ")
	literal, _, isText := strings.Cut(source, " → another text")
	if !ok || !isText {
		return "", false
	}
	s, err := strconv.Unquote(literal)
	return s, err == nil && !strings.ContainsAny(s, " %")
}

var (
	quoted  = regexp.MustCompile(`"([^"]*)"`)
	digits  = regexp.MustCompile(`\b\d{1,9}\b`)
	indexed = regexp.MustCompile(`\[\d+\]`)
)

// learn records the values that error messages name: supported values and bounds.
func (x *explorer) learn(says []string) {
	for _, s := range says {
		head, message, ok := strings.Cut(s, ": ")
		_, field, isField := strings.Cut(head, " ")
		if !ok || !isField {
			continue
		}
		path := "." + indexed.ReplaceAllString(field, ".#")
		if len(x.hints[path]) > 40 {
			continue
		}
		note := func(v any) {
			if !slices.Contains(x.hints[path], v) {
				x.hints[path] = append(x.hints[path], v)
			}
		}
		if _, supported, ok := strings.Cut(message, "supported values: "); ok {
			for _, match := range quoted.FindAllStringSubmatch(supported, -1) {
				note(match[1])
			}
			continue
		}
		if _, reason, ok := strings.Cut(message, ": "); ok {
			message = reason
		}
		for _, number := range digits.FindAllString(message, -1) {
			if n, err := strconv.Atoi(number); err == nil && n > 1 {
				note(float64(n))
			}
		}
	}
}

// variant returns a document with a few changes below a path.
func (x *explorer) variant(seed uint64, doc map[string]any, below string) map[string]any {
	x.rng = rand.New(rand.NewPCG(seed, 0x7a12))
	out := clone(doc).(map[string]any)
	if member := strings.TrimPrefix(below, "."); below != "" && len(x.at[below]) > 0 && out[member] == nil {
		out[member] = clone(pick(x.mutator, x.at[below]))
	}
	for range 1 + x.rng.IntN(3) {
		if metadata, ok := out["metadata"].(map[string]any); ok {
			delete(metadata, "managedFields") // which the server makes
		}
		all := slots(out)
		if below != "" {
			all = slices.DeleteFunc(all, func(s slot) bool { return !strings.HasPrefix(s.path, below) })
		}
		if below == "" && x.rng.IntN(4) > 0 { // few rules concern metadata
			all = slices.DeleteFunc(all, func(s slot) bool { return strings.HasPrefix(s.path, ".metadata") })
		}
		if len(all) == 0 {
			return out
		}
		x.change(all[x.rng.IntN(len(all))])
	}
	return out
}

func (x *explorer) change(s slot) {
	switch roll := x.rng.IntN(12); {
	case roll < 3 && len(x.hints[s.path]) > 0:
		x.hint(s)
	case roll < 6 && x.special(s):
	case roll < 7 && x.swap(s):
	case roll < 8 && x.many(s):
	default:
		x.mutator.change(s)
	}
}

// hint uses a value that an error message has named for this path: it sets it, or makes a number or length near it.
func (x *explorer) hint(s slot) {
	hint := pick(x.mutator, x.hints[s.path])
	n, isNumber := hint.(float64)
	if !isNumber {
		s.set(hint)
		return
	}
	switch v := s.get().(type) {
	case float64:
		s.set(n + float64(x.rng.IntN(3)-1))
	case string:
		if n < 70_000 {
			s.set(strings.Repeat("a", int(n)+x.rng.IntN(3)-1))
		}
	case []any:
		x.fill(s, v, int(n)+x.rng.IntN(2))
	}
}

// special sets a text or a number from the rules.
func (x *explorer) special(s slot) bool {
	switch s.get().(type) {
	case string:
		if x.rng.IntN(6) == 0 {
			s.set(strings.Repeat("a", min(2000, pick(x.mutator, x.numbers)+x.rng.IntN(2))))
		} else if len(x.near) > 0 && x.rng.IntN(4) > 0 {
			s.set(pick(x.mutator, x.near))
		} else {
			s.set(pick(x.mutator, x.texts))
		}
	case float64:
		s.set(float64(pick(x.mutator, x.numbers) + x.rng.IntN(3) - 1))
	default:
		return false
	}
	return true
}

// swap replaces a member by another, for unions, of whose members exactly one is set.
func (x *explorer) swap(s slot) bool {
	into, ok := s.get().(map[string]any)
	members := x.members[s.path]
	if !ok || len(into) == 0 || len(members) == 0 {
		return false
	}
	var keys []string
	for key := range into {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	delete(into, pick(x.mutator, keys))
	key := pick(x.mutator, members)
	into[key] = clone(pick(x.mutator, x.at[s.path+"."+key]))
	return true
}

// many makes a list long.
func (x *explorer) many(s slot) bool {
	list, ok := s.get().([]any)
	return ok && x.fill(s, list, pick(x.mutator, x.numbers)+x.rng.IntN(2))
}

func (x *explorer) fill(s slot, list []any, n int) bool {
	if len(list) == 0 || n < 12 || n > 600 {
		return false
	}
	out := make([]any, n)
	for i := range out {
		switch item := clone(list[0]).(type) {
		case string:
			out[i] = fmt.Sprint("a", i)
		case map[string]any:
			for _, key := range []string{"name", "key", "type", "ip", "uid"} {
				if _, ok := item[key].(string); ok {
					item[key] = fmt.Sprint("a", i)
					break
				}
			}
			out[i] = item
		default:
			out[i] = item
		}
	}
	s.set(out)
	return true
}
