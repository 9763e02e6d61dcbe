package fielderrors

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Errors is a list of errors. The zero value is ready for use.
type Errors struct {
	Root *field.Path // the path of the nil Place; nil: that of the object
	List field.ErrorList
}

// Messages that several rules have.
const (
	Immutable   = "field is immutable"
	NotNegative = "must be greater than or equal to 0"
)

// Path returns the path of a place.
func (f *Errors) Path(p *Location) *field.Path {
	var text []byte
	if f.Root != nil {
		text = append(text, f.Root.String()...)
	}
	return field.NewPath(string(p.appendTo(text)))
}

// Invalid adds an error of type Invalid.
func (f *Errors) Invalid(p *Location, value any, detail string) {
	f.List = append(f.List, field.Invalid(f.Path(p), value, detail))
}

// Each calls Invalid for each detail. It takes a string: an interface would be allocated even if there are no details.
func (f *Errors) Each(p *Location, value string, details []string) {
	for _, detail := range details {
		f.Invalid(p, value, detail)
	}
}

// Required adds an error about a missing value.
func (f *Errors) Required(p *Location, detail string) {
	f.List = append(f.List, field.Required(f.Path(p), detail))
}

// Forbidden adds an error about a value that is not allowed.
func (f *Errors) Forbidden(p *Location, detail string) {
	f.List = append(f.List, field.Forbidden(f.Path(p), detail))
}

// Duplicate adds an error about a value that occurs twice.
func (f *Errors) Duplicate(p *Location, value any) {
	f.List = append(f.List, field.Duplicate(f.Path(p), value))
}

// Unsupported adds an error about a string whose type in the reference is an enum, with the supported values.
func (f *Errors) Unsupported(p *Location, value string, supported []string) {
	f.List = append(f.List, field.NotSupported(f.Path(p), Word(value), supported))
}

// NotFound adds an error about a reference to something that does not exist.
func (f *Errors) NotFound(p *Location, value any) {
	f.List = append(f.List, field.NotFound(f.Path(p), value))
}

// TooLong adds an error about a string over a limit of bytes. The value is not in the error.
func (f *Errors) TooLong(p *Location, limit int) {
	f.List = append(f.List, field.TooLong(f.Path(p), "", limit))
}

// TooLongCharacters adds an error about a text of more characters than a limit.
func (f *Errors) TooLongCharacters(p *Location, limit int) {
	f.List = append(f.List, field.TooLongCharacters(f.Path(p), "", limit))
}

// TooMany adds an error about a list of more items than a limit.
func (f *Errors) TooMany(p *Location, have, limit int) {
	f.List = append(f.List, field.TooMany(f.Path(p), have, limit))
}

// UnsupportedText is Unsupported for a string whose type in the reference is string, which is printed differently.
func (f *Errors) UnsupportedText(p *Location, value string, supported []string) {
	f.List = append(f.List, field.NotSupported(f.Path(p), value, supported))
}

// InvalidEnum is Unsupported for an error that shows a whole map, of which one member is an enum.
func (f *Errors) InvalidEnum(p *Location, value any, supported []string) {
	f.List = append(f.List, field.NotSupported(f.Path(p), value, supported))
}

// InvalidAsSuch is Invalid for an error that does not show the value.
func (f *Errors) InvalidAsSuch(p *Location, detail string) {
	f.Invalid(p, field.OmitValueType{}, detail)
}
