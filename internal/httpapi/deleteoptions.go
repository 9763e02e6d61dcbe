package httpapi

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/wire"
	"plinth/object"
)

// deleteParams are DeleteOptions as a client sends them, before validation.
type deleteParams struct {
	engine.DeleteOptions
	policy        *string
	dryRun        []string
	preconditions bool // they are set, if only to an empty object
}

// deleteOptions reads the options of a delete (DEL-2): from the body or, if it is empty, from the query.
func (rs *requestState) deleteOptions() (engine.DeleteOptions, error) {
	body, err := rs.readBody()
	if err != nil {
		return engine.DeleteOptions{}, err
	}
	var p deleteParams
	if len(body) > 0 {
		err = rs.deleteBody(body, &p)
	} else {
		err = rs.deleteQuery(&p)
	}
	if err != nil {
		return p.DeleteOptions, err
	}
	if !rs.h.Features.On(features.AllowUnsafeMalformedObjectDeletion) {
		p.IgnoreReadError = false
	}
	if err := invalidOptions("DeleteOptions", p.validate()); err != nil {
		return p.DeleteOptions, err
	}
	if p.policy != nil {
		p.PropagationPolicy = *p.policy
	}
	p.DryRun = len(p.dryRun) > 0
	rs.dryRun = p.DryRun
	return p.DeleteOptions, nil
}

// deleteQuery reads the options from the query. In a delete of a collection, resourceVersion is therefore both the
// revision of the list and a precondition of each delete, as in the reference.
func (rs *requestState) deleteQuery(p *deleteParams) (err error) {
	values := rs.query()
	if p.GracePeriodSeconds, err = integer(values, "gracePeriodSeconds"); err != nil {
		return err
	}
	p.OrphanDependents = boolean(values, "orphanDependents")
	if list := values["propagationPolicy"]; len(list) > 0 {
		p.policy = &list[0]
	}
	p.dryRun = values["dryRun"]
	p.IgnoreReadError = isTrue(values, "ignoreStoreReadErrorWithClusterBreakingPotential")
	p.PreconditionUID, p.PreconditionRV = first(values, "uid"), first(values, "resourceVersion")
	p.preconditions = p.PreconditionUID != "" || p.PreconditionRV != ""
	return nil
}

// deleteBody reads DeleteOptions of any group version. Unknown fields are ignored, as in the reference.
func (rs *requestState) deleteBody(body []byte, p *deleteParams) error {
	encoding, err := rs.bodyEncoding(rs.h.offer)
	if err != nil {
		return err
	}
	parsed, err := parse(encoding, body, wire.DeleteOptions())
	if apierr.Is(err, apierr.RequestEntityTooLarge) {
		return err
	}
	if err != nil {
		return apierr.NewBadRequest(words(err))
	}
	v := parsed.Value
	if v.Kind() != object.Map && !v.IsNull() {
		return apierr.NewBadRequest(fmt.Sprintf(
			"couldn't get version/kind; json parse error: DeleteOptions are an object, not a JSON %s", v.Kind()))
	}
	for _, name := range [...]string{"apiVersion", "kind"} {
		if current := v.At(name); current.Kind() != object.String && !current.IsNull() {
			return apierr.NewBadRequest(fmt.Sprintf(
				"couldn't get version/kind; json parse error: json: cannot unmarshal %s into Go struct field .%s of type string",
				jsonKind(current), name))
		}
	}
	if kind := v.At("kind").Str(); kind != "" && kind != "DeleteOptions" {
		return apierr.NewBadRequest(fmt.Sprintf(
			"no kind %q is registered for version %q that a delete could take: DeleteOptions are expected", kind,
			v.At("apiVersion").Str()))
	}
	rs.recordOptions(v)
	f := optionFields{of: v}
	p.GracePeriodSeconds = f.integer("gracePeriodSeconds")
	p.OrphanDependents = f.boolean("orphanDependents")
	p.policy = f.text("propagationPolicy")
	if ignore := f.boolean("ignoreStoreReadErrorWithClusterBreakingPotential"); ignore != nil {
		p.IgnoreReadError = *ignore
	}
	p.dryRun = f.texts("dryRun")
	if preconditions, ok := f.get("preconditions", object.Map, "v1.Preconditions"); ok {
		p.preconditions = true
		g := optionFields{of: preconditions, prefix: "preconditions."}
		if uid := g.text("uid"); uid != nil {
			p.PreconditionUID = *uid
		}
		if version := g.text("resourceVersion"); version != nil {
			p.PreconditionRV = *version
		}
		if f.err == nil {
			f.err = g.err
		}
	}
	return f.err
}

// optionFields reads the members of options and keeps the first error. The errors are those of encoding/json for the Go
// struct of the reference, so the members are not decoded by the schema of DeleteOptions, which has other texts.
type optionFields struct {
	of     object.Value
	prefix string
	err    error
}

// get returns a member of this kind. ok is false if it is absent, null, or of another kind, which is an error.
func (f *optionFields) get(name string, kind object.Kind, typ string) (object.Value, bool) {
	v := f.of.At(name)
	if v.IsNull() {
		return v, false
	}
	if v.Kind() != kind {
		if f.err == nil {
			owner := "DeleteOptions"
			if f.prefix != "" {
				owner = "Preconditions"
			}
			f.err = apierr.NewBadRequest(fmt.Sprintf("json: cannot unmarshal %s into Go struct field %s.%s of type %s",
				jsonKind(v), owner, f.prefix+name, typ))
		}
		return v, false
	}
	return v, true
}

// jsonKind returns the name of a kind of value in the messages of encoding/json.
func jsonKind(v object.Value) string {
	switch v.Kind() {
	case object.Bool:
		return "bool"
	case object.Int, object.Float, object.Number:
		return "number"
	case object.List:
		return "array"
	case object.Map:
		return "object"
	}
	return "string"
}

func (f *optionFields) integer(name string) *int64 {
	switch v := f.of.At(name); v.Kind() {
	case object.Float, object.Number: // only for these does encoding/json quote the number
		if f.err == nil {
			f.err = apierr.NewBadRequest(fmt.Sprintf(
				"json: cannot unmarshal number %s into Go struct field DeleteOptions.%s of type int64",
				object.AppendJSON(nil, v), name))
		}
		return nil
	}
	if v, ok := f.get(name, object.Int, "int64"); ok {
		n := v.Int()
		return &n
	}
	return nil
}

func (f *optionFields) boolean(name string) *bool {
	if v, ok := f.get(name, object.Bool, "bool"); ok {
		b := v.Bool()
		return &b
	}
	return nil
}

func (f *optionFields) text(name string) *string {
	typ := "string"
	switch name {
	case "propagationPolicy":
		typ = "v1.DeletionPropagation"
	case "uid":
		typ = "types.UID"
	}
	if v, ok := f.get(name, object.String, typ); ok {
		s := strings.Clone(v.Str()) // so that it does not keep the body in memory
		return &s
	}
	return nil
}

func (f *optionFields) texts(name string) []string {
	list, ok := f.get(name, object.List, "[]string")
	if !ok {
		return nil
	}
	texts := make([]string, 0, list.Len())
	for _, item := range list.Items() {
		if item.Kind() != object.String && !item.IsNull() && f.err == nil {
			f.err = apierr.NewBadRequest("json: cannot unmarshal " + jsonKind(item) + " into Go struct field DeleteOptions." +
				name + " of type string")
		}
		texts = append(texts, item.Str())
	}
	return texts
}

// validate returns the errors of options that could be parsed.
func (p *deleteParams) validate() (errs field.ErrorList) {
	errs = append(engine.ValidatePropagation(p.policy, p.OrphanDependents), dryRunErrors(p.dryRun)...)
	if !p.IgnoreReadError {
		return errs
	}
	path := field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential")
	for _, other := range []struct {
		name string
		set  bool
	}{
		{"propagationPolicy", p.policy != nil},
		{"orphanDependents", p.OrphanDependents != nil},
		{"gracePeriodSeconds", p.GracePeriodSeconds != nil},
		{"preconditions", p.preconditions},
	} {
		if other.set {
			errs = append(errs, field.Invalid(path, true, "cannot be set together with ."+other.name))
		}
	}
	return errs
}

// forCollection refuses the options that are allowed for one object only (DEL-6).
func forCollection(o engine.DeleteOptions) error {
	if !o.IgnoreReadError {
		return nil
	}
	path := field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential")
	return invalidOptions("DeleteOptions", field.ErrorList{
		field.Invalid(path, true, "is not allowed with DELETECOLLECTION, try again after removing the option"),
	})
}
