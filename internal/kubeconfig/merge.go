// Package kubeconfig adds a cluster, its user and its context to a kubeconfig, or takes them away, and leaves all else
// in the file as it is.
//
// The file may be the user's, with other clusters, comments, and fields that this program does not know. To parse it
// and print it again would lose comments, order and quoting. So [Merge] changes the text where the syntax tree says
// that a value is:
//
//	text after = text before, with new values in place of old ones of the entry, and with what was missing inserted
//	Merge(Merge(text)) = Merge(text)
//
// The tree says where a value begins, and not where it ends, and there are many ways to write YAML. Merge edits those
// that programs and people use, and then checks its own work: the result has to have the value that is computed from
// the parsed file. A file that is written in another way is an error, and stays as it is.
//
// [Cut] takes such an entry away in the same way. [Write] and [Remove] do this with a file, under the lock of
// client-go. [Add] and [Drop] do it with a context that is made from another one (a [Copy]).
package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"plinth/object"
)

// Entry is what is added to a kubeconfig: a cluster and a context of one name, and a user.
type Entry struct {
	Name, User string
	Server     string // URL
	Authority  []byte // PEM, by which clients verify the server
	Cert, Key  []byte // the user's, PEM
	// Use makes the context the current one. In a file without contexts it always is, if none is named there.
	Use bool
}

// Equal says whether two entries give the same access.
func (e *Entry) Equal(other *Entry) bool {
	return e.Name == other.Name && e.User == other.User && e.Server == other.Server &&
		bytes.Equal(e.Authority, other.Authority) && bytes.Equal(e.Cert, other.Cert) && bytes.Equal(e.Key, other.Key)
}

// Merge returns a kubeconfig with the entry. What the file has besides is in the result to the byte.
func Merge(text []byte, e *Entry) ([]byte, error) {
	return merged(text, &addition{lists: e.lists(), context: e.Name, use: e.Use})
}

// addition is what is merged into a kubeconfig: an item for each list, and with use the current context.
type addition struct {
	lists   []list
	context string
	use     bool
}

// merged returns a kubeconfig with an addition.
func merged(text []byte, e *addition) ([]byte, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("it is no text in UTF-8")
	}
	parsed, err := object.ParseYAML(text)
	if err != nil {
		return nil, err
	}
	if len(parsed.Duplicates) > 0 {
		return nil, errors.New(parsed.Duplicates[0])
	}
	old := parsed.Value
	if old.IsNull() && !bytes.Contains(text, []byte("null")) && !bytes.Contains(text, []byte("~")) {
		// Comments, or nothing.
		return appended(text, e)
	}
	if old.Kind() != object.Map || old.At("apiVersion").Str() != "v1" && !old.At("apiVersion").IsNull() ||
		old.At("kind").Str() != "Config" && !old.At("kind").IsNull() {
		return nil, errors.New("it is no kubeconfig")
	}
	if len(old.At("contexts").Items()) == 0 && old.At("current-context").Str() == "" {
		first := *e
		first.use, e = true, &first
	}
	want, err := e.into(old)
	if err != nil {
		return nil, err
	}
	if object.Equal(old, want) {
		return text, nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 || !plainKeys(&document) {
		return nil, errUnusual
	}
	edit := newEditor(text)
	if err := edit.file(document.Content[0], e); err != nil {
		return nil, err
	}
	out := edit.apply()
	after, err := object.ParseYAML(out)
	if err != nil || len(after.Duplicates) > 0 || !object.Equal(after.Value, want) {
		return nil, errUnusual
	}
	return out, nil
}

// errUnusual is returned for files that kubectl may understand and Merge cannot change.
var errUnusual = errors.New("it is written in a way in which nothing can be added to it; " +
	"kubectl config view --raw --flatten prints it in the usual way")

// plainKeys says whether all keys are strings. Two keys of other types, 0 and 0x0, may have one name after the
// conversion to JSON, and then the value of a text is not always the same.
func plainKeys(n *yaml.Node) bool {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Tag != "!!str" && child.Tag != "!!merge" {
			return false
		}
		if !plainKeys(child) {
			return false
		}
	}
	return true
}

// appended is a new kubeconfig, behind the comments that the file has.
func appended(text []byte, e *addition) ([]byte, error) {
	members := []object.Member{{Key: "apiVersion", Value: object.StringOf("v1")},
		{Key: "kind", Value: object.StringOf("Config")}, {Key: "current-context", Value: object.StringOf(e.context)}}
	for _, l := range e.lists {
		members = append(members, object.Member{Key: l.name, Value: object.ListOf(l.item)})
	}
	want := object.MapOf(members...)
	body, err := object.YAML(object.AppendObject(nil, want))
	if err != nil {
		return nil, err
	}
	out := slices.Clone(text)
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	out = append(out, body...)
	if after, err := object.ParseYAML(out); err != nil || !object.Equal(after.Value, want) {
		return nil, errUnusual
	}
	return out, nil
}

// list is one of the lists of named items of a kubeconfig, and the item in it that is ours.
type list struct {
	name string
	item object.Value
}

func (e *Entry) lists() []list {
	text := object.StringOf
	return []list{
		{"clusters", object.Fields("name", text(e.Name), "cluster", object.Fields(
			"certificate-authority-data", base64Of(e.Authority), "server", text(e.Server)))},
		{"contexts", object.Fields("name", text(e.Name), "context", object.Fields(
			"cluster", text(e.Name), "user", text(e.User)))},
		{"users", object.Fields("name", text(e.User), "user", object.Fields(
			"client-certificate-data", base64Of(e.Cert), "client-key-data", base64Of(e.Key)))},
	}
}

// into is the value of a kubeconfig with the addition. A new item is the first of its list: what stands before the next
// item in the text, a comment, belongs to that one.
func (e *addition) into(config object.Value) (object.Value, error) {
	for _, l := range e.lists {
		items := config.At(l.name)
		if k := items.Kind(); k != object.List && k != object.Null {
			return config, fmt.Errorf("%s is no list", l.name)
		}
		name, at := l.item.At("name").Str(), -1
		for i, item := range items.Items() {
			switch {
			case item.At("name").Str() != name:
			case at >= 0:
				return config, fmt.Errorf("%s has %s twice", l.name, name)
			default:
				at = i
			}
		}
		if at < 0 {
			config = config.With(l.name, object.ListOf(append([]object.Value{l.item}, items.Items()...)...))
			continue
		}
		merged, err := over(items.Items()[at], l.item, l.name)
		if err != nil {
			return config, err
		}
		config = config.With(l.name, items.WithItem(at, merged))
	}
	if e.use {
		config = config.With("current-context", object.StringOf(e.context))
	}
	return config, nil
}

// over returns a map with the members of another one, which replace members of the same name.
func over(old, want object.Value, where string) (object.Value, error) {
	if old.Kind() != object.Map && !old.IsNull() {
		return old, fmt.Errorf("an item of %s is no map", where)
	}
	if old.IsNull() {
		return want, nil
	}
	for _, m := range want.Members() {
		value := m.Value
		if value.Kind() == object.Map {
			var err error
			if value, err = over(old.At(m.Key), value, where); err != nil {
				return old, err
			}
		}
		old = old.With(m.Key, value)
	}
	return old, nil
}

// editor collects changes of a text.
type editor struct {
	text    []byte
	starts  []int // of the lines
	newline string
	changes []change
}

// change replaces text[from:to].
type change struct {
	from, to int
	by       string
}

func newEditor(text []byte) *editor {
	e := &editor{text: text, newline: "\n"}
	if bytes.Contains(text, []byte("\r\n")) {
		e.newline = "\r\n"
	}
	begin := len(text) - len(bytes.TrimPrefix(text, []byte("\ufeff")))
	e.starts = []int{begin}
	for i := begin; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		i += n
		if r == '\r' && i < len(text) && text[i] == '\n' {
			i++
		}
		if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) { // the line breaks of YAML 1.1
			e.starts = append(e.starts, i)
		}
	}
	return e
}

// apply returns the text with the changes. Those at one place stay in their order.
func (e *editor) apply() []byte {
	slices.SortStableFunc(e.changes, func(a, b change) int { return a.from - b.from })
	var out []byte
	at := 0
	for _, c := range e.changes {
		out = append(append(out, e.text[min(at, c.from):c.from]...), c.by...)
		at = max(at, c.to)
	}
	return append(out, e.text[at:]...)
}

func (e *editor) replace(from, to int, by string) {
	e.changes = append(e.changes, change{from, to, by})
}

// at is the offset of a node.
func (e *editor) at(n *yaml.Node) (int, error) {
	if n.Line < 1 || n.Line > len(e.starts) {
		return 0, errUnusual
	}
	i := e.starts[n.Line-1]
	for range n.Column - 1 {
		if i >= len(e.text) {
			return 0, errUnusual
		}
		_, size := utf8.DecodeRune(e.text[i:])
		i += size
	}
	return i, nil
}

// insertLine inserts lines below a line, which is counted from 1.
func (e *editor) insertLine(below int, lines string) {
	if below < len(e.starts) {
		e.replace(e.starts[below], e.starts[below], lines)
		return
	}
	end := len(e.text)
	e.replace(end, end, e.newline+strings.TrimSuffix(lines, e.newline)+e.newline)
}

// block prints a value as lines in block style.
func (e *editor) block(v object.Value, indent int) (string, error) {
	// YAML prints objects; what it prints of a list begins in the first column, too.
	text, err := object.YAML(object.AppendJSON(nil, v))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		out.WriteString(strings.Repeat(" ", indent) + strings.TrimSuffix(line, "\n") + e.newline)
	}
	return out.String(), nil
}

func flowText(v object.Value) string { return string(object.AppendJSON(nil, v)) }

// position is where a value stands: below a key of a mapping, in block or in flow style.
type position struct {
	key  *yaml.Node // nil: it is the document, or an item of a list
	flow bool
}

// file edits the root of a kubeconfig.
func (e *editor) file(root *yaml.Node, entry *addition) error {
	if root.Kind != yaml.MappingNode {
		return errUnusual
	}
	flow := root.Style&yaml.FlowStyle != 0
	var missing []object.Member
	for _, l := range entry.lists {
		key, items := child(root, l.name)
		if key == nil {
			missing = append(missing, object.Member{Key: l.name, Value: object.ListOf(l.item)})
			continue
		}
		if err := e.list(items, l.item, position{key, flow}); err != nil {
			return err
		}
	}
	if entry.use {
		key, value := child(root, "current-context")
		if key == nil {
			missing = append(missing, object.Member{Key: "current-context", Value: object.StringOf(entry.context)})
		} else if err := e.value(value, object.StringOf(entry.context), position{key, flow}); err != nil {
			return err
		}
	}
	return e.members(root, missing, position{flow: flow})
}

// child finds a member of a mapping.
func child(n *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Kind == yaml.ScalarNode && n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// list edits a list of named items.
func (e *editor) list(items *yaml.Node, want object.Value, at position) error {
	flow := at.flow || items.Style&yaml.FlowStyle != 0
	if items.Kind != yaml.SequenceNode {
		return e.value(items, object.ListOf(want), at)
	}
	for _, item := range items.Content {
		if _, name := child(item, "name"); item.Kind == yaml.MappingNode && name != nil &&
			name.Value == want.At("name").Str() {
			return e.value(item, want, position{flow: flow})
		}
	}
	return e.first(items, want, position{at.key, flow}, at.flow)
}

// first inserts an item before all others.
func (e *editor) first(items *yaml.Node, want object.Value, at position, outerFlow bool) error {
	begin, err := e.at(items)
	if err != nil {
		return err
	}
	switch {
	case at.flow && len(items.Content) == 0 && !outerFlow && bytes.HasPrefix(e.text[begin:], []byte("[]")):
		return e.below(at.key, begin, begin+len("[]"), object.ListOf(want))
	case at.flow:
		if begin >= len(e.text) || e.text[begin] != '[' {
			return errUnusual
		}
		separator := ""
		if len(items.Content) > 0 {
			separator = ", "
		}
		e.replace(begin+1, begin+1, flowText(want)+separator)
		return nil
	case at.key == nil || items.Line <= at.key.Line:
		return errUnusual
	}
	lines, err := e.block(object.ListOf(want), items.Column-1)
	if err == nil {
		e.insertLine(at.key.Line, lines)
	}
	return err
}

// below removes an empty value, and writes another one in block style below its key.
func (e *editor) below(key *yaml.Node, from, to int, v object.Value) error {
	indent := key.Column - 1
	if v.Kind() == object.Map {
		indent += 2
	}
	lines, err := e.block(v, indent)
	if err != nil {
		return err
	}
	e.replace(from, to, "")
	e.insertLine(key.Line, lines)
	return nil
}

// value changes a node into a value; members of mappings that the value does not have stay.
func (e *editor) value(n *yaml.Node, want object.Value, at position) error {
	at.flow = at.flow || n.Style&yaml.FlowStyle != 0
	switch {
	case want.Kind() == object.String:
		return e.scalar(n, want, at.flow)
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		begin, err := e.at(n)
		if err != nil || !bytes.HasPrefix(e.text[begin:], []byte(n.Value)) {
			return errUnusual
		}
		if at.flow || at.key == nil {
			e.replace(begin, begin+len(n.Value), " "+flowText(want))
			return nil
		}
		return e.below(at.key, begin, begin+len(n.Value), want)
	case want.Kind() != object.Map && means(n, want): // only texts are replaced
		return nil
	case n.Kind != yaml.MappingNode || want.Kind() != object.Map:
		return errUnusual
	}
	var missing []object.Member
	for _, m := range want.Members() {
		key, value := child(n, m.Key)
		if key == nil {
			missing = append(missing, m)
		} else if err := e.value(value, m.Value, position{key, at.flow}); err != nil {
			return err
		}
	}
	return e.members(n, missing, at)
}

// means says whether a node has a value.
func means(n *yaml.Node, want object.Value) bool {
	text, err := yaml.Marshal(n)
	if err != nil {
		return false
	}
	parsed, err := object.ParseYAML(text)
	return err == nil && object.Equal(parsed.Value, want)
}

// members inserts members into a mapping, before its others.
func (e *editor) members(n *yaml.Node, missing []object.Member, at position) error {
	if len(missing) == 0 {
		return nil
	}
	begin, err := e.at(n)
	if err != nil {
		return err
	}
	if at.flow {
		if begin >= len(e.text) || e.text[begin] != '{' {
			return errUnusual
		}
		text := strings.TrimSuffix(strings.TrimPrefix(flowText(object.MapOf(missing...)), "{"), "}")
		if len(n.Content) > 0 {
			text += ", "
		}
		e.replace(begin+1, begin+1, text)
		return nil
	}
	if len(n.Content) == 0 {
		return errUnusual
	}
	column := n.Content[0].Column - 1
	lines, err := e.block(object.MapOf(missing...), column)
	if err != nil {
		return err
	}
	if at.key != nil && n.Content[0].Line > at.key.Line {
		e.insertLine(at.key.Line, lines)
		return nil
	}
	if begin, err = e.at(n.Content[0]); err != nil { // it may follow a dash
		return err
	}
	e.replace(begin, begin, strings.TrimLeft(lines, " ")+strings.Repeat(" ", column))
	return nil
}

// scalar replaces a scalar by a text.
func (e *editor) scalar(n *yaml.Node, want object.Value, flow bool) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && n.Value == want.Str() {
		return nil
	}
	if n.Kind != yaml.ScalarNode && n.Kind != yaml.AliasNode || n.Anchor != "" {
		return errUnusual
	}
	begin, err := e.at(n)
	if err != nil {
		return err
	}
	length, err := extent(e.text[begin:], n)
	if err != nil {
		return err
	}
	by := flowText(want)
	if !flow {
		printed, err := object.YAML([]byte(by))
		if err != nil {
			return err
		}
		by = strings.TrimSuffix(string(printed), "\n")
	}
	if length == 0 { // nothing follows the colon
		by = " " + by
	}
	e.replace(begin, begin+length, by)
	return nil
}

// extent is the length of a scalar, or of an alias, with which a text begins.
func extent(text []byte, n *yaml.Node) (int, error) {
	switch {
	case n.Kind == yaml.AliasNode:
		if bytes.HasPrefix(text, []byte("*"+n.Value)) {
			return 1 + len(n.Value), nil
		}
	case n.Style&yaml.DoubleQuotedStyle != 0:
		for i := 1; i < len(text); i++ {
			switch text[i] {
			case '\\':
				i++
			case '"':
				return i + 1, nil
			}
		}
	case n.Style&yaml.SingleQuotedStyle != 0:
		for i := 1; i < len(text); i++ {
			if text[i] == '\'' {
				if i+1 == len(text) || text[i+1] != '\'' {
					return i + 1, nil
				}
				i++
			}
		}
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0:
	case bytes.HasPrefix(text, []byte(n.Value)):
		return len(n.Value), nil
	}
	return 0, errUnusual
}
