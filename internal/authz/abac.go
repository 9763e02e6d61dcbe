package authz

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"plinth/internal/access"
	"plinth/internal/configfile"
)

// attributePolicies is the authorizer of the mode ABAC: a list of policies from a file, each of which allows something.
// The file is read when the server starts, and not again.
type attributePolicies []attributePolicy

// attributePolicy is one line of a policy file, in the form of the version v1beta1 except for users and groups: "*" has
// become the group system:authenticated.
type attributePolicy struct {
	User            string `json:"user,omitempty"`
	Group           string `json:"group,omitempty"`
	Readonly        bool   `json:"readonly,omitempty"`
	APIGroup        string `json:"apiGroup,omitempty"`
	Resource        string `json:"resource,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	NonResourcePath string `json:"nonResourcePath,omitempty"`
}

// The versions of policies. A line without a version is in the older one.
var (
	attributeV0      = schema.GroupVersion{Group: "abac.authorization.kubernetes.io", Version: "v0"}
	attributeV1beta1 = schema.GroupVersion{Group: attributeV0.Group, Version: "v1beta1"}
)

// loadPolicies reads a policy file: a policy in each line, empty lines, and comments that begin with #.
func loadPolicies(file string, log *slog.Logger) (attributePolicies, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	policies := attributePolicies{} // not nil: an empty file allows nothing
	unversioned := 0
	lines := bufio.NewScanner(opened)
	for number := 1; lines.Scan(); number++ {
		line := lines.Bytes()
		if trimmed := bytes.TrimSpace(line); len(trimmed) == 0 || trimmed[0] == '#' {
			continue
		}
		policy, versioned, err := parsePolicy(line)
		if err != nil {
			return nil, fmt.Errorf("error reading policy file %s, line %d: %s: %w", file, number, line, err)
		}
		if !versioned {
			unversioned++
		}
		policies = append(policies, policy)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("error reading policy file %s: %w", file, err)
	}
	if unversioned > 0 {
		log.Warn("policies without a version are read in the version v0, in which they allow more than they say",
			"file", file, "policies", unversioned)
	}
	return policies, nil
}

// parsePolicy parses one policy. Unknown fields are ignored, as in the reference.
func parsePolicy(line []byte) (policy attributePolicy, versioned bool, err error) {
	if trimmed := bytes.TrimSpace(line); trimmed[0] != '{' {
		if line, err = yaml.YAMLToJSON(line); err != nil {
			return policy, false, err
		}
	}
	head, err := configfile.HeadOf(line)
	if err != nil {
		return policy, false, err
	}
	version, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return policy, false, err
	}
	versioned = head.Kind != "" && version.Version != ""
	if version.Version == "" && (version.Group == "" || version.Group == attributeV0.Group) {
		version = attributeV0
	}
	switch {
	case version.Version == "":
		//lint:ignore ST1005 the reference's words
		return policy, false, fmt.Errorf("Object 'apiVersion' is missing in '%s'", line)
	case head.Kind != "" && head.Kind != "Policy" || version != attributeV0 && version != attributeV1beta1:
		return policy, false, fmt.Errorf("no kind %q is registered for version %q", orPolicy(head.Kind), version)
	case version == attributeV1beta1 && head.Kind == "":
		return policy, false, errors.New("converting (v1beta1.Policy) to (v0.Policy): unknown conversion")
	case version == attributeV1beta1:
		policy, err = parseV1beta1(line)
	default:
		policy, err = parseV0(line)
	}
	return policy, versioned, err
}

// orPolicy is the kind that the reference expects where none is given.
func orPolicy(kind string) string {
	if kind == "" {
		return "Policy"
	}
	return kind
}

// parseV1beta1 parses a policy with a spec. The types are named as in the reference, because errors show these names.
func parseV1beta1(line []byte) (attributePolicy, error) {
	type PolicySpec attributePolicy
	type Policy struct {
		Spec PolicySpec `json:"spec"`
	}
	var parsed Policy
	if err := json.UnmarshalCaseSensitivePreserveInts(line, &parsed); err != nil {
		return attributePolicy{}, err
	}
	policy := attributePolicy(parsed.Spec)
	if policy.User == all || policy.Group == all {
		policy.User, policy.Group = "", access.Authenticated
	}
	return policy, nil
}

// parseV0 parses a policy of the older version, in which what is left out stands for everything.
func parseV0(line []byte) (attributePolicy, error) {
	type Policy struct {
		User      string `json:"user,omitempty"`
		Group     string `json:"group,omitempty"`
		Readonly  bool   `json:"readonly,omitempty"`
		Resource  string `json:"resource,omitempty"`
		Namespace string `json:"namespace,omitempty"`
	}
	var p Policy
	if err := json.UnmarshalCaseSensitivePreserveInts(line, &p); err != nil {
		return attributePolicy{}, err
	}
	policy := attributePolicy{User: p.User, Group: p.Group, Readonly: p.Readonly, Namespace: p.Namespace,
		Resource: p.Resource, APIGroup: all}
	if p.User == "" && p.Group == "" || p.User == all || p.Group == all {
		policy.User, policy.Group = "", access.Authenticated
	}
	if p.Namespace == "" && p.Resource == "" {
		policy.NonResourcePath = all
	}
	if p.Namespace == "" {
		policy.Namespace = all
	}
	if p.Resource == "" {
		policy.Resource = all
	}
	return policy, nil
}

// Authorize implements access.Authorizer.
func (p attributePolicies) Authorize(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
	for i := range p {
		if p[i].appliesTo(&a.User) && (!p[i].Readonly || a.ReadOnly()) && p[i].covers(a) {
			return access.Allow, "", nil
		}
	}
	return access.NoOpinion, "No policy matched.", nil
}

// appliesTo says whether the policy is about a user: it is the one that the policy names, and in its group. A policy
// that names neither is about nobody.
func (p *attributePolicy) appliesTo(u *access.User) bool {
	return (p.User != "" || p.Group != "") && (p.User == "" || p.User == u.Name) && (p.Group == "" || u.In(p.Group))
}

// covers says whether the policy is about what is asked for. The verb does not matter, and neither do names and
// subresources.
func (p *attributePolicy) covers(a *access.Attributes) bool {
	if a.IsResource {
		return (p.Namespace == all || p.Namespace == a.Namespace) && (p.Resource == all || p.Resource == a.Resource) &&
			(p.APIGroup == all || p.APIGroup == a.Group)
	}
	return p.NonResourcePath == a.Path ||
		strings.HasSuffix(p.NonResourcePath, all) && strings.HasPrefix(a.Path, strings.TrimRight(p.NonResourcePath, all))
}

func (p attributePolicies) rulesIn(_ context.Context, u *access.User, namespace string) (rules []Rule, incomplete bool,
	err error) {
	for i := range p {
		if !p[i].appliesTo(u) || p[i].Namespace != all && p[i].Namespace != namespace {
			continue
		}
		verbs := everything
		if p[i].Readonly {
			verbs = []string{"get", "list", "watch"}
		}
		if p[i].Resource != "" {
			rules = append(rules, Rule{Verbs: verbs, APIGroups: []string{p[i].APIGroup}, Resources: []string{p[i].Resource}})
		}
		if p[i].NonResourcePath != "" {
			rules = append(rules, Rule{Verbs: verbs, NonResourceURLs: []string{p[i].NonResourcePath}})
		}
	}
	return rules, false, nil
}
