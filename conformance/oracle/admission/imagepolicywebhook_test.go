package admission

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/admission"
)

// imageHook is a webhook that decides by the names of images. It counts the questions.
type imageHook struct {
	mu     sync.Mutex
	asked  map[string]int
	client string // the kubeconfig
}

func newImageHook(t *testing.T) *imageHook {
	h := &imageHook{asked: map[string]int{}}
	server := httptest.NewTLSServer(http.HandlerFunc(h.answer))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	h.client = filepath.Join(dir, "kubeconfig")
	kubeconfig := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: h, cluster: {server: %q, "+
		"certificate-authority: %q}}]\nusers: [{name: u, user: {token: secret}}]\n"+
		"contexts: [{name: c, context: {cluster: h, user: u}}]\ncurrent-context: c\n", server.URL, ca)
	for file, text := range map[string][]byte{h.client: []byte(kubeconfig), ca: pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: server.Certificate().Raw})} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *imageHook) answer(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Kind, APIVersion string
		Spec             json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Kind != "ImageReview" ||
		review.APIVersion != "imagepolicy.k8s.io/v1alpha1" || r.Header.Get("Authorization") != "Bearer secret" {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	text := string(review.Spec)
	h.mu.Lock()
	h.asked[text]++
	again := h.asked[text]%2 == 0
	h.mu.Unlock()
	status := `{"allowed":true}`
	has := func(image string) bool { return strings.Contains(text, `"image":"`+image) }
	switch {
	case has("missing"):
		w.WriteHeader(http.StatusNotFound)
		return
	case has("forbidden"):
		w.WriteHeader(http.StatusForbidden)
		return
	case has("garbage"):
		_, _ = w.Write([]byte("garbage"))
		return
	case has("kind"):
		_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"imagepolicy.k8s.io/v1alpha1","status":{"allowed":true}}`))
		return
	case has("version"):
		_, _ = w.Write([]byte(`{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1","status":{"allowed":true}}`))
		return
	case has("bare"):
		_, _ = w.Write([]byte(`{"status":{"allowed":true}}`))
		return
	case has("unkind"):
		_, _ = w.Write([]byte(`{"apiVersion":"imagepolicy.k8s.io/v1alpha1","status":{"allowed":true}}`))
		return
	case has("unversioned"):
		_, _ = w.Write([]byte(`{"kind":"ImageReview","status":{"allowed":true}}`))
		return
	case has("busy") && !again: // the second answer allows the image
		w.WriteHeader(http.StatusInternalServerError)
		return
	case has("denied"):
		status = `{"allowed":false}`
	case has("reason"):
		status = `{"allowed":false,"reason":"it is old"}`
	case has("noted"):
		status = `{"allowed":true,"auditAnnotations":{"a":"b","c":"d"}}`
	case strings.Contains(text, "break-glass"):
		status = `{"allowed":true,"auditAnnotations":{"glass":"broken"}}`
	}
	_, _ = w.Write([]byte(`{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","status":` + status + `}`))
}

// SPEC: AUTH-3
func TestImagePolicyWebhook(t *testing.T) {
	count := tally{}
	for _, more := range []string{"", "allowTTL: -1, denyTTL: 10, retryBackoff: 1, defaultAllow: false",
		"denyTTL: -1"} {
		h := newImageHook(t)
		// The text of a failure is that of the library of the client.
		w := (&world{plugin: "ImagePolicyWebhook", until: `pods "p" is forbidden: `, configuration: "imagePolicy: {" +
			strings.TrimSuffix("kubeConfigFile: "+h.client+", "+more, ", ") + "}\n"}).build(t)
		images := []string{"allowed", "missing", "garbage", "kind", "version", "bare", "unkind", "unversioned", "denied",
			"reason", "noted"}
		if strings.Contains(more, "retryBackoff: 1,") {
			images = append(images, "busy")
		}
		for range 2 {
			for _, image := range images {
				meta := []string{"annotations", "{my.image-policy.k8s.io/break-glass: x, my.image-policy.k8s.io/more: a, other: z}"}
				for _, spec := range [][]string{{"containers", "[{name: c, image: " + image + "}]"},
					{"initContainers", "[{name: a, image: " + image + "}]"},
					{"containers", "[{name: c, image: allowed}, {name: d, image: " + image + "}]"}} {
					w.compare(t, ofPod(admission.Create, pod(meta, spec...), ""), &count)
					w.compare(t, ofPod(admission.Update, pod(nil, spec...), pod(nil)), &count)
					w.compare(t, ofPod(admission.Delete, "", pod(nil, spec...)), &count)
					for _, sub := range []string{"status", "resize"} {
						a := ofPod(admission.Update, pod(nil, spec...), pod(nil))
						a.subresource = sub
						w.compare(t, a, &count)
					}
				}
				a := ofPod(admission.Update, pod(nil, "ephemeralContainers", "[{name: c, image: "+image+"}]"), pod(nil))
				a.subresource = "ephemeralcontainers"
				w.compare(t, a, &count)
			}
		}
		// Both sides have asked the same questions equally often: what is kept, and how often it is tried again.
		for question, n := range h.asked {
			if n%2 != 0 {
				t.Errorf("%q: the question %s was asked %d times by both", more, question, n)
			}
		}
	}
	// The texts of other refusals are the reference's. Ours names what it is that is no review.
	plain := newImageHook(t)
	w := (&world{plugin: "ImagePolicyWebhook",
		configuration: "imagePolicy: {kubeConfigFile: " + plain.client + "}\n"}).build(t)
	for _, image := range []string{"denied", "reason", "noted", "allowed"} {
		w.compare(t, ofPod(admission.Create, pod(nil, "containers", "[{name: c, image: "+image+"}]"), ""), &count)
	}
	const other = "the webhook answered with a Pod of imagepolicy.k8s.io/v1alpha1, want an ImageReview of " +
		"imagepolicy.k8s.io/v1alpha1"
	kind := ofPod(admission.Create, pod(nil, "containers", "[{name: c, image: kind}]"), "")
	if r := w.runOurs(t, kind).refusal; r == nil || !strings.HasSuffix(r.message, other) {
		t.Errorf("ours says %+v, want %q", r, other)
	}
	// If the webhook fails and that allows everything, the reference annotates the Pod, too, though it validates.
	h := newImageHook(t)
	w = (&world{plugin: "ImagePolicyWebhook", refusals: true,
		configuration: "imagePolicy: {kubeConfigFile: " + h.client + ", retryBackoff: 1, defaultAllow: true}\n"}).build(t)
	for _, image := range []string{"garbage", "missing", "allowed", "denied"} {
		w.compare(t, ofPod(admission.Create, pod(nil, "containers", "[{name: c, image: "+image+"}]"), ""), &count)
	}
	// A webhook that answers 403 refuses the Pod. The reference passes its answer on, which here had no message; ours says
	// which Pod is refused.
	w = (&world{plugin: "ImagePolicyWebhook",
		configuration: "imagePolicy: {kubeConfigFile: " + h.client + "}\n"}).build(t)
	a := ofPod(admission.Create, pod(nil, "containers", "[{name: c, image: forbidden}]"), "")
	theirs, mine := w.runReference(t, a).refusal, w.runOurs(t, a).refusal
	if theirs.code != 403 || mine.code != 403 || theirs.message != "" ||
		!strings.HasPrefix(mine.message, `pods "p" is forbidden: `) {
		t.Errorf("the reference says %+v, ours %+v", theirs, mine)
	}
	count.atLeast(t, 0, 100, 50)
}
