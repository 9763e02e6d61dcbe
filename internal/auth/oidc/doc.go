// Package oidc says whose tokens of OpenID Connect issuers are (AUTH-1): JSON Web Tokens that somebody else has signed.
//
// A [Configuration] is what --authentication-config names, or what the --oidc-* flags are a short form of.
// [Authenticators] are made of it: one for each issuer. Each finds out by the issuer's discovery document where its
// keys are; until it has, it knows nobody's tokens. A [Reloader] replaces them when the file changes.
//
// Discovery, keys and the verification of tokens are those of github.com/coreos/go-oidc. What becomes of claims is
// here.
//
// Nothing is done at start but to read the file and to compile the expressions in it. Each issuer is asked in the
// background.
package oidc
