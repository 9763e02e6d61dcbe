// Package validationtest reads the tables of test cases of package validation.
//
// A table is a text file. A case begins with a line that names the verb and the object; indented lines below it first
// change the object and then list its errors, or "ok" if it is valid:
//
//	update Pod/web
//	    was spec.nodeName: null
//	    set spec.containers[0].image: " "
//	    FieldValueInvalid spec.containers[0].image: Invalid value: " ": must not have leading or trailing whitespace
//
// "was" changes the document before the request, "set" the object that is written: the changed document on create,
// else the object as it was created and stored. The value is YAML on one line; null removes a member. An index that is
// the length of the list appends to it. <a*253> means a repeated 253 times, and <"a#",*3> means "a0","a1","a2",. The
// objects are the YAML documents beside the tables. A line that begins with # is a comment.
//
// A line "gates A=true,B=false" before the changes turns feature gates on and off, as --feature-gates does. A line "was
// gates A=true" below it, or in its place, has those under which the stored object was created, if they were others.
//
// Two tests read them: that of package validation compares its errors, and that of conformance/oracle/validation those
// of the reference, and can also write the latter into the tables.
package validationtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Table is a file of cases.
type Table struct {
	Name  string
	Cases []*Case
	end   []string // lines after the last case
}

// Case is one request and its errors.
type Case struct {
	Line int
	// Verb is create, update, or the subresource that is updated.
	Verb string
	// Object is the kind and the name of a document.
	Object string
	// Gates are the feature gates that are not at their defaults, in the syntax of --feature-gates.
	Gates string
	// GatesBefore are those under which the stored object was created; empty: Gates.
	GatesBefore string
	// Want are the errors in the form of Errors; it is empty for an object that is accepted.
	Want  []string
	edits []edit
	lead  []string // lines before the case
}

type edit struct {
	before     bool
	path, text string
}

// Change adds a change to the case: of the stored object ("was"), or of the written one. The value is YAML on one line.
func (c *Case) Change(before bool, path, value string) {
	c.edits = append(c.edits, edit{before, path, value})
}

// Changes is the number of changes in the case.
func (c *Case) Changes() int { return len(c.edits) }

// Without is the case without n of its changes, from the i-th on.
func (c *Case) Without(i, n int) *Case {
	less := *c
	less.edits = slices.Delete(slices.Clone(c.edits), i, i+n)
	return &less
}

// Value is the value of the i-th change.
func (c *Case) Value(i int) (any, error) {
	var value any
	err := yaml.Unmarshal([]byte(expand(c.edits[i].text)), &value)
	return value, err
}

// Repeats says whether the value of the i-th change is written in a short form.
func (c *Case) Repeats(i int) bool { return repeated.MatchString(c.edits[i].text) }

// WithValue is the case with another value of the i-th change.
func (c *Case) WithValue(i int, value string) *Case {
	other := *c
	other.edits = slices.Clone(c.edits)
	other.edits[i].text = value
	return &other
}

// String is the first line of the case and its changes.
func (c *Case) String() string {
	text := c.Verb + " " + c.Object
	if c.Gates != "" {
		text += "; " + gates + c.Gates
	}
	if c.GatesBefore != "" {
		text += "; " + gatesBefore + c.GatesBefore
	}
	for _, e := range c.edits {
		text += "; " + e.String()
	}
	return text
}

func (e edit) String() string {
	word := "set "
	if e.before {
		word = "was "
	}
	return word + e.path + ": " + shorten(e.text)
}

const (
	accepted    = "ok"
	gates       = "gates "
	gatesBefore = "was gates "
)

// Read reads the tables of a directory.
func Read(dir string) ([]*Table, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var tables []*Table
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		t, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%w", file, err)
		}
		t.Name = strings.TrimSuffix(filepath.Base(file), ".txt")
		tables = append(tables, t)
	}
	return tables, nil
}

func parse(text string) (*Table, error) {
	t := &Table{}
	var c *Case
	var lead []string
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		content, indented := strings.CutPrefix(line, "    ")
		switch {
		case line == "" || line[0] == '#':
			lead = append(lead, line)
		case !indented:
			verb, object, ok := strings.Cut(line, " ")
			if !ok {
				return nil, fmt.Errorf("%d: a case begins with a verb and an object", i+1)
			}
			c = &Case{Line: i + 1, Verb: verb, Object: object, lead: lead}
			t.Cases = append(t.Cases, c)
			lead = nil
		case c == nil:
			return nil, fmt.Errorf("%d: no case begins above", i+1)
		case content == accepted:
		case strings.HasPrefix(content, gates):
			c.Gates = strings.TrimPrefix(content, gates)
		case strings.HasPrefix(content, gatesBefore):
			c.GatesBefore = strings.TrimPrefix(content, gatesBefore)
		case strings.HasPrefix(content, "set "), strings.HasPrefix(content, "was "):
			path, value, ok := strings.Cut(content[4:], ": ")
			if !ok {
				return nil, fmt.Errorf("%d: a change has a path and a value", i+1)
			}
			c.edits = append(c.edits, edit{content[:4] == "was ", path, value})
		default:
			c.Want = append(c.Want, expand(content))
		}
	}
	t.end = lead
	return t, nil
}

// Format is the text of a table, with the errors that its cases have now.
func (t *Table) Format() []byte {
	var b bytes.Buffer
	for _, c := range t.Cases {
		for _, line := range c.lead {
			fmt.Fprintln(&b, line)
		}
		fmt.Fprintln(&b, c.Verb, c.Object)
		if c.Gates != "" {
			fmt.Fprintln(&b, "    "+gates+c.Gates)
		}
		if c.GatesBefore != "" {
			fmt.Fprintln(&b, "    "+gatesBefore+c.GatesBefore)
		}
		for _, e := range c.edits {
			fmt.Fprintln(&b, "   ", e)
		}
		for _, w := range c.Want {
			fmt.Fprintln(&b, "   ", shorten(w))
		}
		if len(c.Want) == 0 {
			fmt.Fprintln(&b, "   ", accepted)
		}
	}
	for _, line := range t.end {
		fmt.Fprintln(&b, line)
	}
	return b.Bytes()
}

var repeated = regexp.MustCompile(`<([^<>*]+)\*(\d+)>`)

func expand(s string) string {
	return repeated.ReplaceAllStringFunc(s, func(match string) string {
		parts := repeated.FindStringSubmatch(match)
		n, _ := strconv.Atoi(parts[2])
		if !strings.Contains(parts[1], "#") {
			return strings.Repeat(parts[1], n)
		}
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(parts[1], "#", strconv.Itoa(i)))
		}
		return b.String()
	})
}

// shorten undoes expand for runs of one character.
func shorten(s string) string {
	const long = 40
	var b strings.Builder
	for i := 0; i < len(s); {
		n := 1
		for i+n < len(s) && s[i+n] == s[i] {
			n++
		}
		if n >= long {
			fmt.Fprintf(&b, "<%c*%d>", s[i], n)
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// Documents reads the YAML documents of a directory, by kind and name.
func Documents(dir string) (map[string]map[string]any, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	documents := map[string]map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var doc struct {
				Kind     string
				Metadata struct{ Name string }
			}
			var content map[string]any
			if err := yaml.Unmarshal(part, &content); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if err := yaml.Unmarshal(part, &doc); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			key := doc.Kind + "/" + doc.Metadata.Name
			if documents[key] != nil {
				return nil, fmt.Errorf("%s: there are two %s", file, key)
			}
			documents[key] = content
		}
	}
	return documents, nil
}

// Before returns the object before the request: the document with the changes of the case.
func (c *Case) Before(documents map[string]map[string]any) (map[string]any, error) {
	doc := documents[c.Object]
	if doc == nil {
		return nil, fmt.Errorf("there is no %s", c.Object)
	}
	return c.apply(doc, func(e edit) bool { return e.before })
}

// After returns the written object, given the stored one.
func (c *Case) After(doc map[string]any) (map[string]any, error) {
	return c.apply(doc, func(e edit) bool { return !e.before })
}

func (c *Case) apply(doc map[string]any, which func(edit) bool) (map[string]any, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	var root any
	if err := json.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	for _, e := range c.edits {
		if !which(e) {
			continue
		}
		var value any
		if err := yaml.Unmarshal([]byte(expand(e.text)), &value); err != nil {
			return nil, fmt.Errorf("%s: %w", e, err)
		}
		if root, err = put(root, steps(e.path), value); err != nil {
			return nil, fmt.Errorf("%s: %w", e, err)
		}
	}
	return root.(map[string]any), nil
}

// steps are the keys and indexes of a path.
func steps(path string) []string {
	var all []string
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			key, behind, _ := strings.Cut(rest, "]")
			all = append(all, key)
			path = strings.TrimPrefix(behind, ".")
			continue
		}
		n := strings.IndexAny(path, ".[")
		if n < 0 {
			n = len(path)
		}
		all = append(all, path[:n])
		path = strings.TrimPrefix(path[n:], ".")
	}
	return all
}

// put sets the value at a path, and creates maps on the way.
func put(node any, path []string, value any) (any, error) {
	if len(path) == 0 {
		return value, nil
	}
	key := path[0]
	if list, ok := node.([]any); ok {
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i > len(list) {
			return nil, fmt.Errorf("%q is no index of a list of %d", key, len(list))
		}
		if i == len(list) {
			list = append(list, nil)
		}
		item, err := put(list[i], path[1:], value)
		if err != nil {
			return nil, err
		}
		if list[i] = item; item == nil {
			list = slices.Delete(list, i, i+1)
		}
		return list, nil
	}
	members, ok := node.(map[string]any)
	if !ok {
		if node != nil {
			return nil, fmt.Errorf("there is no member %q in %v", key, node)
		}
		if key == "0" {
			item, err := put(nil, path[1:], value)
			return []any{item}, err
		}
		members = map[string]any{}
	}
	member, err := put(members[key], path[1:], value)
	if err != nil {
		return nil, err
	}
	if members[key] = member; member == nil {
		delete(members, key)
	}
	return members, nil
}

// An absent list differs from an empty one only within the reference's process: they are the same in all responses.
var empties = regexp.MustCompile(`(Invalid value: |Unsupported value: |[a-zA-Z]":)(\[\]|\{\})`)

// podValue is the value of an error that prints a whole Pod spec. Upstream prints the fields of its internal type
// there, which we do not have.
var podValue = regexp.MustCompile(`(Invalid value: )\{.*"[Cc]ontainers":.*\}`)

// Lines are the errors of a list in the form of the tables: those of Errors, without values that print a Pod spec.
func Lines(list field.ErrorList) []string {
	lines := Errors(list, true)
	for i, line := range lines {
		lines[i] = podValue.ReplaceAllString(line, "${1}(a Pod spec)")
	}
	return lines
}

// Errors are the errors of a list as text, each once and sorted; with or without the message.
func Errors(list field.ErrorList, messages bool) []string {
	var texts []string
	for _, f := range list {
		text := string(f.Type) + " " + f.Field
		if messages {
			// after it: the difference of two objects, whose text differs from the reference's
			body, _, _ := strings.Cut(f.ErrorBody(), "\n")
			if strings.Contains(body, "[]") || strings.Contains(body, "{}") {
				body = empties.ReplaceAllString(body, "${1}null")
			}
			text += ": " + body
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return texts
}
