package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"plinth/internal/apierr"
	"plinth/internal/engine"
)

// verbs is the table of what can be done to resources. Entries without a function are verbs of the API that this server
// does not have.
var verbs = map[string]func(*Handler, *requestState) error{
	"create":           (*Handler).create,
	"get":              (*Handler).get,
	"list":             (*Handler).list,
	"watch":            (*Handler).watch,
	"update":           (*Handler).update,
	"patch":            (*Handler).patch,
	"delete":           (*Handler).delete,
	"deletecollection": (*Handler).deleteCollection,
	"purge":            (*Handler).purge,
	"proxy":            nil, // /api/v1/proxy/… was removed in Kubernetes 1.10; this is not the proxy subresource
	"":                 nil, // an HTTP method without a verb
}

// route finds the resource type of the request, and the function of its verb. A type that does not exist is 404; a verb
// that an existing type does not have is 405. It runs after authorization, as in the reference, so the answer to a user
// without rights does not reveal what exists.
func (h *Handler) route(rs *requestState) (func(*Handler, *requestState) error, error) {
	info := &rs.info
	types := h.Registry.Now()
	r := types.Find(info.group, info.version, info.resource)
	if name := info.resource + "." + info.group; r == nil && types.Unreadable()[name] != nil {
		return nil, apierr.NewUnavailable(fmt.Sprintf("the CustomResourceDefinition %q cannot be read", name))
	}
	if r == nil || info.verb == "proxy" || !fits(info, r) {
		if !types.HasBuiltinGroup(info.group) { // in the reference no handler is left after that of definitions
			return nil, errNotAPath
		}
		return nil, apierr.NewNoSuchPath()
	}
	rs.resource = r
	verb, err := h.verb(rs)
	if err == nil && r.Deprecated != "" {
		rs.warn([]string{r.Deprecated})
	}
	return verb, err
}

// verb finds the function of the verb for the type of the request.
func (h *Handler) verb(rs *requestState) (func(*Handler, *requestState) error, error) {
	info, r := &rs.info, rs.resource
	if info.subresource != "" {
		return h.routeSubresource(rs)
	}
	if rs.r.Method != http.MethodGet && rs.r.URL.RawQuery != "" && rs.query().Has(purgeParameter) {
		return rs.routePurge()
	}
	if info.verb == "watch" && !info.watchPath && has(r.Verbs, "list") && !has(r.Verbs, "watch") {
		return func(*Handler, *requestState) error {
			err := apierr.NewMethodNotAllowed()
			err.Message = "watch is not supported on resources of kind " + strconv.Quote(r.Name)
			err.Details.Group, err.Details.Kind = r.Group, r.Name
			return err
		}, nil
	}
	if info.verb == "get" && rs.r.Method == http.MethodHead || !has(r.Verbs, info.verb) {
		return nil, apierr.NewMethodNotAllowed()
	}
	switch {
	case info.watchPath && rs.r.Method != http.MethodGet:
		return nil, apierr.NewMethodNotAllowed()
	case info.verb == "create" && info.name != "", (info.verb == "update" || info.verb == "patch") && info.name == "":
		return nil, apierr.NewMethodNotAllowed()
	case r.Namespaced && !info.scoped && (info.verb == "create" || info.verb == "deletecollection"):
		return nil, apierr.NewMethodNotAllowed() // the collection over all namespaces can only be read
	case rs.r.Method == http.MethodHead:
		return nil, apierr.NewMethodNotAllowed()
	}
	if info.scoped && info.namespace == "" && has(objectVerbs, info.verb) { // an empty segment
		return nil, apierr.NewBadRequest("Namespace parameter required.")
	}
	return verbs[info.verb], nil
}

// routeSubresource is verb for URLs below an object.
func (h *Handler) routeSubresource(rs *requestState) (func(*Handler, *requestState) error, error) {
	info, r := &rs.info, rs.resource
	if info.watchPath {
		return nil, apierr.NewNoSuchPath()
	}
	rs.subresource = r.Subresource(info.subresource)
	if rs.subresource != nil && rs.subresource.Connection != nil {
		return routeConnection(rs)
	}
	if rs.subresource == nil && r.Stored != nil && r.Stored.Custom {
		return nil, apierr.NewNotFound(r.Type(), info.name)
	}
	if rs.subresource == nil || info.rest != "" {
		return nil, apierr.NewNoSuchPath()
	}
	if info.name == "" && has(rs.subresource.Verbs, methodVerbs[rs.r.Method]) { // an empty segment
		return nil, apierr.NewBadRequest("name must be provided")
	}
	if !has(rs.subresource.Verbs, info.verb) || rs.r.Method == http.MethodHead {
		return nil, apierr.NewMethodNotAllowed()
	}
	return verbs[info.verb], nil
}

// has says whether a list of verbs contains a verb for which the server has a function.
func has(list []string, verb string) bool { return verbs[verb] != nil && slices.Contains(list, verb) }

// objectVerbs are the verbs on URLs of one object. A type with none of these verbs has no such URLs.
var objectVerbs = []string{"get", "update", "patch", "delete"}

// fits says whether a URL of this shape exists for the type.
func fits(info *requestInfo, r *engine.Resource) bool {
	// the name of a list or a watch without watchPath comes from its field selector, not from the URL
	onObject := info.name != "" && (info.verb != "list" && info.verb != "watch" || info.watchPath)
	switch {
	case info.scoped != r.Namespaced && (info.scoped || onObject):
		return false
	case r.Namespaced && !info.scoped && !slices.Contains(r.Verbs, "list"):
		return false // only lists span all namespaces
	case r.Namespaced && !info.scoped && r.Stored != nil && r.Stored.Custom && info.verb != "list" && info.verb != "watch":
		return false // the reference has a path for each verb of a custom type, and not one for each URL
	case onObject && info.subresource == "":
		return slices.ContainsFunc(r.Verbs, func(v string) bool { return slices.Contains(objectVerbs, v) })
	}
	return true
}

// request returns the request in the form that the engine takes.
func (rs *requestState) request() *engine.Request {
	info := &rs.info
	rq := &engine.Request{
		Resource: rs.resource, Subresource: rs.subresource, Name: info.name, User: rs.user, Verb: info.verb,
		UserAgent: rs.r.UserAgent(), Authorizer: rs.h.Authorizer, Impersonator: rs.actor, AuditID: rs.auditID,
	}
	if rs.resource.Namespaced {
		rq.Namespace = info.namespace
	}
	if rs.record != nil {
		rq.Annotations = rs.record
	}
	rs.recordBody(rq)
	return rq
}
