package validation

import (
	"slices"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// definition is a CustomResourceDefinition in the form in which the reference validates it: members that are the same
// in all versions have been moved to spec, and are null in the versions. They are moved one by one: schemas may have
// been while selectable fields have not, and rules that look at both then find one of them missing, as in the
// reference.
type definition struct {
	spec     object.Value
	versions []version
	moved    perVersion // what is the same in all versions
}

// version is one of spec.versions.
type version struct {
	value           object.Value
	name            string
	served, storage bool
	perVersion
}

// perVersion is what a version has that the reference may hold in spec.
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

// move takes a part out of the versions if it is the same in all of them.
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

// openAPI is the schema of a version, or of all of them, null if there is none.
func (p *perVersion) openAPI() object.Value { return p.schema.At("openAPIV3Schema") }

// hasStatus says whether objects have a status subresource.
func (p *perVersion) hasStatus() bool { return !p.subresources.At("status").IsNull() }

// statusOf says whether objects have a status subresource in the first version of this name.
func (d *definition) statusOf(name string) bool {
	if !slices.ContainsFunc(d.versions, func(v version) bool { return !v.subresources.IsNull() }) {
		return d.moved.hasStatus()
	}
	i := slices.IndexFunc(d.versions, func(v version) bool { return v.name == name })
	return i >= 0 && d.versions[i].hasStatus()
}

// anyStatus says whether any version has a status subresource.
func (d *definition) anyStatus() bool {
	return d.moved.hasStatus() || slices.ContainsFunc(d.versions, func(v version) bool { return v.hasStatus() })
}

// schemaOf is what validates a version; ok is false if there is no such version.
func (d *definition) schemaOf(name string) (schema object.Value, ok bool) {
	if !slices.ContainsFunc(d.versions, func(v version) bool { return !v.schema.IsNull() }) {
		return d.moved.schema, true
	}
	i := slices.IndexFunc(d.versions, func(v version) bool { return v.name == name })
	if i < 0 {
		return object.Nil, false
	}
	return d.versions[i].schema, true
}

// anySchema says whether anything holds for the schema of all versions or of any one.
func (d *definition) anySchema(holds func(schema object.Value) bool) bool {
	if s := d.moved.openAPI(); !s.IsNull() && holds(s) {
		return true
	}
	return slices.ContainsFunc(d.versions, func(v version) bool {
		s := v.openAPI()
		return !s.IsNull() && holds(s)
	})
}

// allHaveSchemas says whether there is a schema for each version.
func (d *definition) allHaveSchemas() bool {
	return !d.moved.openAPI().IsNull() || !slices.ContainsFunc(d.versions,
		func(v version) bool { return v.openAPI().IsNull() })
}

// oneOf demands a value of an enum.
func (c *checker) oneOf(p *fielderrors.Place, value string, accepted []string) {
	if value == "" {
		c.Required(p, "")
		return
	}
	if !slices.Contains(accepted, value) {
		c.UnsupportedText(p, value, accepted)
	}
}
