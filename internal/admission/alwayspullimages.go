package admission

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
)

// alwaysPullImages is the plugin AlwaysPullImages: every image is pulled with the credentials of its Pod, and none is
// used because the node has it already.
var alwaysPullImages = steps{
	admit: func(_ context.Context, a *engine.Attributes) error {
		if !isPod(a) || !hasNewImages(a) {
			return nil
		}
		always := object.StringOf(string(corev1.PullAlways))
		pull := func(c object.Value) object.Value {
			if c.At("imagePullPolicy") == always {
				return c
			}
			return c.With("imagePullPolicy", always)
		}
		for _, list := range containerLists {
			a.Object = editItems(a.Object, pull, "spec", list)
		}
		a.Object = editItems(a.Object, func(v object.Value) object.Value {
			if v.At("image").IsNull() {
				return v
			}
			return v.WithAt(always, "image", "pullPolicy")
		}, "spec", "volumes")
		return nil
	},
	validate: func(_ context.Context, a *engine.Attributes) error {
		if !isPod(a) || !hasNewImages(a) {
			return nil
		}
		var refused []string
		refuse := func(v object.Value, path *field.Path) {
			if v.Str() != string(corev1.PullAlways) {
				refused = append(refused, forbidden(a, field.NotSupported(path, corev1.PullPolicy(v.Str()),
					[]string{string(corev1.PullAlways)}).Error()).Error())
			}
		}
		eachContainer(a.Object, func(c object.Value, path *field.Path) {
			refuse(c.At("imagePullPolicy"), path.Child("imagePullPolicy"))
		})
		for i, v := range a.Object.At("spec", "volumes").Items() {
			if image := v.At("image"); !image.IsNull() {
				refuse(image.At("pullPolicy"), field.NewPath("spec", "volumes").Index(i).Child("image", "pullPolicy"))
			}
		}
		return aggregate(refused)
	},
}

// hasNewImages says whether a Pod has images in containers that its old version does not have.
func hasNewImages(a *engine.Attributes) bool {
	if a.Operation == engine.OperationCreate {
		return true
	}
	old := map[string]bool{}
	eachContainer(a.Old, func(c object.Value, _ *field.Path) { old[c.At("image").Str()] = true })
	found := false
	eachContainer(a.Object, func(c object.Value, _ *field.Path) { found = found || !old[c.At("image").Str()] })
	return found
}

// unknown is an error for which the reference has no reason: 500, and the text alone.
func unknown(text string) error { return &apierr.Error{Code: 500, Message: text} }

// aggregate is the error of several refusals, as the reference's Aggregate is answered; nil: there are none.
func aggregate(texts []string) error {
	if len(texts) == 0 {
		return nil
	}
	return unknown(together(texts))
}

// together is the text of several errors, without duplicates.
func together(texts []string) string {
	var distinct []string
	for _, text := range texts {
		if !slices.Contains(distinct, text) {
			distinct = append(distinct, text)
		}
	}
	if len(distinct) == 1 {
		return distinct[0]
	}
	return "[" + strings.Join(distinct, ", ") + "]"
}
