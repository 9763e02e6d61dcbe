package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// errorList collects the errors of a kind. The rules are its methods.
type errorList struct {
	fielderrors.Errors
	Options
	v1beta1 bool // the object comes from v1beta1 of resource.k8s.io (Kind.V1beta1)
}

// changed is the error for a change of an immutable member, if the reference does not print its value.
func (f *errorList) changed(p *fielderrors.Location) {
	f.Invalid(p, fielderrors.Show(object.Nil), fielderrors.Immutable)
}

func internalError(p *field.Path, err error) *field.Error { return field.InternalError(p, err) }
