package object

import (
	"strings"
	"testing"
)

func TestDocuments(t *testing.T) {
	for name, test := range map[string]struct{ text, want, err string }{
		"several": {text: "# a comment\n---\napiVersion: v1\nkind: A\n---\n# only this\n---\n{apiVersion: v1, kind: B}\n",
			want: `{"apiVersion":"v1","kind":"A"} {"apiVersion":"v1","kind":"B"}`},
		"JSON": {text: `{"kind": "A", "apiVersion": "v1"}`, want: `{"apiVersion":"v1","kind":"A"}`},
		"lists": {text: `{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: A}, {apiVersion: v1, kind: BList,
			items: [{apiVersion: v1, kind: B}]}]}`, want: `{"apiVersion":"v1","kind":"A"} {"apiVersion":"v1","kind":"B"}`},
		"no list":    {text: "{apiVersion: v1, kind: A, items: [1]}", want: `{"apiVersion":"v1","items":[1],"kind":"A"}`},
		"empty":      {text: "\n---\n"},
		"kind":       {text: "apiVersion: v1\n---\n", err: "document 1: no object"},
		"scalar":     {text: "apiVersion: v1\nkind: A\n---\n7", err: "document 2: no object"},
		"item":       {text: "{apiVersion: v1, kind: List, items: [{}]}", err: "no object"},
		"twice":      {text: "apiVersion: v1\nkind: A\nkind: B", err: "kind"},
		"twice JSON": {text: `{"apiVersion": "v1", "kind": "A", "kind": "B"}`, err: "kind"},
		"broken":     {text: "a: [", err: "document 1"},
	} {
		all, err := Documents([]byte(test.text))
		var texts []string
		for _, v := range all {
			texts = append(texts, string(AppendJSON(nil, v)))
		}
		if got := strings.Join(texts, " "); got != test.want || (err == nil) != (test.err == "") ||
			err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
