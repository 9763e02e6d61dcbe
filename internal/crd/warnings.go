package crd

import (
	"fmt"
	"maps"
	"slices"

	"plinth/object"
	"plinth/schema"
)

// definitionWarnings warns of unknown formats, and of sets whose items cannot be compared. Warnings that the old
// definition would also have caused are omitted; old is null for a new definition.
func definitionWarnings(obj, old object.Value) []string {
	formats, sets := oddities(obj)
	oldFormats, oldSets := oddities(old)
	var warnings []string
	for _, format := range formats {
		if !slices.Contains(oldFormats, format) {
			warnings = append(warnings, fmt.Sprintf("unrecognized format %q", format))
		}
	}
	for _, of := range slices.Sorted(maps.Keys(sets)) {
		if !oldSets[of] {
			warnings = append(warnings, fmt.Sprintf(
				"x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules",
				of))
		}
	}
	return warnings
}

// oddities returns the unknown formats of a definition, with repetitions, and the item types of sets that are not
// scalars.
func oddities(definition object.Value) (formats []string, sets map[string]bool) {
	sets = map[string]bool{}
	for _, version := range definition.At("spec", "versions").Items() {
		eachSchema(version.At("schema", "openAPIV3Schema"), func(s object.Value) {
			if format := s.At("format").Str(); format != "" && !schema.KnowsFormat(s.At("type").Str(), format) {
				formats = append(formats, format)
			}
			if of := s.At("items", "type").Str(); s.At("x-kubernetes-list-type").Str() == "set" &&
				(of == "object" || of == "array") {
				sets[of] = true
			}
		})
	}
	return formats, sets
}

// eachSchema visits a schema and all schemas in it.
func eachSchema(s object.Value, visit func(s object.Value)) {
	switch s.Kind() {
	case object.List: // items as a list of schemas
		for _, item := range s.Items() {
			eachSchema(item, visit)
		}
		return
	case object.Map:
	default:
		return
	}
	visit(s)
	for _, key := range [...]string{"items", "allOf", "oneOf", "anyOf", "not", "additionalProperties",
		"additionalItems"} {
		eachSchema(s.At(key), visit)
	}
	for _, key := range [...]string{"properties", "patternProperties", "definitions", "dependencies"} {
		for _, m := range s.At(key).Members() {
			eachSchema(m.Value, visit)
		}
	}
}
