package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"plinth/internal/engine"
	"plinth/internal/recent"
	"plinth/internal/webhook"
)

// imagePolicy is the plugin ImagePolicyWebhook: it asks a webhook whether the images of a Pod may be used. If that
// fails and the configuration allows everything then, the audit log says so. The reference annotates the Pod as well,
// though it is validated; here validation changes nothing.
type imagePolicy struct {
	remote            *webhook.Remote
	now               engine.Clock
	backoff           time.Duration
	allowTTL, denyTTL time.Duration
	defaultAllow      bool
	answers           recent.Cache[string, *imageAnswer] // by the question
}

// imageAnswer is an answer of the webhook, and until when it counts.
type imageAnswer struct {
	imageReviewStatus
	until time.Time
}

// imageReview is an ImageReview of imagepolicy.k8s.io/v1alpha1.
type imageReview struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   struct{}          `json:"metadata"`
	Spec       imageReviewSpec   `json:"spec"`
	Status     imageReviewStatus `json:"status"`
}

type imageReviewSpec struct {
	Containers  []imageReviewContainer `json:"containers,omitempty"`
	Annotations map[string]string      `json:"annotations,omitempty"`
	Namespace   string                 `json:"namespace,omitempty"`
}

type imageReviewContainer struct {
	Image string `json:"image,omitempty"`
}

type imageReviewStatus struct {
	Allowed          bool              `json:"allowed"`
	Reason           string            `json:"reason,omitempty"`
	AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
}

const (
	imageReviewVersion = "imagepolicy.k8s.io/v1alpha1"
	// imagePolicyKey begins the keys of annotations of the audit log.
	imagePolicyKey = "imagepolicywebhook.image-policy.k8s.io/"
	// imageAnswers is how many answers are kept.
	imageAnswers = 1024
)

// newImagePolicyWebhook makes the plugin.
func newImagePolicyWebhook(c *Config) (steps, error) {
	p, err := imagePolicyOf(c.Configurations["ImagePolicyWebhook"])
	if err != nil {
		return steps{}, err
	}
	p.now = c.Now
	return steps{validate: p.validate}, nil
}

// imagePolicyOf reads the configuration of the plugin, which has no kind.
func imagePolicyOf(text []byte) (*imagePolicy, error) {
	var configuration struct {
		ImagePolicy struct {
			KubeConfigFile                  string
			AllowTTL, DenyTTL, RetryBackoff int64
			DefaultAllow                    bool
		}
	}
	if len(text) == 0 {
		return nil, errors.New("no config specified")
	}
	if err := yaml.Unmarshal(text, &configuration); err != nil {
		return nil, err
	}
	from := &configuration.ImagePolicy
	p := &imagePolicy{defaultAllow: from.DefaultAllow, answers: recent.Cache[string, *imageAnswer]{Limit: imageAnswers}}
	for _, setting := range []struct {
		value            int64
		unit, least, def time.Duration
		most             time.Duration
		into             *time.Duration
	}{
		{from.RetryBackoff, time.Millisecond, 1, 500 * time.Millisecond, 5 * time.Minute, &p.backoff},
		{from.AllowTTL, time.Second, time.Second, 5 * time.Minute, 30 * time.Minute, &p.allowTTL},
		{from.DenyTTL, time.Second, time.Second, 30 * time.Second, 30 * time.Minute, &p.denyTTL},
	} {
		switch d := time.Duration(setting.value) * setting.unit; {
		case setting.value == -1: // none
		case setting.value == 0:
			*setting.into = setting.def
		case d < setting.least || d > setting.most:
			return nil, fmt.Errorf("valid value is between %v and %v, got %v", setting.least, setting.most, d)
		default:
			*setting.into = d
		}
	}
	var err error
	p.remote, err = webhook.FromKubeconfig(from.KubeConfigFile)
	return p, err
}

func (p *imagePolicy) validate(ctx context.Context, a *engine.Attributes) error {
	ephemeral := about(a, "", "pods", "ephemeralcontainers")
	if !writes(a) || !ephemeral && !about(a, "", "pods", "") {
		return nil
	}
	lists := []string{"containers", "initContainers"}
	if ephemeral {
		lists = []string{"ephemeralContainers"}
	}
	spec := imageReviewSpec{Namespace: a.Request.Namespace}
	for _, list := range lists {
		for _, c := range a.Object.At("spec", list).Items() {
			spec.Containers = append(spec.Containers, imageReviewContainer{c.At("image").Str()})
		}
	}
	for _, m := range a.Object.At("metadata", "annotations").Members() {
		if strings.Contains(m.Key, ".image-policy.k8s.io/") {
			if spec.Annotations == nil {
				spec.Annotations = map[string]string{}
			}
			spec.Annotations[m.Key] = m.Value.Str()
		}
	}
	return p.review(ctx, a, &spec)
}

// review asks the webhook, unless it has answered the same question lately.
func (p *imagePolicy) review(ctx context.Context, a *engine.Attributes, spec *imageReviewSpec) error {
	question, err := json.Marshal(&imageReview{Kind: "ImageReview", APIVersion: imageReviewVersion, Spec: *spec})
	if err != nil {
		return forbidden(a, err.Error())
	}
	answer, known := p.answers.Get(string(question))
	if !known || !answer.until.After(p.now()) {
		if answer, err = p.ask(ctx, question); err != nil {
			if p.defaultAllow {
				a.Annotate(imagePolicyKey+"failed-open", "true")
				return nil
			}
			return forbidden(a, err.Error())
		}
		p.answers.Set(string(question), answer, 1)
	}
	for key, value := range answer.AuditAnnotations {
		a.Annotate(imagePolicyKey+key, value)
	}
	switch {
	case answer.Allowed:
		return nil
	case answer.Reason != "":
		return forbidden(a, "image policy webhook backend denied one or more images: "+answer.Reason)
	}
	return forbidden(a, "one or more images rejected by webhook backend")
}

// ask asks the webhook, a few times if it fails.
func (p *imagePolicy) ask(ctx context.Context, question []byte) (*imageAnswer, error) {
	var review imageReview
	err := webhook.Retry(ctx, p.backoff, func() error {
		text, err := p.remote.Post(ctx, question)
		if err != nil {
			return err
		}
		if err := kubejson.UnmarshalCaseSensitivePreserveInts(text, &review); err != nil {
			return err
		}
		// An answer need not say what it is.
		if cmp.Or(review.Kind, "ImageReview") != "ImageReview" ||
			cmp.Or(review.APIVersion, imageReviewVersion) != imageReviewVersion {
			return fmt.Errorf("the webhook answered with a %s of %s, want an ImageReview of %s", review.Kind,
				review.APIVersion, imageReviewVersion)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	ttl := p.denyTTL
	if review.Status.Allowed {
		ttl = p.allowTTL
	}
	return &imageAnswer{review.Status, p.now().Add(ttl)}, nil
}
