package admission

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"

	"plinth/internal/engine"
)

// newDefaultIngressClass makes the plugin DefaultIngressClass: an Ingress that names no class gets the one that is
// marked as the default.
func newDefaultIngressClass(c *Config) (steps, error) {
	class := c.objects.defaultOf(kindOf{"networking.k8s.io", "v1", "ingressclasses"},
		annotated(networkingv1.AnnotationIsDefaultIngressClass), newest)
	return steps{admit: func(ctx context.Context, a *engine.Attributes) error {
		if a.Operation != engine.OperationCreate || !about(a, "networking.k8s.io", "ingresses", "") ||
			!a.Object.At("spec", "ingressClassName").IsNull() {
			return nil
		}
		if _, named := a.Object.At("metadata", "annotations").Get(networkingv1beta1.AnnotationIngressClass); named {
			return nil
		}
		found, err := class(ctx, a)
		if !found.IsNull() {
			a.Object = a.Object.WithAt(found.At("metadata", "name"), "spec", "ingressClassName")
		}
		return err
	}}, nil
}
