// Package validation returns the errors of the reference's validation for objects of the built-in types (VAL-1, VAL-4).
//
// Glossary. A rule is a function over values, named after the field that it checks. Errors collect the results of the
// rules, in the order of the reference ([fielderrors.Errors]). Metadata has been validated before (package objectmeta).
//
// Values have been decoded and defaulted before: a member has the JSON type that its schema demands or is missing or
// null, and rules don't check it again. A member that the reference's Go type holds by value is always present. Checks
// of the reference that no request reaches, because a default fills the member, are left out.
//
// Rules allocate next to nothing for valid values: places live on the stack, names are checked byte by byte, and only
// invalid ones are passed to the functions of apimachinery, which return the messages.
//
// Caveat: the rules do not cover everything. A missing rule accepts too much; no rule refuses an object that the
// reference accepts. conformance/oracle/validation compares them with the reference's own, and prints for each kind
// which share of its refusals is found here (go test -v ./oracle/validation).
package validation
