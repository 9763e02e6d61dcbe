// Package serviceaccount makes and verifies the tokens of service accounts (AUTH-2): JSON Web Tokens that say which
// objects have to be there for them to be valid.
//
// There are two kinds. A bound token is made for a TokenRequest; it ends at a time, is for some audiences, and may be
// bound to a Pod, a Secret or a Node. A legacy token is in a Secret; it is for this server, and lasts until the Secret
// is gone.
//
// An [Issuer] makes tokens and answers TokenRequests. A [Verifier] says whose a token is. [Keys] are what they sign and
// verify with; Documents tells the public ones to others.
//
// Whether a signature is good never changes, so that is remembered. Whether the objects are still there is looked up
// for every request: a token is invalid for the next request after its ServiceAccount or Pod was deleted.
package serviceaccount
