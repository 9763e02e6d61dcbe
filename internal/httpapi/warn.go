package httpapi

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Warnings are cut to fit through proxies, with the limits of the reference: if all of them together are too long, each
// is cut to its beginning.
const (
	maxWarnings = 4096 // characters of all
	maxWarning  = 256  // of one, when all are too many
)

// warn adds a Warning header for each text, without duplicates (VAL-2). Every answer has them, errors included.
func (rs *requestState) warn(texts []string) {
	if len(texts) == 0 {
		return
	}
	total, shown := 0, 0 // characters: of whole texts, and of their beginnings
	count := func(text string) {
		n := utf8.RuneCountInString(text)
		total += n
		shown += min(n, maxWarning)
	}
	for _, text := range rs.warnings {
		count(text)
	}
	for _, text := range texts {
		if shown >= maxWarnings {
			break // the beginnings alone reach the limit
		}
		if text != "" && !slices.Contains(rs.warnings, text) {
			rs.warnings = append(rs.warnings, text)
			count(text)
		}
	}
	values := make([]string, 0, len(rs.warnings))
	for _, text := range rs.warnings {
		if total > maxWarnings {
			text = prefix(text, maxWarning)
		}
		if value, ok := warning(text); ok {
			values = append(values, value)
		}
	}
	if len(values) > 0 {
		rs.w.Header()["Warning"] = values
	}
}

// unwarn removes all warnings, for an answer that the reference gives before it has found any.
func (rs *requestState) unwarn() {
	rs.warnings = nil
	delete(rs.w.Header(), "Warning")
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

// warning formats a text as a header: code 299, no agent, a quoted string. It returns false for a text with control
// characters, which a header must not contain, or with invalid UTF-8.
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
