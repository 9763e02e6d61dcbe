// Package gotypes compiles the Go types of k8s.io/api to schemas (schema.Type): their structure by reflection, their
// markers (+optional, +listType and so on) from facts.txt, which is generated from the comments in their sources.
// Nothing is read or compiled before the first request for a type.
package gotypes

import (
	_ "embed"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"plinth/schema"
)

//go:generate go run ./facts

//go:embed facts.txt
var factsText string

var compiler = schema.NewCompiler(facts{})

// Of returns the compiled form of a Go type, always the same pointer for a type.
func Of[T any]() *schema.Type { return compiler.Type(reflect.TypeFor[T]()) }

// Apart returns a compiler of Go types that shares nothing with Of, so that what it compiles can be let go.
func Apart() *schema.Compiler { return schema.NewCompiler(facts{}) }

// OfType is Of for a type that is known only at run time.
func OfType(t reflect.Type) *schema.Type { return compiler.Type(t) }

// facts looks the facts of a type up in the table. They are parsed for each look-up, which compiling a type needs once:
// parsed, the table would take ten times the memory of its text.
type facts struct{}

// packages are the parts of the table, by the path of their package: whole lines, with the end of the line before them.
var packages = sync.OnceValue(func() map[string]string {
	const header = "\npackage "
	parts := map[string]string{}
	_, rest, more := strings.Cut(factsText, header)
	for more {
		part := rest
		if i := strings.Index(rest, header); i >= 0 {
			part, rest = rest[:i+1], rest[i+len(header):]
		} else {
			more = false
		}
		end := strings.IndexByte(part, '\n')
		parts[part[:end]] = part[end:]
	}
	return parts
})

// Of returns the facts of a type, and which of its fields tell empty values apart.
func (facts) Of(goType reflect.Type) (schema.Markers, map[string]schema.Markers) {
	own, fields := find(goType.PkgPath(), goType.Name())
	for _, name := range tellsEmpty[goType.PkgPath()][goType.Name()] {
		if fields == nil {
			fields = map[string]schema.Markers{}
		}
		markers := fields[name]
		markers.TellsEmpty = true
		fields[name] = markers
	}
	return own, fields
}

// find parses the facts of one type; the comment of command facts describes their format.
func find(path, name string) (schema.Markers, map[string]schema.Markers) {
	types := packages()[path]
	_, text, found := strings.Cut(types, "\ntype "+name+"\n")
	var own schema.Markers
	if !found {
		if _, text, found = strings.Cut(types, "\ntype "+name+" "); !found {
			return own, nil
		}
		var markers string
		markers, text, _ = strings.Cut(text, "\n")
		_, own = readMarkers(name + " " + markers)
	}
	text, _, _ = strings.Cut(text, "\ntype ")
	fields := map[string]schema.Markers{}
	last := "" // the field that a line of documentation is about; "": the type
	for line := range strings.SplitSeq(text, "\n") {
		if line, isDoc := strings.CutPrefix(line, "doc "); isDoc {
			if last == "" {
				own.Doc = readDoc(line)
			} else {
				markers := fields[last]
				markers.Doc = readDoc(line)
				fields[last] = markers
			}
			continue
		}
		if line != "" {
			name, markers := readMarkers(line)
			fields[name] = markers
			last = name
		}
	}
	return own, fields
}

func readDoc(line string) string {
	var text string
	if err := json.Unmarshal([]byte(line), &text); err != nil {
		panic("gotypes: " + line + ": " + err.Error()) // the table is part of the program
	}
	return text
}

func readMarkers(line string) (string, schema.Markers) {
	name, rest, _ := strings.Cut(line, " ")
	var m schema.Markers
	for rest != "" {
		if text, ok := strings.CutPrefix(rest, "default="); ok {
			m.Default = text
			break
		}
		if text, ok := strings.CutPrefix(rest, "enum="); ok {
			if err := json.Unmarshal([]byte(text), &m.Enum); err != nil {
				panic("gotypes: " + line + ": " + err.Error()) // the table is part of the program
			}
			break
		}
		var word string
		word, rest, _ = strings.Cut(rest, " ")
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "o":
			m.Optional = true
		case "r":
			m.Required = true
		case "list":
			m.ListType = value
		case "key":
			m.ListKeys = append(m.ListKeys, value)
		case "map":
			m.MapType = value
		}
	}
	return name, m
}
