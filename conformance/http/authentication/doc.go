// Package authentication compares the authentication by tokens of OpenID Connect issuers and by token webhooks with the
// reference's: which AuthenticationConfigurations are refused, which user a token belongs to, and why a token is
// refused.
//
// Most tests call the reference's packages directly, so that thousands of cases take seconds. TokenReviews and requests
// are compared with a running reference.
package authentication
