// Package operators runs the webhook servers of widely used operators beside Plinth and beside the reference, and
// compares what a user gets: what is admitted, what is refused and with which message, what the webhooks change, who
// owns it, and how it reads in every version.
//
// The servers are built from the operators' own sources, and are installed with their own charts and manifests; only
// the address and the certificate are put in. They take minutes to build:
//
//	OPERATORS=1 go test ./client/operators -v              all of them
//	OPERATORS=cert-manager go test ./client/operators -v   one
//
// A webhook server of the tests, whose certificate is replaced, needs no environment variable.
package operators
