package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// faults collects what the rules of a kind find. They are its methods.
type faults struct {
	fielderrors.Errors
	Options
}

// changed is for a member that cannot change, where the reference does not show its value.
func (f *faults) changed(p *fielderrors.Place) {
	f.Invalid(p, fielderrors.Show(object.Nil), fielderrors.Immutable)
}

func internalFault(p *field.Path, err error) *field.Error { return field.InternalError(p, err) }
