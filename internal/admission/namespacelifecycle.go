package admission

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/apierr"
	"plinth/internal/engine"
)

// namespaceLifecycle is the plugin NamespaceLifecycle (URI-5): nothing is created in a namespace that does not exist or
// is being deleted, and three namespaces cannot be deleted. Where the reference looks at a cache and waits for it, the
// engine reads the store, and makes the commit depend on the namespace.
func namespaceLifecycle(ctx context.Context, a *engine.Attributes) error {
	r := a.Request.Resource
	switch {
	case a.Operation == engine.OperationDelete && r.Group == "" && r.Name == "namespaces":
		switch a.Name {
		case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
			return apierr.NewForbidden(r.Type(), a.Name, "this namespace may not be deleted")
		}
	case a.Operation == engine.OperationCreate && r.Answer == nil: // a review must not disclose which namespaces exist
		return a.RequireNamespace(ctx)
	}
	return nil
}
