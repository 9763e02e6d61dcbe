package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/admission/hooks"
	"plinth/internal/apierr"
	"plinth/object"
)

// usualReview is the size in bytes that most reviews do not exceed.
const usualReview = 4 << 10

// review is the AdmissionReview that asks the hook, as JSON. It has room for one that is a little longer than the last
// one, as most are about objects of a sort.
func (h *hook) review(q *hooks.Question, uid string) []byte {
	size := usualReview
	if last := h.length.Load(); last > 0 {
		size = int(last + last/8)
	}
	text := object.AppendJSON(make([]byte, 0, size), object.MapOf(
		object.Member{Key: "apiVersion", Value: object.StringOf("admission.k8s.io/" + h.version)},
		object.Member{Key: "kind", Value: object.StringOf("AdmissionReview")},
		object.Member{Key: "request", Value: q.Reviewed(uid)}))
	h.length.Store(int64(len(text)))
	return text
}

// answer is the response of a hook. Patch is a JSON Patch; empty: none.
type answer struct {
	allowed     bool
	result      *metav1.Status
	patch       []byte
	patchType   string
	warnings    []string
	annotations map[string]string
}

// readReview reads a review of a version. One that names no version or kind is taken for that, and checked later.
func readReview(text []byte, version string) (*admissionv1.AdmissionReview, error) {
	if len(text) == 0 {
		return nil, errors.New("0-length response with status code: 200 and content type: application/json")
	}
	var review admissionv1.AdmissionReview
	var syntax *json.SyntaxError
	err := json.Unmarshal(text, &review)
	if errors.As(err, &syntax) {
		return nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	of, named := strings.CutPrefix(review.APIVersion, admissionv1.GroupName+"/")
	switch {
	case review.APIVersion == "" || review.Kind == "":
	case !named || review.Kind != "AdmissionReview":
		return nil, fmt.Errorf("no kind %q is registered for version %q", review.Kind, review.APIVersion)
	case of != version:
		return nil, fmt.Errorf("converting (%s.AdmissionReview) to (%s.AdmissionReview): unknown conversion", of, version)
	}
	return &review, err
}

// readAnswer reads the AdmissionReview that a hook has answered with, and refuses one that is not an answer to the
// question. Errors are worded as in the reference. v1beta1 has the same members, and fewer rules.
func readAnswer(review *admissionv1.AdmissionReview, version, uid string, mutating bool) (*answer, error) {
	r := review.Response
	if r == nil {
		return nil, errors.New("webhook response was absent")
	}
	a := &answer{
		allowed: r.Allowed, result: r.Result, patch: r.Patch, warnings: r.Warnings, annotations: r.AuditAnnotations,
	}
	if version == "v1beta1" {
		a.patchType = string(admissionv1.PatchTypeJSONPatch)
		return a, nil
	}
	if r.PatchType != nil {
		a.patchType = string(*r.PatchType)
	}
	switch {
	case string(r.UID) != uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, r.UID)
	case review.GroupVersionKind() != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"):
		return nil, fmt.Errorf("expected webhook response of %v, got %v",
			admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"), review.GroupVersionKind())
	case mutating && len(a.patch) > 0 && r.PatchType == nil:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case mutating && len(a.patch) == 0 && r.PatchType != nil:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case mutating && r.PatchType != nil && a.patchType == "":
		return nil, fmt.Errorf("webhook returned invalid response.patchType of %q", a.patchType)
	case !mutating && len(a.patch) > 0:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && r.PatchType != nil:
		return nil, errors.New("validating webhook may not return response.patchType")
	}
	return a, nil
}

// denied is the refusal of a hook: the Status of its answer, with what it lacks.
func denied(name string, result *metav1.Status) *apierr.Error {
	if result == nil {
		result = &metav1.Status{}
	}
	e := &apierr.Error{
		Code: max(int(result.Code), http.StatusBadRequest), Reason: apierr.Reason(result.Reason),
		Continue: result.Continue,
	}
	by := fmt.Sprintf("admission webhook %q denied the request", name)
	switch {
	case result.Message != "":
		e.Message = by + ": " + result.Message
	case result.Reason != "":
		e.Message = by + ": " + string(result.Reason)
	default:
		e.Message = by + " without explanation"
	}
	if d := result.Details; d != nil {
		e.Details = &apierr.Details{Name: d.Name, Group: d.Group, Kind: d.Kind, UID: string(d.UID),
			RetryAfterSeconds: int(d.RetryAfterSeconds)}
		for _, c := range d.Causes {
			e.Details.Causes = append(e.Details.Causes, apierr.Cause{Reason: string(c.Type), Message: c.Message, Field: c.Field})
		}
	}
	return e
}
