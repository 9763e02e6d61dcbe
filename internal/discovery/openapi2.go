package discovery

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"plinth/internal/engine"
	"plinth/object"
)

// dialect2 is OpenAPI 2.0. Parameters that are not specific to one kind are written once, in the document's member
// parameters, and referred to. As in the reference the name there is the parameter's name and a hash of its JSON.
type dialect2 struct {
	shared map[string]object.Value
	// others are the names of custom models whose own names are those of built-in ones (beside).
	others map[string]string
}

func newDialect2() *dialect2 { return &dialect2{shared: map[string]object.Value{}} }

func (d *dialect2) ref(model string) object.Value {
	if other := d.others[model]; other != "" {
		model = other
	}
	return object.Fields("$ref", object.StringOf("#/definitions/"+model))
}

func (d *dialect2) refer(members []object.Member, model string, _ object.Value) []object.Member {
	return append(members, d.ref(model).Members()...)
}

// either can only say string. Clients recognize such values by the format or the name of the model.
func (*dialect2) either(string, string) []object.Member {
	return []object.Member{{Key: "type", Value: object.StringOf("string")}}
}

func (*dialect2) defaults() bool { return false }

// parameterJSON is a parameter with its members in the order that the reference hashes.
type parameterJSON struct {
	UniqueItems bool              `json:"uniqueItems,omitempty"`
	Type        string            `json:"type,omitempty"`
	Description string            `json:"description,omitempty"`
	Name        string            `json:"name"`
	In          string            `json:"in"`
	Required    bool              `json:"required,omitempty"`
	Schema      map[string]string `json:"schema,omitempty"`
}

func (d *dialect2) parameter(p *parameter) object.Value {
	v := object.MapOf(p.describe([]object.Member{
		{Key: "uniqueItems", Value: object.BoolOf(true)},
		{Key: "type", Value: object.StringOf(p.typ)},
		{Key: "name", Value: object.StringOf(p.name)},
		{Key: "in", Value: object.StringOf(p.in)},
	})...)
	switch p.name {
	case "name", "fieldValidation", "dryRun": // clients look for the last two in the operation itself
		return v
	}
	return d.share(v, parameterJSON{true, p.typ, p.description, p.name, p.in, p.in == "path", nil})
}

func (d *dialect2) body(b *builder, op *operation) object.Value {
	ref := b.want(op.body)
	members := []object.Member{
		{Key: "name", Value: object.StringOf("body")},
		{Key: "in", Value: object.StringOf("body")},
		{Key: "schema", Value: ref},
	}
	if op.bodyRequired {
		members = append(members, object.Member{Key: "required", Value: object.BoolOf(true)})
	}
	v := object.MapOf(members...)
	if !strings.HasPrefix(op.body, "io.k8s.apimachinery") {
		return v
	}
	return d.share(v, parameterJSON{Name: "body", In: "body", Required: op.bodyRequired,
		Schema: map[string]string{"$ref": ref.At("$ref").Str()}})
}

func (d *dialect2) share(v object.Value, text parameterJSON) object.Value {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // cannot happen: it holds strings and bools
	}
	hash := fnv.New64()
	hash.Write([]byte(strings.TrimSuffix(b.String(), "\n")))
	name := text.Name + "-" + base64.URLEncoding.EncodeToString(hash.Sum(nil)[:6])
	d.shared[name] = v
	return object.Fields("$ref", object.StringOf("#/parameters/"+name))
}

// parameters are the shared parameters, sorted by name.
func (d *dialect2) parameters() []object.Member {
	members := make([]object.Member, 0, len(d.shared))
	for name, v := range d.shared {
		members = append(members, object.Member{Key: name, Value: v})
	}
	sort.Slice(members, func(i, j int) bool { return members[i].Key < members[j].Key })
	return members
}

func (d *dialect2) operation(b *builder, op *operation) object.Value {
	members := append(op.common(),
		object.Member{Key: "produces", Value: object.Strings(op.produces...)},
		object.Member{Key: "schemes", Value: object.Strings("https")},
		object.Member{Key: "responses", Value: op.responses(func(members []object.Member) []object.Member {
			return append(members, object.Member{Key: "schema", Value: b.answer(op.model)})
		})},
	)
	if len(op.consumes) > 0 {
		members = append(members, object.Member{Key: "consumes", Value: object.Strings(op.consumes...)})
	}
	members = b.parameters(members, op.parameters)
	if op.body == "" {
		return object.MapOf(members...)
	}
	body := []object.Value{d.body(b, op)}
	if last := members[len(members)-1]; last.Key == "parameters" {
		body = append(body, last.Value.Items()...)
		members = members[:len(members)-1]
	}
	return object.MapOf(append(members, object.Member{Key: "parameters", Value: object.ListOf(body...)})...)
}

// openAPI2 prints the OpenAPI v2 document. The sections of custom types are copied (see section): otherwise, for a
// client that requests the document after each of thousands of new definitions, all of them would be printed each time.
func (d *Documents) openAPI2(c *catalog, protobuf bool) *Document {
	var builtin, custom []*groupVersion
	for _, gv := range c.all() {
		switch {
		case gv.remote != nil:
		case gv.isCustom():
			custom = append(custom, gv)
		default:
			builtin = append(builtin, gv)
		}
	}
	packed, sum := &documentBuffer{limit: plainLimit}, sha256.New()
	w := &writer{out: io.MultiWriter(packed, sum)}
	mediaType := mediaJSON
	if protobuf {
		w.message, mediaType = openAPI2Message(), mediaOpenAPI2
	}
	find := d.models()
	remotes := d.renamed(c, find, builtin)
	b := newBuilder(d, find, newDialect2(), builtin, groupVersionKinds(builtin))
	w.document(func() {
		w.value("swagger", object.StringOf("2.0"))
		w.value("info", d.info())
		w.fields("paths", func(emit func(path string, item object.Value)) {
			emit = once(emit)
			for _, p := range d.v3Documents(c) {
				if p.version != nil && (p.version.remote != nil || p.version.isCustom()) ||
					p.version == nil && c.isRemote(strings.TrimPrefix(p.name, "apis/")) {
					continue
				}
				for _, item := range p.paths(d) {
					emit(item.path, b.path(item))
				}
			}
			for _, r := range remotes {
				emitAll(emit, r.Paths)
			}
			for _, gv := range custom {
				w.copy(gv.section(d, protobuf).paths)
			}
		})
		if len(custom) > 0 {
			b.wantTemplate()
		}
		w.fields("definitions", func(emit func(name string, model object.Value)) {
			emit = once(emit)
			b.models(emit)
			for _, r := range remotes {
				emitAll(emit, r.Definitions)
			}
			for _, gv := range custom {
				w.copy(gv.section(d, protobuf).models)
			}
		})
		w.fields("parameters", func(emit func(name string, parameter object.Value)) {
			emitAll(emit, b.dialect.(*dialect2).parameters())
		})
		w.value("securityDefinitions", securitySchemes)
		w.value("security", object.ListOf(object.Fields("BearerToken", object.ListOf())))
	})
	return packed.document(mediaType, hashText(sum))
}

// section is the part of the document that describes one group version of custom types, in one encoding.
type section struct {
	once          sync.Once
	paths, models *Document // members of the maps paths and definitions, compressed
}

// section returns the section in one encoding, and prints it on first use.
func (gv *groupVersion) section(d *Documents, protobuf bool) *section {
	s := &gv.sections[0]
	if protobuf {
		s = &gv.sections[1]
	}
	s.once.Do(func() {
		d.counters.sections.Add(1)
		dialect := newDialect2()
		b := newBuilder(d, d.models(), dialect, []*groupVersion{gv}, d.customKinds())
		models := b.customModels()
		dialect.others = d.beside(models)
		print := func(field string, body func(emit func(name string, v object.Value))) *Document {
			packed := &documentBuffer{}
			w := &writer{out: packed}
			if protobuf {
				w.message = openAPI2Message()
			}
			body(w.emitter(field))
			return packed.document("", "")
		}
		s.paths = print("paths", func(emit func(path string, item object.Value)) {
			for _, item := range d.pathsOf(gv) {
				emit(item.path, b.path(item))
			}
		})
		s.models = print("definitions", func(emit func(name string, model object.Value)) {
			for _, name := range slices.Sorted(maps.Keys(models)) {
				switch other, taken := dialect.others[name]; {
				case !taken:
					emit(name, models[name]())
				case other != "":
					emit(other, models[name]())
				}
			}
		})
	})
	return s
}

// goModules begin the names of the models of built-in types.
var goModules = []string{
	"io.k8s.api.", "io.k8s.apimachinery.", "io.k8s.apiextensions-apiserver.", "io.k8s.kube-aggregator.",
}

// beside returns the names under which custom models are described whose own name is that of a built-in model: the name
// of a model of a custom type begins with its group, reversed. As in the reference the name gets an ending, "_v2". A
// custom model with the name of one that all custom types refer to is not described, "": what refers to it means the
// other one.
func (d *Documents) beside(models map[string]func() object.Value) map[string]string {
	var names map[string]string
	for name := range models {
		begins := func(module string) bool { return strings.HasPrefix(name, module) }
		if !slices.ContainsFunc(goModules, begins) || !d.builtinModels()[name] {
			continue
		}
		if names == nil {
			names = map[string]string{}
		}
		names[name] = ""
		if b := newBuilder(d, d.models(), newDialect2(), nil, nil); !b.wantTemplate()[name] {
			for n := 2; names[name] == "" || d.builtinModels()[names[name]] || models[names[name]] != nil; n++ {
				names[name] = name + "_v" + strconv.Itoa(n)
			}
		}
	}
	return names
}

// namesOfModels are the names of all models that these types are described with.
func (d *Documents) namesOfModels(types []*engine.Resource) map[string]bool {
	var versions []*groupVersion
	for _, served := range engine.NewRegistry(types).Now().GroupVersions() {
		versions = append(versions, newGroupVersion(served))
	}
	b := newBuilder(d, d.models(), newDialect2(), versions, groupVersionKinds(versions))
	for _, gv := range versions {
		for _, item := range d.pathsOf(gv) {
			b.path(item)
		}
	}
	b.wantTemplate()
	names := map[string]bool{}
	b.models(func(name string, _ object.Value) { names[name] = true })
	return names
}

// template is a custom type with all possible paths. The paths of every custom type refer to the same models and
// shared parameters as the template's.
var template = &engine.GroupVersion{Group: "example.com", Version: "v1", Resources: []*engine.Resource{{
	Naming: engine.Naming{
		Group: "example.com", Version: "v1", Name: "templates", Kind: "Template", ListKind: "TemplateList", Namespaced: true,
	},
	Model:   "com.example.v1.Template",
	Written: func() object.Value { return object.Nil },
	Subresources: []*engine.Subresource{
		{Name: "status", Model: "com.example.v1.Template"}, {Name: "scale", Model: "io.k8s.api.autoscaling.v1.Scale"},
	},
}}}

// wantTemplate includes in the document the models and shared parameters that sections refer to. It returns all models
// that it refers to.
func (b *builder) wantTemplate() map[string]bool {
	for _, item := range b.documents.pathsOf(newGroupVersion(template)) {
		b.path(item)
	}
	of := template.Resources[0]
	delete(b.wanted, of.Model)
	delete(b.wanted, besideModel(of.Model, of.ListKind))
	b.wanted[modelObjectMeta], b.wanted[modelListMeta] = true, true
	return b.wanted
}

// openAPI2Message has the field numbers of gnostic's OpenAPIv2.proto, for the members that are used here.
var openAPI2Message = sync.OnceValue(func() *message {
	schemaMessage := &message{extensions: 31}
	one := func(number int) protoField { return protoField{number: number, of: schemaMessage} }
	schemaMessage.fields = map[string]protoField{
		"$ref": {number: 1}, "format": {number: 2}, "title": {number: 3}, "description": {number: 4},
		"default": {number: 5, any: true}, "multipleOf": {number: 6, double: true},
		"maximum": {number: 7, double: true}, "exclusiveMaximum": {number: 8},
		"minimum": {number: 9, double: true}, "exclusiveMinimum": {number: 10},
		"maxLength": {number: 11}, "minLength": {number: 12}, "pattern": {number: 13},
		"maxItems": {number: 14}, "minItems": {number: 15}, "uniqueItems": {number: 16},
		"maxProperties": {number: 17}, "minProperties": {number: 18},
		"required": {number: 19}, "enum": {number: 20, any: true, each: true},
		"additionalProperties": {number: 21, choose: func(v object.Value) protoField {
			if v.Kind() == object.Bool {
				return protoField{wrap: []int{2}}
			}
			return protoField{of: schemaMessage, wrap: []int{1}}
		}},
		"type":  {number: 22, wrap: []int{1}},
		"items": {number: 23, of: schemaMessage, wrap: []int{1}}, "allOf": one(24),
		"properties":   {number: 25, of: &message{entries: one(1)}},
		"externalDocs": {number: 29, of: &message{fields: fields("description", "url")}},
		"example":      {number: 30, any: true},
	}
	reference := &message{fields: fields("$ref", "description")}
	body := &message{fields: map[string]protoField{
		"description": {number: 1}, "name": {number: 2}, "in": {number: 3}, "required": {number: 4}, "schema": one(5),
	}}
	query := &message{fields: fields("required", "in", "description", "name", "allowEmptyValue", "type", "format")}
	query.fields["uniqueItems"] = protoField{number: 20}
	path := &message{fields: fields("required", "in", "description", "name", "type", "format")}
	path.fields["uniqueItems"] = protoField{number: 19}
	parameter := func(v object.Value) protoField {
		switch v.At("in").Str() {
		case "body":
			return protoField{of: body, wrap: []int{1}}
		case "query":
			return protoField{of: query, wrap: []int{2, 3}}
		}
		return protoField{of: path, wrap: []int{2, 4}}
	}
	item := func(v object.Value) protoField {
		if _, ok := v.Get("$ref"); ok {
			return protoField{of: reference, wrap: []int{2}}
		}
		f := parameter(v)
		f.wrap = append([]int{1}, f.wrap...)
		return f
	}
	response := &message{fields: map[string]protoField{"description": {number: 1},
		"schema": {number: 2, of: schemaMessage, wrap: []int{1}}}}
	operation := &message{extensions: 13, fields: map[string]protoField{
		"tags": {number: 1}, "description": {number: 3}, "operationId": {number: 5}, "produces": {number: 6},
		"consumes":   {number: 7},
		"parameters": {number: 8, choose: item}, "schemes": {number: 10},
		"responses": {number: 9, of: &message{entries: protoField{number: 1, of: response, wrap: []int{1}}}},
	}}
	pathItem := &message{fields: fields("$ref", "get", "put", "post", "delete", "options", "head", "patch")}
	for _, method := range []string{"get", "put", "post", "delete", "options", "head", "patch"} {
		pathItem.with(method, operation)
	}
	pathItem.fields["parameters"] = protoField{number: 9, choose: item}
	key := &message{fields: fields("type", "name", "in", "description")}
	return &message{fields: map[string]protoField{
		"swagger": {number: 1}, "info": {number: 2, of: &message{fields: fields("title", "version")}},
		"paths":               {number: 8, of: &message{entries: protoField{number: 2, of: pathItem}}},
		"definitions":         {number: 9, of: &message{entries: one(1)}},
		"parameters":          {number: 10, of: &message{entries: protoField{number: 1, choose: parameter}}},
		"security":            {number: 12, of: &message{entries: protoField{number: 1, wrap: []int{1}}}},
		"securityDefinitions": {number: 13, of: &message{entries: protoField{number: 1, of: key, wrap: []int{2}}}},
	}}
})
