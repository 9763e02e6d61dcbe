package validation

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"plinth/internal/fielderrors"
	"plinth/internal/objectmeta"
	"plinth/object"
)

const (
	maxDeprecationWarning = 256
	maxSelectableFields   = 8
)

var (
	scopes               = []string{"Cluster", "Namespaced"}
	conversionStrategies = []string{"None", "Webhook"}
	reviewVersions       = []string{"v1", "v1beta1"}
	columnTypes          = []string{"boolean", "date", "integer", "number", "string"}
	columnFormats        = []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}
	columnTypeDetail     = "must be one of " + strings.Join(columnTypes, ",")
	columnFormatDetail   = "must be one of " + strings.Join(columnFormats, ",")
)

// dnsLabelErrors validates a label of RFC 1035, which begins with a letter.
func dnsLabelErrors(s string) []string {
	if objectmeta.IsLabel(s) && s[0] > '9' {
		return nil
	}
	return utilvalidation.IsDNS1035Label(s)
}

// dnsLabel requires a label. All problems are one error, with an introduction.
func (c *checker) dnsLabel(p *fielderrors.Location, s, introduction string) {
	label := s
	if introduction != "" {
		label = strings.ToLower(s)
	}
	if wrong := dnsLabelErrors(label); len(wrong) > 0 {
		c.Invalid(p, s, introduction+strings.Join(wrong, ","))
	}
}

func (c *checker) spec() {
	spec, p := c.def.spec, root.To("spec")
	if group := spec.At("group").Str(); group == "" {
		c.Required(p.To("group"), "")
	} else if wrong := objectmeta.SubdomainErrors(group); len(wrong) > 0 {
		c.Invalid(p.To("group"), group, strings.Join(wrong, ","))
	} else if !strings.Contains(group, ".") {
		c.Invalid(p.To("group"), group, "should be a domain with at least one dot")
	}
	c.oneOf(p.To("scope"), spec.At("scope").Str(), scopes)
	c.missingSchemasOf(p.To("versions"))
	c.structuralDemanded(p)
	c.versions(p.To("versions"))
	c.demandedNames(p.To("names"))
	c.names(spec.At("names"), p.To("names"))
	moved := &c.def.moved
	var first string
	if len(c.def.versions) > 0 {
		first = c.def.versions[0].name
	}
	c.schema(moved.schema, c.def.anyStatus(), first, p.To("validation"))
	c.subresources(moved.subresources, p.To("subresources"))
	for i, column := range moved.columns.Items() {
		c.column(column, p.To("additionalPrinterColumns").Item(i))
	}
	if moved.selectable.Len() > 0 {
		if moved.schema.IsNull() {
			c.Invalid(p.To("selectableFields"), "", "may only be set when validations.schema is included")
		} else {
			c.selectableFields(moved, "", p.To("schema.openAPIV3Schema"), p.To("selectableFields"))
		}
	}
	c.conversion()
}

// missingSchemasOf requires a schema of every version. If the old object has versions without a schema, it requires one
// only of served versions, whose objects would lose all of their fields to pruning.
func (c *checker) missingSchemasOf(p *fielderrors.Location) {
	if !c.def.moved.openAPI().IsNull() {
		return
	}
	for i := range c.def.versions {
		v := &c.def.versions[i]
		if !v.openAPI().IsNull() {
			continue
		}
		at := p.Item(i).To("schema").To("openAPIV3Schema")
		if !c.missingSchemas {
			c.Required(at, "")
		} else if v.served && !c.def.spec.At("preserveUnknownFields").Bool() {
			c.Required(at, "because otherwise all fields are pruned")
		}
	}
}

// structuralDemanded requires structural schemas, even if the old object's are not, if anything depends on their
// structure: pruning, defaults or the extensions of Kubernetes.
func (c *checker) structuralDemanded(p *fielderrors.Location) {
	preserve := c.def.spec.At("preserveUnknownFields").Bool()
	defaults := c.def.anySchema(hasDefaults)
	if defaults && preserve {
		c.Invalid(p.To("preserveUnknownFields"), true, "must be false in order to use defaults in the schema")
	}
	if !preserve || defaults || c.def.anySchema(hasExtensions) {
		c.notStructural = false
	}
}

func (c *checker) versions(p *fielderrors.Location) {
	seen := map[string]bool{}
	stored, unique := 0, true
	for i := range c.def.versions {
		v := &c.def.versions[i]
		if v.storage {
			stored++
		}
		unique = unique && !seen[v.name]
		seen[v.name] = true
		c.dnsLabel(p.Item(i).To("name"), v.name, "")
		c.version(v, p.Item(i))
	}
	if !unique {
		c.Invalid(p, shownVersions{&c.def}, "must contain unique version names")
	}
	if stored != 1 {
		c.Invalid(p, shownVersions{&c.def}, "must have exactly one version marked as storage version")
	}
	if len(c.def.versions) > 0 && c.def.versions[0].name != "" {
		c.dnsLabel(root.To("spec").To("version"), c.def.versions[0].name, "")
	}
}

func (c *checker) version(v *version, p *fielderrors.Location) {
	c.deprecationWarning(v.value.At("deprecated").Bool(), v.value.At("deprecationWarning"), p.To("deprecationWarning"))
	c.schema(v.schema, c.def.statusOf(v.name), v.name, p.To("schema"))
	c.subresources(v.subresources, p.To("subresources"))
	for i, column := range v.columns.Items() {
		c.column(column, p.To("additionalPrinterColumns").Item(i))
	}
	if v.selectable.Len() == 0 {
		return
	}
	if v.openAPI().IsNull() {
		c.Invalid(p.To("selectableFields"), "", "may only be set when `version.schema.openAPIV3Schema` is not included")
		return
	}
	c.selectableFields(&v.perVersion, v.name, p.To("schema.openAPIV3Schema"), p.To("selectableFields"))
}

func (c *checker) deprecationWarning(deprecated bool, warning object.Value, p *fielderrors.Location) {
	if warning.IsNull() {
		return
	}
	text := warning.Str()
	wrong := func(detail string) { c.Invalid(p, fielderrors.Word(text), detail) }
	if !deprecated {
		wrong("can only be set for deprecated versions")
		return
	}
	if len(text) > maxDeprecationWarning {
		wrong("must be <= 256 characters long")
	}
	if text == "" {
		wrong("must not be an empty string")
	}
	for i, r := range text {
		if !unicode.IsPrint(r) {
			wrong(fmt.Sprintf("must only contain printable UTF-8 characters; non-printable character found at index %d",
				i))
			break
		}
	}
	if !utf8.ValidString(text) {
		wrong("must only contain printable UTF-8 characters")
	}
}

// demandedNames requires the names in the spec. The names in the status may be missing.
func (c *checker) demandedNames(p *fielderrors.Location) {
	for _, key := range [...]string{"plural", "singular", "kind", "listKind"} {
		if c.def.spec.At("names", key).Len() == 0 {
			c.Required(p.To(key), "")
		}
	}
}

// names validates the names that are present.
func (c *checker) names(names object.Value, p *fielderrors.Location) {
	const mixedCase = "may have mixed case, but should otherwise match: "
	for _, n := range [...]struct{ key, introduction string }{{"plural", ""}, {"singular", ""}, {"kind", mixedCase},
		{"listKind", mixedCase}} {
		if name := names.At(n.key).Str(); name != "" {
			c.dnsLabel(p.To(n.key), name, n.introduction)
		}
	}
	for i, name := range names.At("shortNames").Items() {
		c.dnsLabel(p.To("shortNames").Item(i), name.Str(), "")
	}
	if kind := names.At("kind").Str(); kind != "" && kind == names.At("listKind").Str() {
		c.Invalid(p.To("listKind"), kind, "kind and listKind may not be the same")
	}
	for i, name := range names.At("categories").Items() {
		c.dnsLabel(p.To("categories").Item(i), name.Str(), "")
	}
}

func (c *checker) column(column object.Value, p *fielderrors.Location) {
	if column.At("name").Len() == 0 {
		c.Required(p.To("name"), "")
	}
	if typ := column.At("type").Str(); typ == "" {
		c.Required(p.To("type"), columnTypeDetail)
	} else if !slices.Contains(columnTypes, typ) {
		c.Invalid(p.To("type"), typ, columnTypeDetail)
	}
	if format := column.At("format").Str(); format != "" && !slices.Contains(columnFormats, format) {
		c.Invalid(p.To("format"), format, columnFormatDetail)
	}
	c.jsonPath(p.To("JSONPath"), column.At("jsonPath").Str())
}

// jsonPath requires a path into objects and says whether it is one. As in the reference only its first byte is
// checked.
func (c *checker) jsonPath(p *fielderrors.Location, path string) bool {
	switch {
	case path == "":
		c.Required(p, "")
	case path[0] != '.':
		c.Invalid(p, path, "must be a simple json path starting with .")
	default:
		return true
	}
	return false
}

func (c *checker) subresources(subresources object.Value, p *fielderrors.Location) {
	scale := subresources.At("scale")
	if scale.IsNull() {
		return
	}
	for _, part := range [...]struct{ key, under string }{{"specReplicasPath", ".spec"},
		{"statusReplicasPath", ".status"}} {
		path, at := scale.At(part.key).Str(), p.To("scale").To(part.key)
		if c.jsonPath(at, path) && !strings.HasPrefix(path, part.under+".") {
			c.Invalid(at, path, "should be a json path under "+part.under)
		}
	}
	path, at := scale.At("labelSelectorPath").Str(), p.To("scale").To("labelSelectorPath")
	if path != "" && c.jsonPath(at, path) && !strings.HasPrefix(path, ".spec.") && !strings.HasPrefix(path,
		".status.") {
		c.Invalid(at, fielderrors.Word(path), "should be a json path under either .spec or .status")
	}
}

// selectableFields validates paths by the schema. name is the version; at is the path of the error for a schema
// without structural form.
func (c *checker) selectableFields(in *perVersion, name string, at, p *fielderrors.Location) {
	schema := in.openAPI()
	if err := unconvertible(schema); err != "" {
		c.Invalid(at, "", err)
		schema = object.Nil
	}
	unique := map[string]bool{}
	for i, item := range in.selectable.Items() {
		path, at := item.At("jsonPath").Str(), p.Item(i).To("jsonPath")
		if path == "" {
			c.Required(at, "")
			continue
		}
		found, err := follow(path, schema, false)
		if err != nil {
			c.Invalid(at, path, "is an invalid path: "+err.Error())
			continue
		}
		if found.first == "metadata" {
			c.Invalid(at, path, "must not point to fields in metadata")
		}
		switch found.node.At("type").Str() {
		case "string", "boolean", "integer":
		default:
			c.Invalid(at, path,
				"must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.")
		}
		if unique[found.path] {
			c.Duplicate(at, path)
		}
		unique[found.path] = true
	}
	if len(unique) > maxSelectableFields && !c.manySelectable[name] {
		c.TooMany(p, len(unique), maxSelectableFields)
	}
}
