package admission

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"plinth/internal/access"
	"plinth/internal/builtin/validation"
	"plinth/internal/engine"
	"plinth/object"
)

// The plugins for CertificateSigningRequests. A user who writes the approval of a request, or changes the certificate
// or the conditions in its status, needs a verb for its signer in addition to that for the subresource. The signer is
// that of the old object: the new one may name another.

const (
	certificatesGroup = "certificates.k8s.io"
	signingRequests   = "certificatesigningrequests"
)

// certificateApproval is the plugin CertificateApproval.
func certificateApproval(ctx context.Context, a *engine.Attributes) error {
	signer := a.Old.At("spec", "signerName").Str()
	if a.Operation != engine.OperationUpdate || !about(a, certificatesGroup, signingRequests, "approval") ||
		maySigner(ctx, a, "approve", signer) {
		return nil
	}
	return forbidden(a, fmt.Sprintf("user not permitted to approve requests with signerName %q", signer))
}

// certificateSigning is the plugin CertificateSigning.
func certificateSigning(ctx context.Context, a *engine.Attributes) error {
	if a.Operation != engine.OperationUpdate || !about(a, certificatesGroup, signingRequests, "status") {
		return nil
	}
	next, old := a.Object.At("status"), a.Old.At("status")
	if object.Equal(next.At("certificate"), old.At("certificate")) &&
		slices.EqualFunc(next.At("conditions").Items(), old.At("conditions").Items(), object.Equal) {
		return nil
	}
	if signer := a.Old.At("spec", "signerName").Str(); !maySigner(ctx, a, "sign", signer) {
		return forbidden(a, fmt.Sprintf("user not permitted to sign requests with signerName %q", signer))
	}
	return nil
}

// certificateSubjectRestriction is the plugin CertificateSubjectRestriction: nobody requests a client certificate of
// the API server for the group system:masters.
func certificateSubjectRestriction(_ context.Context, a *engine.Attributes) error {
	if a.Operation != engine.OperationCreate || !about(a, certificatesGroup, signingRequests, "") {
		return nil
	}
	spec := a.Object.At("spec")
	const signer = certificatesv1.KubeAPIServerClientSignerName
	if spec.At("signerName").Str() != signer {
		return nil
	}
	text, err := base64.StdEncoding.DecodeString(spec.At("request").Str())
	if err != nil {
		return forbidden(a, fmt.Sprintf("failed to parse CSR: %v", err))
	}
	request, err := validation.SigningRequest(text)
	switch {
	case err != nil:
		return forbidden(a, fmt.Sprintf("failed to parse CSR: %v", err))
	case slices.Contains(request.Subject.Organization, access.Masters):
		return forbidden(a, fmt.Sprintf("use of %s signer with %s group is not allowed", signer, access.Masters))
	}
	return nil
}

// maySigner says whether the user has a verb for a signer, or for all of its domain.
func maySigner(ctx context.Context, a *engine.Attributes, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		if may, _, _ := a.Request.Allowed(ctx, access.Attributes{
			Verb: verb, IsResource: true, Group: certificatesGroup, Version: "*", Resource: "signers", Name: name,
		}); may {
			return true
		}
	}
	return false
}
