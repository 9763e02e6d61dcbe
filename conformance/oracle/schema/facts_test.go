package schema

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/vectors"
	"plinth/internal/builtin"
	"plinth/internal/gotypes"
	"plinth/object"
	"plinth/schema"
)

var rewrite = flag.Bool("rewrite", false,
	"ask the reference for its OpenAPI documents and record what they say of types")

const factsFile = "testdata/facts-1.37.txt"

func TestMain(m *testing.M) { harness.Main(m) }

// foreign are models whose types are not in k8s.io/api and apimachinery but in other modules. The reference merges
// their documents into its own some time after its start.
var foreign = []string{"io.k8s.kube-aggregator.", "io.k8s.apiextensions-apiserver."}

// openAPI is the part of a schema in an OpenAPI v3 document that describes a type and how it merges.
type openAPI struct {
	Type                 string
	Format               string
	Enum                 []string
	Required             []string
	Default              json.RawMessage
	Ref                  string `json:"$ref"`
	AllOf, OneOf         []openAPI
	Properties           map[string]openAPI
	Items                *openAPI
	AdditionalProperties *openAPI
	ListType             string   `json:"x-kubernetes-list-type"`
	ListKeys             []string `json:"x-kubernetes-list-map-keys"`
	MapType              string   `json:"x-kubernetes-map-type"`
	PatchStrategy        string   `json:"x-kubernetes-patch-strategy"`
	PatchMergeKey        string   `json:"x-kubernetes-patch-merge-key"`
}

// The facts are one block of lines for each model: its name and marker, then a line for each property, with its type
// and other facts. Defaults of list items and map values are left out, as they follow from the type.
//
// SPEC: SSA-8.
func TestFactsAreTheReferences(t *testing.T) {
	if *rewrite {
		if err := os.WriteFile(factsFile, []byte(askReference(t)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := os.ReadFile(factsFile)
	if err != nil {
		t.Fatal(err)
	}
	if harness.WantReference() && !*rewrite && askReference(t) != string(recorded) {
		t.Error("the reference has other facts than the recorded ones: run with -rewrite")
	}
	blocks := strings.Split(strings.TrimSpace(string(recorded)), "\n\n")
	if len(blocks) < 580 {
		t.Errorf("only %d models are recorded", len(blocks))
	}
	names := make([]string, len(blocks))
	for i, block := range blocks {
		names[i] = strings.Fields(block)[0]
	}
	types := namedTypes(t, names)
	for i, block := range blocks {
		name := names[i]
		typ := types[name]
		if typ == nil {
			t.Errorf("%s: no such type", name)
			continue
		}
		want, got := strings.Split(block, "\n"), strings.Split(ourFacts(typ), "\n")
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("%s: missing %s", name, line)
			}
		}
		for _, line := range got {
			if !slices.Contains(want, line) {
				t.Errorf("%s: not in the reference: %s", name, line)
			}
		}
	}
}

// namedTypes returns our types by their OpenAPI name, without the facts that belong to a field: those of all kinds, and
// these models.
func namedTypes(t *testing.T, models []string) map[string]*schema.Type {
	t.Helper()
	types := map[string]*schema.Type{}
	seen := map[*schema.Type]bool{}
	var visit func(*schema.Type)
	visit = func(typ *schema.Type) {
		if typ == nil || seen[typ] {
			return
		}
		seen[typ] = true
		if typ.Name != "" {
			types[typ.Name] = typ.Unmarked()
		}
		visit(typ.Elem)
		for i := range typ.Fields {
			visit(typ.Fields[i].Type)
		}
	}
	for _, v := range vectors.All(t) {
		visit(gotypes.OfType(v.Type))
	}
	find := builtin.Models()
	for _, name := range models {
		if typ := find(name); typ != nil {
			visit(typ)
		}
	}
	return types
}

// ourFacts formats a type as in the record.
func ourFacts(t *schema.Type) string {
	var b strings.Builder
	b.WriteString(t.Name)
	if t.Marked {
		b.WriteString(" map=" + mapType(t))
	}
	if t.Kind != schema.Struct {
		b.WriteString(" " + typeWord(&schema.Type{Kind: t.Kind}))
	}
	for i := range t.Fields {
		f := &t.Fields[i]
		fmt.Fprintf(&b, "\n%s %s", f.Name, typeWord(f.Type))
		if f.Required {
			b.WriteString(" required")
		}
		if v := defaultOf(f); !v.IsNull() {
			b.WriteString(" default=" + string(object.AppendJSON(nil, v)))
		}
		if f.Type.Marked && f.Type != f.Type.Unmarked() {
			switch f.Type.Kind {
			case schema.List:
				b.WriteString(" list=" + [...]string{"atomic", "set", "map"}[f.Type.ListType])
				writeKeys(&b, f.Type.ListKeys)
			default:
				b.WriteString(" map=" + mapType(f.Type))
			}
		}
		writePatch(&b, f.PatchStrategy, f.PatchMergeKey)
	}
	return b.String()
}

func mapType(t *schema.Type) string {
	if t.AtomicMap {
		return "atomic"
	}
	return "granular"
}

func writeKeys(b *strings.Builder, keys []string) {
	for _, key := range keys {
		b.WriteString(" key=" + key)
	}
}

func writePatch(b *strings.Builder, strategy, key string) {
	if strategy != "" {
		b.WriteString(" strategy=" + strategy)
	}
	if key != "" {
		b.WriteString(" mergekey=" + key)
	}
}

// defaultOf returns the default in OpenAPI: that of the marker, or the zero value of a field that is never absent.
func defaultOf(f *schema.Field) object.Value {
	switch {
	case !f.Default.IsNull():
		return f.Default
	case f.Pointer:
		return object.Nil
	case f.Type.Kind == schema.Struct:
		return object.MapOf()
	case f.OmitEmpty:
		return object.Nil
	}
	switch f.Type.Kind {
	case schema.String, schema.Bool, schema.Int, schema.Float:
		return f.Type.Zero()
	}
	return object.Nil
}

func typeWord(t *schema.Type) string {
	switch t.Kind {
	case schema.List:
		return "[]" + typeWord(t.Elem)
	case schema.Map:
		return "{}" + typeWord(t.Elem)
	case schema.Int:
		return fmt.Sprintf("integer/int%d", t.Bits)
	case schema.Float:
		return map[uint8]string{32: "number/float", 64: "number/double"}[t.Bits]
	case schema.Bool:
		return "boolean"
	case schema.Bytes:
		return "string/byte"
	case schema.String:
		return "string" + enumWord(t.Enum)
	}
	if t.Name != "" {
		return shortName(t.Name)
	}
	switch t.Kind {
	case schema.Time, schema.MicroTime:
		return "string/date-time"
	case schema.Quantity:
		return "string|number"
	case schema.IntOrString:
		return "int-or-string"
	}
	return "object"
}

func enumWord(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return "(" + strings.Join(values, "|") + ")"
}

func shortName(name string) string {
	name = strings.TrimPrefix(name, "#/components/schemas/")
	return "@" + strings.TrimPrefix(strings.TrimPrefix(name, "io.k8s.api."), "io.k8s.apimachinery.pkg.")
}

// askReference reads every document and formats its models as in the record.
func askReference(t *testing.T) string {
	t.Helper()
	server := harness.Run(t, harness.Options{Kind: harness.Reference})
	get := func(path string, into any) {
		request, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+harness.AdminToken)
		answer, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	get("/openapi/v3", &index)
	models := map[string]openAPI{}
	for _, path := range index.Paths {
		var document struct {
			Components struct{ Schemas map[string]openAPI }
		}
		get(path.ServerRelativeURL, &document)
		maps.Copy(models, document.Components.Schemas)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(models)) {
		if !slices.ContainsFunc(foreign, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			writeReference(&b, name, models[name])
		}
	}
	return b.String()
}

func writeReference(b *strings.Builder, name string, model openAPI) {
	b.WriteString(name)
	if model.MapType != "" {
		b.WriteString(" map=" + model.MapType)
	}
	if word := model.word(); model.Properties == nil &&
		(word != "object" || strings.HasSuffix(name, ".RawExtension") || strings.HasSuffix(name, ".FieldsV1")) {
		b.WriteString(" " + word)
	}
	b.WriteString("\n")
	for _, property := range slices.Sorted(maps.Keys(model.Properties)) {
		p := model.Properties[property]
		fmt.Fprintf(b, "%s %s", property, p.word())
		if slices.Contains(model.Required, property) {
			b.WriteString(" required")
		}
		if p.Default != nil {
			b.WriteString(" default=" + string(p.Default))
		}
		if p.ListType != "" {
			b.WriteString(" list=" + p.ListType)
			writeKeys(b, p.ListKeys)
		}
		if p.MapType != "" {
			b.WriteString(" map=" + p.MapType)
		}
		writePatch(b, p.PatchStrategy, p.PatchMergeKey)
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// word is typeWord of a schema in a document.
func (o openAPI) word() string {
	switch {
	case o.Ref != "":
		return shortName(o.Ref)
	case len(o.AllOf) > 0:
		return o.AllOf[0].word()
	case o.Items != nil:
		return "[]" + o.Items.word()
	case o.AdditionalProperties != nil:
		return "{}" + o.AdditionalProperties.word()
	case o.Format == "int-or-string":
		return o.Format
	case len(o.OneOf) > 0:
		return o.OneOf[0].Type + "|" + o.OneOf[1].Type
	case o.Format != "":
		return o.Type + "/" + o.Format
	case o.Type == "":
		return "object"
	}
	return o.Type + enumWord(o.Enum)
}
