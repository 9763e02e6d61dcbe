package kubeconfig

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"plinth/object"
)

// ErrOther is returned for a context that leads to another server than the one to be removed.
var ErrOther = errors.New("the context is that of another server")

// Cut returns a kubeconfig without the context of a name, its cluster and its user, unless other contexts use them.
// What the file has besides is in the result to the byte. The cluster has to be that of the server, a URL; if there is
// no such context, the result is the text. If it was the current context, none is afterwards.
func Cut(text []byte, name, server string) ([]byte, error) {
	old, err := parsed(text)
	if err != nil {
		return nil, err
	}
	entry := itemOf(old.At("contexts"), name).At("context")
	if entry.IsNull() {
		return text, nil
	}
	cluster, user := entry.At("cluster").Str(), entry.At("user").Str()
	if has := itemOf(old.At("clusters"), cluster).At("cluster", "server").Str(); has != server {
		return nil, fmt.Errorf("%w: %s", ErrOther, has)
	}
	gone := map[string]string{"contexts": name, "clusters": cluster, "users": user}
	for _, other := range old.At("contexts").Items() {
		if other.At("name").Str() == name {
			continue
		}
		if other.At("context", "cluster").Str() == cluster {
			delete(gone, "clusters")
		}
		if other.At("context", "user").Str() == user {
			delete(gone, "users")
		}
	}
	return without(text, old, gone)
}

// parsed is the value of a text.
func parsed(text []byte) (object.Value, error) {
	v, err := object.ParseYAML(text)
	switch {
	case !utf8.Valid(text) || err == nil && len(v.Duplicates) > 0:
		return object.Nil, errUnusual
	case err != nil:
		return object.Nil, err
	}
	return v.Value, nil
}

// without returns a kubeconfig, whose value is old, without some items: their names by the name of their list.
func without(text []byte, old object.Value, gone map[string]string) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 || !plainKeys(&document) {
		return nil, errUnusual
	}
	edit, root, want := newEditor(text), document.Content[0], old
	for list, item := range gone {
		kept := slices.DeleteFunc(slices.Clone(old.At(list).Items()), func(v object.Value) bool {
			return v.At("name").Str() == item
		})
		if len(kept) == len(old.At(list).Items()) {
			continue
		}
		want = want.With(list, object.ListOf(kept...))
		if err := edit.cut(root, list, item); err != nil {
			return nil, err
		}
	}
	if name, ok := gone["contexts"]; ok && old.At("current-context").Str() == name {
		want = want.With("current-context", object.StringOf(""))
		_, value := child(root, "current-context")
		if err := edit.scalar(value, object.StringOf(""), root.Style&yaml.FlowStyle != 0); err != nil {
			return nil, err
		}
	}
	out := edit.apply()
	after, err := object.ParseYAML(out)
	if err != nil || len(after.Duplicates) > 0 || !object.Equal(after.Value, want) {
		return nil, errUnusual
	}
	return out, nil
}

// itemOf is the item of a name.
func itemOf(list object.Value, name string) object.Value {
	for _, item := range list.Items() {
		if item.At("name").Str() == name {
			return item
		}
	}
	return object.Nil
}

// cut removes the item of a name from a list.
func (e *editor) cut(root *yaml.Node, list, name string) error {
	key, items := child(root, list)
	if items == nil || items.Kind != yaml.SequenceNode {
		return errUnusual
	}
	at := slices.IndexFunc(items.Content, func(item *yaml.Node) bool {
		_, value := child(item, "name")
		return value != nil && value.Value == name
	})
	if at < 0 {
		return errUnusual
	}
	if root.Style&yaml.FlowStyle != 0 || items.Style&yaml.FlowStyle != 0 {
		return e.cutFlow(items, at)
	}
	item := items.Content[at]
	first, last := item.Line, lastLine(item)
	if first <= key.Line || last > len(e.starts) {
		return errUnusual
	}
	end := len(e.text)
	if last < len(e.starts) {
		end = e.starts[last]
	}
	e.replace(e.starts[first-1], end, "")
	if len(items.Content) > 1 {
		return nil
	}
	behind, err := e.at(key) // an empty list, and no null
	if behind += len(list) + len(":"); err != nil || behind > len(e.text) || e.text[behind-1] != ':' {
		return errUnusual
	}
	e.replace(behind, behind, " []")
	return nil
}

// cutFlow removes an item of a list in flow style, with the comma before it, or the one behind it.
func (e *editor) cutFlow(items *yaml.Node, at int) error {
	from, err := e.at(items.Content[at])
	if err != nil {
		return err
	}
	end := e.flowEnd(from)
	switch {
	case end < 0:
		return errUnusual
	case at+1 < len(items.Content):
		if end, err = e.at(items.Content[at+1]); err != nil {
			return err
		}
	case at > 0:
		before, err := e.at(items.Content[at-1])
		if err != nil {
			return err
		}
		if from = e.flowEnd(before); from < 0 {
			return errUnusual
		}
	}
	e.replace(from, end, "")
	return nil
}

// flowEnd is where a mapping in flow style ends that begins at an offset; -1 if there is none.
func (e *editor) flowEnd(at int) int {
	var quote byte
	for i, depth := at, 0; i < len(e.text); i++ {
		switch c := e.text[i]; {
		case quote == '"' && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case depth == 0:
			return -1
		}
	}
	return -1
}

// lastLine is the last line on which something of a node begins.
func lastLine(n *yaml.Node) int {
	line := n.Line
	for _, child := range n.Content {
		line = max(line, lastLine(child))
	}
	return line
}
