package httpapi

import (
	"fmt"
	"net/http"
	"slices"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/object"
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
	if m, ok := h.Missing(r, info.subresource); ok {
		return nil, h.missing(rs, m)
	}
	rs.subresource = r.Subresource(info.subresource)
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

// missing answers for a subresource that the API has and this server does not (URI-7). It refuses a request as the
// reference would, and answers 404 if the object does not exist.
func (h *Handler) missing(rs *requestState, m Missing) error {
	r, info := rs.resource, &rs.info
	switch {
	case info.rest != "" && !m.Below:
		return apierr.NewNoSuchPath()
	case !slices.Contains(m.Methods, rs.r.Method):
		return apierr.NewMethodNotAllowed()
	case m.Connect && len(rs.query()["dryRun"]) > 0:
		return apierr.NewBadRequest("dryRun is not supported")
	}
	if m.Creates && info.verb != "create" {
		if err := h.mayCreate(rs); err != nil {
			return err
		}
	}
	rq := rs.request()
	if m.Connect {
		connection := *rq
		connection.Subresource = &engine.Subresource{Name: info.subresource}
		result, err := h.Engine.Connect(rs.ctx, &connection, object.Nil)
		rs.warn(result.GetWarnings())
		if err != nil {
			return err
		}
	}
	if _, err := h.Engine.Get(rs.ctx, rq, ""); err != nil {
		return err
	}
	return notImplemented(fmt.Sprintf("%s of %s %q is not available here: %s", info.subresource, r.Name, info.name, m.Why),
		&apierr.Details{Name: info.name, Group: r.Group, Kind: r.Name})
}

// mayCreate refuses a request that was authorized for another verb unless its user also has the verb create: a browser
// opens a WebSocket by GET, and a user who may only read Pods must not run commands in them. As in the reference, the
// message is the reason of the authorizer alone.
func (h *Handler) mayCreate(rs *requestState) error {
	a := rs.asked
	a.Verb = "create"
	switch decision, reason, err := h.Authorizer.Authorize(rs.ctx, &a); {
	case decision == access.Allow:
		return nil
	case err != nil:
		return err
	default:
		return apierr.NewForbidden(rs.resource.Type(), rs.info.name, reason)
	}
}

// notImplemented is 501: the API has it, this server does not.
func notImplemented(message string, details *apierr.Details) error {
	return &apierr.Error{Code: http.StatusNotImplemented, Reason: "NotImplemented", Message: message, Details: details}
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
		UserAgent: rs.r.UserAgent(), Authorizer: rs.h.Authorizer,
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
