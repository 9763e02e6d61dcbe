package validation

import (
	"slices"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// definition is a CustomResourceDefinition in the form that the reference validates: members that are the same in all
// versions are moved to spec, and are null in the versions. Each member is moved on its own. So the schema may have
// been moved while the selectable fields have not; as in the reference, rules that need both then find one of them
// missing.
type definition struct {
	spec     object.Value
	versions []version
	moved    perVersion // the members that are the same in all versions
}

// version is an item of spec.versions.
type version struct {
	value           object.Value
	name            string
	served, storage bool
	perVersion
}

// perVersion are the members that can be moved to spec.
type perVersion struct {
	schema, subresources, columns, selectable object.Value
}

func newDefinition(crd object.Value) definition {
	d := definition{spec: crd.At("spec")}
	for _, v := range d.spec.At("versions").Items() {
		d.versions = append(d.versions, version{
			value: v, name: v.At("name").Str(), served: v.At("served").Bool(), storage: v.At("storage").Bool(),
			perVersion: perVersion{v.At("schema"), v.At("subresources"), v.At("additionalPrinterColumns"),
				v.At("selectableFields")},
		})
	}
	for _, part := range [...]func(*perVersion) *object.Value{
		func(p *perVersion) *object.Value { return &p.schema },
		func(p *perVersion) *object.Value { return &p.subresources },
		func(p *perVersion) *object.Value { return &p.columns },
		func(p *perVersion) *object.Value { return &p.selectable },
	} {
		d.move(part)
	}
	return d
}

// move moves one member to spec if it is the same in all versions.
func (d *definition) move(part func(*perVersion) *object.Value) {
	if len(d.versions) == 0 {
		return
	}
	first := *part(&d.versions[0].perVersion)
	for i := range d.versions {
		if !object.Equal(*part(&d.versions[i].perVersion), first) {
			return
		}
	}
	*part(&d.moved) = first
	for i := range d.versions {
		*part(&d.versions[i].perVersion) = object.Nil
	}
}

// openAPI is the schema; null if it is absent.
func (p *perVersion) openAPI() object.Value { return p.schema.At("openAPIV3Schema") }

// hasStatus says whether there is a status subresource.
func (p *perVersion) hasStatus() bool { return !p.subresources.At("status").IsNull() }

// statusOf says whether the first version of this name has a status subresource.
func (d *definition) statusOf(name string) bool {
	if !slices.ContainsFunc(d.versions, func(v version) bool { return !v.subresources.IsNull() }) {
		return d.moved.hasStatus()
	}
	return d.versions[slices.IndexFunc(d.versions, func(v version) bool { return v.name == name })].hasStatus()
}

// anyStatus says whether any version has a status subresource.
func (d *definition) anyStatus() bool {
	return d.moved.hasStatus() || slices.ContainsFunc(d.versions, func(v version) bool { return v.hasStatus() })
}

// schemaOf returns the schema of a version; null if the version has no schema or does not exist.
func (d *definition) schemaOf(name string) object.Value {
	if !d.moved.schema.IsNull() {
		return d.moved.schema
	}
	for i := range d.versions {
		if v := &d.versions[i]; v.name == name {
			return v.schema
		}
	}
	return object.Nil
}

// anySchema says whether a predicate holds for any schema. It must not hold for null.
func (d *definition) anySchema(holds func(schema object.Value) bool) bool {
	return holds(d.moved.openAPI()) || slices.ContainsFunc(d.versions, func(v version) bool { return holds(v.openAPI()) })
}

// allHaveSchemas says whether every version has a schema.
func (d *definition) allHaveSchemas() bool {
	return !d.moved.openAPI().IsNull() || !slices.ContainsFunc(d.versions,
		func(v version) bool { return v.openAPI().IsNull() })
}

// oneOf requires a value of an enum.
func (c *checker) oneOf(p *fielderrors.Location, value string, accepted []string) {
	if value == "" {
		c.Required(p, "")
		return
	}
	if !slices.Contains(accepted, value) {
		c.UnsupportedText(p, value, accepted)
	}
}
