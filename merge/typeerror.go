package merge

import (
	"errors"
	"strings"
)

// TypeError is the error of an object that cannot be merged: a value of the wrong kind, a field that the schema does
// not have, an associative list with two items of one identity or with one of none.
//
// It is made where the violation is found, which does not know the path to it. Each level that it passes on its way up
// puts an element in front (within, prefixErrors): `.image: expected string, got 1` becomes
// `[name="web"].image: …`, then `.containers[name="web"].image: …` and so on. The other way, to hand the path down,
// would build it for every value of every object, and nearly all objects have no error.
//
// Text and order are the reference's (typed.ValidationErrors), since kubectl prints them.
type TypeError struct {
	Path    string
	Message string
	more    []*TypeError // further violations of the same object
	front   []string     // the elements of Path so far, the last one first; nil once Path is complete (fieldWalker)
}

// length is the length of the message and of the path so far.
func (e *TypeError) length() int {
	n := len(e.Message)
	for _, element := range e.front {
		n += len(element)
	}
	return n
}

func (e *TypeError) Error() string {
	if len(e.more) == 0 {
		return e.line()
	}
	lines := []string{"errors:"}
	for _, each := range e.All() {
		lines = append(lines, "  "+each.line())
	}
	return strings.Join(lines, "\n")
}

// All returns this violation and the others of the same object.
func (e *TypeError) All() []*TypeError { return append([]*TypeError{e}, e.more...) }

func (e *TypeError) line() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// within puts an element in front of the path of a TypeError.
func within(err error, e Element) error {
	var typed *TypeError
	if errors.As(err, &typed) {
		typed.Path = e.String() + typed.Path
	}
	return err
}
