package validation

import (
	"strconv"

	"plinth/object"
)

// The errors print schemas and versions as the reference does: as JSON of its internal Go types. These have no JSON
// tags, so every field is printed, under its Go name and in the order of the type.

// form is the Go type of a member, which determines how it is printed.
type form uint8

const (
	asPointer form = iota // a pointer: JSON or null
	asText                // a string, "" if missing
	asFlag                // a bool, false if missing
	asCount               // an integer, 0 if missing
	asSchema
	asSchemas // a list
	asByName  // a map
	asSchemaOrBool
	asItems
	asDependencies
	asDocs
	asRules
)

// shownMember is one field of a Go type.
type shownMember struct {
	name, member string
	form         form
}

var schemaMembers = []shownMember{
	{"ID", "id", asText}, {"Schema", "$schema", asText}, {"Ref", "$ref", asPointer},
	{"Description", "description", asText},
	{"Type", "type", asText}, {"Nullable", "nullable", asFlag}, {"Format", "format", asText},
	{"Title", "title", asText},
	{"Default", "default", asPointer}, {"Maximum", "maximum", asPointer}, {"ExclusiveMaximum", "exclusiveMaximum",
		asFlag},
	{"Minimum", "minimum", asPointer}, {"ExclusiveMinimum", "exclusiveMinimum", asFlag},
	{"MaxLength", "maxLength", asPointer},
	{"MinLength", "minLength", asPointer}, {"Pattern", "pattern", asText}, {"MaxItems", "maxItems", asPointer},
	{"MinItems", "minItems", asPointer}, {"UniqueItems", "uniqueItems", asFlag},
	{"MultipleOf", "multipleOf", asPointer},
	{"Enum", "enum", asPointer}, {"MaxProperties", "maxProperties", asPointer},
	{"MinProperties", "minProperties", asPointer},
	{"Required", "required", asPointer}, {"Items", "items", asItems}, {"AllOf", "allOf", asSchemas},
	{"OneOf", "oneOf", asSchemas},
	{"AnyOf", "anyOf", asSchemas}, {"Not", "not", asSchema}, {"Properties", "properties", asByName},
	{"AdditionalProperties", "additionalProperties", asSchemaOrBool}, {"PatternProperties", "patternProperties",
		asByName},
	{"Dependencies", "dependencies", asDependencies}, {"AdditionalItems", "additionalItems", asSchemaOrBool},
	{"Definitions", "definitions", asByName}, {"ExternalDocs", "externalDocs", asDocs},
	{"Example", "example", asPointer},
	{"XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", asPointer},
	{"XEmbeddedResource", "x-kubernetes-embedded-resource", asFlag}, {"XIntOrString", "x-kubernetes-int-or-string",
		asFlag},
	{"XListMapKeys", "x-kubernetes-list-map-keys", asPointer}, {"XListType", "x-kubernetes-list-type", asPointer},
	{"XMapType", "x-kubernetes-map-type", asPointer}, {"XValidations", "x-kubernetes-validations", asRules},
}

var (
	docMembers  = []shownMember{{"Description", "description", asText}, {"URL", "url", asText}}
	ruleMembers = []shownMember{{"Rule", "rule", asText}, {"Message", "message", asText},
		{"MessageExpression", "messageExpression", asText},
		{"Reason", "reason", asPointer}, {"FieldPath", "fieldPath", asText},
		{"OptionalOldSelf", "optionalOldSelf", asPointer}}
	columnMembers = []shownMember{{"Name", "name", asText}, {"Type", "type", asText}, {"Format", "format", asText},
		{"Description", "description", asText}, {"Priority", "priority", asCount}, {"JSONPath", "jsonPath", asText}}
	scaleMembers = []shownMember{{"SpecReplicasPath", "specReplicasPath", asText},
		{"StatusReplicasPath", "statusReplicasPath", asText},
		{"LabelSelectorPath", "labelSelectorPath", asPointer}}
	selectableMembers = []shownMember{{"JSONPath", "jsonPath", asText}}
)

// shownSchema prints a schema.
type shownSchema struct{ schema object.Value }

// MarshalJSON implements json.Marshaler.
func (s shownSchema) MarshalJSON() ([]byte, error) {
	return appendMembers(nil, s.schema, schemaMembers), nil
}

// shownItems prints the member items of a schema.
type shownItems struct{ items object.Value }

// MarshalJSON implements json.Marshaler.
func (s shownItems) MarshalJSON() ([]byte, error) { return appendForm(nil, s.items, asItems), nil }

// shownPointer prints a *string.
func shownPointer(present bool, s string) any {
	if !present {
		return (*string)(nil)
	}
	return &s
}

// shownVersions prints the versions of a definition, without the members that were moved to spec.
type shownVersions struct{ of *definition }

// MarshalJSON implements json.Marshaler.
func (s shownVersions) MarshalJSON() ([]byte, error) {
	if s.of.spec.At("versions").IsNull() {
		return []byte("null"), nil
	}
	dst := []byte{'['}
	for i := range s.of.versions {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = s.of.versions[i].appendShown(dst)
	}
	return append(dst, ']'), nil
}

func (v *version) appendShown(dst []byte) []byte {
	dst = append(object.AppendString(append(dst, `{"Name":`...), v.name), `,"Served":`...)
	dst = append(strconv.AppendBool(dst, v.served), `,"Storage":`...)
	dst = append(strconv.AppendBool(dst, v.storage), `,"Deprecated":`...)
	dst = append(strconv.AppendBool(dst, v.value.At("deprecated").Bool()), `,"DeprecationWarning":`...)
	dst = append(object.AppendJSON(dst, v.value.At("deprecationWarning")), `,"Schema":`...)
	if v.schema.IsNull() {
		dst = append(dst, "null"...)
	} else {
		dst = append(appendForm(append(dst, `{"OpenAPIV3Schema":`...), v.openAPI(), asSchema), '}')
	}
	dst = append(dst, `,"Subresources":`...)
	if v.subresources.IsNull() {
		dst = append(dst, "null"...)
	} else {
		dst = append(object.AppendJSON(append(dst, `{"Status":`...), v.subresources.At("status")), `,"Scale":`...)
		dst = append(appendPointer(dst, v.subresources.At("scale"), scaleMembers), '}')
	}
	dst = append(dst, `,"AdditionalPrinterColumns":`...)
	dst = append(appendList(dst, v.columns, columnMembers), `,"SelectableFields":`...)
	return append(appendList(dst, v.selectable, selectableMembers), '}')
}

// appendMembers appends a struct.
func appendMembers(dst []byte, v object.Value, members []shownMember) []byte {
	dst = append(dst, '{')
	for i := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(object.AppendString(dst, members[i].name), ':')
		dst = appendForm(dst, v.At(members[i].member), members[i].form)
	}
	return append(dst, '}')
}

// appendPointer appends a struct behind a pointer.
func appendPointer(dst []byte, v object.Value, members []shownMember) []byte {
	if v.Kind() != object.Map {
		return append(dst, "null"...)
	}
	return appendMembers(dst, v, members)
}

// appendList appends a list of structs; null if it is missing.
func appendList(dst []byte, v object.Value, members []shownMember) []byte {
	if v.IsNull() {
		return append(dst, "null"...)
	}
	dst = append(dst, '[')
	for i, item := range v.Items() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendMembers(dst, item, members)
	}
	return append(dst, ']')
}

// appendByName appends a map of schemas.
func appendByName(dst []byte, v object.Value) []byte {
	if v.IsNull() {
		return append(dst, "null"...)
	}
	dst = append(dst, '{')
	for i, m := range v.Members() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(object.AppendString(dst, m.Key), ':')
		dst = appendForm(dst, m.Value, asSchema)
	}
	return append(dst, '}')
}

func appendForm(dst []byte, v object.Value, form form) []byte {
	switch form {
	case asText:
		return object.AppendString(dst, v.Str())
	case asFlag:
		return strconv.AppendBool(dst, v.Bool())
	case asCount:
		return strconv.AppendInt(dst, v.Int(), 10)
	case asSchema:
		return appendPointer(dst, v, schemaMembers)
	case asSchemas:
		return appendList(dst, v, schemaMembers)
	case asByName:
		return appendByName(dst, v)
	case asDocs:
		return appendPointer(dst, v, docMembers)
	case asRules:
		return appendList(dst, v, ruleMembers)
	}
	if v.IsNull() {
		return append(dst, "null"...)
	}
	switch form {
	case asSchemaOrBool:
		dst = strconv.AppendBool(append(dst, `{"Allows":`...), v.Kind() == object.Map || v.Bool())
		return append(appendForm(append(dst, `,"Schema":`...), v, asSchema), '}')
	case asItems:
		dst = appendForm(append(dst, `{"Schema":`...), ifMap(v), asSchema)
		if v.Kind() != object.List {
			v = object.Nil
		}
		return append(appendForm(append(dst, `,"JSONSchemas":`...), v, asSchemas), '}')
	case asDependencies:
		return appendDependencies(dst, v)
	}
	return object.AppendJSON(dst, v)
}

// appendDependencies appends a map of schemas or lists of names.
func appendDependencies(dst []byte, v object.Value) []byte {
	dst = append(dst, '{')
	for i, m := range v.Members() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(object.AppendString(dst, m.Key), `:{"Schema":`...)
		dst = append(appendForm(dst, ifMap(m.Value), asSchema), `,"Property":`...)
		if m.Value.Kind() != object.List {
			m.Value = object.Nil
		}
		dst = append(object.AppendJSON(dst, m.Value), '}')
	}
	return append(dst, '}')
}
