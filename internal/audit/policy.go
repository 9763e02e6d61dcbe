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

// Level is how much of a request is written down. Each one holds what the one before it does.
type Level string

// The levels.
const (
	None            Level = "None"
	Metadata        Level = "Metadata"
	Request         Level = "Request"         // the body of the request, too
	RequestResponse Level = "RequestResponse" // both bodies
)

var levels = []Level{None, Metadata, Request, RequestResponse}

// Stage is when an event happens.
type Stage string

// The stages. ResponseStarted is there for long-running requests only, and for those that end before they are
// authenticated.
const (
	RequestReceived  Stage = "RequestReceived"
	ResponseStarted  Stage = "ResponseStarted"
	ResponseComplete Stage = "ResponseComplete"
	Panic            Stage = "Panic"
)

var stages = []Stage{RequestReceived, ResponseStarted, ResponseComplete, Panic}

// Policy is what --audit-policy-file holds. The first rule that matches a request decides; where none does, nothing is
// written down.
type Policy struct {
	Kind              string       `json:"kind"`
	APIVersion        string       `json:"apiVersion"`
	Metadata          any          `json:"metadata,omitempty"` // means nothing
	Rules             []PolicyRule `json:"rules"`
	OmitStages        []Stage      `json:"omitStages,omitempty"`
	OmitManagedFields bool         `json:"omitManagedFields,omitempty"`
}

// PolicyRule matches requests by all of what it names; what is empty matches everything.
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

// LoadPolicy reads a policy from a file. A warning tells of what is in it and means nothing, as in the reference.
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

// verdict is what a policy says of a request.
type verdict struct {
	level       Level
	omit        uint8 // a bit for each of stages
	omitManaged bool
}

// omits says whether a stage is not written down.
func (v verdict) omits(stage Stage) bool { return v.omit&stageBit(stage) != 0 }

func stageBit(stage Stage) uint8 { return 1 << slices.Index(stages, stage) }

func omitted(lists ...[]Stage) (bits uint8) {
	for _, list := range lists {
		for _, stage := range list {
			bits |= stageBit(stage)
		}
	}
	return bits
}

// judge says how a request is written down. known says whether it was authenticated: rules for users and groups match
// nobody else.
func (p *Policy) judge(a *access.Attributes, known bool) verdict {
	for i := range p.Rules {
		r := &p.Rules[i]
		if !r.matches(a, known) {
			continue
		}
		v := verdict{level: r.Level, omit: omitted(p.OmitStages, r.OmitStages), omitManaged: p.OmitManagedFields}
		if r.OmitManagedFields != nil {
			v.omitManaged = *r.OmitManagedFields
		}
		return v
	}
	return verdict{level: None}
}

func (r *PolicyRule) matches(a *access.Attributes, known bool) bool {
	switch {
	case len(r.Users) > 0 && !(known && slices.Contains(r.Users, a.User.Name)),
		len(r.UserGroups) > 0 && !(known && slices.ContainsFunc(a.User.Groups,
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

// has says whether what is asked for is among the resources.
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
