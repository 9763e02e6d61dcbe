package validation

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/object"
)

const (
	maxAnnotations    = 256 << 10 // bytes of all keys and values together
	maxFieldManager   = 128
	maxSubresource    = 256
	fieldsV1          = "FieldsV1"
	finalizeOrphan    = "orphan"
	finalizeDependent = "foregroundDeletion"

	immutable   = "field is immutable"
	notNegative = "must be greater than or equal to 0"
)

// ObjectMeta says what is wrong with the metadata of a new object, whose name has been generated and whose namespace
// has been filled in before. name says what is wrong with a name of this kind, or, with prefix set, with the beginning
// of one; nil allows whatever can stand in a URL.
func ObjectMeta(meta object.Value, namespaced bool, name func(name string, prefix bool) []string, path *field.Path) field.ErrorList {
	f := faults{root: path}
	f.generateName(meta, name)
	if text := meta.At("name").Str(); text == "" {
		f.required((*place)(nil).to("name"), "name or generateName is required")
	} else {
		f.each((*place)(nil).to("name"), text, nameFaults(text, false, name))
	}
	f.namespace(meta, namespaced)
	f.generation(meta)
	f.labels(meta.At("labels"), (*place)(nil).to("labels"))
	f.annotations(meta.At("annotations"), (*place)(nil).to("annotations"))
	f.ownerReferences(meta.At("ownerReferences"), (*place)(nil).to("ownerReferences"))
	f.finalizers(meta.At("finalizers"), (*place)(nil).to("finalizers"))
	f.managedFields(meta.At("managedFields"), (*place)(nil).to("managedFields"))
	return f.list
}

func nameFaults(text string, prefix bool, name func(name string, prefix bool) []string) []string {
	if name != nil {
		if wrong := name(text, prefix); len(wrong) > 0 {
			return wrong
		}
	}
	return segmentFaults(text, prefix)
}

func (f *faults) generateName(meta object.Value, name func(name string, prefix bool) []string) {
	if prefix := meta.At("generateName").Str(); prefix != "" {
		f.each((*place)(nil).to("generateName"), prefix, nameFaults(prefix, true, name))
	}
}

func (f *faults) namespace(meta object.Value, namespaced bool) {
	namespace := meta.At("namespace").Str()
	p := (*place)(nil).to("namespace")
	switch {
	case namespaced && namespace == "":
		f.required(p, "")
	case namespaced:
		f.each(p, namespace, labelFaults(namespace))
	case namespace != "":
		f.forbidden(p, "not allowed on this type")
	}
}

func (f *faults) generation(meta object.Value) {
	if n := meta.At("generation").Int(); n < 0 {
		f.invalid((*place)(nil).to("generation"), n, notNegative)
	}
}

// labels checks keys and values. It serves selectors, too.
func (f *faults) labels(labels object.Value, p *place) {
	for _, m := range labels.Members() {
		f.each(p, m.Key, qualifiedFaults(m.Key))
		value := m.Value.Str()
		f.each(p, value, labelValueFaults(value))
	}
}

func (f *faults) annotations(annotations object.Value, p *place) {
	size := 0
	for _, m := range annotations.Members() {
		if !isQualified(m.Key) {
			f.each(p, m.Key, qualifiedFaults(strings.ToLower(m.Key)))
		}
		size += len(m.Key) + m.Value.Len()
	}
	if size > maxAnnotations {
		f.tooLong(p, maxAnnotations)
	}
}

// The members of an owner reference in the order of its Go type.
var ownerReferenceOrder = []string{"apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"}

func (f *faults) ownerReferences(references object.Value, p *place) {
	controller := ""
	for i, reference := range references.Items() {
		f.ownerReference(reference, p.item(i))
		if !reference.At("controller").Bool() {
			continue
		}
		this := reference.At("kind").Str() + "/" + reference.At("name").Str()
		if controller == "" {
			controller = this
			continue
		}
		f.invalid(p, showList(references, ownerReferenceOrder), fmt.Sprintf(
			"Only one reference can have Controller set to true. Found \"true\" in references for %v and %v", controller, this))
	}
}

func (f *faults) ownerReference(reference object.Value, p *place) {
	apiVersion, kind := reference.At("apiVersion").Str(), reference.At("kind").Str()
	if apiVersion == "" {
		f.required(p.to("apiVersion"), "must not be empty")
	} else if strings.Count(apiVersion, "/") > 1 || strings.HasSuffix(apiVersion, "/") {
		f.invalid(p.to("apiVersion"), apiVersion, "must be <group>/<version> or <version>")
	}
	if kind == "" {
		f.required(p.to("kind"), "must not be empty")
	}
	if reference.At("name").Str() == "" {
		f.required(p.to("name"), "must not be empty")
	}
	if reference.At("uid").Str() == "" {
		f.required(p.to("uid"), "must not be empty")
	}
	if kind == "Event" && (apiVersion == "v1" || apiVersion == "/v1") {
		f.invalid(p, show(reference, ownerReferenceOrder...), "/v1, Kind=Event is disallowed from being an owner")
	}
}

func (f *faults) finalizers(finalizers object.Value, p *place) {
	orphan, dependent := false, false
	for _, item := range finalizers.Items() {
		name := item.Str()
		f.each(p, name, qualifiedFaults(name))
		orphan = orphan || name == finalizeOrphan
		dependent = dependent || name == finalizeDependent
	}
	if orphan && dependent {
		f.invalid(p, show(finalizers), fmt.Sprintf("finalizer %s and %s cannot be both set", finalizeOrphan, finalizeDependent))
	}
}

var managedFieldsOperations = []string{"Apply", "Update"}

func (f *faults) managedFields(entries object.Value, p *place) {
	for i, entry := range entries.Items() {
		p := p.item(i)
		switch operation := entry.At("operation").Str(); operation {
		case "":
			f.required(p.to("operation"), "must not be empty")
		case "Apply", "Update":
		default:
			f.unsupported(p.to("operation"), operation, managedFieldsOperations)
		}
		if kind := entry.At("fieldsType").Str(); kind != "" && kind != fieldsV1 {
			f.invalid(p.to("fieldsType"), kind, "must be `FieldsV1`")
		}
		f.fieldManager(entry.At("manager").Str(), p.to("manager"))
		if entry.At("subresource").Len() > maxSubresource {
			f.tooLong(p.to("subresource"), maxSubresource)
		}
	}
}

func (f *faults) fieldManager(manager string, p *place) {
	if len(manager) > maxFieldManager {
		f.tooLong(p, maxFieldManager)
	}
	for i, r := range manager {
		if !unicode.IsPrint(r) {
			f.invalid(p, manager, fmt.Sprintf("invalid character %#U (at position %d)", r, i))
		}
	}
}

// ObjectMetaUpdate says what is wrong with the metadata of an object that is to replace another. The resourceVersion is
// the engine's to check.
func ObjectMetaUpdate(meta, old object.Value, path *field.Path) field.ErrorList {
	f := faults{root: path}
	f.generateName(meta, nil)
	f.finalizers(meta.At("finalizers"), (*place)(nil).to("finalizers"))
	if !old.At("deletionTimestamp").IsNull() {
		f.noNewFinalizers(meta.At("finalizers"), old.At("finalizers"))
	}
	f.generation(meta)
	if n := meta.At("generation").Int(); n < old.At("generation").Int() {
		f.invalid((*place)(nil).to("generation"), n, "must not be decremented")
	}
	for _, key := range immutableMeta {
		if now, was := meta.At(key), old.At(key); !object.Equal(now, was) && !(blank(now) && blank(was)) {
			f.invalid((*place)(nil).to(key), show(now), immutable)
		}
	}
	f.labels(meta.At("labels"), (*place)(nil).to("labels"))
	f.annotations(meta.At("annotations"), (*place)(nil).to("annotations"))
	f.ownerReferences(meta.At("ownerReferences"), (*place)(nil).to("ownerReferences"))
	f.managedFields(meta.At("managedFields"), (*place)(nil).to("managedFields"))
	return f.list
}

// What stays the same as long as an object lives.
var immutableMeta = []string{"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"}

func (f *faults) noNewFinalizers(now, was object.Value) {
	var extra []string
	for _, item := range now.Items() {
		name := item.Str()
		if !slices.ContainsFunc(was.Items(), func(v object.Value) bool { return v.Str() == name }) && !slices.Contains(extra, name) {
			extra = append(extra, name)
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		f.forbidden((*place)(nil).to("finalizers"), fmt.Sprintf("no new finalizers can be added if the object is being deleted, found new finalizers %#v", extra))
	}
}

// knownFinalizers are the names that need no domain.
var knownFinalizers = []string{"kubernetes", finalizeOrphan, finalizeDependent}

// qualifiedFinalizers demands a domain of finalizers. Most kinds want this, but not all do.
func (f *faults) qualifiedFinalizers(obj object.Value) {
	for i, item := range obj.At("metadata", "finalizers").Items() {
		f.finalizerName((*place)(nil).to("metadata").to("finalizers").item(i), item.Str())
	}
}

func (f *faults) finalizerName(p *place, name string) {
	if !strings.Contains(name, "/") && !slices.Contains(knownFinalizers, name) {
		f.invalid(p, name, "name is neither a standard finalizer name nor is it fully qualified")
	}
}
