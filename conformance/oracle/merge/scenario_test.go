package merge

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"sigs.k8s.io/yaml"

	"plinth/object"
)

// scenario formats a history as in the files of testdata.
func (h *history) scenario(why string, d *difference) string {
	var b strings.Builder
	b.WriteString(why + "\n")
	b.WriteString(h.kind.text())
	for i, op := range h.steps {
		if op.verb == reschema {
			b.WriteString("-- schema --\n" + op.kind.text())
			continue
		}
		fmt.Fprintf(&b, "-- %s --\n%s", op, yamlOf(op.body))
		if d != nil && d.at == i {
			fmt.Fprintf(&b, "-- outcome --\n%s-- instead --\n%s", d.want, d.got)
			if d.got.err != nil {
				b.WriteString("(" + d.got.err.Error() + ")\n")
			}
			if d.want.lost != nil {
				b.WriteString("(upstream: " + d.want.lost.Error() + ")\n")
			}
			if d.want.err != nil {
				b.WriteString("(upstream: " + d.want.err.Error() + ")\n")
			}
		}
	}
	return b.String()
}

// text formats the kind and its schemas.
func (k *kind) text() string {
	var b strings.Builder
	if k.builtin {
		return fmt.Sprintf("-- builtin %s %s --\n", k.apiVersion(k.versions[0].name), k.name)
	}
	fmt.Fprintf(&b, "-- kind %s/%s --\n", k.group, k.name)
	if k.forgetful {
		b.WriteString("forgetful: true\n")
	}
	if k.fragile != "" {
		b.WriteString("fragile: " + k.fragile + "\n")
	}
	if k.status {
		b.WriteString("status: true\n")
	}
	for _, apiVersion := range keysOf(k.scale) {
		fmt.Fprintf(&b, "scale %s: %q\n", apiVersion, k.scale[apiVersion])
	}
	for _, v := range k.versions {
		fmt.Fprintf(&b, "-- version %s", v.name)
		if v.root != nil && v.root.MapType != "" {
			b.WriteString(" " + v.root.MapType)
		}
		for _, name := range keysOf(v.renames) {
			fmt.Fprintf(&b, " %s=%s", name, v.renames[name])
		}
		b.WriteString(" --\n")
		if v.root == nil {
			continue
		}
		fields := maps.Clone(v.root.Properties)
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			delete(fields, name)
		}
		text, err := json.Marshal(fields)
		if err == nil {
			text, err = yaml.JSONToYAML(text)
		}
		if err != nil {
			panic(err)
		}
		b.Write(text)
	}
	return b.String()
}

func yamlOf(v object.Value) string {
	text, err := object.YAML(object.AppendJSON(nil, v))
	if err != nil {
		panic(err)
	}
	return string(text)
}
