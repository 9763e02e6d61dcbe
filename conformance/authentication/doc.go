// Package authentication compares with the reference who is known by the tokens of OpenID Connect issuers and of
// webhooks: what is refused of an AuthenticationConfiguration, whom a token makes, and why one is nobody's.
//
// Most of it asks the reference's packages within the test, so that thousands of cases cost seconds. What the servers
// make of it, TokenReviews and requests, is compared beside a running reference.
package authentication
