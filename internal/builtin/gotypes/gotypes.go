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

var compiler = schema.NewCompiler(&table{packages: map[string]map[string]typeFacts{}})

// Of returns the compiled form of a Go type, always the same pointer for a type.
func Of[T any]() *schema.Type { return compiler.Type(reflect.TypeFor[T]()) }

// OfType is Of for a type that is known only at run time.
func OfType(t reflect.Type) *schema.Type { return compiler.Type(t) }

// table has the facts by package path and type name. Those of a package are read when one of its types is first
// compiled.
type table struct {
	mu       sync.Mutex
	packages map[string]map[string]typeFacts
}

type typeFacts struct {
	own    schema.Markers
	fields map[string]schema.Markers
}

// Of returns the facts of a type.
func (t *table) Of(goType reflect.Type) (schema.Markers, map[string]schema.Markers) {
	t.mu.Lock()
	defer t.mu.Unlock()
	path := goType.PkgPath()
	types, read := t.packages[path]
	if !read {
		types = readPackage(path)
		t.packages[path] = types
	}
	facts := types[goType.Name()]
	return facts.own, facts.fields
}

// readPackage parses the section of one package; the comment of command facts describes the format.
func readPackage(path string) map[string]typeFacts {
	_, section, found := strings.Cut(factsText, "\npackage "+path+"\n")
	if !found {
		return nil
	}
	section, _, _ = strings.Cut(section, "\npackage ")
	types := map[string]typeFacts{}
	var fields map[string]schema.Markers
	typeName, fieldName := "", ""
	for line := range strings.SplitSeq(section, "\n") {
		if line, isType := strings.CutPrefix(line, "type "); isType {
			name, markers := readMarkers(line)
			fields = map[string]schema.Markers{}
			types[name] = typeFacts{own: markers, fields: fields}
			typeName, fieldName = name, ""
			continue
		}
		if line, isDoc := strings.CutPrefix(line, "doc "); isDoc {
			facts := types[typeName]
			if fieldName == "" {
				facts.own.Doc = readDoc(line)
				types[typeName] = facts
			} else {
				markers := fields[fieldName]
				markers.Doc = readDoc(line)
				fields[fieldName] = markers
			}
			continue
		}
		if line != "" {
			name, markers := readMarkers(line)
			fields[name] = markers
			fieldName = name
		}
	}
	return types
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
