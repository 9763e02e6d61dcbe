// Package tokens compares with the reference who is known by which credentials: what is answered to a TokenRequest,
// whose a token of a service account is, and who may act as somebody else.
//
// Both servers have the same key. So what one has signed the other takes for signed; what they say of a token differs
// only by the UIDs of objects, which are called by their names here.
//
// TestTokenCleaner needs no server: the reference's controller that deletes unused tokens runs in the test's process.
package tokens
