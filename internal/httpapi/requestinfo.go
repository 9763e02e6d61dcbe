package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/fields"

	"plinth/internal/access"
)

// requestInfo is a parsed URL (URI-2). For paths outside of the API only path and verb are set.
type requestInfo struct {
	path       string
	verb       string // "list", "watch", …; "" for a method without a verb; outside of resources the method in lower case
	isResource bool

	group, version string
	namespace      string // set for a Namespace itself, too, because authorization needs it
	scoped         bool   // the path begins with namespaces/NS, followed by a resource in it
	resource, name string
	subresource    string
	rest           string // what follows the subresource
	watchPath      bool   // /api/v1/watch/…, the deprecated form of ?watch=1
}

// Parse returns what a request asks for, as authorization sees it, without the user.
func Parse(r *http.Request) access.Attributes {
	info := parseRequestInfo(r.Method, r.URL.Path, r.URL.Query)
	return access.Attributes{
		Verb: info.verb, IsResource: info.isResource, Path: info.path, Group: info.group, Version: info.version,
		Resource: info.resource, Subresource: info.subresource, Namespace: info.namespace, Name: info.name,
	}
}

// segment cuts the first segment off a path.
func segment(path string) (first, rest string, more bool) { return strings.Cut(path, "/") }

// parseRequestInfo parses a URL path as the reference's RequestInfoFactory does. It looks nothing up, so authorization
// sees the same attributes whether or not an object exists. query is called only where the verb depends on it, because
// parsing the query takes longer than parsing the path.
//
//	/api/v1/namespaces/NS/pods/NAME/status      core group, v1; namespace NS; pods, NAME, status
//	/apis/apps/v1/deployments?watch=1           group apps, v1; all namespaces; deployments; verb watch
//	/api/v1/namespaces/NS                       namespaces, NS; namespace NS; not scoped
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
	case first == "proxy" && more: // the deprecated form of the proxy subresource; no verb serves it
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
	switch {
	case info.name == "":
		info.refine(query)
	case info.verb == "create" && info.subresource == "" && query().Has(purgeParameter):
		info.verb = "purge" // a right of its own: who may create objects may not remove what they were
	}
	return info
}

var methodVerbs = map[string]string{
	http.MethodPost: "create", http.MethodGet: "get", http.MethodHead: "get", http.MethodPut: "update",
	http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// refine finds the verb on a collection. A field selector of a single name is authorized as that name, so that a user
// who may read one object can list and watch it.
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

// selectedName returns the name if a field selector selects a single name, or "".
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

// scope is the scope of the request in the reference's metrics.
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

// class returns the class of the request for the limits on requests under way. Long-running requests have neither a
// deadline nor a slot: a few hundred watches would otherwise hold all slots as long as they last. As in the reference,
// a log is long-running even if it is not followed. A purge rewrites as many files as there are, and is of little use
// by halves.
func (info *requestInfo) class() Class {
	switch info.verb {
	case "watch", "proxy", "purge":
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

// connects says whether a subresource is a connection to a node or to a Pod.
func connects(subresource string) bool {
	switch subresource {
	case "exec", "attach", "portforward", "proxy", "log":
		return true
	}
	return false
}
