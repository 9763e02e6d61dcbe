package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"plinth/internal/access"
	"plinth/internal/cel"
)

// claims are the claims of a token, by name. A claim is decoded when it is read.
type claims map[string]json.RawMessage

var errNoClaim = errors.New("claim not present")

// read decodes a claim into v.
func (c claims) read(name string, v any) error {
	text, ok := c[name]
	if !ok {
		return errNoClaim
	}
	return json.Unmarshal(text, v)
}

func (c claims) has(name string) bool {
	_, ok := c[name]
	return ok
}

// texts is a claim that is a string or a list of strings.
type texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *texts) UnmarshalJSON(b []byte) error {
	var list []string
	if json.Unmarshal(b, &list) == nil {
		*t = list
		return nil
	}
	var one string
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	*t = texts{one}
	return nil
}

// mapping maps the claims of one token to a user, as AuthenticateToken in the reference's oidc package, with its
// messages.
type mapping struct {
	*authenticator
	claims claims
	input  *cel.Input // the claims, for expressions; nil until one is run
}

// run runs an expression over the claims.
func (m *mapping) run(ctx context.Context, e *cel.TokenExpression) (cel.Result, error) {
	if m.input == nil {
		m.input = cel.Claims(m.claims)
	}
	return e.Run(ctx, m.input)
}

// user returns the user of the claims.
func (m *mapping) user(ctx context.Context) (*access.User, error) {
	u := &access.User{}
	for _, part := range []func(context.Context, *access.User) error{m.name, m.groups, m.uid, m.extra} {
		if err := part(ctx, u); err != nil {
			return nil, err
		}
	}
	return u, nil
}

func (m *mapping) name(ctx context.Context, u *access.User) error {
	if e := m.username; e != nil {
		r, err := m.run(ctx, e)
		if err != nil {
			return fmt.Errorf("oidc: error evaluating username claim expression: %w", err)
		}
		name, ok := r.Text()
		switch {
		case !ok:
			return errors.New("oidc: error evaluating username claim expression: username claim expression must return a string")
		case name == "":
			return errors.New("oidc: empty username via CEL expression is not allowed")
		}
		u.Name = name
		return nil
	}
	of := &m.ClaimMappings.Username
	if err := m.claims.read(of.Claim, &u.Name); err != nil {
		return fmt.Errorf("oidc: parse username claims %q: %w", of.Claim, err)
	}
	if of.Claim == emailClaim && m.claims.has(verifiedClaim) {
		var verified bool
		if err := m.claims.read(verifiedClaim, &verified); err != nil {
			return fmt.Errorf("oidc: parse 'email_verified' claim: %w", err)
		}
		if !verified {
			return errors.New("oidc: email not verified")
		}
	}
	u.Name = prefix(of) + u.Name
	return nil
}

func prefix(of *Prefixed) string {
	if of.Prefix == nil {
		return ""
	}
	return *of.Prefix
}

func (m *mapping) groups(ctx context.Context, u *access.User) error {
	if of := &m.ClaimMappings.Groups; of.Claim != "" && m.claims.has(of.Claim) {
		var groups texts
		if err := m.claims.read(of.Claim, &groups); err != nil {
			return fmt.Errorf("oidc: parse groups claim %q: %w", of.Claim, err)
		}
		for i := range groups {
			groups[i] = prefix(of) + groups[i]
		}
		u.Groups = groups
		return nil
	}
	if m.expressions.groups == nil {
		return nil
	}
	r, err := m.run(ctx, m.expressions.groups)
	if err == nil {
		u.Groups, err = r.Texts()
	}
	if err != nil {
		return fmt.Errorf("oidc: error evaluating group claim expression: %w", err)
	}
	return nil
}

func (m *mapping) uid(ctx context.Context, u *access.User) error {
	if claim := m.ClaimMappings.UID.Claim; claim != "" {
		if err := m.claims.read(claim, &u.UID); err != nil {
			return fmt.Errorf("oidc: parse uid claim %q: %w", claim, err)
		}
		return nil
	}
	if m.expressions.uid == nil {
		return nil
	}
	r, err := m.run(ctx, m.expressions.uid)
	if err != nil {
		return fmt.Errorf("oidc: error evaluating uid claim expression: %w", err)
	}
	var ok bool
	if u.UID, ok = r.Text(); !ok {
		return errors.New("oidc: error evaluating uid claim expression: uid claim expression must return a string")
	}
	return nil
}

func (m *mapping) extra(ctx context.Context, u *access.User) error {
	var id string
	if m.claims.read("jti", &id) == nil && id != "" {
		u.Extra = map[string][]string{access.CredentialID: {"JTI=" + id}}
	}
	// As in the reference, all expressions run before a result is used. That decides which of two errors is returned.
	results := make([]cel.Result, len(m.expressions.extra))
	for i, e := range m.expressions.extra {
		var err error
		if results[i], err = m.run(ctx, e.TokenExpression); err != nil {
			return err
		}
	}
	for i, e := range m.expressions.extra {
		values, err := results[i].Texts()
		if err != nil {
			return fmt.Errorf("oidc: error evaluating extra claim expression: %s: %w", e.Source, err)
		}
		if len(values) == 0 {
			continue
		}
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[e.key] = values
	}
	return nil
}

// checkClaims returns an error if the claims violate a rule.
func (m *mapping) checkClaims(ctx context.Context) error {
	for _, r := range m.ClaimValidationRules {
		if r.Claim == "" {
			continue
		}
		var value string
		if !m.claims.has(r.Claim) {
			return fmt.Errorf("oidc: required claim %s not present in ID token", r.Claim)
		}
		if err := m.claims.read(r.Claim, &value); err != nil {
			return fmt.Errorf("oidc: parse claim %s: %w", r.Claim, err)
		}
		if value != r.RequiredValue {
			return fmt.Errorf("oidc: required claim %s value does not match. Got = %s, want = %s", r.Claim, value,
				r.RequiredValue)
		}
	}
	err := check(m.expressions.claims, func(e *cel.TokenExpression) (cel.Result, error) { return m.run(ctx, e) })
	if err != nil {
		return fmt.Errorf("oidc: error evaluating claim validation expression: %w", err)
	}
	return nil
}

// checkUser returns an error if the user violates a rule.
func (m *mapping) checkUser(ctx context.Context, u *access.User) error {
	if len(m.expressions.user) == 0 {
		return nil
	}
	input := cel.User(u.Name, u.UID, u.Groups, u.Extra)
	err := check(m.expressions.user, func(e *cel.TokenExpression) (cel.Result, error) { return e.Run(ctx, input) })
	if err != nil {
		return fmt.Errorf("oidc: error evaluating user info validation rule: %w", err)
	}
	return nil
}

// check returns an error for the first rule that is not true. As in the reference, all run before a result is used.
func check(rules []rule, run func(*cel.TokenExpression) (cel.Result, error)) error {
	results := make([]cel.Result, len(rules))
	for i, r := range rules {
		var err error
		if results[i], err = run(r.TokenExpression); err != nil {
			return err
		}
	}
	for i, r := range rules {
		holds, ok := results[i].Bool()
		switch {
		case !ok:
			return errors.New("validation expression must return a boolean")
		case !holds:
			return fmt.Errorf("validation expression '%s' failed: %s", r.Source, r.message)
		}
	}
	return nil
}
