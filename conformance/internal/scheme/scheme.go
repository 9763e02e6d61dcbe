// Package scheme is upstream's scheme with the types of the built-in kinds, including the internal ones, with their
// defaults and conversions. Upstream registers them from one package per group, which the API server imports.
package scheme

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apiserverinternal/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/lifecycle/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	kjson "sigs.k8s.io/json"

	"plinth/object"
)

// Scheme is the scheme that the API server uses.
var Scheme = legacyscheme.Scheme

// Decode decodes as the reference does, without defaulting.
func Decode(gvk schema.GroupVersionKind, text []byte) (runtime.Object, error) {
	typed, err := Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, typed); err != nil {
		return nil, err
	}
	return typed, nil
}

// Value converts an internal object to a version, as for a client, and decodes the result with Plinth.
func Value(gvk schema.GroupVersionKind, internal runtime.Object) (object.Value, error) {
	typed, err := Scheme.ConvertToVersion(internal.DeepCopyObject(), gvk.GroupVersion())
	if err != nil {
		return object.Nil, err
	}
	text, err := json.Marshal(typed)
	if err != nil {
		return object.Nil, err
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		return object.Nil, fmt.Errorf("%w in %s", err, text)
	}
	return parsed.Value, nil
}
