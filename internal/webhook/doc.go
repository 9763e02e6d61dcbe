// Package webhook has what webhooks have in common, whatever they are called for: the rules for the address at which
// one is reached, and the client that calls one there. Admission webhooks and conversion webhooks are configured with
// the same members.
package webhook
