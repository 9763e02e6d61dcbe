// Package linediff shows the difference of two texts by lines.
package linediff

import "strings"

// Diff shows two texts as one, with - before lines that only the first has and + before those of the second.
func Diff(a, b string) string {
	from, to := strings.Split(a, "\n"), strings.Split(b, "\n")
	// common[i][j] is the length of the longest common subsequence of from[i:] and to[j:].
	common := make([][]int, len(from)+1)
	for i := range common {
		common[i] = make([]int, len(to)+1)
	}
	for i := len(from) - 1; i >= 0; i-- {
		for j := len(to) - 1; j >= 0; j-- {
			if from[i] == to[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out strings.Builder
	for i, j := 0, 0; i < len(from) || j < len(to); {
		switch {
		case i < len(from) && j < len(to) && from[i] == to[j]:
			out.WriteString("  " + from[i] + "\n")
			i, j = i+1, j+1
		case j == len(to) || i < len(from) && common[i+1][j] >= common[i][j+1]:
			out.WriteString("- " + from[i] + "\n")
			i++
		default:
			out.WriteString("+ " + to[j] + "\n")
			j++
		}
	}
	return out.String()
}
