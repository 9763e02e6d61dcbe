package discovery

import (
	"slices"
	"sort"
	"strings"
	"unicode"

	"plinth/internal/engine"
	"plinth/internal/wire"
	"plinth/schema"
)

// pathItem is one path of an OpenAPI document with its operations, independent of the version of OpenAPI.
type pathItem struct {
	path       string
	operations []*operation
	parameters []*parameter // of all operations, sorted
}

// operation is one method on a path.
type operation struct {
	method, action       string // "put", "connect"; action "" for paths of discovery
	description, id, tag string
	parameters           []*parameter // sorted, without those of the pathItem
	body                 string       // model of the request's body; "": no body
	bodyRequired         bool
	consumes, produces   []string
	answers              []int  // status codes of success
	model                string // of the response; "": plain text
	group, version, kind string // of the object; empty if action is ""
}

// parameter is a parameter in the path or the query.
type parameter struct {
	name, in, typ, description string
}

// mediaTypes are the media types of bodies and responses.
type mediaTypes struct {
	object, watch []string
	patch         []string
}

// mediaTypesOf returns the media types of a server with or without CBOR.
func mediaTypesOf(noCBOR bool) *mediaTypes {
	offer := wire.Offer{CBOR: !noCBOR}
	return &mediaTypes{object: offer.MediaTypes(), watch: offer.CollectionTypes(), patch: offer.PatchTypes()}
}

var anyType = []string{"*/*"}

const (
	metaModels    = "io.k8s.apimachinery.pkg.apis.meta.v1."
	modelStatus   = metaModels + "Status"
	modelDelete   = metaModels + "DeleteOptions"
	modelPatch    = metaModels + "Patch"
	modelWatch    = metaModels + "WatchEvent"
	modelList     = metaModels + "ListOptions"
	modelCreate   = metaModels + "CreateOptions"
	modelUpdate   = metaModels + "UpdateOptions"
	modelPatching = metaModels + "PatchOptions"
	modelVersion  = "io.k8s.apimachinery.pkg.version.Info"
)

var prettyParameter = &parameter{"pretty", "query", "string",
	"If 'true', then the output is pretty printed. Defaults to " +
		"'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget)."}

var namespaceParameter = &parameter{"namespace", "path", "string",
	"object name and auth scope, such as for teams and projects"}

var pathParameter = &parameter{"path", "path", "string", "path to the resource"}

// pathsOf are the paths of a group version, sorted.
func (d *Documents) pathsOf(gv *groupVersion) []*pathItem {
	var paths []*pathItem
	if !gv.isCustom() {
		paths = append(paths, d.discoveryPath(gv.path()+"/", metaModels+"APIResourceList", "get available resources",
			"APIResources"))
	}
	for _, r := range gv.resources {
		p := resourcePaths{documents: d, gv: gv, r: r, byPath: map[string]*pathItem{}}
		if isCustom(r) {
			p.custom()
		} else {
			p.main()
			for _, s := range r.Subresources {
				p.sub(s)
			}
		}
		for _, item := range p.byPath {
			item.share()
			paths = append(paths, item)
		}
	}
	sort.Slice(paths, func(i, j int) bool { return paths[i].path < paths[j].path })
	return paths
}

// discoveryPath is a path that discovery serves.
func (d *Documents) discoveryPath(path, model, description, id string) *pathItem {
	op := &operation{
		method: "get", description: description, consumes: d.media.object, produces: d.media.object, answers: []int{200},
		model: model,
	}
	op.id, op.tag = operationID("get"+id, path)
	return &pathItem{path: path, operations: []*operation{op}}
}

// resourcePaths collects the paths of one type.
type resourcePaths struct {
	documents *Documents
	gv        *groupVersion
	r         *engine.Resource
	byPath    map[string]*pathItem
}

// add adds an operation to a path. name is the operation's name without its group. Parameters in the path, and pretty,
// are added to the given ones.
func (p *resourcePaths) add(path, name, namedKind string, op *operation, parameters ...[]*parameter) {
	full := p.gv.path() + "/" + path
	op.id, op.tag = operationID(name, full)
	op.parameters = slices.Concat(parameters...)
	if op.action != "connect" {
		op.parameters = append(op.parameters, prettyParameter)
	}
	if strings.Contains(path, "{namespace}") {
		op.parameters = append(op.parameters, namespaceParameter)
	}
	if strings.Contains(path, "{name}") {
		op.parameters = append(op.parameters, &parameter{"name", "path", "string", "name of the " + namedKind})
	}
	if strings.HasSuffix(path, "/{path}") {
		op.parameters = append(op.parameters, pathParameter)
	}
	if op.group == "" && op.version == "" {
		op.group, op.version, op.kind = p.r.Group, p.r.Version, p.r.Kind
	}
	item := p.byPath[full]
	if item == nil {
		item = &pathItem{path: full}
		p.byPath[full] = item
	}
	item.operations = append(item.operations, op)
}

// main adds the paths of the type itself.
func (p *resourcePaths) main() {
	r, d := p.r, p.documents
	collection, scope := r.Name, ""
	if r.Namespaced {
		collection, scope = "namespaces/{namespace}/"+r.Name, "Namespaced"
	}
	item := collection + "/{name}"
	kind, model := r.Kind, r.Model
	lists := d.options(modelList)
	list := func(path, name string) {
		description := "list objects of kind " + kind
		if r.Has("watch") {
			description = "list or watch objects of kind " + kind
		}
		p.add(path, name, kind, &operation{
			method: "get", action: "list", description: description, consumes: anyType, produces: d.media.watch,
			answers: []int{200}, model: besideModel(model, r.ListKind),
		}, lists)
	}
	watch := func(path, name, action, description string) {
		p.add("watch/"+path, name, kind, &operation{
			method: "get", action: action, consumes: anyType, produces: d.media.watch, answers: []int{200}, model: modelWatch,
			description: description,
		}, lists)
	}
	if r.Has("list") {
		list(collection, "list"+scope+kind)
		if r.Namespaced {
			list(r.Name, "list"+kind+"ForAllNamespaces")
		}
	}
	if r.Has("create") {
		p.add(collection, "create"+scope+kind, kind, &operation{
			method: "post", action: "post", description: "create" + article(kind) + kind, body: model, bodyRequired: true,
			consumes: anyType, produces: d.media.object, answers: []int{200, 201, 202}, model: model,
		}, d.options(modelCreate))
	}
	if r.Has("deletecollection") {
		p.add(collection, "deletecollection"+scope+kind, kind, &operation{
			method: "delete", action: "deletecollection", description: "delete collection of " + kind, body: modelDelete,
			consumes: anyType, produces: d.media.object, answers: []int{200}, model: modelStatus,
		}, d.options(modelDelete), except(lists, "watch", "allowWatchBookmarks"))
	}
	p.object(item, scope+kind, kind, model, "", r.Verbs)
	if r.Has("delete") {
		answer := modelStatus
		if r.DeleteReturnsObject && !r.DeleteDocumentedAsStatus {
			answer = model
		}
		p.add(item, "delete"+scope+kind, kind, &operation{
			method: "delete", action: "delete", description: "delete" + article(kind) + kind, body: modelDelete,
			consumes: anyType, produces: d.media.object, answers: []int{200, 202}, model: answer,
		}, d.options(modelDelete))
	}
	if r.Has("watch") {
		const many = ". deprecated: use the 'watch' parameter with a list operation instead."
		const one = ". deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter."
		watch(collection, "watch"+scope+kind+"List", "watchlist", "watch individual changes to a list of "+kind+many)
		watch(item, "watch"+scope+kind, "watch", "watch changes to an object of kind "+kind+one)
		if r.Namespaced {
			watch(r.Name, "watch"+kind+"ListForAllNamespaces", "watchlist", "watch individual changes to a list of "+kind+many)
		}
	}
}

// object adds get, put and patch of an object or a subresource. of is empty, or for a subresource "status of ".
func (p *resourcePaths) object(path, name, namedKind, model, of string, verbs []string, gvk ...string) {
	add := func(op *operation, name string, parameters ...[]*parameter) {
		if len(gvk) == 3 {
			op.group, op.version, op.kind = gvk[0], gvk[1], gvk[2]
		}
		op.produces, op.model = p.documents.media.object, model
		p.add(path, name, namedKind, op, parameters...)
	}
	what := of + "the specified " + p.r.Kind
	if slices.Contains(verbs, "get") {
		add(&operation{method: "get", action: "get", description: "read " + what, consumes: anyType, answers: []int{200}},
			"read"+name)
	}
	if slices.Contains(verbs, "update") {
		add(&operation{
			method: "put", action: "put", description: "replace " + what, consumes: anyType,
			body: model, bodyRequired: true, answers: []int{200, 201},
		}, "replace"+name, p.documents.options(modelUpdate))
	}
	if slices.Contains(verbs, "patch") {
		add(&operation{
			method: "patch", action: "patch", description: "partially update " + what, consumes: p.documents.media.patch,
			body: modelPatch, bodyRequired: true, answers: []int{200, 201},
		}, "patch"+name, p.documents.options(modelPatching))
	}
}

// connections are the subresources that upgrade or proxy the connection. Their query parameters are the fields of
// their kind.
var connections = []string{"attach", "exec", "portforward", "proxy"}

// sub adds the paths of a subresource.
func (p *resourcePaths) sub(s *engine.Subresource) {
	r, d := p.r, p.documents
	path, scope := r.Name+"/{name}/"+s.Name, ""
	if r.Namespaced {
		path, scope = "namespaces/{namespace}/"+path, "Namespaced"
	}
	name := scope + r.Kind + title(s.Name)
	of := s.Name + " of "
	group, version := r.Group, r.Version
	if s.Version != "" {
		group, version = s.Group, s.Version
	}
	if slices.Contains(connections, s.Name) {
		p.connect(path, name, s)
		if s.Name == "proxy" {
			p.connect(path+"/{path}", name+"WithPath", s)
		}
		return
	}
	model := s.Model
	if model == "" {
		model = r.Model
	}
	if s.Name == "log" {
		p.add(path, "read"+name, s.Kind, &operation{
			method: "get", action: "get", description: "read " + of + "the specified " + r.Kind, consumes: anyType,
			produces: append([]string{"text/plain"}, d.media.object...), answers: []int{200}, group: group, version: version,
			kind: s.Kind,
		}, d.options(besideModel(r.Model, "PodLogOptions")))
		return
	}
	if slices.Contains(s.Verbs, "create") {
		p.add(path, "create"+name, s.Kind, &operation{
			method: "post", action: "post", description: "create " + of[:len(of)-1] + article(r.Kind) + r.Kind, body: model,
			bodyRequired: true,
			consumes:     anyType, produces: d.media.object, answers: []int{200, 201, 202}, model: model, group: group,
			version: version, kind: s.Kind,
		}, d.options(modelCreate))
	}
	p.object(path, name, s.Kind, model, of, s.Verbs, group, version, s.Kind)
}

// connect adds the operations of a connection.
func (p *resourcePaths) connect(path, name string, s *engine.Subresource) {
	methods := []string{"get", "post"}
	if slices.Contains(s.Verbs, "delete") {
		methods = []string{"get", "put", "post", "delete", "options", "head", "patch"}
	}
	var options []*parameter
	if p.r.Model != "" {
		options = p.documents.options(besideModel(p.r.Model, s.Kind))
	}
	for _, method := range methods {
		p.add(path, "connect"+title(method)+name, s.Kind, &operation{
			method: method, action: "connect", description: "connect " + strings.ToUpper(method) + " requests to " + s.Name +
				" of " + p.r.Kind,
			consumes: anyType, produces: anyType, answers: []int{200}, group: p.r.Group, version: p.r.Version, kind: s.Kind,
		}, options)
	}
}

// share moves the parameters that all operations of the path have to the path, and sorts the others. If their
// descriptions differ the last operation's counts, as in the reference.
func (i *pathItem) share() {
	type key struct{ name, in string }
	count := map[key]int{}
	last := map[key]*parameter{}
	for _, op := range i.operations {
		for _, p := range op.parameters {
			count[key{p.name, p.in}]++
			last[key{p.name, p.in}] = p
		}
	}
	for k, n := range count {
		if n == len(i.operations) {
			i.parameters = append(i.parameters, last[k])
		}
	}
	sortParameters(i.parameters)
	for _, op := range i.operations {
		op.parameters = slices.DeleteFunc(op.parameters,
			func(p *parameter) bool { return count[key{p.name, p.in}] == len(i.operations) })
		sortParameters(op.parameters)
	}
}

func sortParameters(parameters []*parameter) {
	sort.Slice(parameters, func(i, j int) bool {
		a, b := parameters[i], parameters[j]
		if a.name != b.name {
			return a.name < b.name
		}
		return a.in < b.in
	})
}

func except(parameters []*parameter, names ...string) []*parameter {
	return slices.DeleteFunc(slices.Clone(parameters), func(p *parameter) bool { return slices.Contains(names, p.name) })
}

// options are the query parameters for the fields of an options type. They are created once per type, because a
// builder renders each *parameter once.
func (d *Documents) options(model string) []*parameter {
	if known, ok := d.parameters.Load(model); ok {
		return known.([]*parameter)
	}
	made, _ := d.parameters.LoadOrStore(model, d.makeOptions(model))
	return made.([]*parameter)
}

// makeOptions creates a parameter for each field that can be given as one value in a URL.
func (d *Documents) makeOptions(model string) []*parameter {
	t := d.models()(model)
	if t == nil {
		return nil
	}
	var parameters []*parameter
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.Name == "apiVersion" || f.Name == "kind" {
			continue
		}
		typ := f.Type
		if typ.Kind == schema.List {
			typ = typ.Elem
		}
		word := ""
		switch typ.Kind {
		case schema.String:
			word = "string"
		case schema.Bool:
			word = "boolean"
		case schema.Int:
			word = "integer"
		default:
			continue
		}
		parameters = append(parameters, &parameter{f.Name, "query", word, f.Doc()})
	}
	return parameters
}

// besideModel is the name of another model in the same package.
func besideModel(model, kind string) string {
	return model[:strings.LastIndexByte(model, '.')+1] + kind
}

// article is the text between a verb and a noun: an article, or for plurals a space. A noun in "ss" is not a plural.
func article(noun string) string {
	switch {
	case noun == "" || strings.HasSuffix(noun, "s") && !strings.HasSuffix(noun, "ss"):
		return " "
	case strings.ContainsRune("AEIOUaeiou", rune(noun[0])):
		return " an "
	}
	return " a "
}

func title(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + strings.ToLower(s[1:])
}

// operationVerbs are the verbs that operation names begin with. None is a prefix of another.
var operationVerbs = []string{"get", "read", "replace", "patch", "delete", "watch", "connect", "list", "create"}

// operationID inserts the group and version of a path after the verb of an operation's name. The tag is made of group
// and version, too.
func operationID(name, path string) (id, tag string) {
	verb := ""
	for _, v := range operationVerbs {
		if strings.HasPrefix(name, v) {
			verb = v
		}
	}
	rest := identifier(name[len(verb):], true)
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "api" {
		parts = append([]string{"apis", "core"}, parts[1:]...)
	}
	if len(parts) < 2 || parts[0] != "apis" {
		return verb + rest, identifier(parts[0], false)
	}
	group := strings.TrimSuffix(parts[1], ".k8s.io")
	id, tag = verb+identifier(group, true), identifier(group, false)
	if len(parts) > 2 {
		id += identifier(parts[2], true)
		tag += "_" + identifier(parts[2], false)
	}
	return id + rest, tag
}

// identifier removes characters that cannot be in an identifier, and capitalizes the letter after them.
func identifier(s string, capital bool) string {
	var b strings.Builder
	for i, r := range s {
		if !unicode.IsLetter(r) && r != '_' && (i == 0 || !unicode.IsDigit(r)) {
			capital = true
			continue
		}
		if capital {
			r = unicode.ToUpper(r)
			capital = false
		}
		b.WriteRune(r)
	}
	return b.String()
}
