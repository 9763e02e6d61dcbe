package oidc

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/cel"
	"plinth/internal/fielderrors"
)

const (
	maxAuthenticators = 64
	matchAny          = "MatchAny"
)

// The claims of an email address. A configuration that uses it as the user name must check that it is verified.
const (
	emailClaim    = "email"
	verifiedClaim = "email_verified"
)

// expressions are the compiled expressions of an authenticator; nil if it has none.
type expressions struct {
	username, groups, uid *cel.TokenExpression
	extra                 []keyed
	claims, user          []rule
}

// keyed is an expression for an extra attribute.
type keyed struct {
	key string
	*cel.TokenExpression
}

// rule is a condition with its message.
type rule struct {
	*cel.TokenExpression
	message string
}

// Validate validates the configuration. own are the issuers of service accounts, which it must not have.
func (c *Configuration) Validate(own []string) error {
	_, errs := c.compile(own)
	return errs.ToAggregate()
}

// compile checks the configuration, and compiles its expressions, which are in the order of c.JWT.
func (c *Configuration) compile(own []string) (all []*expressions, errs field.ErrorList) {
	root := field.NewPath("jwt")
	if len(c.JWT) > maxAuthenticators {
		return nil, field.ErrorList{field.TooMany(root, len(c.JWT), maxAuthenticators)}
	}
	for i := range c.JWT {
		path := root.Index(i)
		v := &validation{own: own}
		v.authenticator(&c.JWT[i], path)
		all, errs = append(all, &v.expressions), append(errs, v.errs...)
		issuer := &c.JWT[i].Issuer
		for _, other := range c.JWT[:i] {
			if other.Issuer.URL == issuer.URL {
				errs = append(errs, field.Duplicate(path.Child("issuer", "url"), issuer.URL))
				break
			}
		}
		for _, other := range c.JWT[:i] {
			if issuer.DiscoveryURL != "" && other.Issuer.DiscoveryURL == issuer.DiscoveryURL {
				errs = append(errs, field.Duplicate(path.Child("issuer", "discoveryURL"), issuer.DiscoveryURL))
				break
			}
		}
	}
	if a := c.Anonymous; a != nil && !a.Enabled && len(a.Conditions) > 0 {
		errs = append(errs, field.Invalid(field.NewPath("anonymous", "conditions"), shownConditions(a.Conditions),
			"enabled should be set to true when conditions are defined"))
	}
	return all, errs
}

// shownConditions prints conditions as the errors of the reference do.
type shownConditions []Condition

// MarshalJSON implements json.Marshaler.
func (s shownConditions) MarshalJSON() ([]byte, error) {
	shown := make([]struct{ Path string }, len(s))
	for i, c := range s {
		shown[i].Path = c.Path
	}
	return json.Marshal(shown)
}

// validation collects the errors and the expressions of one authenticator.
type validation struct {
	own  []string
	errs field.ErrorList
	expressions
	// verified says that an expression other than that of the user name uses the claim email_verified.
	verified bool
}

func (v *validation) invalid(path *field.Path, value any, detail string) {
	v.errs = append(v.errs, field.Invalid(path, value, detail))
}

func (v *validation) required(path *field.Path, detail string) {
	v.errs = append(v.errs, field.Required(path, detail))
}

func (v *validation) duplicate(path *field.Path, value string) {
	v.errs = append(v.errs, field.Duplicate(path, value))
}

func (v *validation) authenticator(a *Authenticator, path *field.Path) {
	v.issuer(&a.Issuer, path.Child("issuer"))
	v.claimRules(a.ClaimValidationRules, path.Child("claimValidationRules"))
	v.mappings(&a.ClaimMappings, path.Child("claimMappings"))
	v.userRules(a.UserValidationRules, path.Child("userValidationRules"))
}

func (v *validation) issuer(i *Issuer, path *field.Path) {
	if at := path.Child("url"); i.URL == "" {
		v.required(at, "")
	} else {
		if slices.Contains(v.own, i.URL) {
			v.invalid(at, i.URL, fmt.Sprintf("URL must not overlap with disallowed issuers: %s", sorted(v.own)))
		}
		v.url(i.URL, at)
	}
	if at := path.Child("discoveryURL"); i.DiscoveryURL != "" {
		if i.URL != "" && strings.TrimRight(i.URL, "/") == strings.TrimRight(i.DiscoveryURL, "/") {
			v.invalid(at, i.DiscoveryURL, "discoveryURL must be different from URL")
		}
		v.url(i.DiscoveryURL, at)
	}
	v.audiences(i, path)
	if i.CertificateAuthority != "" {
		if _, err := authorities(i.CertificateAuthority); err != nil {
			v.invalid(path.Child("certificateAuthority"), "<omitted>", err.Error())
		}
	}
	if i.EgressSelectorType != "" && i.EgressSelectorType != "controlplane" && i.EgressSelectorType != "cluster" {
		v.invalid(path.Child("egressSelectorType"), fielderrors.Word(i.EgressSelectorType),
			"egress selector must be either controlplane or cluster")
	}
}

func sorted(texts []string) []string {
	texts = slices.Clone(texts)
	slices.Sort(texts)
	return slices.Compact(texts)
}

func (v *validation) url(text string, path *field.Path) {
	u, err := url.Parse(text)
	if err != nil {
		v.invalid(path, text, err.Error())
		return
	}
	for _, c := range []struct {
		wrong  bool
		detail string
	}{
		{u.Scheme != "https", "URL scheme must be https"},
		{u.User != nil, "URL must not contain a username or password"},
		{u.RawQuery != "", "URL must not contain a query"},
		{u.Fragment != "", "URL must not contain a fragment"},
	} {
		if c.wrong {
			v.invalid(path, text, c.detail)
		}
	}
}

func (v *validation) audiences(i *Issuer, path *field.Path) {
	at, policy := path.Child("audiences"), path.Child("audienceMatchPolicy")
	if len(i.Audiences) == 0 {
		v.required(at, "at least one "+at.String()+" is required")
		return
	}
	for n, audience := range i.Audiences {
		if audience == "" {
			v.required(at.Index(n), "")
		}
		if slices.Contains(i.Audiences[:n], audience) {
			v.duplicate(at.Index(n), audience)
		}
	}
	switch {
	case i.AudienceMatchPolicy == matchAny:
	case len(i.Audiences) > 1:
		v.invalid(policy, fielderrors.Word(i.AudienceMatchPolicy),
			"audienceMatchPolicy must be MatchAny for multiple audiences")
	case i.AudienceMatchPolicy != "":
		v.invalid(policy, fielderrors.Word(i.AudienceMatchPolicy),
			"audienceMatchPolicy must be empty or MatchAny for single audience")
	}
}

// authorities returns the certificates of a PEM text. As in the reference, other blocks and text between blocks are
// skipped.
func authorities(text string) (*x509.CertPool, error) {
	pool, found := x509.NewCertPool(), false
	for rest := []byte(text); len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(c)
		found = true
	}
	if !found {
		return nil, errors.New("data does not contain any valid RSA or ECDSA certificates")
	}
	return pool, nil
}

// compiled returns a compiled expression over claims; nil, with an error added, if it does not compile.
func (v *validation) compiled(source string, condition bool, path *field.Path) *cel.TokenExpression {
	e, err := cel.CompileClaims(source, condition, path)
	if err != nil {
		v.errs = append(v.errs, err)
		return nil
	}
	return e
}

func (v *validation) claimRules(rules []ClaimRule, path *field.Path) {
	var claims, sources []string
	for i, r := range rules {
		at := path.Index(i)
		switch {
		case r.Claim != "" && r.Expression != "":
			v.invalid(at, r.Claim, "claim and expression can't both be set")
		case r.Claim == "" && r.Expression == "":
			v.required(at, "claim or expression is required")
		case r.Claim != "":
			if r.Message != "" {
				v.invalid(at.Child("message"), r.Message, "may not be specified when claim is set")
			}
			if slices.Contains(claims, r.Claim) {
				v.duplicate(at.Child("claim"), r.Claim)
			}
			claims = append(claims, r.Claim)
		default:
			if r.RequiredValue != "" {
				v.invalid(at.Child("requiredValue"), r.RequiredValue, "may not be specified when expression is set")
			}
			if slices.Contains(sources, r.Expression) {
				v.duplicate(at.Child("expression"), r.Expression)
				continue
			}
			sources = append(sources, r.Expression)
			if e := v.compiled(r.Expression, true, at.Child("expression")); e != nil {
				v.claims = append(v.claims, rule{e, r.Message})
				v.verified = v.verified || e.UsesClaim(verifiedClaim)
			}
		}
	}
}

func (v *validation) userRules(rules []UserRule, path *field.Path) {
	var sources []string
	for i, r := range rules {
		at := path.Index(i).Child("expression")
		if r.Expression == "" {
			v.required(at, "")
			continue
		}
		if slices.Contains(sources, r.Expression) {
			v.duplicate(at, r.Expression)
			continue
		}
		sources = append(sources, r.Expression)
		e, err := cel.CompileUser(r.Expression, at)
		if err != nil {
			v.errs = append(v.errs, err)
			continue
		}
		v.user = append(v.user, rule{e, r.Message})
	}
}

func (v *validation) mappings(m *Mappings, path *field.Path) {
	v.username = v.prefixed(&m.Username, path.Child("username"), true)
	v.groups = v.prefixed(&m.Groups, path.Child("groups"), false)
	switch at := path.Child("uid"); {
	case m.UID.Claim != "" && m.UID.Expression != "":
		v.invalid(at, "", "claim and expression can't both be set")
	case m.UID.Expression != "":
		v.uid = v.compiled(m.UID.Expression, false, at.Child("expression"))
	}
	var keys []string
	for i := range m.Extra {
		v.extraMapping(&m.Extra[i], path.Child("extra").Index(i), &keys)
	}
	if e := v.username; e != nil && e.UsesClaim(emailClaim) && !e.UsesClaim(verifiedClaim) && !v.verified {
		v.invalid(path.Child("username", "expression"), m.Username.Expression,
			"claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or "+
				"claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression")
	}
}

// prefixed validates a claim or an expression, and returns the expression; nil if there is none or it is invalid.
func (v *validation) prefixed(p *Prefixed, path *field.Path, needed bool) *cel.TokenExpression {
	before := len(v.errs)
	var e *cel.TokenExpression
	switch {
	case p.Expression != "" && p.Claim != "":
		v.invalid(path, "", "claim and expression can't both be set")
	case p.Expression != "":
		if p.Prefix != nil {
			v.invalid(path.Child("prefix"), *p.Prefix, "may not be specified when expression is set")
		}
		e = v.compiled(p.Expression, false, path.Child("expression"))
	case p.Claim == "":
		if needed {
			v.required(path, "claim or expression is required")
		}
	case p.Prefix == nil:
		v.required(path.Child("prefix"),
			"prefix is required when claim is set. It can be set to an empty string to disable prefixing")
	}
	if len(v.errs) > before {
		return nil
	}
	return e
}

// extraMapping validates the mapping of an extra attribute. keys are those of the earlier mappings.
func (v *validation) extraMapping(m *Mapping, path *field.Path, keys *[]string) {
	at := path.Child("key")
	v.errs = append(v.errs, utilvalidation.IsDomainPrefixedPath(at, m.Key)...)
	if m.Key != strings.ToLower(m.Key) {
		v.invalid(at, m.Key, "must be lowercase")
	}
	if domain, _, ok := strings.Cut(m.Key, "/"); ok && reserved(domain) {
		v.invalid(at, m.Key, "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use")
	}
	if slices.Contains(*keys, m.Key) {
		v.duplicate(at, m.Key)
		return
	}
	*keys = append(*keys, m.Key)
	if at = path.Child("valueExpression"); m.ValueExpression == "" {
		v.required(at, "")
		return
	}
	if e := v.compiled(m.ValueExpression, false, at); e != nil {
		v.extra = append(v.extra, keyed{m.Key, e})
		v.verified = v.verified || e.UsesClaim(verifiedClaim)
	}
}

// reserved says whether a domain is reserved for Kubernetes.
func reserved(domain string) bool {
	for _, own := range []string{"kubernetes.io", "k8s.io"} {
		if domain == own || strings.HasSuffix(domain, "."+own) {
			return true
		}
	}
	return false
}
