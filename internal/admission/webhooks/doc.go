// Package webhooks asks webhooks about writes: the plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook
// (AUTH-3).
//
// Nouns:
//
//   - a hook is one webhook of a MutatingWebhookConfiguration or a ValidatingWebhookConfiguration.
//   - a set is all hooks of one of the two kinds, in the order in which they are called. It is a view of the
//     configurations, so a configuration holds from the request after its write was answered.
//   - a candidate is a hook whose rules match a request, with the version of the object that it gets. Candidates depend
//     on the URL of a request alone, and are kept by it: hooks that do not match cost a look-up together.
//   - a pass is one call of all mutating plugins; Passes says when there is a second one.
//
// The conditions of a hook that depend on the object come after its rules: the selectors and the match conditions.
package webhooks
