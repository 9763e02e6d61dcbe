package merge

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"plinth/object"
)

// write is one request, as both engines see it.
type write struct {
	kind        *kind
	version     string // of the request: "v1"
	manager     string
	subresource string
	force       bool
	now         time.Time
}

func (w write) apiVersion() string { return w.kind.apiVersion(w.version) }

// engine keeps track of the ownership of fields. Objects are complete, with metadata.managedFields, in the version of
// the request; the results have their managedFields set.
type engine interface {
	// Apply merges an intent into the live object, which is null if it does not exist yet.
	Apply(w write, live, intent object.Value) (object.Value, error)
	// Update takes the new object as it is. If it fails to determine the owners, it returns both a result and an error.
	Update(w write, live, updated object.Value) (object.Value, error)
	// ToScale and FromScale turn the managedFields of an object into those of its scale subresource, and back.
	ToScale(w write, parent object.Value) (object.Value, error)
	FromScale(w write, parent, scale object.Value) (object.Value, error)
}

// conflict is one cause of a refused apply.
type conflict struct{ field, message string }

// untracked marks an update that failed to determine the owners and kept the managedFields from before.
const untracked = "untracked"

// refusal is an error of an engine as a client gets it.
type refusal struct {
	kind      string // "conflict", "bad request", "internal"
	message   string
	conflicts []conflict
}

func (r *refusal) Error() string { return r.kind + ": " + r.message }

// outcome is the result of an operation, comparable as text.
type outcome struct {
	live object.Value // after the operation
	err  error
	lost error // why an update was not tracked, if known
	same bool  // whether it is the same as before, byte for byte
}

// String formats the object without its managedFields, and then each entry of those on a separate line.
func (o outcome) String() string {
	var b strings.Builder
	if o.err != nil {
		r := &refusal{kind: "internal"}
		errors.As(o.err, &r)
		b.WriteString("refused: " + r.kind + "\n")
		if r.kind == "conflict" {
			b.WriteString(indent(r.message))
			causes := make([]string, 0, len(r.conflicts))
			for _, c := range r.conflicts {
				causes = append(causes, fmt.Sprintf("- %s: %s\n", c.field, c.message))
			}
			slices.Sort(causes)
			b.WriteString(strings.Join(causes, ""))
		}
	}
	if o.same {
		b.WriteString("as before\n")
		return b.String()
	}
	text, err := object.YAML(object.AppendObject(nil, o.live.WithoutAt("metadata", "managedFields")))
	if err != nil {
		text = []byte(err.Error())
	}
	b.Write(text)
	entries := o.live.At("metadata", "managedFields")
	if entries.Kind() != object.List {
		return b.String() + "owners: " + string(object.AppendJSON(nil, entries)) + "\n"
	}
	b.WriteString("owners:\n")
	for _, e := range entries.Items() {
		b.WriteString("- " + entryLine(e) + "\n")
	}
	return b.String()
}

// entryLine formats an entry of managedFields, as JSON if it is not an ordinary one.
func entryLine(e object.Value) string {
	plain := e
	for _, name := range []string{"manager", "operation", "apiVersion", "time", "subresource", "fieldsV1"} {
		plain = plain.Without(name)
	}
	if plain.Len() != 1 || plain.At("fieldsType").Str() != "FieldsV1" {
		return string(object.AppendJSON(nil, e))
	}
	line := fmt.Sprintf("%q %s %s", e.At("manager").Str(), e.At("operation").Str(), e.At("apiVersion").Str())
	if v, ok := e.Get("subresource"); ok {
		line += " /" + v.Str()
	}
	if v, ok := e.Get("time"); ok {
		line += " " + v.Str()
	} else {
		line += " no time"
	}
	return line + "\n  " + string(object.AppendJSON(nil, e.At("fieldsV1")))
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}
