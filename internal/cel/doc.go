// Package cel compiles and runs expressions of the Common Expression Language: the validation rules of custom types
// (x-kubernetes-validations), which run on values ([object.Value]) without copying them, and the expressions in the
// configuration of authentication and authorization and in device selectors.
//
// # Glossary
//
//   - rule: one expression at a node of a schema, with the message for when it is false.
//   - self: the value at that node. oldSelf: the value that an update replaces.
//   - transition rule: a rule that uses oldSelf. It is skipped if there is no old value to compare with.
//   - shape: a type as CEL sees it.
//   - place: a node of a schema with rules at or below it, and its compiled rules.
//   - estimated cost: an upper bound of the cost of a rule, over all objects that the schema allows ([Check]).
//   - actual cost: the cost that is counted while a rule runs ([Rules.Validate]).
//
// # Cost
//
// Problem: the author of a definition chooses the rules, and the author of an object chooses the values that they run
// on. A short rule with two nested loops over lists of a thousand items takes a million steps, and a rule at an item
// of a list runs once for each item. The server must bound the time of a request, regardless of the author of the
// definition.
//
// Both costs count steps of evaluation, weighted by the size of operands, as the reference counts them. Actual cost
// alone would bound the time, but the author of the definition would learn that a rule is too expensive only when
// another user's large object is refused. So a definition is refused at once if it allows an object that is too
// expensive:
//
//	estimate(rule) = cost(expression, largest sizes the schema allows) · count(node)
//	count(root) = 1
//	count(fields of n) = count(n)
//	count(items of n) = count(n) · maxItems(n), and likewise for maps and maxProperties
//	estimate(rule) ≤ ruleLimit,  Σ estimate(rule) ≤ definitionLimit
//
// If a list (map) above a node has no maxItems (maxProperties), the node's count is the number of smallest values that
// fit in a request. The estimate alone is not enough either: rules that were stored under an older limit stay valid,
// and the estimate assumes that objects satisfy the schema. So Validate counts the actual cost, ends an expression at
// limits.PerCallLimit and an object at limits.RuntimeCELCostBudget, and does not run rules on an object that the schema
// refuses.
//
// # Caveats
//
// Language, libraries and limits are those of the reference, whose library packages are linked; see environment.go.
// docs/decisions/0005-cel.md has the list of linked packages and their cost.
//
// No rule is compiled at the start of the server or when a type is compiled. The environment is built when the first
// rule is compiled, a rule is compiled when it first has a value to run on, and compiled rules that were not used for
// some time are dropped ([Cache]).
package cel
