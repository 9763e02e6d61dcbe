// Package webhook has what webhooks have in common, whatever they are called for: today the rules for the address at which
// one is reached. Admission webhooks and conversion webhooks are configured with the same members.
package webhook
