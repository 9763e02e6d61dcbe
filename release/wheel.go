package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// record is the file of a wheel that lists all files with their sums.
func record(at string, all []entry) entry {
	var lines strings.Builder
	for _, e := range all {
		sum := sha256.Sum256(e.body)
		fmt.Fprintf(&lines, "%s,sha256=%s,%d\n", e.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(e.body))
	}
	fmt.Fprintf(&lines, "%s,,\n", at)
	return text(at, []byte(lines.String()))
}
