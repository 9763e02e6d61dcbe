package builtin

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/builtin/columns"
	"plinth/internal/builtin/convert"
	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

func certificates(c Config) group {
	return group{"certificates.k8s.io", []kind{
		{
			name: "certificatesigningrequests", kind: "CertificateSigningRequest", short: "csr",
			rules: validation.CertificateSigningRequest,
			untouched: map[string]string{
				"": "spec status", "status": "spec status.conditions", "approval": "spec status.certificate",
			},
			versions: []version{
				of[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList](),
			},
			cluster: true, naming: segment,
			status: statusAndMeta, onStatus: keepApproval(c.Now),
			onUpdate: func(obj, old object.Value) object.Value { return keep(obj, old, "spec") },
			fields:   []selectable{text("spec.signerName")},
			table:    columns.CertificateSigningRequests,
			special: func(r *engine.Resource) {
				r.Subresources = append(r.Subresources, approval(r, c.Now))
				if c.Issued != nil {
					r.Subresource("status").Committed = countDuration(c.Issued)
				}
				prepare := r.PrepareCreate
				r.PrepareCreate = func(obj object.Value, by access.User) object.Value {
					return requestedBy(prepare(obj, by), by)
				}
			},
		},
		{
			name: "clustertrustbundles", kind: "ClusterTrustBundle", stored: "v1beta1",
			gates: []features.Gate{features.ClusterTrustBundle},
			rules: validation.ClusterTrustBundle,
			versions: []version{
				of[certificatesv1.ClusterTrustBundle, certificatesv1.ClusterTrustBundleList](),
				of[certificatesv1beta1.ClusterTrustBundle, certificatesv1beta1.ClusterTrustBundleList](),
			},
			cluster: true, naming: segment, conditional: true,
			fields: []selectable{text("spec.signerName")},
			table:  columns.ClusterTrustBundles,
		},
		{
			name: "podcertificaterequests", kind: "PodCertificateRequest", stored: "v1beta1",
			gates:    []features.Gate{features.PodCertificateRequest},
			defaults: defaults.PodCertificateRequest, rules: validation.PodCertificateRequest,
			untouched: statusAlone,
			versions: []version{
				of[certificatesv1.PodCertificateRequest, certificatesv1.PodCertificateRequestList](),
				of[certificatesv1beta1.PodCertificateRequest, certificatesv1beta1.PodCertificateRequestList]().
					by(convert.PodCertificateRequestV1beta1ToV1, convert.PodCertificateRequestV1ToV1beta1),
			},
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

// countDuration reports the certificates that a write to the status of a CertificateSigningRequest issues, if the
// request has a duration. The duration counts as honored if that of the certificate differs by less than five minutes
// and by less than a twentieth.
func countDuration(issued func(signer string, honored bool)) func(obj, old object.Value) {
	return func(obj, old object.Value) {
		spec, certificate := old.At("spec"), obj.At("status", "certificate").Str()
		wanted := spec.At("expirationSeconds")
		if old.At("status", "certificate").Str() != "" || wanted.IsNull() || certificate == "" {
			return
		}
		honored := false
		text, err := base64.StdEncoding.DecodeString(certificate)
		if err == nil {
			honored = lasts(text, time.Duration(wanted.Int())*time.Second)
		}
		issued(spec.At("signerName").Str(), honored)
	}
}

// lasts says whether the first certificate of a PEM bundle is valid for about this time.
func lasts(bundle []byte, wanted time.Duration) bool {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return false
		}
		difference := wanted - certificate.NotAfter.Sub(certificate.NotBefore)
		return difference.Abs() < 5*time.Minute+wanted/20
	}
	return false
}

// requestedBy sets the user who requests the certificate, and ignores what the client sends for it.
func requestedBy(obj object.Value, by access.User) object.Value {
	return obj.With("spec", obj.At("spec").Edit(userInfo(by).Members(), requester...))
}

var requester = []string{"username", "uid", "groups", "extra"}

// keepApproval keeps approval and denial in a write to the status, and sets the times of the conditions.
func keepApproval(now func() time.Time) func(obj, old object.Value) object.Value {
	return func(obj, old object.Value) object.Value {
		before, current := old.At("status", "conditions"), obj.At("status", "conditions")
		for _, verdict := range []string{"Approved", "Denied"} {
			current = keepConditions(current, before, verdict)
		}
		return withConditions(obj, dateConditions(current, before, now()))
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
		Validate: func(_ context.Context, _, obj, old object.Value) field.ErrorList { return rule(obj, old) },
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
func keepConditions(now, before object.Value, typ string) object.Value {
	var at []int
	for i, c := range now.Items() {
		if c.At("type").Str() == typ {
			at = append(at, i)
		}
	}
	var kept []object.Value
	for _, c := range before.Items() {
		if c.At("type").Str() == typ {
			kept = append(kept, c)
		}
	}
	if len(at) != len(kept) {
		return now
	}
	for i, c := range kept {
		now = now.WithItem(at[i], c)
	}
	return now
}

// dateConditions sets lastUpdateTime and lastTransitionTime of conditions that have none.
func dateConditions(current, before object.Value, now time.Time) object.Value {
	today := object.StringOf(now.UTC().Format(time.RFC3339))
	for i, c := range current.Items() {
		dated := c
		if c.At("lastUpdateTime").IsNull() {
			dated = dated.With("lastUpdateTime", today)
		}
		if c.At("lastTransitionTime").IsNull() {
			changed := today
			for _, o := range before.Items() {
				if since := o.At("lastTransitionTime"); !since.IsNull() && object.Equal(o.At("type"), c.At("type")) &&
					object.Equal(o.At("status"), c.At("status")) {
					changed = since
					break
				}
			}
			dated = dated.With("lastTransitionTime", changed)
		}
		current = current.WithItem(i, dated)
	}
	return current
}
