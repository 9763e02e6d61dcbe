package discovery

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"plinth/internal/apierr"
	"plinth/internal/wire"
	"plinth/object"
)

const (
	mediaOpenAPI2      = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	mediaOpenAPI2AsOld = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
)

// openAPI serves the paths below /openapi/.
func (d *Documents) openAPI(rest, accept string) (doc *Document, ok bool, err error) {
	c := d.catalog()
	switch {
	case rest == "v2":
		for _, clause := range wire.ParseAccept(accept).Clauses() {
			switch {
			case clause.Names(mediaJSON):
				return c.representations.get("v2", func() *Document { return d.openAPI2(c, false) }), true, nil
			case clause.Names(mediaOpenAPI2AsOld), clause.Names(mediaOpenAPI2):
				return c.representations.get("v2 protobuf", func() *Document { return d.openAPI2(c, true) }), true, nil
			}
		}
		return nil, true, apierr.NewNotAcceptable([]string{mediaJSON, mediaOpenAPI2})
	case rest == "v3":
		return c.representations.get("v3", func() *Document { return jsonDocument(mediaJSON, d.index(c)) }), true, nil
	}
	name, found := strings.CutPrefix(rest, "v3/")
	if !found {
		return nil, false, nil
	}
	p := d.v3Document(c, name)
	if p == nil {
		return nil, false, nil
	}
	for _, clause := range wire.ParseAccept(accept).Clauses() {
		if clause.Names(mediaJSON) {
			return p.document(d), true, nil
		}
	}
	return nil, true, apierr.NewNotAcceptable([]string{mediaJSON})
}

// v3Document is the OpenAPI v3 document of a group version, or of one of the few paths outside of group versions.
// Later catalogs use it too, as long as it would be printed the same.
//
// The index needs the hash of each document. If a document was never requested, it is printed to compute its hash and
// is not kept: that costs time once, and no memory.
type v3Document struct {
	name    string                                      // "apis/apps/v1"
	path    func(d *Documents, p *v3Document) *pathItem // creates its one path; nil: the paths of version
	version *groupVersion                               // nil if path is set

	mu   sync.Mutex
	hash string    // "" until it is needed
	doc  *Document // nil until it is requested, and after it was dropped
}

func newV3Document(gv *groupVersion) *v3Document {
	return &v3Document{name: strings.TrimPrefix(gv.path(), "/"), version: gv}
}

// pathDocument is the document of one path that discovery serves.
func pathDocument(name, model, description, id string) *v3Document {
	return &v3Document{name: name, path: func(d *Documents, p *v3Document) *pathItem {
		item := d.discoveryPath("/"+name+"/", model, description, id)
		if name == "version" {
			item.operations[0].consumes, item.operations[0].produces = []string{mediaJSON}, []string{mediaJSON}
		}
		return item
	}}
}

// groupPathDocument is the document of a group's path.
func groupPathDocument(group string) *v3Document {
	return pathDocument("apis/"+group, metaModels+"APIGroup", "get information of a group", "APIGroup")
}

// rootPathDocuments are the documents that every server has, and with accounts those of the pages by which tokens of
// service accounts are verified.
func rootPathDocuments(accounts bool) []*v3Document {
	all := []*v3Document{
		pathDocument("api", metaModels+"APIVersions", "get available API versions", "APIVersions"),
		pathDocument("apis", metaModels+"APIGroupList", "get available API versions", "APIVersions"),
		pathDocument("version", modelVersion, "get the version information for this server", "CodeVersion"),
	}
	if !accounts {
		return all
	}
	return append(all,
		pageDocument(".well-known/openid-configuration", operation{tag: "WellKnown", produces: []string{mediaJSON},
			id:          "getServiceAccountIssuerOpenIDConfiguration",
			description: "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'"}),
		pageDocument("openid/v1/jwks", operation{tag: "openid", produces: []string{"application/jwk-set+json"},
			id: "getServiceAccountIssuerOpenIDKeyset",
			description: "get service account issuer OpenID JSON Web Key Set (contains public token verification " +
				"keys)"}))
}

// pageDocument is the document of a page with the answer to a GET.
func pageDocument(name string, get operation) *v3Document {
	get.method, get.answers = "get", []int{200}
	return &v3Document{name: name, path: func(*Documents, *v3Document) *pathItem {
		return &pathItem{path: "/" + name + "/", operations: []*operation{&get}}
	}}
}

// v3Document returns the document of this name, or nil.
func (d *Documents) v3Document(c *catalog, name string) *v3Document {
	for _, p := range d.roots {
		if p.name == name {
			return p
		}
	}
	var gv *groupVersion
	switch parts := strings.Split(name, "/"); {
	case len(parts) == 2 && parts[0] == "api":
		gv = c.find("", parts[1])
	case len(parts) == 2 && parts[0] == "apis" && parts[1] != "" && c.group(parts[1]) != nil:
		return c.group(parts[1]).pathDocument
	case len(parts) == 3 && parts[0] == "apis" && parts[1] != "":
		gv = c.find(parts[1], parts[2])
	}
	if gv == nil {
		return nil
	}
	return gv.openAPI
}

// v3Documents returns all OpenAPI v3 documents.
func (d *Documents) v3Documents(c *catalog) []*v3Document {
	parts := slices.Clone(d.roots)
	for _, g := range c.groups {
		if g.pathDocument != nil {
			parts = append(parts, g.pathDocument)
		}
	}
	for _, gv := range c.all() {
		if gv.openAPI != nil {
			parts = append(parts, gv.openAPI)
		}
	}
	return parts
}

// urlOf is the URL of the version of the document with this hash.
func (p *v3Document) urlOf(hash string) string {
	return "/openapi/v3/" + p.name + "?hash=" + url.QueryEscape(hash)
}

// index is /openapi/v3.
func (d *Documents) index(c *catalog) object.Value {
	var paths []object.Member
	find := d.models()
	for _, p := range d.v3Documents(c) {
		location := object.Fields("serverRelativeURL", object.StringOf(p.urlOf(p.hashOf(d, find))))
		paths = append(paths, object.Member{Key: p.name, Value: location})
	}
	return object.Fields("paths", object.MapOf(paths...))
}

// hashOf is the hash of the document's bytes. If it is unknown the document is printed.
func (p *v3Document) hashOf(d *Documents, find Finder) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hash == "" {
		sum := sha256.New()
		p.print(d, find, sum)
		p.hash = hashText(sum)
	}
	return p.hash
}

// document returns the document and prints it on first use. Concurrent callers wait.
func (p *v3Document) document(d *Documents) *Document {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doc == nil {
		out, sum := &documentBuffer{limit: plainLimit}, sha256.New()
		p.print(d, d.models(), io.MultiWriter(out, sum))
		p.hash = hashText(sum)
		p.doc = out.document(mediaJSON, p.hash)
		p.doc.URL = p.urlOf(p.hash)
	}
	return p.doc
}

func (p *v3Document) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doc = nil
}

func hashText(h hash.Hash) string { return fmt.Sprintf("%X", h.Sum(nil)) }

// paths are the paths that the document describes.
func (p *v3Document) paths(d *Documents) []*pathItem {
	if p.version == nil {
		return []*pathItem{p.path(d, p)}
	}
	return d.pathsOf(p.version)
}

// print writes the document: its paths, and then the models that they refer to. That of a backend is written as it is.
func (p *v3Document) print(d *Documents, find Finder, out io.Writer) {
	if p.version != nil && p.version.remote != nil {
		out.Write(p.version.remote.OpenAPI3)
		return
	}
	d.counters.openAPI.Add(1)
	w := &writer{out: out}
	info, custom := d.info(), p.version != nil && p.version.isCustom()
	var versions []*groupVersion
	if p.version != nil {
		versions = []*groupVersion{p.version}
	}
	var kinds map[string][]gvk
	if custom {
		info, kinds = customInfo, d.customKinds()
	} else {
		kinds = groupVersionKinds(versions)
	}
	b := newBuilder(d, find, dialect3{}, versions, kinds)
	w.document(func() {
		w.value("openapi", object.StringOf("3.0.0"))
		w.value("info", info)
		w.fields("paths", func(emit func(path string, item object.Value)) {
			for _, item := range p.paths(d) {
				emit(item.path, b.path(item))
			}
		})
		w.fields("components", func(emit func(name string, v object.Value)) {
			if custom || len(b.wanted) > 0 {
				w.fields("schemas", b.models)
			}
			if !custom {
				emit("securitySchemes", securitySchemes)
			}
		})
	})
}

func (d *Documents) info() object.Value {
	return object.Fields("title", object.StringOf("Kubernetes"), "version", object.StringOf(d.version.short()))
}

var securitySchemes = object.Fields("BearerToken", object.Fields(
	"type", object.StringOf("apiKey"), "description", object.StringOf("Bearer Token authentication"),
	"name", object.StringOf("authorization"), "in", object.StringOf("header"),
))

// writer prints a document member by member, as JSON or as protobuf.
type writer struct {
	out     io.Writer
	message *message // the protobuf message of the document; nil: JSON
	buf     []byte
	comma   bool // the next member needs a comma before it
}

func (w *writer) raw(s string) {
	if w.message == nil {
		io.WriteString(w.out, s)
	}
}

// document prints a map whose members are printed by body.
func (w *writer) document(body func()) {
	w.comma = false
	w.raw("{")
	body()
	w.raw("}")
	w.comma = true
}

// value prints a member.
func (w *writer) value(key string, v object.Value) {
	w.buf = w.buf[:0]
	if w.message != nil {
		w.buf = appendMessage(w.buf, w.message, object.Fields(key, v))
	} else {
		if w.comma {
			w.buf = append(w.buf, ',')
		}
		w.comma = true
		w.buf = append(object.AppendString(w.buf, key), ':')
		w.buf = object.AppendJSON(w.buf, v)
	}
	w.out.Write(w.buf)
}

// fields prints a member that is a map, with the members that body emits.
func (w *writer) fields(key string, body func(emit func(name string, v object.Value))) {
	if w.comma {
		w.raw(",")
	}
	w.raw(`"` + key + `":`)
	w.document(func() { body(w.emitter(key)) })
}

// emitter returns a function that prints a member of the map of this key. In protobuf each member is a separate field,
// and fields of one message may be written in several pieces, so no buffer is needed there either.
func (w *writer) emitter(key string) func(name string, v object.Value) {
	if w.message == nil {
		return w.value
	}
	return func(name string, v object.Value) { w.value(key, object.Fields(name, v)) }
}

// copy prints members that are printed already.
func (w *writer) copy(members *Document) {
	if w.comma {
		w.raw(",")
	}
	w.comma = true
	members.WriteTo(w.out) // from memory: it cannot fail
}

// builder converts paths and types to fragments in one version of OpenAPI, and collects the models that they refer to.
type builder struct {
	documents *Documents
	find      Finder
	dialect   dialect
	versions  []*groupVersion
	kinds     map[string][]gvk // by model
	wanted    map[string]bool
	rendered  map[*parameter]object.Value
}

// dialect has the differences between the versions of OpenAPI.
type dialect interface {
	// ref is a reference to a model.
	ref(model string) object.Value
	// refer adds a reference to a model, and a default, to the members of a property.
	refer(members []object.Member, model string, def object.Value) []object.Member
	// either describes a value that has one of two JSON types.
	either(a, b string) []object.Member
	// defaults says whether the version has defaults.
	defaults() bool
	// publish converts a node of a definition's schema, without its children.
	publish(schema object.Value) object.Value
	// keepsUnknown says whether a node of a definition's schema must be published without properties because it allows
	// unknown fields.
	keepsUnknown(schema object.Value) bool
	parameter(p *parameter) object.Value
	operation(b *builder, op *operation) object.Value
}

// path is the fragment of a path.
func (b *builder) path(item *pathItem) object.Value {
	var members []object.Member
	for _, op := range item.operations {
		members = append(members, object.Member{Key: op.method, Value: b.dialect.operation(b, op)})
	}
	members = b.parameters(members, item.parameters)
	return object.MapOf(members...)
}

func (b *builder) parameters(members []object.Member, parameters []*parameter) []object.Member {
	if len(parameters) == 0 {
		return members
	}
	items := make([]object.Value, len(parameters))
	for i, p := range parameters {
		v, ok := b.rendered[p]
		if !ok {
			v = b.dialect.parameter(p)
			b.rendered[p] = v
		}
		items[i] = v
	}
	return append(members, object.Member{Key: "parameters", Value: object.ListOf(items...)})
}

// want returns a reference to a model, and includes the model in the document.
func (b *builder) want(model string) object.Value {
	b.wanted[model] = true
	return b.dialect.ref(model)
}

// answer is the schema of a response. "" is plain text.
func (b *builder) answer(model string) object.Value {
	if model == "" {
		return object.Fields("type", object.StringOf("string"))
	}
	return b.want(model)
}

// common are the members of an operation that are the same in both versions.
func (op *operation) common() []object.Member {
	members := []object.Member{
		{Key: "tags", Value: object.Strings(op.tag)},
		{Key: "description", Value: object.StringOf(op.description)},
		{Key: "operationId", Value: object.StringOf(op.id)},
	}
	if op.action == "" {
		return members
	}
	return append(members,
		object.Member{Key: "x-kubernetes-action", Value: object.StringOf(op.action)},
		object.Member{Key: "x-kubernetes-group-version-kind", Value: responseKind(op.group, op.version, op.kind)})
}

var successes = map[int]string{200: "OK", 201: "Created", 202: "Accepted"}

// responses are the responses of an operation. with adds the schema to a response's members.
func (op *operation) responses(with func(members []object.Member) []object.Member) object.Value {
	responses := []object.Member{{Key: "401", Value: object.Fields("description", object.StringOf("Unauthorized"))}}
	for _, code := range op.answers {
		members := with([]object.Member{{Key: "description", Value: object.StringOf(successes[code])}})
		responses = append(responses, object.Member{Key: strconv.Itoa(code), Value: object.MapOf(members...)})
	}
	return object.MapOf(responses...)
}

// dialect3 is OpenAPI 3.0.
type dialect3 struct{}

func (dialect3) ref(model string) object.Value {
	return object.Fields("$ref", object.StringOf("#/components/schemas/"+model))
}

// refer wraps the reference in allOf if the property has other members: OpenAPI 3.0 ignores members beside $ref.
func (d dialect3) refer(members []object.Member, model string, def object.Value) []object.Member {
	if !def.IsNull() {
		members = append(members, object.Member{Key: "default", Value: def})
	}
	if len(members) == 0 {
		return d.ref(model).Members()
	}
	return append(members, object.Member{Key: "allOf", Value: object.ListOf(d.ref(model))})
}

func (dialect3) either(a, b string) []object.Member {
	one := func(typ string) object.Value { return object.Fields("type", object.StringOf(typ)) }
	return []object.Member{{Key: "oneOf", Value: object.ListOf(one(a), one(b))}}
}

func (dialect3) defaults() bool { return true }

func (dialect3) parameter(p *parameter) object.Value {
	members := []object.Member{
		{Key: "name", Value: object.StringOf(p.name)},
		{Key: "in", Value: object.StringOf(p.in)},
		{Key: "schema", Value: object.Fields("type", object.StringOf(p.typ), "uniqueItems", object.BoolOf(true))},
	}
	return object.MapOf(p.describe(members)...)
}

// describe adds the members of a parameter that are the same in both versions.
func (p *parameter) describe(members []object.Member) []object.Member {
	if p.description != "" {
		members = append(members, object.Member{Key: "description", Value: object.StringOf(p.description)})
	}
	if p.in == "path" {
		members = append(members, object.Member{Key: "required", Value: object.BoolOf(true)})
	}
	return members
}

func (dialect3) operation(b *builder, op *operation) object.Value {
	members := b.parameters(op.common(), op.parameters)
	content := func(mediaTypes []string, schema object.Value) object.Value {
		byType := make([]object.Member, len(mediaTypes))
		for i, m := range mediaTypes {
			byType[i] = object.Member{Key: m, Value: object.Fields("schema", schema)}
		}
		return object.MapOf(byType...)
	}
	if op.body != "" {
		body := []object.Member{{Key: "content", Value: content(op.consumes, b.want(op.body))}}
		if op.bodyRequired {
			body = append(body, object.Member{Key: "required", Value: object.BoolOf(true)})
		}
		members = append(members, object.Member{Key: "requestBody", Value: object.MapOf(body...)})
	}
	answer := object.Member{Key: "content", Value: content(op.produces, b.answer(op.model))}
	members = append(members, object.Member{Key: "responses",
		Value: op.responses(func(members []object.Member) []object.Member {
			return append(members, answer)
		})})
	return object.MapOf(members...)
}
