package operators

import (
	"fmt"

	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"plinth/conformance/internal/harness"
)

// approvals sets the condition that approves a request as a user who may write the status: cert-manager's webhook asks
// the server, while the server waits for the webhook, whether the user may approve for the issuer.
func approvals(s *site) {
	client, err := kubernetes.NewForConfig(s.config)
	s.must(err)
	s.permit(client, "writer", rbac.PolicyRule{Verbs: []string{"get", "update"}, APIGroups: []string{"cert-manager.io"},
		Resources: []string{"certificaterequests", "certificaterequests/status"}})
	user := rest.AnonymousClientConfig(s.config)
	user.BearerToken, user.WarningHandler = harness.UserToken, s.warnings
	theirs, err := dynamic.NewForConfig(user)
	s.must(err)
	mapping, err := s.mapper.RESTMapping(schema.GroupKind{Group: "cert-manager.io", Kind: "CertificateRequest"}, "v1")
	s.must(err)
	resource := theirs.Resource(mapping.Resource).Namespace("default")
	s.eventually("somebody may read the request", func() error { // the reference sees the roles a moment later
		_, err := resource.Get(s.Context(), "request", metav1.GetOptions{})
		return err
	})
	approve := func() (*unstructured.Unstructured, error) {
		request, err := resource.Get(s.Context(), "request", metav1.GetOptions{})
		s.must(err)
		s.must(unstructured.SetNestedSlice(request.Object, []any{map[string]any{"type": "Approved", "status": "True",
			"reason": "Tested", "message": "by a user", "lastTransitionTime": "2026-01-01T00:00:00Z"}}, "status", "conditions"))
		return resource.UpdateStatus(s.Context(), request, metav1.UpdateOptions{FieldManager: "approver"})
	}
	s.note("approve without permission", approve)
	s.permit(client, "approver", rbac.PolicyRule{Verbs: []string{"approve"}, APIGroups: []string{"cert-manager.io"},
		Resources: []string{"signers"}, ResourceNames: []string{"issuers.cert-manager.io/default.selfsigned"}})
	var approved *unstructured.Unstructured
	s.eventually("the approval is admitted", func() (err error) { // the webhook remembers for a second that it was not
		approved, err = approve()
		return err
	})
	s.warnings.take()
	s.note("approve", func() (*unstructured.Unstructured, error) { return approved, nil })
}

// permit gives somebody the permissions of a rule.
func (s *site) permit(client kubernetes.Interface, name string, rule rbac.PolicyRule) {
	s.Helper()
	object := metav1.ObjectMeta{Name: fmt.Sprint("test-", name)}
	_, err := client.RbacV1().ClusterRoles().Create(s.Context(),
		&rbac.ClusterRole{ObjectMeta: object, Rules: []rbac.PolicyRule{rule}}, metav1.CreateOptions{})
	s.must(err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(s.Context(), &rbac.ClusterRoleBinding{ObjectMeta: object,
		Subjects: []rbac.Subject{{Kind: "User", APIGroup: rbac.GroupName, Name: "somebody"}},
		RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: object.Name}}, metav1.CreateOptions{})
	s.must(err)
}
