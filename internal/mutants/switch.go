package mutants

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
)

// Active is the mutant that is on; 0: no mutant.
var Active, _ = strconv.Atoi(os.Getenv("PLINTH_MUTANT"))

// again are the functions that repeat the initialization of variables, by its order in the program.
var again = map[int]func(){}

// Again registers a function that repeats the initialization of variables.
func Again(order int, make func()) { again[order] = make }

// Set turns a mutant on while the program runs, in the values of variables as well; 0 turns all off. What the program
// has computed from the variables meanwhile stays as it is.
func Set(n int) {
	Active = n
	for _, order := range slices.Sorted(maps.Keys(again)) {
		again[order]()
	}
}

// Budget is the number of mutants that may still be reached before the program panics, 0 for any number: a mutant may
// loop forever.
var Budget int

// Reach is called with each mutant that is reached, if it is not nil. With PLINTH_MUTANTS_REACHED it writes them to
// that file, a line each.
var Reach = func() func(int) {
	path := os.Getenv("PLINTH_MUTANTS_REACHED")
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	seen := map[int]bool{}
	return func(n int) {
		mu.Lock()
		defer mu.Unlock()
		if !seen[n] {
			seen[n] = true
			fmt.Fprintln(file, n)
		}
	}
}()

func on(n int) bool {
	if Reach != nil {
		Reach(n)
	}
	if Budget > 0 {
		if Budget--; Budget == 0 {
			panic("a mutant takes too long")
		}
	}
	return n == Active
}

// Keep says whether a statement is kept.
func Keep(n int) bool { return !on(n) }

// Bool is v, unless the mutant that makes it true or the one that makes it false is on; 0 is no mutant. A mutant is
// reached only if it changes the value.
func Bool(toTrue, toFalse int, v bool) bool {
	if v {
		return toFalse == 0 || !on(toFalse)
	}
	return toTrue > 0 && on(toTrue)
}

// Not is v or its opposite.
func Not(n int, v bool) bool { return v != on(n) }

// LT is a < b, or off by one.
func LT[T cmp.Ordered](n int, a, b T) bool { return a < b || a == b && on(n) }

// LE is a <= b, or off by one.
func LE[T cmp.Ordered](n int, a, b T) bool { return a < b || a == b && !on(n) }

// GT is a > b, or off by one.
func GT[T cmp.Ordered](n int, a, b T) bool { return a > b || a == b && on(n) }

// GE is a >= b, or off by one.
func GE[T cmp.Ordered](n int, a, b T) bool { return a > b || a == b && !on(n) }

// Text is s or another text.
func Text[T ~string](n int, s T) T {
	if on(n) {
		return s + "~mutant"
	}
	return s
}

type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Number is v or the next one.
func Number[T integer](n int, v T) T {
	if on(n) {
		return v + 1
	}
	return v
}

// Zero is v or the zero value.
func Zero[T any](n int, v T) T {
	if on(n) {
		var zero T
		return zero
	}
	return v
}

// Rows are all rows but the one whose mutant is on; the first row's is first.
func Rows[S ~[]T, T any](first int, rows S) S {
	for i := range rows {
		if on(first + i) {
			return append(append(S{}, rows[:i]...), rows[i+1:]...)
		}
	}
	return rows
}
