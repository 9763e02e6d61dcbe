package serviceaccount

import (
	"github.com/go-jose/go-jose/v4/jwt"

	"plinth/internal/access"
)

// claims are the claims of a bound token or of a legacy token.
type claims struct {
	jwt.Claims
	Kubernetes kubernetes `json:"kubernetes.io"`
	legacyClaims

	subject access.User // the result of user, computed once; requests share it
	by      PublicKey   // verified the signature
	in      *KeySet     // had that key
}

// kubernetes names the objects that must exist for a bound token to be valid. WarnAfter is the time from which on the
// client should have renewed the token (see Issuer.Extend).
type kubernetes struct {
	Namespace  string     `json:"namespace"`
	Account    reference  `json:"serviceaccount"`
	Pod        *reference `json:"pod"`
	Secret     *reference `json:"secret"`
	Node       *reference `json:"node"`
	Validating *reference `json:"validatingwebhookconfiguration"`
	Mutating   *reference `json:"mutatingwebhookconfiguration"`
	// Attestations are of a token that is bound to a webhook configuration.
	Attestations map[string][]string `json:"attestations"`
	WarnAfter    *jwt.NumericDate    `json:"warnafter"`
}

type reference struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// legacyClaims are the claims of a legacy token, which is in a Secret.
type legacyClaims struct {
	Namespace   string `json:"kubernetes.io/serviceaccount/namespace"`
	SecretName  string `json:"kubernetes.io/serviceaccount/secret.name"`
	AccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// legacyIssuer is the issuer of legacy tokens.
const legacyIssuer = "kubernetes/serviceaccount"

// user returns the user of a token: its service account, with the objects that the token is bound to as extra values.
func (c *claims) user() access.User {
	if c.Issuer == legacyIssuer {
		return account(c.legacyClaims.Namespace, c.AccountName, c.AccountUID)
	}
	b := &c.Kubernetes
	user := account(b.Namespace, b.Account.Name, b.Account.UID)
	extra := map[string][]string{}
	if c.ID != "" {
		extra[access.CredentialID] = []string{"JTI=" + c.ID}
	}
	if b.Pod != nil && b.Pod.Name != "" && b.Pod.UID != "" {
		extra[access.PodName], extra[access.PodUID] = []string{b.Pod.Name}, []string{b.Pod.UID}
	}
	if b.Node != nil && b.Node.Name != "" {
		extra[access.NodeName] = []string{b.Node.Name}
		if b.Node.UID != "" {
			extra[access.NodeUID] = []string{b.Node.UID}
		}
	}
	for _, bound := range []struct {
		to        *reference
		name, uid string
	}{
		{b.Validating, access.ValidatingWebhookName, access.ValidatingWebhookUID},
		{b.Mutating, access.MutatingWebhookName, access.MutatingWebhookUID},
	} {
		if bound.to == nil {
			continue
		}
		if bound.to.Name != "" && bound.to.UID != "" {
			extra[bound.name], extra[bound.uid] = []string{bound.to.Name}, []string{bound.to.UID}
		}
		if attested := b.Attestations[apiGroups]; len(attested) > 0 {
			extra[access.AttestedAPIGroups] = attested
		}
	}
	if len(extra) > 0 {
		user.Extra = extra
	}
	return user
}

func account(namespace, name, uid string) access.User {
	return access.User{
		Name: access.ServiceAccount(namespace, name), UID: uid,
		Groups: []string{access.ServiceAccounts, access.ServiceAccountGroupPrefix + namespace, access.Authenticated},
	}
}
