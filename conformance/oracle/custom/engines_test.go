package custom

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	structuralmeta "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"

	"plinth/internal/objectmeta"
	"plinth/object"
	"plinth/schema"
)

// literal is a number that is encoded unchanged.
type literal string

// MarshalJSON implements json.Marshaler.
func (l literal) MarshalJSON() ([]byte, error) { return []byte(l), nil }

func encoded(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// outcome holds the result of each step of a case, as text, so that two engines can be compared.
type outcome struct {
	decodeError string
	decoded     string // the object
	unknown     []string
	stored      string // decoded as if read from the store
	defaulted   string
	causes      []string
}

// kind is one schema, compiled by one of the engines.
type kind interface {
	// take decodes, defaults and validates the object in text.
	take(text string, old any) (outcome, any)
}

// reference is a schema as the API server compiles it.
type reference struct {
	internal   *apiextensions.JSONSchemaProps
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	status     validation.SchemaValidator
}

// internalSchema decodes a schema.
func internalSchema(n node) (*apiextensions.JSONSchemaProps, *apiextensionsv1.JSONSchemaProps, error) {
	var external apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(encoded(n)), &external); err != nil {
		return nil, nil, err
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &internal,
		nil); err != nil {
		return nil, nil, err
	}
	return &internal, &external, nil
}

// accepts says whether a value is valid according to the reference.
func accepts(n node, v any) bool {
	internal, _, err := internalSchema(n)
	if err != nil {
		return false
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return false
	}
	var typed any
	if err := utiljson.Unmarshal([]byte(encoded(v)), &typed); err != nil {
		return false
	}
	return len(validation.ValidateCustomResource(nil, typed, validator)) == 0
}

func newReference(n node) (*reference, error) {
	internal, _, err := internalSchema(n)
	if err != nil {
		return nil, err
	}
	r := &reference{internal: internal}
	if r.structural, err = structuralschema.NewStructural(internal); err != nil {
		return nil, err
	}
	if err := defaulting.PruneDefaults(r.structural); err != nil {
		return nil, err
	}
	if r.validator, _, err = validation.NewSchemaValidator(internal); err != nil {
		return nil, err
	}
	if of, ok := internal.Properties["status"]; ok {
		r.status, _, err = validation.NewSchemaValidator(&of)
	}
	return r, err
}

// decode decodes an object as the API server does, from a client or from the store.
func (r *reference) decode(text string, stored bool) (map[string]any, []string, error) {
	var u map[string]any
	if err := utiljson.Unmarshal([]byte(text), &u); err != nil {
		return nil, nil, err
	}
	for _, name := range []string{"kind", "apiVersion"} {
		if _, _, err := unstructured.NestedString(u, name); err != nil {
			return nil, nil, err
		}
	}
	kind, apiVersion := u["kind"], u["apiVersion"]
	meta, found, unknown, err := structuralmeta.GetObjectMetaWithOptions(u, structuralmeta.ObjectMetaOptions{
		DropMalformedFields: stored, ReturnUnknownFieldPaths: true,
	})
	if err != nil {
		return nil, nil, err
	}
	unknown = append(unknown, pruning.PruneWithOptions(u, r.structural, true,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	defaulting.PruneNonNullableNullsWithoutDefaults(u, r.structural)
	wrong, more := structuralmeta.CoerceWithOptions(nil, u, r.structural, false, structuralmeta.CoerceOptions{
		DropInvalidFields: stored, ReturnUnknownFieldPaths: true,
	})
	if wrong != nil {
		return nil, nil, wrong
	}
	u["kind"], u["apiVersion"] = kind, apiVersion
	if found {
		if err := structuralmeta.SetObjectMeta(u, meta); err != nil {
			return nil, nil, err
		}
	}
	return u, append(unknown, more...), nil
}

func (r *reference) take(text string, old any) (out outcome, made any) {
	if u, _, err := r.decode(text, true); err != nil {
		out.stored = err.Error()
	} else {
		out.stored = canonical(u)
	}
	u, unknown, err := r.decode(text, false)
	if err != nil {
		out.decodeError = err.Error()
		return out, nil
	}
	out.decoded, out.unknown = canonical(u), unknown
	defaulting.Default(u, r.structural)
	out.defaulted = canonical(u)
	out.causes = causes(r.validate(u, old))
	return out, u
}

// validate validates as the strategies of custom resources do, except for the metadata of the object, scale and rules.
func (r *reference) validate(u map[string]any, old any) (errs field.ErrorList) {
	before, isUpdate := old.(map[string]any)
	if !isUpdate {
		errs = append(errs, validation.ValidateCustomResource(nil, u, r.validator)...)
		errs = append(errs, structuralmeta.Validate(context.Background(), nil, u, r.structural, false)...)
		return append(errs, listtype.ValidateListSetsAndMaps(nil, r.structural, u)...)
	}
	correlated := common.NewCorrelatedObject(u, before, &model.Structural{Structural: r.structural})
	errs = append(errs, validation.ValidateCustomResourceUpdate(nil, u, before, r.validator,
		validation.WithRatcheting(correlated))...)
	errs = append(errs, structuralmeta.Validate(context.Background(), nil, u, r.structural, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, r.structural, before)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, r.structural, u)...)
	}
	return errs
}

func (r *reference) validateStatus(u, before map[string]any) (errs field.ErrorList) {
	correlated := common.NewCorrelatedObject(u, before, &model.Structural{Structural: r.structural})
	if status, ok := u["status"]; ok && r.status != nil {
		errs = append(errs, validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, before["status"],
			r.status,
			validation.WithRatcheting(correlated.Key("status")))...)
	}
	if found := listtype.ValidateListSetsAndMaps(nil, r.structural, u); len(found) > 0 {
		if len(listtype.ValidateListSetsAndMaps(nil, r.structural, before)) == 0 {
			errs = append(errs, found...)
		}
	}
	return errs
}

// canonical formats an object for comparing the engines.
func canonical(u any) string {
	p, err := object.ParseJSON([]byte(encoded(u)))
	if err != nil {
		panic(err)
	}
	return printed(p.Value)
}

func printed(v object.Value) string {
	v, err := v.Untyped()
	if err != nil {
		panic(err)
	}
	return string(object.AppendJSON(nil, v))
}

// causes returns errors as the API shows them, sorted.
func causes(errs field.ErrorList) []string {
	out := make([]string, 0, len(errs))
	for _, err := range errs {
		out = append(out, fmt.Sprintf("%s | %s | %s", err.Type, err.Field, err.ErrorBody()))
	}
	slices.Sort(out)
	return out
}

// plinth is a schema compiled by Plinth.
type plinth struct{ typ *schema.Type }

var metadata = schema.FromGo(reflect.TypeFor[metav1.ObjectMeta](), nil)

func newPlinth(n node) (*plinth, error) {
	_, external, err := internalSchema(n)
	if err != nil {
		return nil, err
	}
	p, err := object.ParseJSON([]byte(encoded(external)))
	if err != nil {
		return nil, err
	}
	typ, err := schema.Structural(p.Value, schema.StructuralOptions{Metadata: metadata, Inspect: objectmeta.Embedded})
	return &plinth{typ}, err
}

func (p *plinth) take(text string, old any) (out outcome, made any) {
	parsed, err := object.ParseJSON([]byte(text))
	if err != nil {
		panic(err)
	}
	if stored, err := p.typ.DecodeStored(parsed.Value); err != nil {
		out.stored = err.Error()
	} else {
		out.stored = printed(stored.Value)
	}
	decoded, err := p.typ.Decode(parsed.Value)
	if err != nil {
		out.decodeError = err.Error()
		return out, nil
	}
	out.decoded, out.unknown = printed(decoded.Value), decoded.Unknown
	v := p.typ.Default(decoded.Value)
	out.defaulted = printed(v)
	before, _ := old.(object.Value)
	out.causes = causes(p.typ.Validate(v, before, nil))
	return out, v
}

// difference describes where two outcomes differ, "" if they do not.
func difference(want, got outcome) string {
	var b strings.Builder
	compare := func(what, want, got string) {
		if want != got {
			fmt.Fprintf(&b, "%s\n  reference: %s\n  plinth:    %s\n", what, want, got)
		}
	}
	compare("error of decoding", want.decodeError, got.decodeError)
	compare("decoded", want.decoded, got.decoded)
	compare("unknown fields", fmt.Sprint(want.unknown), fmt.Sprint(got.unknown))
	compare("decoded from the store", want.stored, got.stored)
	compare("defaulted", want.defaulted, got.defaulted)
	compare("causes", strings.Join(want.causes, "\n             "), strings.Join(got.causes, "\n             "))
	return b.String()
}
