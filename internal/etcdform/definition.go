package etcdform

import (
	"slices"
	"strings"

	"plinth/object"
)

// A definition is served as apiextensions.k8s.io/v1, and stored in etcd as v1beta1, which has other fields for the same
// content:
//
//	v1                                              v1beta1
//	                                                spec.version, the name of the first version
//	spec.versions[].schema, the same in all         spec.validation
//	spec.versions[].subresources, likewise          spec.subresources
//	… additionalPrinterColumns, selectableFields    spec.additionalPrinterColumns, spec.selectableFields
//	… additionalPrinterColumns[].jsonPath           … JSONPath
//	spec.conversion.webhook.clientConfig            spec.conversion.webhookClientConfig
//	… .webhook.conversionReviewVersions             spec.conversion.conversionReviewVersions
//	spec.preserveUnknownFields, false if absent     true if absent, so that it is always written
//
// A field that all versions have in common stands at the top of the spec alone, also if it is absent in all; one that
// differs stands in the versions.

// The versions of definitions.
const (
	definitionsV1      = "apiextensions.k8s.io/v1"
	definitionsV1beta1 = "apiextensions.k8s.io/v1beta1"
)

// perVersion are the fields of a version in v1, and what they are called at the top of the spec in v1beta1.
var perVersion = []struct{ version, spec string }{
	{"additionalPrinterColumns", "additionalPrinterColumns"},
	{"schema", "validation"},
	{"selectableFields", "selectableFields"},
	{"subresources", "subresources"},
}

// toV1beta1 converts a definition as the reference does before it stores it.
func toV1beta1(obj object.Value) (object.Value, error) {
	spec := obj.At("spec")
	versions := slices.Clone(spec.At("versions").Items())
	edits := []object.Member{
		{Key: "preserveUnknownFields", Value: object.BoolOf(spec.At("preserveUnknownFields").Bool())},
	}
	if len(versions) > 0 {
		edits = append(edits, object.Member{Key: "version", Value: versions[0].At("name")})
		for i, v := range versions {
			versions[i] = renameColumns(v, "jsonPath", "JSONPath")
		}
		for _, f := range perVersion {
			common := versions[0].At(f.version)
			if slices.ContainsFunc(versions, func(v object.Value) bool { return !object.Equal(v.At(f.version), common) }) {
				continue
			}
			for i, v := range versions {
				versions[i] = v.Without(f.version)
			}
			if !common.IsNull() {
				edits = append(edits, object.Member{Key: f.spec, Value: common})
			}
		}
		edits = append(edits, object.Member{Key: "versions", Value: object.ListOf(versions...)})
	}
	if conversion := spec.At("conversion"); !conversion.IsNull() {
		webhook := conversion.At("webhook")
		conversion = conversion.Without("webhook")
		for _, f := range [...]struct{ webhook, conversion string }{
			{"clientConfig", "webhookClientConfig"}, {"conversionReviewVersions", "conversionReviewVersions"},
		} {
			if v := webhook.At(f.webhook); !v.IsNull() {
				conversion = conversion.With(f.conversion, v)
			}
		}
		edits = append(edits, object.Member{Key: "conversion", Value: conversion})
	}
	return decodeAs(obj.Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf(definitionsV1beta1)}, {Key: "spec", Value: spec.Edit(edits)},
	}), definitionType())
}

// renameColumns renames a field of the printer columns of v.
func renameColumns(v object.Value, from, to string) object.Value {
	columns := v.At("additionalPrinterColumns")
	for i, column := range columns.Items() {
		if path, ok := column.Get(from); ok {
			columns = columns.WithItem(i, column.Edit([]object.Member{{Key: to, Value: path}}, from))
		}
	}
	if columns.IsNull() {
		return v
	}
	return v.With("additionalPrinterColumns", columns)
}

// toV1 converts a definition in v1beta1, with its defaults.
func toV1(obj object.Value) object.Value {
	spec := obj.At("spec")
	versions := slices.Clone(spec.At("versions").Items())
	for _, f := range perVersion {
		if common := spec.At(f.spec); !common.IsNull() {
			for i, v := range versions {
				versions[i] = v.With(f.version, common)
			}
		}
	}
	for i, v := range versions {
		versions[i] = renameColumns(v, "JSONPath", "jsonPath")
	}
	edits := []object.Member{{Key: "versions", Value: object.ListOf(versions...)}}
	if conversion := spec.At("conversion"); !conversion.IsNull() {
		config, reviews := conversion.At("webhookClientConfig"), conversion.At("conversionReviewVersions")
		conversion = conversion.Edit(nil, "webhookClientConfig", "conversionReviewVersions")
		if !config.IsNull() || !reviews.IsNull() {
			webhook := object.Fields("conversionReviewVersions", reviews)
			if !config.IsNull() {
				webhook = webhook.With("clientConfig", config)
			}
			conversion = conversion.With("webhook", webhook)
		}
		edits = append(edits, object.Member{Key: "conversion", Value: conversion})
	}
	return obj.Edit([]object.Member{
		{Key: "apiVersion", Value: object.StringOf(definitionsV1)},
		{Key: "spec", Value: spec.Edit(edits, "version", "validation", "subresources", "additionalPrinterColumns",
			"selectableFields")},
	})
}

// defaultV1beta1 sets the defaults of v1beta1 that differ from those of v1. They are those of a definition that was
// written by hand, or by a release that did not write all fields.
func defaultV1beta1(obj object.Value) object.Value {
	spec := obj.At("spec")
	var edits []object.Member
	set := func(key string, v object.Value) { edits = append(edits, object.Member{Key: key, Value: v}) }
	if spec.At("scope").Str() == "" {
		set("scope", object.StringOf("Namespaced"))
	}
	version, versions := spec.At("version"), spec.At("versions")
	switch {
	case versions.Len() == 0 && version.Str() != "":
		set("versions", object.ListOf(object.Fields("name", version, "served", object.BoolOf(true),
			"storage", object.BoolOf(true))))
	case versions.Len() > 0 && version.Str() == "":
		set("version", versions.Items()[0].At("name"))
	}
	if conversion := spec.At("conversion"); conversion.At("strategy").Str() == "Webhook" &&
		conversion.At("conversionReviewVersions").Len() == 0 {
		set("conversion", conversion.With("conversionReviewVersions",
			object.Strings(strings.TrimPrefix(definitionsV1beta1, "apiextensions.k8s.io/"))))
	}
	if spec.At("preserveUnknownFields").IsNull() {
		set("preserveUnknownFields", object.BoolOf(true))
	}
	return obj.With("spec", spec.Edit(edits))
}
