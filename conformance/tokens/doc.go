// Package tokens compares the tokens of service accounts with the reference's: what is answered to a TokenRequest, and who is
// known by which token.
//
// Both servers have the same key. So what one has signed the other takes for signed; what they say of a token differs only by
// the UIDs of objects, which are called by their names here.
package tokens
