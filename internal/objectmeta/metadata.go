package objectmeta

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/fielderrors"
	"plinth/object"
)

// MaxAnnotations is the limit of an object's annotations: bytes of all keys and values together.
const MaxAnnotations = 256 << 10

const (
	maxFieldManager = 128
	maxSubresource  = 256
	fieldsV1        = "FieldsV1"
)

// root is the metadata itself.
var root *fielderrors.Location

// ObjectMeta validates the metadata of a new object, after its name was generated and its namespace was set, as
// ValidateObjectMeta in the reference. name returns the errors of a name of this kind, or, if prefix is set, of the
// beginning of one; nil allows every name that can be in a URL.
func ObjectMeta(meta object.Value, namespaced bool, name func(name string, prefix bool) []string,
	path *field.Path) field.ErrorList {
	f := &fielderrors.Errors{Root: path}
	checkGenerateName(f, meta, name)
	if text := meta.At("name").Str(); text == "" {
		f.Required(root.To("name"), "name or generateName is required")
	} else {
		f.Each(root.To("name"), text, nameErrors(text, false, name))
	}
	checkNamespace(f, meta, namespaced)
	checkGeneration(f, meta)
	Labels(f, meta.At("labels"), root.To("labels"))
	Annotations(f, meta.At("annotations"), root.To("annotations"))
	checkOwnerReferences(f, meta.At("ownerReferences"), root.To("ownerReferences"))
	checkFinalizers(f, meta.At("finalizers"), root.To("finalizers"))
	checkManagedFields(f, meta.At("managedFields"), root.To("managedFields"))
	return f.List
}

// Embedded validates the metadata of an object within an object (x-kubernetes-embedded-resource): its name may be
// missing, and it is namespaced if it has a namespace. Equal errors, such as those of two labels with the same value,
// are returned once.
func Embedded(meta object.Value, path *field.Path) field.ErrorList {
	if meta.At("name").Str() == "" {
		meta = meta.With("name", object.StringOf("name"))
	}
	errs := ObjectMeta(meta, meta.At("namespace").Str() != "", nil, path)
	if len(errs) < 2 {
		return errs
	}
	// Errors are compared by their parts, and not formatted: n errors about a list of n owner references have a text of
	// n² bytes. Values other than strings follow from the path, or are in the detail.
	type parts struct {
		kind                field.ErrorType
		path, detail, value string
	}
	seen := make(map[parts]bool, len(errs))
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		this := parts{kind: err.Type, path: err.Field, detail: err.Detail}
		this.value, _ = err.BadValue.(string)
		before := seen[this]
		seen[this] = true
		return before
	})
}

func nameErrors(text string, prefix bool, name func(name string, prefix bool) []string) []string {
	if name != nil {
		if wrong := name(text, prefix); len(wrong) > 0 {
			return wrong
		}
	}
	return PathSegmentErrors(text, prefix)
}

func checkGenerateName(f *fielderrors.Errors, meta object.Value, name func(name string, prefix bool) []string) {
	if prefix := meta.At("generateName").Str(); prefix != "" {
		f.Each(root.To("generateName"), prefix, nameErrors(prefix, true, name))
	}
}

func checkNamespace(f *fielderrors.Errors, meta object.Value, namespaced bool) {
	namespace := meta.At("namespace").Str()
	p := root.To("namespace")
	switch {
	case namespaced && namespace == "":
		f.Required(p, "")
	case namespaced:
		f.Each(p, namespace, LabelErrors(namespace))
	case namespace != "":
		f.Forbidden(p, "not allowed on this type")
	}
}

func checkGeneration(f *fielderrors.Errors, meta object.Value) {
	if n := meta.At("generation").Int(); n < 0 {
		f.Invalid(root.To("generation"), n, fielderrors.NotNegative)
	}
}

// Labels validates the keys and values of labels, and of the maps in selectors.
func Labels(f *fielderrors.Errors, labels object.Value, p *fielderrors.Location) {
	for _, m := range labels.Members() {
		f.Each(p, m.Key, LabelKeyErrors(m.Key))
		value := m.Value.Str()
		f.Each(p, value, LabelValueErrors(value))
	}
}

// Annotations validates the keys of annotations, in lower case as the reference does, and their size.
func Annotations(f *fielderrors.Errors, annotations object.Value, p *fielderrors.Location) {
	size := 0
	for _, m := range annotations.Members() {
		if !IsLabelKey(m.Key) {
			f.Each(p, m.Key, LabelKeyErrors(strings.ToLower(m.Key)))
		}
		size += len(m.Key) + m.Value.Len()
	}
	if size > MaxAnnotations {
		f.TooLong(p, MaxAnnotations)
	}
}

// The members of an owner reference in the order of its Go type.
var ownerReferenceOrder = []string{"apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"}

func checkOwnerReferences(f *fielderrors.Errors, references object.Value, p *fielderrors.Location) {
	controller := ""
	for i, reference := range references.Items() {
		checkOwnerReference(f, reference, p.Item(i))
		if !reference.At("controller").Bool() {
			continue
		}
		this := reference.At("kind").Str() + "/" + reference.At("name").Str()
		if controller == "" {
			controller = this
			continue
		}
		f.Invalid(p, fielderrors.ShowList(references, ownerReferenceOrder), fmt.Sprintf(
			"Only one reference can have Controller set to true. Found \"true\" in references for %v and %v", controller, this))
	}
}

func checkOwnerReference(f *fielderrors.Errors, reference object.Value, p *fielderrors.Location) {
	apiVersion, kind := reference.At("apiVersion").Str(), reference.At("kind").Str()
	if apiVersion == "" {
		f.Required(p.To("apiVersion"), "must not be empty")
	} else if strings.Count(apiVersion, "/") > 1 || strings.HasSuffix(apiVersion, "/") {
		f.Invalid(p.To("apiVersion"), apiVersion, "must be <group>/<version> or <version>")
	}
	if kind == "" {
		f.Required(p.To("kind"), "must not be empty")
	}
	if reference.At("name").Str() == "" {
		f.Required(p.To("name"), "must not be empty")
	}
	if reference.At("uid").Str() == "" {
		f.Required(p.To("uid"), "must not be empty")
	}
	if kind == "Event" && (apiVersion == "v1" || apiVersion == "/v1") {
		f.Invalid(p, fielderrors.Show(reference, ownerReferenceOrder...), "/v1, Kind=Event is disallowed from being an owner")
	}
}

func checkFinalizers(f *fielderrors.Errors, finalizers object.Value, p *fielderrors.Location) {
	orphan, dependent := false, false
	for _, item := range finalizers.Items() {
		name := item.Str()
		f.Each(p, name, LabelKeyErrors(name))
		orphan = orphan || name == metav1.FinalizerOrphanDependents
		dependent = dependent || name == metav1.FinalizerDeleteDependents
	}
	if orphan && dependent {
		f.Invalid(p, fielderrors.Show(finalizers), fmt.Sprintf("finalizer %s and %s cannot be both set",
			metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents))
	}
}

var managedFieldsOperations = []string{"Apply", "Update"}

func checkManagedFields(f *fielderrors.Errors, entries object.Value, p *fielderrors.Location) {
	for i, entry := range entries.Items() {
		p := p.Item(i)
		switch operation := entry.At("operation").Str(); operation {
		case "":
			f.Required(p.To("operation"), "must not be empty")
		case "Apply", "Update":
		default:
			f.Unsupported(p.To("operation"), operation, managedFieldsOperations)
		}
		if kind := entry.At("fieldsType").Str(); kind != "" && kind != fieldsV1 {
			f.Invalid(p.To("fieldsType"), kind, "must be `FieldsV1`")
		}
		FieldManager(f, entry.At("manager").Str(), p.To("manager"))
		if entry.At("subresource").Len() > maxSubresource {
			f.TooLong(p.To("subresource"), maxSubresource)
		}
	}
}

// FieldManager validates the name of a field manager, in managedFields and in the parameter fieldManager.
func FieldManager(f *fielderrors.Errors, manager string, p *fielderrors.Location) {
	if len(manager) > maxFieldManager {
		f.TooLong(p, maxFieldManager)
	}
	for i, r := range manager {
		if !unicode.IsPrint(r) {
			f.Invalid(p, manager, fmt.Sprintf("invalid character %#U (at position %d)", r, i))
		}
	}
}

// ObjectMetaUpdate validates the metadata of an object that replaces old, as ValidateObjectMetaUpdate in the reference.
// The engine checks the resourceVersion.
func ObjectMetaUpdate(meta, old object.Value, path *field.Path) field.ErrorList {
	f := &fielderrors.Errors{Root: path}
	checkGenerateName(f, meta, nil)
	checkFinalizers(f, meta.At("finalizers"), root.To("finalizers"))
	if !old.At("deletionTimestamp").IsNull() {
		checkNoNewFinalizers(f, meta.At("finalizers"), old.At("finalizers"))
	}
	checkGeneration(f, meta)
	if n := meta.At("generation").Int(); n < old.At("generation").Int() {
		f.Invalid(root.To("generation"), n, "must not be decremented")
	}
	for _, key := range immutableMeta {
		if now, before := meta.At(key), old.At(key); !object.Equal(now, before) && !(isBlank(now) && isBlank(before)) {
			f.Invalid(root.To(key), fielderrors.Show(now), fielderrors.Immutable)
		}
	}
	Labels(f, meta.At("labels"), root.To("labels"))
	Annotations(f, meta.At("annotations"), root.To("annotations"))
	checkOwnerReferences(f, meta.At("ownerReferences"), root.To("ownerReferences"))
	checkManagedFields(f, meta.At("managedFields"), root.To("managedFields"))
	return f.List
}

// isBlank says whether a value is missing or an empty string, which are the same in a string field of a Go type.
func isBlank(v object.Value) bool { return v.IsNull() || v.Kind() == object.String && v.Len() == 0 }

// immutableMeta are the members that an update cannot change.
var immutableMeta = []string{"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
	"deletionGracePeriodSeconds"}

func checkNoNewFinalizers(f *fielderrors.Errors, now, before object.Value) {
	var extra []string
	for _, item := range now.Items() {
		name := item.Str()
		if !slices.ContainsFunc(before.Items(), func(v object.Value) bool { return v.Str() == name }) &&
			!slices.Contains(extra, name) {
			extra = append(extra, name)
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		f.Forbidden(root.To("finalizers"),
			fmt.Sprintf("no new finalizers can be added if the object is being deleted, found new finalizers %#v", extra))
	}
}
