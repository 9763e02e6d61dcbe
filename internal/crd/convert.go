package crd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/engine"
	"plinth/object"
)

// conversion returns the function that converts custom objects between versions (engine.Kind.Convert).
//
// The strategy None changes the apiVersion. The strategy Webhook sends all objects of a call that are not of the
// wanted version to a webhook, in one ConversionReview. After either, the object is decoded by the schema of its new
// version like a request body: unknown fields are pruned.
//
// The webhook is not trusted with metadata. It may change labels and annotations. A change of the identity (name,
// namespace, UID) is an error; all other metadata is taken from the object that was sent.
func (d *Definitions) conversion(
	definition object.Value,
) func(context.Context, []object.Value, *engine.Version) ([]object.Value, error) {
	if !hasWebhook(definition) {
		return func(_ context.Context, objects []object.Value, to *engine.Version) ([]object.Value, error) {
			return convertEach(objects, to, func(_ int, obj object.Value) (object.Value, error) {
				return obj.With("apiVersion", object.StringOf(to.APIVersion)), nil
			})
		}
	}
	given := definition.At("spec", "conversion")
	h := &hook{config: given.At("webhook", "clientConfig"), definitions: d}
	for _, v := range given.At("webhook", "conversionReviewVersions").Items() {
		if name := v.Str(); name == "v1" || name == "v1beta1" {
			h.review = name
			break
		}
	}
	return h.convert
}

// hasWebhook says whether a definition has a conversion webhook.
func hasWebhook(definition object.Value) bool {
	return definition.At("spec", "conversion", "strategy").Str() == "Webhook"
}

// convertEach converts each object that is not of the wanted version. i counts those.
func convertEach(
	objects []object.Value, to *engine.Version, convert func(i int, obj object.Value) (object.Value, error),
) ([]object.Value, error) {
	converted := make([]object.Value, len(objects))
	done := 0
	for i, obj := range objects {
		if converted[i] = obj; obj.At("apiVersion").Str() == to.APIVersion {
			continue
		}
		made, err := convert(done, obj)
		if err != nil {
			return nil, &engine.ConversionError{Index: i, Err: err}
		}
		done++
		decoded, err := to.Schema().Decode(made)
		if err != nil {
			return nil, &engine.ConversionError{Index: i, Err: err}
		}
		converted[i] = decoded.Value
	}
	return converted, nil
}

// hook is the conversion webhook of a definition.
type hook struct {
	config      object.Value // the member clientConfig
	review      string       // the version of ConversionReview to send; "": no common version
	definitions *Definitions
}

// reviewGroup is the group of ConversionReview.
const reviewGroup = "apiextensions.k8s.io"

// convert sends all objects that are not of the wanted version to the webhook: in one review, except for those of which
// another version is sent already (round).
func (h *hook) convert(ctx context.Context, objects []object.Value, to *engine.Version) ([]object.Value, error) {
	var sent []object.Value
	for _, obj := range objects {
		if obj.At("apiVersion").Str() != to.APIVersion {
			sent = append(sent, obj)
		}
	}
	if len(sent) == 0 {
		return objects, nil
	}
	answers := make([]object.Value, len(sent))
	for _, round := range rounds(sent) {
		if err := h.askAll(ctx, sent, round, to.APIVersion, answers); err != nil {
			return nil, err
		}
	}
	return convertEach(objects, to, func(i int, obj object.Value) (object.Value, error) {
		made, err := accept(answers[i], obj, to.APIVersion, i)
		if err != nil {
			return object.Nil, fmt.Errorf("conversion webhook for %v returned invalid %w", kindOf(obj), err)
		}
		return made, nil
	})
}

// askAll asks the webhook about the objects with these indexes, and sets their answers.
//
// The reference sends each object in a review of its own. So a webhook that works there may have a mistake that only
// reviews of several objects show: it answers about one of them alone, or in an order of its own. The first is asked
// about each object; of the second the order is restored (inOrder).
func (h *hook) askAll(
	ctx context.Context, sent []object.Value, indexes []int, apiVersion string, answers []object.Value,
) error {
	objects := make([]object.Value, len(indexes))
	for n, i := range indexes {
		objects[n] = sent[i]
	}
	answer, err := h.ask(ctx, objects, apiVersion)
	if over := ctx.Err(); err != nil && over != nil {
		return over
	}
	if err != nil {
		// Not wrapped with %w: a timeout of the webhook is not a timeout of the request.
		failed := fmt.Errorf("conversion webhook for %v failed: %v", kindOf(objects[0]), err)
		if _, unreachable := errors.AsType[*engine.ConversionError](err); unreachable {
			return &engine.ConversionError{Index: engine.EveryObject, Err: failed}
		}
		return failed
	}
	if len(answer) != len(objects) && len(objects) > 1 {
		for _, i := range indexes {
			if err := h.askAll(ctx, sent, []int{i}, apiVersion, answers); err != nil {
				return err
			}
		}
		return nil
	}
	if len(answer) != len(objects) {
		return fmt.Errorf("conversion webhook for %v returned %d objects, expected %d",
			kindOf(objects[0]), len(answer), len(objects))
	}
	for n, made := range inOrder(objects, answer) {
		answers[indexes[n]] = made
	}
	return nil
}

// identity is what a conversion may not change, and no two objects of a kind share.
type identity struct{ name, namespace, uid string }

func identityOf(obj object.Value) identity {
	metadata := obj.At("metadata")
	return identity{metadata.At("name").Str(), metadata.At("namespace").Str(), metadata.At("uid").Str()}
}

// rounds divides the indexes of objects so that the objects of a round have different identities. The events of a watch
// may be about several states of one object; were they in one review, an answer in another order would not show which
// is which.
func rounds(objects []object.Value) (all [][]int) {
	seen := make(map[identity]int, len(objects))
	for i, obj := range objects {
		current := identityOf(obj)
		round := seen[current]
		if seen[current]++; round == len(all) {
			all = append(all, nil)
		}
		all[round] = append(all[round], i)
	}
	return all
}

// inOrder brings the objects of an answer into the order of those that were sent, which have different identities. An
// answer in which one of them is missing stays as it is, and is refused later (accept).
func inOrder(sent, answer []object.Value) []object.Value {
	if slices.EqualFunc(sent, answer, func(a, b object.Value) bool { return identityOf(a) == identityOf(b) }) {
		return answer
	}
	by := make(map[identity]object.Value, len(answer))
	for _, made := range answer {
		by[identityOf(made)] = made
	}
	ordered := make([]object.Value, len(sent))
	for i, obj := range sent {
		made, ok := by[identityOf(obj)]
		if !ok {
			return answer
		}
		ordered[i] = made
	}
	return ordered
}

// ask sends a ConversionReview and returns the objects in its response. If there was no response, whatever the objects
// are, the error is a ConversionError about every object.
func (h *hook) ask(ctx context.Context, objects []object.Value, apiVersion string) ([]object.Value, error) {
	if h.review == "" {
		return nil, ofEvery(errors.New("no supported conversion review versions"))
	}
	if h.definitions.Call == nil {
		return nil, ofEvery(errors.New("this server calls no webhooks"))
	}
	uid := uuid.NewString()
	answer, err := h.definitions.Call(ctx, h.config, object.AppendObject(nil, object.Fields(
		"apiVersion", object.StringOf(reviewGroup+"/"+h.review), "kind", object.StringOf("ConversionReview"),
		"request", object.Fields(
			"uid", object.StringOf(uid), "desiredAPIVersion", object.StringOf(apiVersion),
			"objects", object.ListOf(objects...)),
		"response", object.Fields( // the zero value, as in the reference
			"uid", object.StringOf(""), "convertedObjects", object.Nil,
			"result", object.Fields("metadata", object.MapOf())),
	)))
	if err != nil {
		if _, answered := errors.AsType[*apierrors.StatusError](err); !answered {
			err = ofEvery(err)
		}
		return nil, err
	}
	parsed, err := object.ParseJSON(answer)
	if err != nil {
		return nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	return h.answered(parsed.Value, uid)
}

func ofEvery(err error) error { return &engine.ConversionError{Index: engine.EveryObject, Err: err} }

// answered checks a response to the review with this UID and returns its objects. As in the reference, kind and UID of
// a v1beta1 response are not checked.
func (h *hook) answered(review object.Value, uid string) ([]object.Value, error) {
	want := schema.GroupVersionKind{Group: reviewGroup, Version: "v1", Kind: "ConversionReview"}
	if current := kindOf(review); h.review == "v1" && current != want {
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, current)
	}
	response := review.At("response")
	if response.Kind() != object.Map {
		return nil, errors.New("no response provided")
	}
	if current := response.At("uid").Str(); h.review == "v1" && current != uid {
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, current)
	}
	if status := response.At("result", "status").Str(); status != "Success" {
		if message := response.At("result", "message").Str(); message != "" {
			return nil, errors.New(message)
		}
		return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", status)
	}
	return response.At("convertedObjects").Items(), nil
}

// kindOf is the kind of an object; zero if its apiVersion is invalid.
func kindOf(obj object.Value) schema.GroupVersionKind {
	gv, err := schema.ParseGroupVersion(obj.At("apiVersion").Str())
	if err != nil {
		return schema.GroupVersionKind{}
	}
	return gv.WithKind(obj.At("kind").Str())
}

// maxMissing limits how much of an object without a kind is printed in an error.
const maxMissing = 1024

// accept checks an object that the webhook returned, and restores the metadata that it may not change. Errors begin
// with the name of what is invalid.
func accept(made, from object.Value, apiVersion string, i int) (object.Value, error) {
	if made.Kind() != object.Map || made.At("kind").Str() == "" {
		text := string(object.AppendJSON(nil, made))
		if len(text) > maxMissing {
			text = text[:maxMissing] + "…"
		}
		return object.Nil, fmt.Errorf("converted object at index %d: Object 'Kind' is missing in '%s'", i, text)
	}
	want, current := kindOf(from), kindOf(made)
	if version := (schema.GroupVersion{Group: current.Group, Version: current.Version}); version.String() != apiVersion {
		return object.Nil, fmt.Errorf("object at index %d: invalid groupVersion (expected %v, received %v)",
			i, apiVersion, version)
	}
	if want.Kind != current.Kind {
		return object.Nil, fmt.Errorf("object at index %d: invalid kind (expected %v, received %v)",
			i, want.Kind, current.Kind)
	}
	for _, key := range [...]string{"name", "namespace", "uid"} {
		if want, current := from.At("metadata", key).Str(), made.At("metadata", key).Str(); want != current {
			if key == "uid" {
				key = "UID"
			}
			return object.Nil, fmt.Errorf("object: must have the same %s: %v != %v", key, want, current)
		}
	}
	metadata, err := mergeMetadata(from.At("metadata"), made)
	if err != nil {
		return object.Nil, fmt.Errorf("metadata: %w", err)
	}
	return made.With("metadata", metadata), nil
}

// mergeMetadata returns the original metadata with the labels and annotations that the webhook returned.
func mergeMetadata(metadata, made object.Value) (object.Value, error) {
	given, ok := made.Get("metadata")
	if !ok {
		return object.Nil, errors.New("missing metadata in converted object")
	}
	if given.Kind() != object.Map {
		return object.Nil, fmt.Errorf("invalid metadata of type %T in converted object", given.Native())
	}
	for _, key := range [...]string{"labels", "annotations"} {
		texts := given.At(key)
		if texts.IsNull() {
			metadata = metadata.Without(key)
			continue
		}
		if err := checkTexts(texts, metadata.At(key), key); err != nil {
			return object.Nil, err
		}
		metadata = metadata.With(key, texts)
	}
	return metadata, nil
}

// checkTexts validates labels or annotations unless they are unchanged.
func checkTexts(texts, before object.Value, key string) error {
	if texts.Kind() != object.Map {
		return fmt.Errorf("invalid metadata.%s of type %T in converted object", key, texts.Native())
	}
	all := make(map[string]string, texts.Len())
	for _, m := range texts.Members() {
		if m.Value.Kind() != object.String {
			return fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object",
				key, m.Key, m.Value.Native())
		}
		all[m.Key] = m.Value.Str()
	}
	if object.Equal(texts, before) {
		return nil
	}
	var errs field.ErrorList
	if key == "labels" {
		errs = metavalidation.ValidateLabels(all, field.NewPath("metadata", "labels"))
	} else {
		errs = validation.ValidateAnnotations(all, field.NewPath("metadata", "annotation"))
	}
	if len(errs) == 0 {
		return nil
	}
	return errs.ToAggregate()
}
