package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// errorList collects what the rules of a kind find. They are its methods.
type errorList struct {
	fielderrors.Errors
	Options
}

// changed is for a member that cannot change, where the reference does not show its value.
func (f *errorList) changed(p *fielderrors.Place) {
	f.Invalid(p, fielderrors.Show(object.Nil), fielderrors.Immutable)
}

func internalError(p *field.Path, err error) *field.Error { return field.InternalError(p, err) }
