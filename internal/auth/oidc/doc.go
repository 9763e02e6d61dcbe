// Package oidc authenticates the tokens of OpenID Connect issuers (AUTH-1): JSON Web Tokens that another party has
// signed.
//
// A [Configuration] is the content of --authentication-config, or what the --oidc-* flags stand for. [Authenticators]
// has an authenticator for each of its issuers. Each reads the issuer's discovery document, which says where the keys
// are; until then, the tokens of the issuer are refused. A [Reloader] replaces the authenticators when the file
// changes.
//
// A user can get such a token with a browser: [Reloader.Begin] and [Reloader.Finish] are the authorization code flow.
//
// Discovery, the fetching of keys and the verification of signatures are those of github.com/coreos/go-oidc. The rest,
// from claims to users, is here. The flow's requests are those of golang.org/x/oauth2.
//
// # Keys
//
// Problem: an issuer replaces its keys without announcement, and a token must be accepted as soon as it is signed with
// a new key. To fetch the keys for each token would be slow, and to fetch them at an interval would refuse good tokens
// until then. So keys are kept without an expiry, and fetched again when a token arrives that none of them verifies
// (RemoteKeySet of the library). Any client can send such tokens; requests that arrive during a fetch wait for it, so
// that there is one fetch per issuer at a time. A response of an issuer is limited to 4 MiB and 30 s.
//
// At start only the file is read and its expressions are compiled. The issuers are contacted in the background.
package oidc
