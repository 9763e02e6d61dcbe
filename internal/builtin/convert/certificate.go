package convert

import "plinth/object"

// In v1beta1 a PodCertificateRequest has two more fields, in which a client may send its key instead of a request in
// PKCS #10. v1 has no place for them.
var keyFields = []string{"pkixPublicKey", "proofOfPossession"}

// PodCertificateRequestV1beta1ToV1 converts a PodCertificateRequest from certificates.k8s.io/v1beta1 to v1.
func PodCertificateRequestV1beta1ToV1(obj object.Value) (object.Value, error) {
	for _, key := range keyFields {
		obj = obj.WithoutAt("spec", key)
	}
	return obj.With("apiVersion", object.StringOf("certificates.k8s.io/v1")), nil
}

// PodCertificateRequestV1ToV1beta1 converts a PodCertificateRequest from certificates.k8s.io/v1 to v1beta1.
func PodCertificateRequestV1ToV1beta1(obj object.Value) (object.Value, error) {
	for _, key := range keyFields {
		obj = obj.WithAt(object.Nil, "spec", key)
	}
	return obj.With("apiVersion", object.StringOf("certificates.k8s.io/v1beta1")), nil
}
