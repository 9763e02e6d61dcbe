package patch

import (
	"errors"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"plinth/object"
)

// A JSON Patch is bounded by the number of its operations and by the size of its text, but each copy may double the
// document: a few dozen operations that copy a list into itself would exhaust any memory (WRITE-6). The library can
// bound what copies add only with a global variable of its package, which would bound it for the whole process, and no
// package here sets variables of another one. So copies are counted here:
//
//   - Without copies, a document never grows by more than the text of its patch, and a copy adds at most the document.
//     So n copies add at most
//
//     (2ⁿ - 1) · maxEscape · (document + patch)
//
//     If that is within maxCopied, as for any patch that people write, no counting is needed.
//
//   - Otherwise the operations are passed to the library in groups that begin with a copy, so that the size of what it
//     copies is known before. This prints and parses the whole document for each copy; maxReprinted bounds that. There
//     is one difference: an operation on a path through a null that was copied fails here. The library, given all
//     operations at once, treats that null as an empty map.
//
// For example, {"a": [1]} and two dozen operations {"op": "copy", "from": "/a", "path": "/a/-"} are a kilobyte of text,
// and a has 2²⁴ numbers in the end.
const (
	// maxCopied is how many bytes the copies of one patch may add, as in the reference.
	maxCopied = 3 * 3 << 20
	// maxReprinted bounds the work of counting to a second or two. The reference has no such bound; only a patch with
	// dozens of copies in an object of megabytes, or thousands of them in one of tens of kilobytes, comes near it.
	maxReprinted = 8 * maxCopied
	// maxEscape is the largest factor by which encoding/json lengthens a byte: "<" is printed as "\u003c".
	maxEscape = 6
)

var errTooManyCopies = errors.New("too many copy operations for an object of this size")

// mayCopyTooMuch says whether copies might add more than maxCopied to a document. size is that of document and patch.
func mayCopyTooMuch(operations jsonpatch.Patch, size int) bool {
	bound := maxEscape * size
	for _, op := range operations {
		if op.Kind() == "copy" {
			if bound *= 2; bound > maxCopied {
				return true
			}
		}
	}
	return false
}

// applyCounted applies operations, as long as the copies among them add no more than maxCopied.
func applyCounted(operations jsonpatch.Patch, doc []byte) ([]byte, error) {
	copied, reprinted, next := 0, 0, 0
	for i, op := range operations {
		if op.Kind() != "copy" {
			continue
		}
		before, err := operations[next:i].Apply(doc) // the group begins with the previous copy
		if err != nil {
			return nil, err
		}
		if reprinted += len(before); reprinted > maxReprinted {
			return nil, errTooManyCopies
		}
		parsed, err := object.ParseJSON(before)
		if err != nil {
			return nil, err
		}
		if from, err := op.From(); err == nil {
			if source, ok := at(parsed.Value, from); ok {
				copied += len(object.AppendJSON(nil, source))
			}
		}
		if copied > maxCopied {
			return nil, jsonpatch.NewAccumulatedCopySizeError(maxCopied, int64(copied))
		}
		doc, next = object.AppendJSON(nil, parsed.Value), i
	}
	return operations[next:].Apply(doc)
}

// at finds the value at a JSON pointer (RFC 6901), by the rules of the library: negative indexes count from the end.
func at(v object.Value, pointer string) (_ object.Value, ok bool) {
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if v.Kind() != object.List {
			if v, ok = v.Get(unescape.Replace(step)); !ok {
				return object.Nil, false
			}
			continue
		}
		i, err := strconv.Atoi(step)
		if err != nil {
			return object.Nil, false
		}
		items := v.Items()
		if i < 0 {
			i += len(items)
		}
		if i < 0 || i >= len(items) {
			return object.Nil, false
		}
		v = items[i]
	}
	return v, true
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")
