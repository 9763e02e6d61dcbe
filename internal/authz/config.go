package authz

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/cel"
	"plinth/internal/configfile"
)

// The types of --authorization-config are named as in the reference, because errors about its JSON show these names.

// AuthorizationConfiguration is the list of authorizers.
type AuthorizationConfiguration struct {
	Kind        string                    `json:"kind"`
	APIVersion  string                    `json:"apiVersion"`
	Authorizers []AuthorizerConfiguration `json:"authorizers"`
}

// AuthorizerConfiguration is one authorizer.
type AuthorizerConfiguration struct {
	Type    Mode                  `json:"type"`
	Name    string                `json:"name"`
	Webhook *WebhookConfiguration `json:"webhook,omitempty"` // of type Webhook
}

// WebhookConfiguration is a webhook, and how its decisions are used.
type WebhookConfiguration struct {
	// AuthorizedTTL is how long a decision that allows is cached.
	AuthorizedTTL           metav1.Duration `json:"authorizedTTL"`
	CacheAuthorizedRequests *bool           `json:"cacheAuthorizedRequests,omitempty"`
	// UnauthorizedTTL is how long another decision is cached.
	UnauthorizedTTL                          metav1.Duration         `json:"unauthorizedTTL"`
	CacheUnauthorizedRequests                *bool                   `json:"cacheUnauthorizedRequests,omitempty"`
	Timeout                                  metav1.Duration         `json:"timeout"`
	SubjectAccessReviewVersion               string                  `json:"subjectAccessReviewVersion"`
	MatchConditionSubjectAccessReviewVersion string                  `json:"matchConditionSubjectAccessReviewVersion"`
	FailurePolicy                            string                  `json:"failurePolicy"`
	ConnectionInfo                           WebhookConnectionInfo   `json:"connectionInfo"`
	MatchConditions                          []WebhookMatchCondition `json:"matchConditions"`
}

// WebhookConnectionInfo is the address of a webhook.
type WebhookConnectionInfo struct {
	Type           string  `json:"type"`
	KubeConfigFile *string `json:"kubeConfigFile"`
}

// WebhookMatchCondition is a CEL expression. The webhook is called only if all of them are true.
type WebhookMatchCondition struct {
	Expression string `json:"expression"`
}

// The values of enums in a WebhookConfiguration.
const (
	failNoOpinion = "NoOpinion"
	failDeny      = "Deny"

	fromKubeconfig = "KubeConfigFile"
	inCluster      = "InClusterConfig"

	reviewV1      = "v1"
	reviewV1beta1 = "v1beta1"
)

// Defaults of webhooks.
const (
	AuthorizedTTL   = 5 * time.Minute
	UnauthorizedTTL = 30 * time.Second
	maxTimeout      = 30 * time.Second
	maxConditions   = 64
)

// configVersions are the versions of AuthorizationConfiguration. They are identical.
var configVersions = []string{"apiserver.config.k8s.io/v1alpha1", "apiserver.config.k8s.io/v1beta1",
	"apiserver.config.k8s.io/v1"}

// modes lists all modes, in the order in which errors list them.
var modes = []Mode{ABAC, AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook}

// ValidMode says whether a mode exists.
func ValidMode(m Mode) bool { return slices.Contains(modes, m) }

// FromModes converts --authorization-mode to a configuration. hook is the webhook of --authorization-webhook-*.
func FromModes(list []Mode, hook *WebhookConfiguration) *AuthorizationConfiguration {
	c := &AuthorizationConfiguration{}
	for _, mode := range list {
		a := AuthorizerConfiguration{Type: mode, Name: modeName(mode)}
		if mode == Webhook {
			a.Name, a.Webhook = "default", hook
		}
		c.Authorizers = append(c.Authorizers, a)
	}
	return c
}

// WebhookFromFlags converts --authorization-webhook-* to a configuration, in which a webhook that fails has no
// opinion. A TTL of zero turns caching off.
func WebhookFromFlags(kubeconfig, version string, authorized, unauthorized time.Duration) *WebhookConfiguration {
	yes, no := authorized != 0, unauthorized != 0
	return &WebhookConfiguration{
		AuthorizedTTL: metav1.Duration{Duration: authorized}, CacheAuthorizedRequests: &yes,
		UnauthorizedTTL: metav1.Duration{Duration: unauthorized}, CacheUnauthorizedRequests: &no,
		Timeout: metav1.Duration{Duration: maxTimeout}, FailurePolicy: failNoOpinion, SubjectAccessReviewVersion: version,
		ConnectionInfo: WebhookConnectionInfo{Type: fromKubeconfig, KubeConfigFile: &kubeconfig},
	}
}

// modeName returns the name that an authorizer of this mode must have, unless it is a webhook.
func modeName(m Mode) string { return strings.ToLower(string(m)) }

// LoadConfig reads a configuration from a file. It returns the text for [Authority.Watch], too.
func LoadConfig(file string) (*AuthorizationConfiguration, []byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	c, err := ParseConfig(text, nil)
	return c, text, err
}

// ParseConfig parses a configuration. It must have an authorizer of each required type.
func ParseConfig(text []byte, required []Mode) (*AuthorizationConfiguration, error) {
	c := &AuthorizationConfiguration{}
	if len(text) > 0 { // an empty file has no authorizers
		lenient, err := configfile.Decode(text, "AuthorizationConfiguration", configVersions, c)
		if err == nil {
			err = configfile.Strict(lenient)
		}
		if err != nil {
			return nil, fmt.Errorf("failed to load AuthorizationConfiguration from file: %w", err)
		}
	}
	c.setDefaults()
	if errs := c.validate(); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return c, utilerrors.NewAggregate(c.misnamed(required))
}

// setDefaults sets the reference's defaults.
func (c *AuthorizationConfiguration) setDefaults() {
	c.APIVersion = configVersions[0] // all versions mean the same, so that they compare as equal
	yes := true
	for _, a := range c.Authorizers {
		w := a.Webhook
		if w == nil {
			continue
		}
		if w.AuthorizedTTL.Duration == 0 {
			w.AuthorizedTTL.Duration = AuthorizedTTL
		}
		if w.UnauthorizedTTL.Duration == 0 {
			w.UnauthorizedTTL.Duration = UnauthorizedTTL
		}
		if w.CacheAuthorizedRequests == nil {
			w.CacheAuthorizedRequests = &yes
		}
		if w.CacheUnauthorizedRequests == nil {
			w.CacheUnauthorizedRequests = &yes
		}
	}
}

// misnamed returns the errors that the reference reports only if there are no others.
func (c *AuthorizationConfiguration) misnamed(required []Mode) (errs []error) {
	missing := slices.Clone(required)
	for _, a := range c.Authorizers {
		if a.Type == Webhook {
			continue
		}
		missing = slices.DeleteFunc(missing, func(m Mode) bool { return m == a.Type })
		if want := modeName(a.Type); a.Name != want {
			errs = append(errs, fmt.Errorf("expected name %s for authorizer %s instead of %s", want, a.Type, a.Name))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		errs = append(errs, fmt.Errorf("missing required types: %v", missing))
	}
	return errs
}

func (c *AuthorizationConfiguration) validate() (errs field.ErrorList) {
	list := field.NewPath("authorizers")
	if len(c.Authorizers) == 0 {
		errs = append(errs, field.Required(list, "at least one authorization mode must be defined"))
	}
	var types []Mode
	var names []string
	for i := range c.Authorizers {
		a, path := &c.Authorizers[i], list.Index(i)
		switch {
		case a.Type == "":
			errs = append(errs, field.Required(path.Child("type"), ""))
			continue
		case !ValidMode(a.Type):
			errs = append(errs, field.NotSupported(path.Child("type"), string(a.Type), modes))
			continue
		case a.Type != Webhook && slices.Contains(types, a.Type):
			errs = append(errs, field.Duplicate(path.Child("type"), string(a.Type)))
			continue
		}
		types = append(types, a.Type)
		switch wrong := validation.IsDNS1123Subdomain(a.Name); {
		case a.Name == "":
			errs = append(errs, field.Required(path.Child("name"), ""))
		case slices.Contains(names, a.Name):
			errs = append(errs, field.Duplicate(path.Child("name"), a.Name))
		case len(wrong) > 0:
			errs = append(errs, field.Invalid(path.Child("name"), a.Name,
				"authorizer name is invalid: "+strings.Join(wrong, ", ")))
		}
		names = append(names, a.Name)
		switch {
		case a.Type != Webhook && a.Webhook != nil:
			errs = append(errs, field.Invalid(path.Child("webhook"), "non-null", "may only be specified when type=Webhook"))
		case a.Type == Webhook && a.Webhook == nil:
			errs = append(errs, field.Required(path.Child("webhook"), "required when type=Webhook"))
		case a.Type == Webhook:
			errs = append(errs, a.Webhook.validate(path)...) // the reference's paths are without "webhook"
		}
	}
	return errs
}

func (w *WebhookConfiguration) validate(path *field.Path) (errs field.ErrorList) {
	switch d := w.Timeout.Duration; {
	case d == 0:
		errs = append(errs, field.Required(path.Child("timeout"), ""))
	case d < 0 || d > maxTimeout:
		errs = append(errs, field.Invalid(path.Child("timeout"), d.String(), "must be > 0s and <= 30s"))
	}
	if d := w.AuthorizedTTL.Duration; d < 0 { // zero is a default
		errs = append(errs, field.Invalid(path.Child("authorizedTTL"), d.String(), "must be > 0s"))
	}
	if d := w.UnauthorizedTTL.Duration; d < 0 {
		errs = append(errs, field.Invalid(path.Child("unauthorizedTTL"), d.String(), "must be > 0s"))
	}
	oneOf := func(name, value string, all ...string) {
		switch {
		case value == "":
			errs = append(errs, field.Required(path.Child(name), ""))
		case !slices.Contains(all, value):
			errs = append(errs, field.NotSupported(path.Child(name), value, all))
		}
	}
	oneOf("subjectAccessReviewVersion", w.SubjectAccessReviewVersion, reviewV1, reviewV1beta1)
	const matchVersion = "matchConditionSubjectAccessReviewVersion"
	switch {
	case w.MatchConditionSubjectAccessReviewVersion != "":
		oneOf(matchVersion, w.MatchConditionSubjectAccessReviewVersion, reviewV1)
	case len(w.MatchConditions) > 0:
		errs = append(errs, field.Required(path.Child(matchVersion), "required if match conditions are specified"))
	}
	oneOf("failurePolicy", w.FailurePolicy, failNoOpinion, failDeny)
	errs = append(errs, w.ConnectionInfo.validate(path.Child("connectionInfo"))...)
	_, wrong := w.conditions(path)
	return append(errs, wrong...)
}

func (c *WebhookConnectionInfo) validate(path *field.Path) field.ErrorList {
	at := path.Child("kubeConfigFile")
	switch c.Type {
	case "":
		return field.ErrorList{field.Required(path.Child("type"), "")}
	case inCluster:
		if c.KubeConfigFile != nil {
			return field.ErrorList{field.Invalid(at, *c.KubeConfigFile, "can only be set when type=KubeConfigFile")}
		}
		return nil
	case fromKubeconfig:
	default:
		return field.ErrorList{field.NotSupported(path.Child("type"), c.Type, []string{inCluster, fromKubeconfig})}
	}
	if c.KubeConfigFile == nil || *c.KubeConfigFile == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if file := *c.KubeConfigFile; !filepath.IsAbs(file) {
		return field.ErrorList{field.Invalid(at, file, "must be an absolute path")}
	} else if info, err := os.Stat(file); err != nil {
		return field.ErrorList{field.Invalid(at, file, fmt.Sprintf("error loading file: %v", err))}
	} else if !info.Mode().IsRegular() {
		return field.ErrorList{field.Invalid(at, file, "must be a regular file")}
	}
	return nil
}

// conditions compiles the match conditions.
func (w *WebhookConfiguration) conditions(path *field.Path) (all []*cel.AccessCondition, errs field.ErrorList) {
	path = path.Child("matchConditions")
	if n := len(w.MatchConditions); n > maxConditions {
		return nil, field.ErrorList{field.TooMany(path, n, maxConditions)}
	}
	seen := map[string]bool{}
	for i, m := range w.MatchConditions {
		at, text := path.Index(i).Child("expression"), m.Expression
		switch {
		case strings.TrimSpace(text) == "":
			errs = append(errs, field.Required(at, ""))
			continue
		case seen[text]:
			errs = append(errs, field.Duplicate(at, text))
			continue
		}
		seen[text] = true
		condition, err := cel.CompileAccessCondition(text)
		if err != nil {
			errs = append(errs, field.Invalid(at, text, err.Error()))
			continue
		}
		all = append(all, condition)
	}
	return all, errs
}

// errInCluster is the error of InClusterConfig: the API server of the cluster is this server itself.
var errInCluster = errors.New("connectionInfo of type InClusterConfig is not supported: " +
	"the webhook would be this server itself; use KubeConfigFile")
