// Package tokens compares Plinth's authentication of credentials with the reference's: the responses to TokenRequests,
// the users of service account tokens, and who may impersonate whom.
//
// Both servers have the same key, so each accepts the tokens that the other has signed. Their responses about a token
// differ only in the UIDs of objects, which are replaced by the objects' names.
//
// TestTokenCleaner needs no server: the reference's controller that deletes unused tokens runs in the test's process.
package tokens
