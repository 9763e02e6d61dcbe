package columns

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/util/duration"

	"plinth/object"
)

// certificates.k8s.io
var (
	CertificateSigningRequests = of(name, age,
		str("SignerName", doc[certificatesv1beta1.CertificateSigningRequestSpec]("signerName"),
			textOr(none, "spec", "signerName")),
		str("Requestor", doc[certificatesv1beta1.CertificateSigningRequestSpec]("request"), text("spec", "username")),
		str("RequestedDuration", doc[certificatesv1beta1.CertificateSigningRequestSpec]("expirationSeconds"),
			func(obj object.Value) any {
				if v := obj.At("spec", "expirationSeconds"); !v.IsNull() {
					return duration.HumanDuration(time.Duration(v.Int()) * time.Second)
				}
				return none
			}),
		str("Condition", doc[certificatesv1beta1.CertificateSigningRequestStatus]("conditions"), requestState),
	)

	ClusterTrustBundles = of(name, str("SignerName", doc[certificatesv1.ClusterTrustBundleSpec]("signerName"),
		textOr(none, "spec", "signerName")))

	PodCertificateRequests = of(name,
		str("PodName", doc[certificatesv1.PodCertificateRequestSpec]("podName"), text("spec", "podName")),
		str("ServiceAccountName", doc[certificatesv1.PodCertificateRequestSpec]("serviceAccountName"),
			text("spec", "serviceAccountName")),
		str("NodeName", doc[certificatesv1.PodCertificateRequestSpec]("nodeName"), text("spec", "nodeName")),
		str("SignerName", doc[certificatesv1.PodCertificateRequestSpec]("signerName"), text("spec", "signerName")),
		str("State", "Is the request Pending, Issued, Denied, or Failed?", func(obj object.Value) any {
			state := "Pending"
			for _, c := range obj.At("status", "conditions").Items() {
				if t := c.At("type").Str(); t == "Issued" || t == "Denied" || t == "Failed" {
					state = t
				}
			}
			return state
		}),
		str("UnverifiedUserAnnotations", doc[certificatesv1.PodCertificateRequestSpec]("unverifiedUserAnnotations"),
			labels("spec", "unverifiedUserAnnotations")),
	)
)

func requestState(obj object.Value) any {
	conditions := obj.At("status", "conditions")
	has := func(typ string) bool {
		_, ok := condition(conditions, typ)
		return ok
	}
	state := "Pending"
	if has("Denied") {
		state = "Denied"
	} else if has("Approved") {
		state = "Approved"
	}
	if has("Failed") {
		state += ",Failed"
	}
	if obj.At("status", "certificate").Len() > 0 {
		state += ",Issued"
	}
	return state
}
