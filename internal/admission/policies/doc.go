// Package policies decides on writes by expressions in CEL: the plugins MutatingAdmissionPolicy and
// ValidatingAdmissionPolicy (AUTH-3).
//
// Nouns:
//
//   - a policy has expressions, and says which requests they are about. A binding puts it into effect, for all of these
//     requests or for some, and may name params: objects that the expressions see. A policy without a binding does
//     nothing.
//   - a set is the policies of one of the two kinds with their bindings, in the order of their names. It is a view of
//     both collections, so a policy and a binding hold from the request after their write was answered.
//   - a candidate is a policy whose rules match a request, whatever the names and labels of its object. Candidates
//     depend on the URL of a request alone, and are kept by it: policies that do not match cost a look-up together.
//   - a program is the compiled expressions of a policy. It is compiled when the policy first matches, and dropped when
//     it is idle (cel.Cache): after a restart none is compiled.
//
// The reference decides by the state of its caches, in an order by chance where several policies refuse a request. This
// package decides by the newest state, in the order of names.
package policies
