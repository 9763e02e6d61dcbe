package merge_test

import (
	"fmt"

	"plinth/merge"
	"plinth/object"
	"plinth/schema"
)

// parse reads YAML. The example's kind has no schema: its maps are granular, its lists atomic.
func parse(text string) object.Value {
	parsed, err := object.ParseYAML([]byte(text))
	if err != nil {
		panic(err)
	}
	return parsed.Value
}

var kind = &merge.Kind{Type: &schema.Type{Kind: schema.Any}}

// Two managers apply to one object; the intent of the second one has another value for a field of the first.
func Example() {
	team := merge.Writer{Manager: "team", APIVersion: "v1", Now: "2026-01-02T03:04:05Z"}
	live, err := kind.Apply(object.Nil,
		parse(`{apiVersion: v1, kind: Site, metadata: {name: s}, spec: {pages: 3, theme: dark}}`), team)
	if err != nil {
		panic(err)
	}
	intent := parse(`{apiVersion: v1, kind: Site, metadata: {name: s}, spec: {pages: 4, owner: ops}}`)
	ops := merge.Writer{Manager: "ops", APIVersion: "v1", Now: "2026-01-02T03:05:00Z"}
	if _, err := kind.Apply(live, intent, ops); err != nil {
		fmt.Println(err)
	}
	ops.Force = true
	if live, err = kind.Apply(live, intent, ops); err != nil {
		panic(err)
	}
	fmt.Println(string(object.AppendJSON(nil, live.At("spec"))))
	// Output:
	// Apply failed with 1 conflict: conflict with "team": .spec.pages
	// {"owner":"ops","pages":4,"theme":"dark"}
}

// Who owns which line.
func ExampleOwners() {
	live, err := kind.Apply(object.Nil, parse(`{apiVersion: v1, kind: Site, metadata: {name: s}, spec: {pages: 3}}`),
		merge.Writer{Manager: "team", APIVersion: "v1", Now: "2026-01-02T03:04:05Z"})
	if err != nil {
		panic(err)
	}
	live = live.WithAt(object.StringOf("dark"), "spec", "theme")
	owned, err := merge.Owners(live, nil)
	if err != nil {
		panic(err)
	}
	fmt.Print(owned.YAML())
	// Output:
	// apiVersion: v1
	// kind: Site
	// metadata:
	//   name: s
	// spec:           # team (Apply)
	//   pages: 3      # team (Apply)
	//   theme: dark   # nobody
}
