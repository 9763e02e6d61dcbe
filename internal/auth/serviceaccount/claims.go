package serviceaccount

import (
	"github.com/go-jose/go-jose/v4/jwt"

	"plinth/internal/access"
)

// claims are those of a token of a service account: of one that was asked for with a TokenRequest, or of one in a
// Secret.
type claims struct {
	jwt.Claims
	Kubernetes kubernetes `json:"kubernetes.io"`
	legacyClaims

	subject access.User // whose the token is: what user gives, made once
}

// kubernetes says which objects have to be there for the token to be valid.
type kubernetes struct {
	Namespace  string           `json:"namespace"`
	Account    reference        `json:"serviceaccount"`
	Pod        *reference       `json:"pod"`
	Secret     *reference       `json:"secret"`
	Node       *reference       `json:"node"`
	Validating *reference       `json:"validatingwebhookconfiguration"`
	Mutating   *reference       `json:"mutatingwebhookconfiguration"`
	WarnAfter  *jwt.NumericDate `json:"warnafter"`
}

type reference struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// legacyClaims are those of a token in a Secret.
type legacyClaims struct {
	Namespace   string `json:"kubernetes.io/serviceaccount/namespace"`
	SecretName  string `json:"kubernetes.io/serviceaccount/secret.name"`
	AccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// legacyIssuer is the issuer of tokens in Secrets.
const legacyIssuer = "kubernetes/serviceaccount"

// user is the service account of a token.
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
