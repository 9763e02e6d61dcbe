package crd

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"plinth/internal/builtin/defaults"
	"plinth/internal/cel"
	"plinth/internal/crd/validation"
	"plinth/internal/gotypes"
	"plinth/internal/objectmeta"
	"plinth/object"
	"plinth/schema"
)

var (
	upstreamScheme = runtime.NewScheme()
	strategy       = customresourcedefinition.NewStrategy(upstreamScheme)
	statusStrategy = customresourcedefinition.NewStatusStrategy(upstreamScheme)
	options        = validation.Options{
		Metadata: gotypes.Of[metav1.ObjectMeta](),
		CheckRules: func(t *schema.Type, path *field.Path, o validation.RuleOptions) field.ErrorList {
			return cel.Check(t, path, cel.CheckOptions(o))
		},
		CheckDefaultRules: func(t *schema.Type, path *field.Path, v object.Value, budget int64) (field.ErrorList,
			int64) {
			return cel.Compile(t).ValidateDefault(context.Background(), path, v, budget)
		},
		RuleBudget: cel.Budget,
	}
)

func TestMain(m *testing.M) {
	install.Install(upstreamScheme)
	m.Run()
}

// definition is one document as both sides have it, decoded and defaulted.
type definition struct {
	theirs *apiextensions.CustomResourceDefinition
	ours   object.Value
}

// decode reads a document on both sides. ok is false if upstream cannot decode it.
func decode(t testing.TB, text []byte) (d definition, ok bool) {
	t.Helper()
	var typed apiextensionsv1.CustomResourceDefinition
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &typed); err != nil {
		return definition{}, false
	}
	// In places, upstream distinguishes an empty list or map from an absent one. Plinth decodes to the form that upstream
	// encodes, which has neither; therefore both sides get that form.
	text, err := json.Marshal(typed)
	if err != nil {
		t.Fatal(err)
	}
	typed = apiextensionsv1.CustomResourceDefinition{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &typed); err != nil {
		t.Fatal(err)
	}
	upstreamScheme.Default(&typed)
	d.theirs = &apiextensions.CustomResourceDefinition{}
	if err := upstreamScheme.Convert(&typed, d.theirs, nil); err != nil {
		return definition{}, false
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	decoded, err := gotypes.Of[apiextensionsv1.CustomResourceDefinition]().Decode(parsed.Value)
	if err != nil {
		t.Fatalf("upstream decodes this, we do not: %v: %s", err, text)
	}
	d.ours = defaults.CustomResourceDefinition(decoded.Value)
	return d, true
}

// verdict holds the errors of both sides for a write.
type verdict struct {
	theirs, ours []string
	panicked     any // the value of upstream's panic
}

// selfType matches upstream's name for the type of self, which contains the current time.
var selfType = regexp.MustCompile(`selfType\d+`)

// unknownType matches the error for a default whose type is not that of its schema. If the schema's type does not
// exist, upstream reports this error as well; Plinth reports only the type, and the default's other errors.
var (
	unknownType = regexp.MustCompile(`^FieldValueTypeInvalid .* in body must be of type (.*): "[a-z0-9]*"$`)
	types       = []string{"array", "boolean", "integer", "number", "object", "string", "integer,string", "int32",
		"int64", "float", "double", "date", "nonsense"}
)

// lines formats errors as text and sorts them, as upstream's order follows the iteration of maps.
func lines(errs field.ErrorList) []string {
	out := []string{}
	for _, e := range errs {
		out = append(out, selfType.ReplaceAllString(string(e.Type)+" "+e.Error(), "selfType"))
	}
	slices.Sort(out)
	return out
}

// upstream calls upstream, which panics for some definitions.
func (v *verdict) upstream(validate func() field.ErrorList) {
	defer func() {
		v.panicked = recover()
	}()
	errs := validate()
	noteFired(errs)
	v.theirs = slices.DeleteFunc(lines(errs), func(line string) bool {
		of := unknownType.FindStringSubmatch(line)
		return of != nil && !slices.Contains(types, of[1])
	})
}

func create(d definition) (v verdict) {
	ctx := context.Background()
	theirs := d.theirs.DeepCopy()
	v.upstream(func() field.ErrorList {
		strategy.PrepareForCreate(ctx, theirs)
		return strategy.Validate(ctx, theirs)
	})
	v.ours = judged("create", prepared(d.ours, object.Fields()), object.Nil)
	return v
}

func update(d, old definition) (v verdict) {
	ctx := context.Background()
	theirs := d.theirs.DeepCopy()
	theirs.Name = old.theirs.Name // the name in the URL
	v.upstream(func() field.ErrorList {
		strategy.PrepareForUpdate(ctx, theirs, old.theirs)
		theirs.Generation, theirs.ResourceVersion = 0, "1"
		return strategy.ValidateUpdate(ctx, theirs, old.theirs)
	})
	v.ours = judged("update", named(prepared(d.ours, old.ours.At("status")), old.ours), old.ours)
	return v
}

func updateStatus(d, old definition) (v verdict) {
	ctx := context.Background()
	theirs := d.theirs.DeepCopy()
	theirs.Name = old.theirs.Name
	v.upstream(func() field.ErrorList {
		statusStrategy.PrepareForUpdate(ctx, theirs, old.theirs)
		theirs.ResourceVersion = "1"
		return statusStrategy.ValidateUpdate(ctx, theirs, old.theirs)
	})
	v.ours = judged("status", named(d.ours.With("spec", old.ours.At("spec")), old.ours), old.ours)
	return v
}

// judged returns our errors for a write: create, update, or status.
func judged(verb string, obj, old object.Value) []string {
	path := field.NewPath("metadata")
	if verb == "create" {
		errs := objectmeta.ObjectMeta(obj.At("metadata"), false, validation.Names(obj), path)
		return lines(append(errs, validation.Validate(obj, options)...))
	}
	errs := objectmeta.ObjectMetaUpdate(obj.At("metadata"), old.At("metadata"), path)
	if verb == "update" {
		return lines(append(errs, validation.ValidateUpdate(obj, old, options)...))
	}
	return lines(append(errs, validation.ValidateStatusUpdate(obj, old)...))
}

// prepared returns a definition with the status that the engine gives it: the one it had, to which the storage version
// is added.
func prepared(obj, status object.Value) object.Value {
	stored := status.At("storedVersions")
	for _, v := range obj.At("spec", "versions").Items() {
		if !v.At("storage").Bool() {
			continue
		}
		if !slices.ContainsFunc(stored.Items(), func(s object.Value) bool { return s.Str() == v.At("name").Str() }) {
			stored = object.ListOf(append(slices.Clone(stored.Items()), v.At("name"))...)
		}
		break
	}
	return obj.With("status", status.With("storedVersions", stored))
}

// named returns a definition with the name of another.
func named(obj, other object.Value) object.Value {
	return obj.WithAt(other.At("metadata", "name"), "metadata", "name")
}

// difference describes how the verdicts differ, "" if they do not.
func (v *verdict) difference() string {
	if v.panicked != nil {
		if len(v.ours) == 0 {
			return fmt.Sprintf("upstream panicked (%v), we accept", v.panicked)
		}
		return ""
	}
	if slices.Equal(v.theirs, v.ours) {
		return ""
	}
	var b strings.Builder
	only := func(who string, these, those []string) {
		for _, line := range these {
			if i := slices.Index(those, line); i >= 0 {
				those = slices.Delete(slices.Clone(those), i, i+1)
			} else {
				fmt.Fprintf(&b, "\n  %s alone: %s", who, line)
			}
		}
	}
	only("upstream", v.theirs, v.ours)
	only("we", v.ours, v.theirs)
	return b.String()
}
