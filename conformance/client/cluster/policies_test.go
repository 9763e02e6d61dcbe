package cluster

import (
	"context"
	"fmt"
	"strings"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// policies checks that the expressions of an admission policy are compared with the types that they are about: by
// kube-controller-manager, or by Plinth. The policy has no binding, so that it stops nothing.
func (s *scene) policies() {
	policies := s.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	name := s.namespace + ".example.com"
	_, err := policies.Create(s.Context(), &admissionregistration.ValidatingAdmissionPolicy{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec: admissionregistration.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistration.MatchResources{
				ResourceRules: []admissionregistration.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistration.RuleWithOperations{
						Operations: []admissionregistration.OperationType{"CREATE"},
						Rule: admissionregistration.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"},
							Resources: []string{"deployments"}},
					},
				}},
			},
			Validations: []admissionregistration.Validation{
				{Expression: "object.spec.replicas > 1"}, {Expression: "object.spec.replica > 1"},
			},
		},
	}, meta.CreateOptions{})
	s.must(err)
	s.wait("the expressions of the policy are checked", func(ctx context.Context) error {
		policy, err := policies.Get(ctx, name, meta.GetOptions{})
		if err != nil {
			return err
		}
		checked := policy.Status.TypeChecking
		if policy.Status.ObservedGeneration != policy.Generation || checked == nil {
			return fmt.Errorf("the status is %v", policy.Status)
		}
		found := checked.ExpressionWarnings
		if len(found) != 1 || found[0].FieldRef != "spec.validations[1].expression" ||
			!strings.Contains(found[0].Warning, "undefined field 'replica'") {
			return fmt.Errorf("the warnings are %v", found)
		}
		return nil
	})
	// It stays: if both controllers run, the second one may still be about to write its status.
}
