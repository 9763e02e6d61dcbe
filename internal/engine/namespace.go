package engine

import (
	"fmt"

	"plinth/internal/apierr"
	"plinth/internal/store"
)

// Namespaces is the store resource of namespaces.
const Namespaces = "/namespaces"

// admitNamespace refuses to create an object in a namespace that is not there or is being emptied (URI-5). The
// precondition that it returns keeps that true until the commit.
func (e *Engine) admitNamespace(rq *Request, name string) ([]store.Precondition, error) {
	if !rq.Resource.Namespaced || rq.Namespace == "" { // no namespace is for validation to refuse
		return nil, nil
	}
	key := store.Key{Resource: Namespaces, Name: rq.Namespace}
	ns, ok := e.store.Get(key)
	if !ok {
		return nil, apierr.NewNotFound(apierr.Type{Name: "namespaces"}, rq.Namespace)
	}
	if ns.Sidecar.Deleting {
		err := apierr.NewForbidden(rq.Resource.Type(), name,
			fmt.Sprintf("unable to create new content in namespace %s because it is being terminated", rq.Namespace))
		err.Details.Causes = []apierr.Cause{{
			Reason:  "NamespaceTerminating",
			Message: fmt.Sprintf("namespace %s is being terminated", rq.Namespace),
			Field:   "metadata.namespace",
		}}
		return nil, err
	}
	return []store.Precondition{{Key: key, Revision: ns.Revision}}, nil
}
