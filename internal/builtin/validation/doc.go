// Package validation says what the reference's validation refuses in objects of the built-in types (VAL-1, VAL-4).
//
// Glossary. A rule is a function over values, named after the field it looks at. Errors collect what the rules say, in
// the order in which the reference says it ([fielderrors.Errors]). Metadata has been validated before (package
// objectmeta).
//
// Values have been decoded and defaulted before: a member has the JSON type that its schema demands or is missing or
// null, and rules don't check it again. A member that the reference's Go type holds by value is always there.
//
// Rules cost nothing while they find nothing: places live on the stack, names are looked at byte by byte, and only
// what fails is handed to the functions of apimachinery for their words.
//
// Caveat: the rules do not cover everything. A rule that is missing accepts too much; none of them refuses what the
// reference accepts. conformance/validation holds them against the reference's own, and tells for each kind what share
// of its refusals is found here (go test -v ./validation).
package validation
