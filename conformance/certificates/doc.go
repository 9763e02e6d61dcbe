// Package certificates compares with the reference what becomes of CertificateSigningRequests: which are approved
// without anybody's doing, which are signed, which have failed and why, and what stands in the certificates that are
// issued. On the reference the controllers of its kube-controller-manager do that, here our own.
package certificates
