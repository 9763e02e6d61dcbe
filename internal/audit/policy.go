package audit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/configfile"
)

// Level is how much of a request is recorded. Each level includes the one before it.
type Level string

// The levels.
const (
	None            Level = "None"
	Metadata        Level = "Metadata"
	Request         Level = "Request"         // with the body of the request
	RequestResponse Level = "RequestResponse" // with both bodies
)

var levels = []Level{None, Metadata, Request, RequestResponse}

// Stage is when an event happens.
type Stage string

// The stages. As in the reference, only long-running requests and those that are refused before they are authenticated
// have ResponseStarted.
const (
	RequestReceived  Stage = "RequestReceived"
	ResponseStarted  Stage = "ResponseStarted"
	ResponseComplete Stage = "ResponseComplete"
	Panic            Stage = "Panic"
)

var stages = []Stage{RequestReceived, ResponseStarted, ResponseComplete, Panic}

// Policy is the content of --audit-policy-file. The first rule that matches a request decides; if none matches, the
// level is None.
type Policy struct {
	Kind              string       `json:"kind"`
	APIVersion        string       `json:"apiVersion"`
	Metadata          any          `json:"metadata,omitempty"` // ignored
	Rules             []PolicyRule `json:"rules"`
	OmitStages        []Stage      `json:"omitStages,omitempty"`
	OmitManagedFields bool         `json:"omitManagedFields,omitempty"`
}

// PolicyRule matches a request if all its lists do; an empty list matches every request.
type PolicyRule struct {
	Level             Level            `json:"level"`
	Users             []string         `json:"users,omitempty"`
	UserGroups        []string         `json:"userGroups,omitempty"`
	Verbs             []string         `json:"verbs,omitempty"`
	Resources         []GroupResources `json:"resources,omitempty"`
	Namespaces        []string         `json:"namespaces,omitempty"`
	NonResourceURLs   []string         `json:"nonResourceURLs,omitempty"`
	OmitStages        []Stage          `json:"omitStages,omitempty"` // in addition to the policy's
	OmitManagedFields *bool            `json:"omitManagedFields,omitempty"`
}

// GroupResources are resources of one group, or of all: "*".
type GroupResources struct {
	Group         string   `json:"group,omitempty"`
	Resources     []string `json:"resources,omitempty"` // "pods", "pods/log", "pods/*", "*/scale", "*"
	ResourceNames []string `json:"resourceNames,omitempty"`
}

// LoadPolicy reads a policy from a file. Unknown and duplicate fields are a warning, as in the reference.
func LoadPolicy(file string) (p *Policy, warning error, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to read file path %q: %w", file, err)
	}
	p, warning, err = parsePolicy(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: from file %s", err, file)
	}
	return p, warning, nil
}

// parsePolicy reads a policy in YAML or JSON.
func parsePolicy(text []byte) (p *Policy, warning error, err error) {
	p = &Policy{}
	lenient, err := configfile.Decode(text, "Policy", []string{"audit.k8s.io/v1"}, p)
	if err != nil {
		return nil, nil, fmt.Errorf("failed decoding: %w", err)
	}
	warning = configfile.Strict(lenient)
	if err := p.validate().ToAggregate(); err != nil {
		return nil, nil, err
	}
	if len(p.Rules) == 0 {
		return nil, nil, errors.New("loaded illegal policy with 0 rules")
	}
	return p, warning, nil
}

func (p *Policy) validate() field.ErrorList {
	errs := validateStages(p.OmitStages, field.NewPath("omitStages"))
	for i := range p.Rules {
		errs = append(errs, p.Rules[i].validate(field.NewPath("rules").Index(i))...)
	}
	return errs
}

func (r *PolicyRule) validate(path *field.Path) (errs field.ErrorList) {
	switch {
	case r.Level == "":
		errs = append(errs, field.Required(path.Child("level"), ""))
	case !slices.Contains(levels, r.Level):
		errs = append(errs, field.NotSupported(path.Child("level"), r.Level, levels))
	}
	urls := path.Child("nonResourceURLs")
	for i, url := range r.NonResourceURLs {
		if url == "*" {
			continue
		}
		if !strings.HasPrefix(url, "/") {
			errs = append(errs, field.Invalid(urls.Index(i), url, "non-resource URL rules must begin with a '/' character"))
		}
		if url != "" && strings.Contains(url[:len(url)-1], "*") {
			errs = append(errs, field.Invalid(urls.Index(i), url,
				"non-resource URL wildcards '*' must be the final character of the rule"))
		}
	}
	resources := path.Child("resources") // without an index, as in the reference
	for _, of := range r.Resources {
		if of.Group != "" && of.Group != "*" {
			if wrong := validation.NameIsDNSSubdomain(of.Group, false); len(wrong) > 0 {
				errs = append(errs, field.Invalid(resources.Child("group"), of.Group, strings.Join(wrong, ",")))
			}
		}
		if len(of.ResourceNames) > 0 && len(of.Resources) == 0 {
			errs = append(errs, field.Invalid(resources.Child("resourceNames"), of.ResourceNames,
				"using resourceNames requires at least one resource"))
		}
	}
	errs = append(errs, validateStages(r.OmitStages, path.Child("omitStages"))...)
	if len(r.NonResourceURLs) > 0 && len(r.Resources)+len(r.Namespaces) > 0 {
		errs = append(errs, field.Invalid(urls, r.NonResourceURLs,
			"rules cannot apply to both regular resources and non-resource URLs"))
	}
	return errs
}

func validateStages(list []Stage, path *field.Path) (errs field.ErrorList) {
	for i, stage := range list {
		if !slices.Contains(stages, stage) {
			errs = append(errs, field.Invalid(path.Index(i), string(stage), "allowed stages are "+join(stages)))
		}
	}
	return errs
}

func join[T ~string](words []T) string {
	plain := make([]string, len(words))
	for i, word := range words {
		plain[i] = string(word)
	}
	return strings.Join(plain, ",")
}

// decision is the decision of a policy about a request.
type decision struct {
	level       Level
	omit        uint8 // a bit for each of stages
	omitManaged bool  // bodies are recorded without metadata.managedFields
}

// omits says whether a stage is not recorded.
func (d decision) omits(stage Stage) bool { return d.omit&stageBit(stage) != 0 }

func stageBit(stage Stage) uint8 { return 1 << slices.Index(stages, stage) }

func omitted(lists ...[]Stage) (bits uint8) {
	for _, list := range lists {
		for _, stage := range list {
			bits |= stageBit(stage)
		}
	}
	return bits
}

// evaluate decides how a request is recorded. authenticated says whether its user is known: rules for users and groups
// match no other request.
func (p *Policy) evaluate(a *access.Attributes, authenticated bool) decision {
	for i := range p.Rules {
		r := &p.Rules[i]
		if !r.matches(a, authenticated) {
			continue
		}
		d := decision{level: r.Level, omit: omitted(p.OmitStages, r.OmitStages), omitManaged: p.OmitManagedFields}
		if r.OmitManagedFields != nil {
			d.omitManaged = *r.OmitManagedFields
		}
		return d
	}
	return decision{level: None}
}

func (r *PolicyRule) matches(a *access.Attributes, authenticated bool) bool {
	switch {
	case len(r.Users) > 0 && !(authenticated && slices.Contains(r.Users, a.User.Name)),
		len(r.UserGroups) > 0 && !(authenticated && slices.ContainsFunc(a.User.Groups,
			func(g string) bool { return slices.Contains(r.UserGroups, g) })),
		len(r.Verbs) > 0 && !slices.Contains(r.Verbs, a.Verb):
		return false
	case len(r.Namespaces) > 0 || len(r.Resources) > 0:
		return a.IsResource && (len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, a.Namespace)) &&
			(len(r.Resources) == 0 || slices.ContainsFunc(r.Resources, func(of GroupResources) bool { return of.has(a) }))
	case len(r.NonResourceURLs) > 0:
		return !a.IsResource && slices.ContainsFunc(r.NonResourceURLs, func(pattern string) bool {
			return pattern == a.Path || strings.HasSuffix(pattern, "*") &&
				strings.HasPrefix(a.Path, strings.TrimRight(pattern, "*"))
		})
	}
	return true
}

// has says whether the resource of a request is among these.
func (g *GroupResources) has(a *access.Attributes) bool {
	if g.Group != "*" && g.Group != a.Group {
		return false
	}
	if len(g.Resources) == 0 {
		return true
	}
	if len(g.ResourceNames) > 0 && !slices.Contains(g.ResourceNames, a.Name) {
		return false
	}
	return slices.ContainsFunc(g.Resources, func(pattern string) bool {
		resource, subresource, nested := strings.Cut(pattern, "/")
		switch {
		case pattern == "*":
			return true
		case !nested:
			return pattern == a.Resource && a.Subresource == ""
		case resource == "*" && subresource == a.Subresource && a.Subresource != "":
			return true
		}
		return resource == a.Resource && (subresource == "*" || subresource == a.Subresource && a.Subresource != "")
	})
}
