package requests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// names replaces values that differ in every run by names in the order of appearance, so that equal values stay equal.
type names struct {
	of    map[string]string // "kind value" → name
	n     map[string]int
	taken map[string]bool
	// literal holds the uids and addresses that are in the script itself. (Addresses that the server allocates are never
	// among them: scripts use the lowest of a range, which are allocated last.)
	literal map[string]bool
	replace func(string) string // of a script with webhooks
	mark    string              // added to new names, so that they differ from recorded ones that are reused
}

func newNames() *names {
	return &names{of: map[string]string{}, n: map[string]int{}, taken: map[string]bool{}, literal: map[string]bool{},
		replace: func(s string) string { return s }}
}

func (n *names) name(kind, value string) string {
	key := kind + " " + value
	if name, ok := n.of[key]; ok {
		return name
	}
	n.n[kind]++
	n.of[key] = fmt.Sprintf("<%s%s%d>", kind, n.mark, n.n[kind])
	return n.of[key]
}

var (
	uuid      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	clock     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	number    = regexp.MustCompile(`^\d+$`)
	clusterIP = regexp.MustCompile(`\b10\.0\.\d{1,3}\.\d{1,3}\b|\bfd00:10::[0-9a-f:]*[0-9a-f]\b`)
	current   = regexp.MustCompile(`(current: |ResourceVersion in record \()\d+`)

	// An object as text, in the messages of patches also with its quotes escaped.
	revisions     = regexp.MustCompile(`(resourceVersion\\*"?: ?\\*")\d+`)
	managedInJSON = regexp.MustCompile(`,\s*\\*"managedFields\\*":\s*\[`)
	managedInYAML = regexp.MustCompile(
		`(?m)^ *managedFields:\n(?:^ *(?:- | ).*\n)*?^( *)(name|namespace|ownerReferences|resourceVersion):`)
)

var uidName = regexp.MustCompile(`<uid\??\d+>`)

// recordedName matches the name that replaces a uid or a resourceVersion in a record.
var recordedName = regexp.MustCompile(`^<(uid|rv)\d+>$`)

// bind gives the values of a response the names that are at the same places of the recorded response, unless the value
// or the name is bound already. Otherwise one response with a difference would change the numbers in all responses
// after it.
func (n *names) bind(raw, record any) {
	n.mark = "?"
	switch record := record.(type) {
	case map[string]any:
		raw, _ := raw.(map[string]any)
		for _, key := range sortedKeys(record) {
			value, ok := raw[key]
			if !ok {
				continue
			}
			last := key[strings.LastIndexByte(key, '.')+1:] // the last part, if the keys are kept paths
			if name, ok := record[key].(string); ok {
				if last == "resourceVersion" {
					n.take("rv", value, name)
				} else {
					n.takeUIDs(value, name)
				}
				continue
			}
			n.bind(value, record[key])
		}
	case []any:
		raw, _ := raw.([]any)
		for i := range min(len(raw), len(record)) {
			n.bind(raw[i], record[i])
		}
	}
}

// takeUIDs binds the uids in a text, which may be a uid or a message.
func (n *names) takeUIDs(value any, recorded string) {
	text, _ := value.(string)
	ids, as := uuid.FindAllString(text, -1), uidName.FindAllString(recorded, -1)
	for i := range min(len(ids), len(as)) {
		n.take("uid", ids[i], as[i])
	}
}

func (n *names) take(kind string, value any, name string) {
	text, ok := value.(string)
	m := recordedName.FindStringSubmatch(name)
	if !ok || m == nil || m[1] != kind || kind == "uid" && uuid.FindString(text) != text {
		return
	}
	key := kind + " " + text
	// A name that was made up here may be replaced: no record has shown the value yet.
	if bound := n.of[key]; bound != "" && !strings.Contains(bound, "?") || n.taken[name] {
		return
	}
	n.of[key], n.taken[name] = name, true
}

// withoutManagedFields removes managedFields from a text and leaves the rest as it is.
func withoutManagedFields(text string) string {
	for {
		at := managedInJSON.FindStringIndex(text)
		if at == nil {
			return text
		}
		end, open := at[1], 1
		for ; end < len(text) && open > 0; end++ {
			switch text[end] {
			case '[':
				open++
			case ']':
				open--
			}
		}
		text = text[:at[0]] + text[end:]
	}
}

// youngAge matches the cell of a Table with the age of an object that the script has just created.
var youngAge = regexp.MustCompile(`^[0-9]{1,2}s$`)

// longString is the length above which a string is shortened: messages repeat the request, which may have megabytes.
const longString = 600

func (n *names) text(s string) string {
	s = n.replace(s)
	s = revisions.ReplaceAllString(withoutManagedFields(s), "${1}<rv>")
	s = uuid.ReplaceAllStringFunc(s, func(id string) string {
		if n.literal[id] {
			return id
		}
		return n.name("uid", id)
	})
	s = clock.ReplaceAllStringFunc(s, func(at string) string {
		t, err := time.Parse(time.RFC3339Nano, at)
		if err != nil || time.Since(t).Abs() > 24*time.Hour {
			return at
		}
		if strings.Contains(at, ".") {
			return "<microtime>"
		}
		return "<time>"
	})
	s = clusterIP.ReplaceAllStringFunc(s, func(ip string) string {
		switch {
		case n.literal[ip]:
			return ip
		case strings.Contains(ip, ":"):
			return "<clusterIPv6>"
		}
		return "<clusterIP>"
	})
	s = current.ReplaceAllString(s, "${1}<now>")
	return s
}

// short cuts a long string in the middle. Its length is left out, as it depends on the number of digits of
// resourceVersions.
func short(s string) string {
	if len(s) <= longString {
		return s
	}
	return strings.ToValidUTF8(s[:80], "") + " … " + strings.ToValidUTF8(s[len(s)-40:], "")
}

// value normalises a JSON value. path leads to it.
func (n *names) value(v any, path []string) any {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			v[key] = n.member(v, key, path)
		}
		return v
	case []any:
		for i := range v {
			v[i] = n.value(v[i], path)
		}
		return v
	case string:
		return short(n.text(v))
	}
	return v
}

// managers formats managedFields without times, one line for each entry, in the order of the lines: their own order is
// that of their times, and two writes may be in one second or in two.
func managers(managed any) any {
	entries, ok := managed.([]any)
	if !ok {
		return managed
	}
	lines := make([]string, len(entries))
	for i, entry := range entries {
		e, _ := entry.(map[string]any)
		fields, err := json.Marshal(e["fieldsV1"])
		if err != nil {
			return managed
		}
		line := fmt.Sprint(e["manager"], " ", e["operation"], " ", e["apiVersion"], " ")
		if sub, ok := e["subresource"]; ok {
			line += fmt.Sprint("/", sub, " ")
		}
		lines[i] = line + string(fields)
	}
	slices.Sort(lines)
	sorted := make([]any, len(lines))
	for i, line := range lines {
		sorted[i] = line
	}
	return sorted
}

func (n *names) member(in map[string]any, key string, path []string) any {
	value, inMetadata := in[key], len(path) > 0 && path[len(path)-1] == "metadata"
	switch {
	case inMetadata && key == "managedFields":
		return managers(value)
	case inMetadata && key == "resourceVersion":
		rv, _ := value.(string)
		if rv == "0" || !number.MatchString(rv) {
			return value
		}
		if _, single := in["uid"]; !single {
			return "<revision>" // of a list or a bookmark: the server's current revision
		}
		return n.name("rv", rv)
	case key == "resourceVersion" && len(path) > 0 && path[len(path)-1] == "objectRef": // in an audit event
		if rv, _ := value.(string); rv != "" && rv != "0" {
			return n.name("rv", rv)
		}
	case inMetadata && key == "continue" && value != "":
		return "<continue>"
	case inMetadata && key == "name" && in["generateName"] != nil:
		prefix, _ := in["generateName"].(string)
		prefix = prefix[:min(len(prefix), 58)] // so that the whole is a DNS label
		if name, ok := value.(string); ok && strings.HasPrefix(name, prefix) && len(name) == len(prefix)+5 {
			return prefix + "<5 random>"
		}
	case key == "cells":
		if cells, ok := value.([]any); ok {
			for i := range cells {
				if text, ok := cells[i].(string); ok && youngAge.MatchString(text) {
					cells[i] = "<age>"
				}
			}
		}
	case key == "nodePort" || key == "healthCheckNodePort":
		if port, ok := value.(json.Number); ok && port != "0" {
			return "<nodePort>"
		}
	}
	return n.value(value, append(slices.Clone(path), key))
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// documents decodes a body: one JSON document, several as in a watch, YAML, or protobuf. ok is false if it is anything
// else.
func documents(contentType string, body []byte) (docs []any, ok bool) {
	if strings.Contains(contentType, "protobuf") {
		converted, err := protobufJSON(body)
		if err != nil {
			return nil, false
		}
		body = converted
	}
	if strings.Contains(contentType, "yaml") {
		converted, err := yaml.YAMLToJSON(body)
		if err != nil {
			return nil, false
		}
		body = converted
	} else if !strings.Contains(contentType, "json") && !strings.Contains(contentType, "protobuf") &&
		!bytes.HasPrefix(body, []byte("{")) {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	for {
		var doc any
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return docs, len(docs) > 0
		case err != nil:
			return nil, false
		}
		docs = append(docs, doc)
	}
}

// printValue formats a value for reading: indented, with short values on one line.
func printValue(v any) string {
	var out bytes.Buffer
	printInto(&out, v, "")
	return out.String()
}

const lineWidth = 110

func printInto(out *bytes.Buffer, v any, indent string) {
	if flat := flatten(v); len(flat)+len(indent) <= lineWidth {
		out.WriteString(flat)
		return
	}
	switch v := v.(type) {
	case map[string]any:
		out.WriteString("{\n")
		for i, key := range sortedKeys(v) {
			if i > 0 {
				out.WriteString(",\n")
			}
			out.WriteString(indent + "  " + flatten(key) + ": ")
			printInto(out, v[key], indent+"  ")
		}
		out.WriteString("\n" + indent + "}")
	case []any:
		out.WriteString("[\n")
		for i := range v {
			if i > 0 {
				out.WriteString(",\n")
			}
			out.WriteString(indent + "  ")
			printInto(out, v[i], indent+"  ")
		}
		out.WriteString("\n" + indent + "]")
	default:
		out.WriteString(flatten(v))
	}
}

func flatten(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for _, key := range sortedKeys(v) {
			parts = append(parts, flatten(key)+": "+flatten(v[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, item := range v {
			parts = append(parts, flatten(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err.Error() // impossible, as the value came from JSON
	}
	return strings.TrimRight(out.String(), "\n")
}
