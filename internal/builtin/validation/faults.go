package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// faults collects what rules find.
type faults struct {
	root *field.Path // where the nil place is; nil: at the object
	list field.ErrorList
}

// path is a place in words.
func (f *faults) path(p *place) *field.Path {
	var text []byte
	if f.root != nil {
		text = append(text, f.root.String()...)
	}
	return field.NewPath(string(p.appendTo(text)))
}

func (f *faults) invalid(p *place, value any, detail string) {
	f.list = append(f.list, field.Invalid(f.path(p), value, detail))
}

// each is invalid with every one of some details.
//
// It takes a string, because an interface would be allocated before anybody knows whether there is a fault.
func (f *faults) each(p *place, value string, details []string) {
	for _, detail := range details {
		f.invalid(p, value, detail)
	}
}

func (f *faults) required(p *place, detail string) {
	f.list = append(f.list, field.Required(f.path(p), detail))
}

func (f *faults) forbidden(p *place, detail string) {
	f.list = append(f.list, field.Forbidden(f.path(p), detail))
}

func (f *faults) duplicate(p *place, value any) {
	f.list = append(f.list, field.Duplicate(f.path(p), value))
}

func (f *faults) unsupported(p *place, value string, supported []string) {
	f.list = append(f.list, field.NotSupported(f.path(p), word(value), supported))
}

func (f *faults) notFound(p *place, value any) {
	f.list = append(f.list, field.NotFound(f.path(p), value))
}

func (f *faults) tooLong(p *place, limit int) {
	f.list = append(f.list, field.TooLong(f.path(p), "", limit))
}

func (f *faults) tooMany(p *place, have, limit int) {
	f.list = append(f.list, field.TooMany(f.path(p), have, limit))
}

// unsupportedText is unsupported for a text that the reference holds as a plain string.
func (f *faults) unsupportedText(p *place, value string, supported []string) {
	f.list = append(f.list, field.NotSupported(f.path(p), value, supported))
}

// invalidEnum is unsupported for a whole map, of which one member is an enum.
func (f *faults) invalidEnum(p *place, value any, supported []string) {
	f.list = append(f.list, field.NotSupported(f.path(p), value, supported))
}

// changed is for a member that cannot change, where the reference does not show its value.
func (f *faults) changed(p *place) { f.invalid(p, show(object.Nil), immutable) }

// invalidAsSuch is invalid without the value.
func (f *faults) invalidAsSuch(p *place, detail string) {
	f.invalid(p, field.OmitValueType{}, detail)
}

func internalFault(p *field.Path, err error) *field.Error { return field.InternalError(p, err) }
