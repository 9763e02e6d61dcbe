package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// requestInfo is what a URL is about (URI-2). For paths outside of the API only path and verb are set.
type requestInfo struct {
	path       string
	verb       string // "list", "watch", …; "" for a method that is no verb; outside of resources the method in lower case
	isResource bool

	group, version string
	namespace      string // also of a Namespace itself, as authorization sees it
	scoped         bool   // the URL goes through namespaces/NS
	resource, name string
	subresource    string
	rest           string // what follows the subresource
	watchPath      bool   // /api/v1/watch/…, the old way
}

// segment cuts the first segment off a path.
func segment(path string) (first, rest string, more bool) { return strings.Cut(path, "/") }

// parseRequestInfo takes a URL path apart, the way the reference's RequestInfo does: nothing is looked up, so
// authorization sees the same attributes for what exists and for what does not. query is asked for only where it
// decides.
func parseRequestInfo(method, path string, query func() url.Values) requestInfo {
	info := requestInfo{path: path, verb: strings.ToLower(method)}
	prefix, rest, ok := segment(strings.Trim(path, "/"))
	if !ok || prefix != "api" && prefix != "apis" {
		return info
	}
	var group, version string
	if prefix == "apis" {
		if group, rest, ok = segment(rest); !ok {
			return info
		}
	}
	if version, rest, ok = segment(rest); !ok {
		return info
	}
	info.isResource, info.group, info.version = true, group, version
	info.verb = methodVerbs[method]
	first, after, more := segment(rest)
	switch {
	case first == "watch" && more:
		info.verb, info.watchPath = "watch", true
		rest = after
		first, after, more = segment(rest)
	case first == "proxy" && more: // the oldest way to a proxy, which leads nowhere
		info.verb = "proxy"
		rest = after
		first, after, more = segment(rest)
	}
	if first == "namespaces" && more {
		namespace, below, deeper := segment(after)
		info.namespace = namespace
		if deeper {
			if third, _, _ := segment(below); third != "status" && third != "finalize" {
				info.scoped = true
				rest = below
			}
		}
	}
	info.resource, rest, more = segment(rest)
	if more {
		info.name, rest, more = segment(rest)
	}
	if more {
		info.subresource, info.rest, _ = segment(rest)
	}
	if info.name == "" {
		info.refine(query)
	}
	return info
}

var methodVerbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodHead: "get", http.MethodPut: "update",
	http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// refine tells the verbs on collections apart. A selection of one name is authorized as that name.
func (info *requestInfo) refine(query func() url.Values) {
	switch info.verb {
	case "delete":
		info.verb = "deletecollection"
	case "get":
		values := query()
		info.verb = "list"
		if isTrue(values, "watch") {
			info.verb = "watch"
		}
		if selector := first(values, "fieldSelector"); strings.Contains(selector, "metadata.name") {
			info.name = selectedName(selector)
		}
	}
}

// selectedName is the one name that a field selector lets through, or "".
func selectedName(selector string) string {
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return ""
	}
	name, _ := parsed.RequiresExactMatch("metadata.name")
	if name == "." || name == ".." || strings.ContainsAny(name, "/%") {
		return ""
	}
	return name
}

// scope is what the reference's metrics call how much a request is about.
func (info *requestInfo) scope() string {
	switch {
	case !info.isResource:
		return ""
	case info.name != "" || info.verb == "create":
		return "resource"
	case info.namespace != "":
		return "namespace"
	}
	return "cluster"
}

// class is what the request is to the limits.
func (info *requestInfo) class() Class {
	switch info.verb {
	case "watch", "proxy":
		return LongRunning
	case "get", "list", "head", "options":
		if info.isResource && connects(info.subresource) {
			return LongRunning
		}
		return ReadOnly
	}
	if info.isResource && connects(info.subresource) {
		return LongRunning
	}
	return Mutating
}

// probes says whether somebody asks for the health of the server: the paths of the reference's flow schema "probes".
func (info *requestInfo) probes() bool {
	return info.verb == "get" && (info.path == "/healthz" || info.path == "/livez" || info.path == "/readyz")
}

// connects says whether a subresource is a connection to somewhere else.
func connects(subresource string) bool {
	switch subresource {
	case "exec", "attach", "portforward", "proxy", "log":
		return true
	}
	return false
}
