package builtin

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/gotypes"
	"plinth/internal/builtin/validation"
	"plinth/internal/engine"
	"plinth/object"
)

func certificates(c Config) group {
	return group{"certificates.k8s.io", "v1", []kind{
		{
			name: "certificatesigningrequests", kind: "CertificateSigningRequest", short: "csr",
			rules: validation.CertificateSigningRequest,
			untouched: map[string]string{
				"": "spec status", "status": "spec status.conditions", "approval": "spec status.certificate",
			},
			schema: gotypes.Of[certificatesv1.CertificateSigningRequest],
			list:   gotypes.Of[certificatesv1.CertificateSigningRequestList], cluster: true, naming: segment,
			status: statusAndMeta, onStatus: keepApproval(c.Now),
			onUpdate: func(obj, old object.Value) object.Value { return keep(obj, old, "spec") },
			fields:   []selectable{text("spec.signerName")},
			table:    columns.CertificateSigningRequests,
			special: func(r *engine.Resource) {
				r.Subresources = append(r.Subresources, approval(r, c.Now))
				r.Check = checkSigningRequest(c.DisabledAdmission)
				prepare := r.PrepareCreate
				r.PrepareCreate = func(obj object.Value, by access.User) object.Value {
					return requestedBy(prepare(obj, by), by)
				}
			},
		},
		{
			name: "clustertrustbundles", kind: "ClusterTrustBundle", referenceStorage: "v1beta1",
			rules:  validation.ClusterTrustBundle,
			schema: gotypes.Of[certificatesv1.ClusterTrustBundle], list: gotypes.Of[certificatesv1.ClusterTrustBundleList],
			cluster: true, naming: segment, conditional: true,
			fields: []selectable{text("spec.signerName")},
			table:  columns.ClusterTrustBundles,
		},
		{
			name: "podcertificaterequests", kind: "PodCertificateRequest", referenceStorage: "v1beta1",
			defaults: defaults.PodCertificateRequest, rules: validation.PodCertificateRequest,
			untouched:   statusAlone,
			schema:      gotypes.Of[certificatesv1.PodCertificateRequest],
			list:        gotypes.Of[certificatesv1.PodCertificateRequestList],
			conditional: true, status: statusOnly,
			fields: []selectable{
				text("spec.nodeName"),
				text("spec.podName"),
				text("spec.signerName"),
			},
			table: columns.PodCertificateRequests,
		},
	}}
}

// requestedBy sets the user who requests the certificate, and ignores what the client sends for it.
func requestedBy(obj object.Value, by access.User) object.Value {
	return obj.With("spec", obj.At("spec").Edit(userInfo(by).Members(), requester...))
}

var requester = []string{"username", "uid", "groups", "extra"}

// checkSigningRequest is engine.Resource.Check of CertificateSigningRequests. It refuses what the reference's admission
// plugins CertificateSubjectRestriction, CertificateApproval and CertificateSigning refuse: a request to the signer of
// client certificates must not be for the group system:masters, and a user who writes the approval of a request, or
// changes the certificate or the conditions in its status, needs a verb for its signer, in addition to that for the
// subresource.
func checkSigningRequest(disabled []string) func(ctx context.Context, rq *engine.Request, obj, old object.Value) error {
	on := func(plugin string) bool { return !slices.Contains(disabled, plugin) }
	restricts, approves, signs := on("CertificateSubjectRestriction"), on("CertificateApproval"), on("CertificateSigning")
	return func(ctx context.Context, rq *engine.Request, obj, old object.Value) error {
		why := ""
		signer := old.At("spec", "signerName").Str()
		switch {
		case old.IsNull():
			if restricts {
				why = restrictedSubject(obj.At("spec"))
			}
		case rq.Subresource == nil:
		case rq.Subresource.Name == "approval":
			if approves && !maySigner(ctx, rq, "approve", signer) {
				why = fmt.Sprintf("user not permitted to approve requests with signerName %q", signer)
			}
		case rq.Subresource.Name == "status":
			is, was := obj.At("status"), old.At("status")
			same := object.Equal(is.At("certificate"), was.At("certificate")) &&
				slices.EqualFunc(is.At("conditions").Items(), was.At("conditions").Items(), object.Equal)
			if signs && !same && !maySigner(ctx, rq, "sign", signer) {
				why = fmt.Sprintf("user not permitted to sign requests with signerName %q", signer)
			}
		}
		if why != "" {
			return apierr.NewForbidden(rq.Resource.Type(), obj.At("metadata", "name").Str(), why)
		}
		return nil
	}
}

// restrictedSubject returns why a certificate with this subject must not be requested; "" if it may.
func restrictedSubject(spec object.Value) string {
	if spec.At("signerName").Str() != certificatesv1.KubeAPIServerClientSignerName {
		return ""
	}
	text, err := base64.StdEncoding.DecodeString(spec.At("request").Str())
	if err != nil {
		return fmt.Sprintf("failed to parse CSR: %v", err)
	}
	request, err := validation.SigningRequest(text)
	switch {
	case err != nil:
		return fmt.Sprintf("failed to parse CSR: %v", err)
	case slices.Contains(request.Subject.Organization, access.Masters):
		return fmt.Sprintf("use of %s signer with %s group is not allowed", certificatesv1.KubeAPIServerClientSignerName,
			access.Masters)
	}
	return ""
}

// maySigner says whether the user has a verb for a signer, or for all of its domain.
func maySigner(ctx context.Context, rq *engine.Request, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		if may, _, _ := rq.Allowed(ctx, access.Attributes{
			Verb: verb, IsResource: true, Group: "certificates.k8s.io", Version: "*", Resource: "signers", Name: name,
		}); may {
			return true
		}
	}
	return false
}

// keepApproval keeps approval and denial in a write to the status, and sets the times of the conditions.
func keepApproval(now func() time.Time) func(obj, old object.Value) object.Value {
	return func(obj, old object.Value) object.Value {
		was, is := old.At("status", "conditions"), obj.At("status", "conditions")
		for _, verdict := range []string{"Approved", "Denied"} {
			is = keepConditions(is, was, verdict)
		}
		return withConditions(obj, dateConditions(is, was, now()))
	}
}

// approval is the subresource with which requests are approved and denied.
func approval(r *engine.Resource, now func() time.Time) *engine.Subresource {
	rule := validation.CertificateSigningRequest.Rules(validation.Options{}).Approval
	return &engine.Subresource{
		Name: "approval", Group: r.Group, Version: r.Version, Kind: r.Kind,
		Verbs:   []string{"get", "patch", "update"},
		Schema:  r.Schema,
		Default: r.Default,
		Write: func(old, body object.Value) (object.Value, error) {
			conditions := dateConditions(body.At("status", "conditions"), old.At("status", "conditions"), now())
			return withConditions(keep(keep(body, old, "spec"), old, "status"), conditions), nil
		},
		Validate: func(_, obj, old object.Value) field.ErrorList { return rule(obj, old) },
	}
}

func withConditions(obj, conditions object.Value) object.Value {
	if conditions.IsNull() {
		return obj.WithoutAt("status", "conditions")
	}
	return obj.WithAt(conditions, "status", "conditions")
}

// keepConditions replaces the new conditions of a type by the old ones, if there are equally many. If not, validation
// refuses the object.
func keepConditions(is, was object.Value, typ string) object.Value {
	var at []int
	for i, c := range is.Items() {
		if c.At("type").Str() == typ {
			at = append(at, i)
		}
	}
	var kept []object.Value
	for _, c := range was.Items() {
		if c.At("type").Str() == typ {
			kept = append(kept, c)
		}
	}
	if len(at) != len(kept) {
		return is
	}
	for i, c := range kept {
		is = is.WithItem(at[i], c)
	}
	return is
}

// dateConditions sets lastUpdateTime and lastTransitionTime of conditions that have none.
func dateConditions(is, was object.Value, now time.Time) object.Value {
	today := object.StringOf(now.UTC().Format(time.RFC3339))
	for i, c := range is.Items() {
		dated := c
		if c.At("lastUpdateTime").IsNull() {
			dated = dated.With("lastUpdateTime", today)
		}
		if c.At("lastTransitionTime").IsNull() {
			changed := today
			for _, o := range was.Items() {
				if since := o.At("lastTransitionTime"); !since.IsNull() && object.Equal(o.At("type"), c.At("type")) &&
					object.Equal(o.At("status"), c.At("status")) {
					changed = since
					break
				}
			}
			dated = dated.With("lastTransitionTime", changed)
		}
		is = is.WithItem(i, dated)
	}
	return is
}
