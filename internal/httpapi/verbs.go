package httpapi

import (
	"fmt"
	"net/http"
	"slices"

	"plinth/internal/apierr"
	"plinth/internal/engine"
)

// verbs are what can be done to resources. Those without a function are verbs of the API that nothing here has.
var verbs = map[string]func(*Handler, *exchange) error{
	"create":           (*Handler).create,
	"get":              (*Handler).get,
	"list":             (*Handler).list,
	"watch":            (*Handler).watch,
	"update":           (*Handler).update,
	"patch":            (*Handler).patch,
	"delete":           (*Handler).delete,
	"deletecollection": (*Handler).deleteCollection,
	"proxy":            nil, // /api/v1/proxy/… has been gone since Kubernetes 1.10; the subresource is another thing
	"":                 nil, // an HTTP method that is no verb
}

// route finds the resource type of the target, and the function of its verb. What is not there is 404, what is there
// and cannot be done 405.
func (h *Handler) route(x *exchange) (func(*Handler, *exchange) error, error) {
	t := &x.target
	types := h.Registry.Now()
	r := types.Find(t.group, t.version, t.resource)
	if r == nil || t.verb == "proxy" || !fits(t, r) {
		if !types.HasBuiltinGroup(t.group) { // the reference asks for a definition, and then nobody is left to ask
			return nil, errNotAPath
		}
		return nil, apierr.NewNoSuchPath()
	}
	x.resource = r
	verb, err := h.verb(x)
	if err == nil && r.Deprecated != "" {
		x.warn([]string{r.Deprecated})
	}
	return verb, err
}

// verb finds the function of the verb for the type that the target is of.
func (h *Handler) verb(x *exchange) (func(*Handler, *exchange) error, error) {
	t, r := &x.target, x.resource
	if t.subresource != "" {
		return h.routeSubresource(x)
	}
	if t.verb == "get" && x.r.Method == http.MethodHead || !has(r.Verbs, t.verb) {
		return nil, apierr.NewMethodNotAllowed()
	}
	switch {
	case t.watchPath && x.r.Method != http.MethodGet:
		return nil, apierr.NewMethodNotAllowed()
	case t.verb == "create" && t.name != "", (t.verb == "update" || t.verb == "patch") && t.name == "":
		return nil, apierr.NewMethodNotAllowed()
	case r.Namespaced && !t.scoped && (t.verb == "create" || t.verb == "deletecollection"):
		return nil, apierr.NewMethodNotAllowed() // all namespaces can only be looked at
	case x.r.Method == http.MethodHead:
		return nil, apierr.NewMethodNotAllowed()
	}
	if t.scoped && t.namespace == "" && has(objectVerbs, t.verb) { // an empty segment
		return nil, apierr.NewBadRequest("Namespace parameter required.")
	}
	return verbs[t.verb], nil
}

// routeSubresource does the same below an object.
func (h *Handler) routeSubresource(x *exchange) (func(*Handler, *exchange) error, error) {
	t, r := &x.target, x.resource
	if t.watchPath {
		return nil, apierr.NewNoSuchPath()
	}
	if m, ok := h.Missing(r, t.subresource); ok {
		return nil, h.missing(x, m)
	}
	x.subresource = r.Subresource(t.subresource)
	if x.subresource == nil && r.Stored != nil && r.Stored.Custom {
		return nil, apierr.NewNotFound(r.Type(), t.name)
	}
	if x.subresource == nil || t.rest != "" {
		return nil, apierr.NewNoSuchPath()
	}
	if t.name == "" && has(x.subresource.Verbs, methodVerbs[x.r.Method]) { // an empty segment
		return nil, apierr.NewBadRequest("name must be provided")
	}
	if !has(x.subresource.Verbs, t.verb) || x.r.Method == http.MethodHead {
		return nil, apierr.NewMethodNotAllowed()
	}
	return verbs[t.verb], nil
}

// missing is the answer of a subresource that the API has and this server has not (URI-7). What would be refused anyway is
// refused in the same way, and it is told of objects that are there.
func (h *Handler) missing(x *exchange, m Missing) error {
	r, t := x.resource, &x.target
	switch {
	case t.rest != "" && !m.Below:
		return apierr.NewNoSuchPath()
	case !slices.Contains(m.Methods, x.r.Method):
		return apierr.NewMethodNotAllowed()
	case m.Connect && len(x.query()["dryRun"]) > 0:
		return apierr.NewBadRequest("dryRun is not supported")
	}
	if _, err := h.Engine.Get(x.ctx, x.request(), ""); err != nil {
		return err
	}
	return notImplemented(fmt.Sprintf("%s of %s %q is not available here: %s", t.subresource, r.Name, t.name, m.Why),
		&apierr.Details{Name: t.name, Group: r.Group, Kind: r.Name})
}

// notImplemented is 501: the API has it, this server has not.
func notImplemented(message string, details *apierr.Details) error {
	return &apierr.Error{Code: http.StatusNotImplemented, Reason: "NotImplemented", Message: message, Details: details}
}

func has(list []string, verb string) bool { return verbs[verb] != nil && slices.Contains(list, verb) }

// objectVerbs are the verbs on URLs of one object; a type that has none of them has no such URLs.
var objectVerbs = []string{"get", "update", "patch", "delete"}

// fits says whether a URL of this shape exists for the type.
func fits(t *target, r *engine.Resource) bool {
	onObject := t.name != "" && (t.verb != "list" && t.verb != "watch" || t.watchPath) // else the name is a selector's
	switch {
	case t.scoped != r.Namespaced && (t.scoped || onObject):
		return false
	case r.Namespaced && !t.scoped && !slices.Contains(r.Verbs, "list"):
		return false // only lists span all namespaces
	case onObject && t.subresource == "":
		return slices.ContainsFunc(r.Verbs, func(v string) bool { return slices.Contains(objectVerbs, v) })
	}
	return true
}

// request tells the engine what the exchange is about.
func (x *exchange) request() *engine.Request {
	t := &x.target
	rq := &engine.Request{
		Resource: x.resource, Subresource: x.subresource, Name: t.name, User: x.user,
		UserAgent: x.r.UserAgent(), Authorizer: x.h.Authorizer,
	}
	if x.resource.Namespaced {
		rq.Namespace = t.namespace
	}
	x.recordBody(rq)
	return rq
}
