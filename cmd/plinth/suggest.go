package main

import (
	"fmt"
	"slices"
	"strings"
)

// nearest returns the candidate that was most likely meant by a mistyped word; "" if none is similar.
func nearest(word string, candidates []string) string {
	if len(word) < 2 {
		return ""
	}
	word = strings.ToLower(word)
	best, least := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		d := distance(word, c)
		if strings.HasPrefix(c, word) {
			d = min(d, 1)
		}
		if d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is the number of letters to insert, remove, replace or swap with the next one to make b of a.
func distance(a, b string) int {
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		now[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			now[j+1] = min(last[j+1]+1, now[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				now[j+1] = min(now[j+1], before[j-1]+1)
			}
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}

// didYouMean joins the text of an error about a mistyped word with what to do: with the candidate that was meant, if
// one is similar.
func didYouMean(word string, candidates []string, prefix string) string {
	slices.Sort(candidates)
	if meant := nearest(word, candidates); meant != "" {
		return fmt.Sprintf(": did you mean %s%s? ", prefix, meant)
	}
	return "; "
}
