package httpapi

import (
	"strings"
	"unicode/utf8"
)

// Warnings are cut to a part of what proxies let through, as in the reference: whole as long as all of them fit, else
// each to its beginning.
const (
	maxWarnings = 4096 // characters of all
	maxWarning  = 256  // of one, when all are too many
)

// warn adds one Warning header for each text, none twice (VAL-2).
func (x *exchange) warn(texts []string) {
	if len(texts) == 0 {
		return
	}
	seen := make(map[string]bool, len(texts))
	unique := make([]string, 0, len(texts))
	total := 0
	for _, text := range texts {
		if text != "" && !seen[text] {
			seen[text] = true
			unique = append(unique, text)
			total += utf8.RuneCountInString(text)
		}
	}
	header := x.w.Header()
	written := 0
	for _, text := range unique {
		if total > maxWarnings {
			if written >= maxWarnings {
				return
			}
			text = prefix(text, maxWarning)
			written += utf8.RuneCountInString(text)
		}
		if value, ok := warning(text); ok {
			header["Warning"] = append(header["Warning"], value)
		}
	}
}

func prefix(text string, runes int) string {
	for at := range text {
		if runes == 0 {
			return text[:at]
		}
		runes--
	}
	return text
}

// warning is the header of a text: code 299, no agent, a quoted string. Control characters have no place in a header.
func warning(text string) (string, bool) {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", false
	}
	var b strings.Builder
	b.WriteString(`299 - "`)
	for _, r := range text {
		if r == '"' || r == '\\' {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	b.WriteByte('"')
	return b.String(), true
}
