// Package certificates compares the processing of CertificateSigningRequests with the reference: which are approved
// automatically, which are signed, which fail and why, and what the issued certificates contain. On the reference the
// controllers of kube-controller-manager do that, on Plinth its own.
package certificates
