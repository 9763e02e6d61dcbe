package fielderrors

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Errors collects what rules find. The zero value is ready for use.
type Errors struct {
	Root *field.Path // where the nil Place is; nil: at the object
	List field.ErrorList
}

// Texts of several rules.
const (
	Immutable   = "field is immutable"
	NotNegative = "must be greater than or equal to 0"
)

// Path is a place in words.
func (f *Errors) Path(p *Place) *field.Path {
	var text []byte
	if f.Root != nil {
		text = append(text, f.Root.String()...)
	}
	return field.NewPath(string(p.appendTo(text)))
}

// Invalid adds an error about a value.
func (f *Errors) Invalid(p *Place, value any, detail string) {
	f.List = append(f.List, field.Invalid(f.Path(p), value, detail))
}

// Each is Invalid with every one of some details.
//
// It takes a string, because an interface would be allocated before it is known whether there is an error.
func (f *Errors) Each(p *Place, value string, details []string) {
	for _, detail := range details {
		f.Invalid(p, value, detail)
	}
}

// Required adds an error about what is missing.
func (f *Errors) Required(p *Place, detail string) {
	f.List = append(f.List, field.Required(f.Path(p), detail))
}

// Forbidden adds an error about what may not be there.
func (f *Errors) Forbidden(p *Place, detail string) {
	f.List = append(f.List, field.Forbidden(f.Path(p), detail))
}

// Duplicate adds an error about a value that is there twice.
func (f *Errors) Duplicate(p *Place, value any) {
	f.List = append(f.List, field.Duplicate(f.Path(p), value))
}

// Unsupported adds an error about a text that the reference holds as an enum, and tells which ones there are.
func (f *Errors) Unsupported(p *Place, value string, supported []string) {
	f.List = append(f.List, field.NotSupported(f.Path(p), Word(value), supported))
}

// NotFound adds an error about a reference to what is not there.
func (f *Errors) NotFound(p *Place, value any) {
	f.List = append(f.List, field.NotFound(f.Path(p), value))
}

// TooLong adds an error about a text that is longer than a limit.
func (f *Errors) TooLong(p *Place, limit int) {
	f.List = append(f.List, field.TooLong(f.Path(p), "", limit))
}

// TooLongCharacters adds an error about a text of more characters than a limit.
func (f *Errors) TooLongCharacters(p *Place, limit int) {
	f.List = append(f.List, field.TooLongCharacters(f.Path(p), "", limit))
}

// TooMany adds an error about a list of more items than a limit.
func (f *Errors) TooMany(p *Place, have, limit int) {
	f.List = append(f.List, field.TooMany(f.Path(p), have, limit))
}

// UnsupportedText is Unsupported for a text that the reference holds as a plain string.
func (f *Errors) UnsupportedText(p *Place, value string, supported []string) {
	f.List = append(f.List, field.NotSupported(f.Path(p), value, supported))
}

// InvalidEnum is Unsupported for a whole map, of which one member is an enum.
func (f *Errors) InvalidEnum(p *Place, value any, supported []string) {
	f.List = append(f.List, field.NotSupported(f.Path(p), value, supported))
}

// InvalidAsSuch is Invalid without the value.
func (f *Errors) InvalidAsSuch(p *Place, detail string) {
	f.Invalid(p, field.OmitValueType{}, detail)
}
