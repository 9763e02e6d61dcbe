package oidc

import (
	"errors"
	"fmt"
	"os"

	"plinth/internal/configfile"
)

// Configuration is an AuthenticationConfiguration of apiserver.config.k8s.io: the same in v1, v1beta1 and v1alpha1. The
// types below are those of its members.
type Configuration struct {
	Kind       string          `json:"kind"`
	APIVersion string          `json:"apiVersion"`
	JWT        []Authenticator `json:"jwt"`
	// Anonymous configures anonymous requests; nil: the flag --anonymous-auth does.
	Anonymous *Anonymous `json:"anonymous,omitempty"`
}

// Anonymous says whether requests without credentials are accepted, and at which paths.
type Anonymous struct {
	Enabled    bool        `json:"enabled"`
	Conditions []Condition `json:"conditions,omitempty"` // none: at all paths
}

// Condition is a path at which requests without credentials are accepted.
type Condition struct {
	Path string `json:"path"`
}

// Authenticator configures the authenticator of one issuer.
type Authenticator struct {
	Issuer               Issuer      `json:"issuer"`
	ClaimValidationRules []ClaimRule `json:"claimValidationRules,omitempty"`
	ClaimMappings        Mappings    `json:"claimMappings"`
	UserValidationRules  []UserRule  `json:"userValidationRules,omitempty"`
}

// Issuer is the issuer of tokens, with the audiences of which a token must have one.
type Issuer struct {
	URL                  string   `json:"url"`
	DiscoveryURL         string   `json:"discoveryURL,omitempty"` // "": the well-known path below URL
	CertificateAuthority string   `json:"certificateAuthority,omitempty"`
	Audiences            []string `json:"audiences"`
	AudienceMatchPolicy  string   `json:"audienceMatchPolicy,omitempty"`
	EgressSelectorType   string   `json:"egressSelectorType,omitempty"`
}

// ClaimRule requires that a claim has a value, or that an expression over the claims is true.
type ClaimRule struct {
	Claim         string `json:"claim,omitempty"`
	RequiredValue string `json:"requiredValue,omitempty"`
	Expression    string `json:"expression,omitempty"`
	Message       string `json:"message,omitempty"`
}

// UserRule requires that an expression over the user that the mappings have produced is true.
type UserRule struct {
	Expression string `json:"expression"`
	Message    string `json:"message,omitempty"`
}

// Mappings map claims to a user.
type Mappings struct {
	Username Prefixed  `json:"username"`
	Groups   Prefixed  `json:"groups,omitempty"`
	UID      Claimed   `json:"uid"`
	Extra    []Mapping `json:"extra,omitempty"`
}

// Prefixed is a claim whose values get a prefix, or an expression.
type Prefixed struct {
	Claim      string  `json:"claim,omitempty"`
	Prefix     *string `json:"prefix,omitempty"`
	Expression string  `json:"expression,omitempty"`
}

// Claimed is a claim or an expression.
type Claimed struct {
	Claim      string `json:"claim,omitempty"`
	Expression string `json:"expression,omitempty"`
}

// Mapping is an extra attribute of the user.
type Mapping struct {
	Key             string `json:"key"`
	ValueExpression string `json:"valueExpression"`
}

var versions = []string{"apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1",
	"apiserver.config.k8s.io/v1alpha1"}

// Load reads a configuration from a file, and returns the text of the file as well. It does not validate: New does.
func Load(file string) (*Configuration, []byte, error) {
	text, err := os.ReadFile(file)
	var c *Configuration
	if err == nil {
		c, err = Parse(text)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("failed to load authentication configuration from file %q: %w", file, err)
	}
	return c, text, nil
}

// Parse decodes a configuration. Unknown fields are an error.
func Parse(text []byte) (*Configuration, error) {
	if len(text) == 0 {
		return nil, errors.New("empty config data")
	}
	c := &Configuration{}
	lenient, err := configfile.Decode(text, "AuthenticationConfiguration", versions, c)
	if err == nil {
		err = configfile.Strict(lenient)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}
