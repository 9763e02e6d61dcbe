package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"plinth/object"
)

// This file applies the operations of a JSON Patch (RFC 6902). The oracle is the library with which the reference does
// it (evanphx/json-patch, Patch.Apply): its errors and leniencies are those of the API. It decodes the operations here,
// too, but does not apply them, for three reasons:
//
//   - It has no way to be interrupted. An insertion moves all items behind it, so that 10,000 insertions into a list of
//     200,000 items take seconds, after which the client does not wait any more.
//   - It copies the whole list for each insertion, into new memory: that is ten times as slow as moving the items.
//   - Each copy operation may double the document, so that a few dozen of them exhaust any memory (WRITE-6). The
//     library bounds what copies add by a global variable of its package, for the whole process.
//
// TestOperationsAreThoseOfTheLibrary compares the two on random patches.
//
// As in the library, a value is text until an operation goes through it, and stays text if none does. That is more than
// an optimization: a test compares the text of scalars, so that 1.0 is not 1.

// maxCopied is how many bytes the copies of one patch may add, as in the reference (JSONPatchMaxCopyBytes of its
// options).
const maxCopied = 3 << 20

// node is a value of the document. The library has three kinds of null, which operations distinguish:
//
//	nil             null in a document, and the value of an operation that has none
//	text = nil      null as the value of an operation
//	text = "null"   a copy of that
type node struct {
	form    form
	text    []byte // that it was parsed from, without white space around it
	members map[string]*node
	items   []*node
}

// form says what of a node counts.
type form uint8

const (
	isText form = iota
	isMap       // members; nil if text is null
	isList      // items
)

// UnmarshalJSON keeps the text. encoding/json does not call it for null, but leaves the pointer to the node nil.
func (n *node) UnmarshalJSON(text []byte) error {
	n.text = bytes.Clone(text)
	return nil
}

// toMap parses the members of the node. It says whether the node is a map, or the text null.
func (n *node) toMap() bool {
	if n.form == isText && len(n.text) > 0 && (n.text[0] == '{' || n.text[0] == 'n') &&
		json.Unmarshal(n.text, &n.members) == nil {
		n.form = isMap
	}
	return n.form == isMap
}

// toList parses the items of the node, and says whether it is a list.
func (n *node) toList() bool {
	if n.form == isText && len(n.text) > 0 && n.text[0] == '[' && json.Unmarshal(n.text, &n.items) == nil {
		n.form = isList
	}
	return n.form == isList
}

// appendTo prints a value, with the members of maps in the order of their names.
func (n *node) appendTo(dst []byte) []byte {
	switch {
	case n == nil, n.form == isText && n.text == nil, n.form == isMap && n.members == nil:
		return append(dst, "null"...)
	case n.form == isText:
		return append(dst, n.text...)
	case n.form == isList:
		dst = append(dst, '[')
		for i, item := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendTo(dst)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i, key := range slices.Sorted(maps.Keys(n.members)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(object.AppendJSON(dst, object.StringOf(key)), ':')
		dst = n.members[key].appendTo(dst)
	}
	return append(dst, '}')
}

// errNull is the error of operations on which the library panics, since a null is in the place of a value.
var errNull = errors.New("invalid operation: null in the place of a value")

// equal compares two values. The text of scalars is compared, without insignificant white space.
func (n *node) equal(o *node) (bool, error) {
	switch {
	case n == nil || o == nil:
		return false, errNull
	case n.toMap():
		if !o.toMap() || len(n.members) != len(o.members) {
			return false, nil
		}
		for key, v := range n.members {
			w, ok := o.members[key]
			if !ok || (v == nil) != (w == nil) {
				return false, nil
			}
			if v == nil {
				continue
			}
			if same, err := v.equal(w); !same {
				return false, err
			}
		}
		return true, nil
	case n.toList():
		if !o.toList() || len(n.items) != len(o.items) {
			return false, nil
		}
		for i, item := range n.items {
			if same, err := item.equal(o.items[i]); !same {
				return false, err
			}
		}
		return true, nil
	}
	return o.form == isText && bytes.Equal(n.text, o.text), nil
}

// get returns the member or item of a container that the last step of a path names. A missing member is nil.
func (n *node) get(key string) (*node, error) {
	if n.form == isMap {
		return n.members[key], nil
	}
	i, err := strconv.Atoi(key)
	if err != nil {
		return nil, err
	}
	if i, err = position(i, len(n.items)); err != nil {
		return nil, err
	}
	return n.items[i], nil
}

// position is the index of one of size items. A negative one counts from the end.
func position(i, size int) (int, error) {
	if i >= size || i < -size {
		//lint:ignore ST1005 the words of the library
		return 0, fmt.Errorf("Unable to access invalid index: %d: %w", i, jsonpatch.ErrInvalidIndex)
	}
	if i < 0 {
		i += size
	}
	return i, nil
}

// set replaces a member, or an item that exists.
func (n *node) set(key string, v *node) error {
	if n.form == isMap {
		return n.setMember(key, v)
	}
	i, err := strconv.Atoi(key)
	if err != nil {
		return err
	}
	if i, err = position(i, len(n.items)); err != nil {
		return err
	}
	n.items[i] = v
	return nil
}

func (n *node) setMember(key string, v *node) error {
	if n.members == nil {
		return errNull
	}
	n.members[key] = v
	return nil
}

// add sets a member, or inserts an item.
func (n *node) add(key string, v *node) error {
	if n.form == isMap {
		return n.setMember(key, v)
	}
	if key == "-" {
		n.items = append(n.items, v)
		return nil
	}
	i, err := strconv.Atoi(key)
	if err != nil {
		return fmt.Errorf("value was not a proper array index: '%s': %w", key, err)
	}
	if i, err = position(i, len(n.items)+1); err != nil {
		return err
	}
	n.items = slices.Insert(n.items, i, v)
	return nil
}

// remove removes a member or an item, which must exist.
func (n *node) remove(key string) error {
	if n.form == isMap {
		if _, ok := n.members[key]; !ok {
			//lint:ignore ST1005 the words of the library
			return fmt.Errorf("Unable to remove nonexistent key: %s: %w", key, jsonpatch.ErrMissing)
		}
		delete(n.members, key)
		return nil
	}
	i, err := strconv.Atoi(key)
	if err != nil {
		return err
	}
	if i, err = position(i, len(n.items)); err != nil {
		return err
	}
	n.items = slices.Delete(n.items, i, i+1)
	return nil
}

// document is the object while it is patched.
type document struct {
	root   *node // a map or a list
	copied int   // bytes that copies have added
}

// newDocument takes the text of a map or a list.
func newDocument(text []byte) (*document, error) {
	root := &node{text: text}
	if !root.toMap() && !root.toList() {
		return nil, errors.New("the document is neither an object nor an array")
	}
	return &document{root: root}, nil
}

// container finds the map or list that a path leads to, and the name of its member or item. It is nil if there is none.
func (d *document) container(path string) (in *node, key string) {
	steps := strings.Split(path, "/")
	if len(steps) < 2 {
		return nil, ""
	}
	in = d.root
	for _, step := range steps[1 : len(steps)-1] {
		next, err := in.get(unescape.Replace(step))
		if err != nil || next == nil || !next.toMap() && !next.toList() {
			return nil, ""
		}
		in = next
	}
	return in, unescape.Replace(steps[len(steps)-1])
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// valueOf is the value of an operation; nil if it has none.
func valueOf(op jsonpatch.Operation) *node {
	value, ok := op["value"]
	switch {
	case !ok:
		return nil
	case value == nil:
		return &node{}
	}
	return &node{text: *value}
}

// apply applies one operation. After an error the document is not used any more.
func (d *document) apply(op jsonpatch.Operation) error {
	switch kind := op.Kind(); kind {
	case "add":
		return d.add(op)
	case "remove":
		return d.remove(op)
	case "replace":
		return d.replace(op)
	case "move":
		return d.move(op)
	case "test":
		return d.test(op)
	case "copy":
		return d.copy(op)
	default:
		//lint:ignore ST1005 the words of the library
		return fmt.Errorf("Unexpected kind: %s", kind)
	}
}

func (d *document) add(op jsonpatch.Operation) error {
	path, err := op.Path()
	if err != nil {
		return fmt.Errorf("add operation failed to decode path: %w", jsonpatch.ErrMissing)
	}
	in, key := d.container(path)
	if in == nil {
		return fmt.Errorf("add operation does not apply: doc is missing path: \"%s\": %w", path, jsonpatch.ErrMissing)
	}
	if err := in.add(key, valueOf(op)); err != nil {
		return fmt.Errorf("error in add for path: '%s': %w", path, err)
	}
	return nil
}

func (d *document) remove(op jsonpatch.Operation) error {
	path, err := op.Path()
	if err != nil {
		return fmt.Errorf("remove operation failed to decode path: %w", jsonpatch.ErrMissing)
	}
	in, key := d.container(path)
	if in == nil {
		return fmt.Errorf("remove operation does not apply: doc is missing path: \"%s\": %w", path, jsonpatch.ErrMissing)
	}
	if err := in.remove(key); err != nil {
		return fmt.Errorf("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

// replace adds a member that does not exist, as the library does.
func (d *document) replace(op jsonpatch.Operation) error {
	path, err := op.Path()
	if err != nil {
		return fmt.Errorf("replace operation failed to decode path: %w", err)
	}
	if path == "" {
		root := valueOf(op)
		switch {
		case root == nil:
			return errNull
		case !root.toMap() && !root.toList():
			return errors.New("replace operation value must be object or array: %!w(<nil>)") // the library's text
		}
		d.root = root
		return nil
	}
	in, key := d.container(path)
	if in == nil {
		return fmt.Errorf("replace operation does not apply: doc is missing path: %s: %w", path, jsonpatch.ErrMissing)
	}
	if _, err := in.get(key); err != nil {
		return fmt.Errorf("replace operation does not apply: doc is missing key: %s: %w", path, jsonpatch.ErrMissing)
	}
	if err := in.set(key, valueOf(op)); err != nil {
		return fmt.Errorf("error in remove for path: '%s': %w", path, err)
	}
	return nil
}

func (d *document) move(op jsonpatch.Operation) error {
	from, err := op.From()
	if err != nil {
		return fmt.Errorf("move operation failed to decode from: %w", err)
	}
	in, key := d.container(from)
	if in == nil {
		return fmt.Errorf("move operation does not apply: doc is missing from path: %s: %w", from, jsonpatch.ErrMissing)
	}
	value, err := in.get(key)
	if err == nil {
		err = in.remove(key)
	}
	if err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", key, err)
	}
	path, err := op.Path()
	if err != nil {
		return fmt.Errorf("move operation failed to decode path: %w", err)
	}
	if in, key = d.container(path); in == nil {
		return fmt.Errorf("move operation does not apply: doc is missing destination path: %s: %w", path,
			jsonpatch.ErrMissing)
	}
	if err := in.add(key, value); err != nil {
		return fmt.Errorf("error in move for path: '%s': %w", path, err)
	}
	return nil
}

func (d *document) test(op jsonpatch.Operation) error {
	path, err := op.Path()
	if err != nil {
		return fmt.Errorf("test operation failed to decode path: %w", err)
	}
	want, value := valueOf(op), d.root
	if path != "" {
		in, key := d.container(path)
		if in == nil {
			return fmt.Errorf("test operation does not apply: is missing path: %s: %w", path, jsonpatch.ErrMissing)
		}
		if value, err = in.get(key); err != nil {
			return fmt.Errorf("error in test for path: '%s': %w", path, err)
		}
	}
	failed := fmt.Errorf("testing value %s failed: %w", path, jsonpatch.ErrTestFailed)
	switch {
	case path == "":
	case value == nil && (want == nil || want.text == nil):
		return nil
	case value == nil, want == nil:
		return failed
	}
	same, err := value.equal(want)
	if err == nil && !same {
		err = failed
	}
	return err
}

// copy counts what it adds, whether or not it stays.
func (d *document) copy(op jsonpatch.Operation) error {
	from, err := op.From()
	if err != nil {
		return fmt.Errorf("copy operation failed to decode from: %w", err)
	}
	in, key := d.container(from)
	if in == nil {
		return fmt.Errorf("copy operation does not apply: doc is missing from path: %s: %w", from, jsonpatch.ErrMissing)
	}
	value, err := in.get(key)
	if err != nil {
		return fmt.Errorf("error in copy for from: '%s': %w", from, err)
	}
	path, err := op.Path()
	if err != nil {
		return fmt.Errorf("copy operation failed to decode path: %w", jsonpatch.ErrMissing)
	}
	if in, key = d.container(path); in == nil {
		return fmt.Errorf("copy operation does not apply: doc is missing destination path: %s: %w", path,
			jsonpatch.ErrMissing)
	}
	if value != nil {
		// As the library prints a copy: "<" becomes "\u003c", which a test compares, and the limit counts.
		text, err := json.Marshal(json.RawMessage(value.appendTo(nil)))
		if err != nil {
			return fmt.Errorf("error while performing deep copy: %w", err)
		}
		value = &node{text: text}
		d.copied += len(text)
	}
	if d.copied > maxCopied {
		return jsonpatch.NewAccumulatedCopySizeError(maxCopied, int64(d.copied))
	}
	if err := in.add(key, value); err != nil {
		return fmt.Errorf("error while adding value during copy: %w", err)
	}
	return nil
}
