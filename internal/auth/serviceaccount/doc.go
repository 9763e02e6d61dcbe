// Package serviceaccount issues and verifies the tokens of service accounts (AUTH-2): JSON Web Tokens that name the
// objects that must exist for the token to be valid.
//
// There are two kinds. A bound token is issued for a TokenRequest: it expires, has audiences, and may be bound to a
// Pod, a Secret or a Node. A legacy token is in a Secret: it is for this server, and is valid until the Secret is
// deleted.
//
// An [Issuer] issues tokens and answers TokenRequests. A [Verifier] authenticates tokens. [Keys] are the keys for both:
// the server's own ([StaticKeys]), or those of an external signer (package externaljwt). [Documents] publish the public
// ones.
//
// The result of verifying a signature never changes while the key is valid, so it is cached without an expiry. The
// objects are looked up for every request, so a token is invalid for the next request after its ServiceAccount or Pod
// was deleted.
package serviceaccount
