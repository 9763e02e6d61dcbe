// Package hooks has what webhooks and admission policies have in common: which requests they are for, in which version
// they see the object, and when they are called a second time (AUTH-3).
//
// Nouns:
//
//   - a hook is one webhook, or one admission policy.
//   - a rule names operations and resources; a hook is for the requests that match one of its rules.
//   - a question is a request as a hook sees it: in the version that its rule names.
//   - a pass is one call of all mutating plugins; Passes says when there is a second one.
package hooks
