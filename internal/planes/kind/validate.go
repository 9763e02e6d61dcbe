package kind

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

// specErrors are the errors of a spec that its schema does not find.
func specErrors(obj object.Value) (errs field.ErrorList) {
	spec, path := obj.At("spec"), field.NewPath("spec")
	from, at := spec.At("from"), path.Child("from")
	if name := from.At("name"); name.Kind() == object.String { // any other kind is an error by the schema
		for _, wrong := range validation.NameIsDNSLabel(name.Str(), false) {
			errs = append(errs, field.Invalid(at.Child("name"), name.Str(), wrong))
		}
		if name.Str() == obj.At("metadata", "name").Str() {
			errs = append(errs, field.Invalid(at.Child("name"), name.Str(), "a plane cannot begin with itself"))
		}
	}
	if revision := from.At("resourceVersion"); revision.Kind() == object.String && !isRevision(revision.Str()) {
		errs = append(errs, field.Invalid(at.Child("resourceVersion"), revision.Str(),
			"must be the resourceVersion of an object or a list of the other plane"))
	}
	amount, at := spec.At("limits", "bytes"), path.Child("limits", "bytes")
	switch q, err := quantityOf(amount); {
	case err != nil:
		errs = append(errs, field.Invalid(at, amount.Native(), err.Error()))
	case q.Sign() < 0:
		errs = append(errs, field.Invalid(at, q.String(), validation.IsNegativeErrorMsg))
	}
	return errs
}

// changeErrors are the errors of what cannot be changed.
func changeErrors(obj, old object.Value) field.ErrorList {
	from, before := obj.At("spec", "from"), old.At("spec", "from")
	if object.Equal(from, before) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "from"), from.Native(), validation.FieldImmutableErrorMsg)}
}

// isRevision says whether a text is the number of a revision, as the API writes it.
func isRevision(text string) bool {
	n, _ := strconv.ParseInt(text, 10, 64) // what does not parse is not printed as it was
	return n > 0 && strconv.FormatInt(n, 10) == text
}

// quantityOf is a quantity that is written as a string or as an integer; null is 0. The largest one is that of int64.
func quantityOf(v object.Value) (resource.Quantity, error) {
	if v.Kind() == object.String {
		return resource.ParseQuantity(v.Str())
	}
	return resource.ParseQuantity(strconv.FormatInt(v.Int(), 10))
}
