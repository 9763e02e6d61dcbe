package attempts

import (
	"encoding/json"
	"fmt"
	"net/http"
	neturl "net/url"
	"slices"
	"strings"
)

// public are the paths that every client may read.
var public = []string{"/healthz", "/livez", "/readyz", "/version", "/version/", "/console/"}

// paths are paths outside of the API, and misleading ones.
var paths = []string{
	"/", "/index.html", "/api", "/api/", "/apis", "/apis/", "/apis/apps", "/apis/apps/v1", "/api/v1",
	"/apis/nothing.example.com/v1", "/api/v2",
	"/version", "/version/", "/version/x", "/healthz", "/healthz/", "/healthz/ping", "/livez", "/livez/", "/livez/ping",
	"/livez/nothing",
	"/readyz", "/readyz/ping", "/readyz/shutdown", "/healthz?verbose", "/livez?exclude=ping", "/metrics", "/metrics/",
	"/metrics/slis",
	"/debug/pprof", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/flags/v",
	"/debug/api_priority_and_fairness/dump_requests",
	"/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/.well-known/openid-configuration", "/openid/v1/jwks", "/logs",
	"/logs/", "/statusz", "/flagz",
	"/configz", "/swagger.json", "/ui", "/console", "/console/", "/favicon.ico", "/robots.txt", "/proxy", "/exec",
	"/token", "/nothing",
	"//api", "//healthz", "/healthz//", "/api//v1/pods", "/apis//v1/pods", "//api/v1/secrets", "/api/v1//secrets",
	"/./api/v1/secrets",
	"/healthz/../metrics", "/healthz/..%2fmetrics", "/healthz/%2e%2e/metrics", "/%68ealthz", "/healthz%00", "/healthz;a=b",
	"/HEALTHZ", "/healthz%2f",
	"/healthz?/../../metrics", "/version/../metrics", "/version/..%2f..%2fapi", "/livez/ping/../../metrics",
	"/readyz%3fverbose", "/metrics%20", "/metrics/.",
	"/api/v1/namespaces/team/../other/secrets", "/api/v1/namespaces/team%2f..%2fother/secrets",
	"/api/v1/namespaces/team/configmaps/..%2f..%2fsecrets",
	"/api/v1/namespaces/team/configmaps/..%2f..%2f..%2fother%2fsecrets%2fx",
	"/api/v1/namespaces/team/configmaps/x/../../secrets", "/api/v1/namespaces/team//secrets",
	"/api/v1/namespaces//secrets", "/api/v1/namespaces//configmaps", "/api/v1/namespaces/team/configmaps/",
	"/api/v1/namespaces/team/configmaps//", "/api/v1/namespaces/team/secrets%00",
	"/api/v1/namespaces/team/Secrets", "/api/v1/namespaces/TEAM/configmaps", "/api/v1/namespaces/%74eam/configmaps",
	"/api/v1/namespaces/team/%63onfigmaps", "/api/v1/namespaces/team/configmaps%2fx",
	"/api/v1/namespaces/team/configmaps;x=secrets", "/api/v1/namespaces/team/configmaps,secrets",
	"/api/v1/namespaces/team/configmaps?namespace=other",
	"/api/v1/namespaces/team/configmaps?fieldSelector=metadata.namespace%3Dother",
	"/api/v1/configmaps?fieldSelector=metadata.namespace%3Dteam", "/api/v1/watch/secrets",
	"/api/v1/watch/namespaces/team/configmaps", "/api/v1/watch/namespaces/other/configmaps",
	"/api/v1/watch/namespaces/other/secrets/x",
	"/api/v1/proxy/namespaces/other/services/x", "/api/v1/nodes/x/proxy/", "/api/v1/nodes/x:10250/proxy/pods",
	"/api/v1/namespaces/other/services/https:x:443/proxy/a", "/api/v1/namespaces/other/pods/x:80/proxy/../../x",
	"/api/v1/namespaces/other/pods/x/exec?command=sh", "/api/v1/namespaces/other/pods/x/attach",
	"/api/v1/namespaces/other/pods/x/portforward", "/api/v1/namespaces/other/pods/x/log?follow=1",
	"/api/v1/namespaces/other/pods/x/nothing", "/api/v1/namespaces/other/things",
	"/apis/apps/v7/namespaces/other/deployments", "/apis/nothing.example.com/v1/namespaces/other/things/x",
}

// resourceURLs returns the URLs of all types that a server serves, in two namespaces: one in which the team has a role,
// and another.
func resourceURLs(get func(path string) ([]byte, error)) (urls []string, err error) {
	versions := []string{"/api/v1"}
	text, err := get("/apis")
	if err != nil {
		return nil, err
	}
	var groups struct {
		Groups []struct {
			Versions []struct{ GroupVersion string }
		}
	}
	if err := json.Unmarshal(text, &groups); err != nil {
		return nil, err
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			versions = append(versions, "/apis/"+v.GroupVersion)
		}
	}
	for _, version := range versions {
		text, err := get(version)
		if err != nil {
			return nil, err
		}
		var list struct {
			Resources []struct {
				Name       string
				Namespaced bool
			}
		}
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, err
		}
		for _, r := range list.Resources {
			resource, subresource, nested := strings.Cut(r.Name, "/")
			tail := "/x"
			if nested {
				tail += "/" + subresource
			}
			if !r.Namespaced {
				if !nested {
					urls = append(urls, version+"/"+resource)
				}
				urls = append(urls, version+"/"+resource+tail)
				continue
			}
			if !nested {
				urls = append(urls, version+"/"+resource, version+"/namespaces/team/"+resource,
					version+"/namespaces/other/"+resource)
			}
			urls = append(urls, version+"/namespaces/team/"+resource+tail, version+"/namespaces/other/"+resource+tail)
		}
	}
	slices.Sort(urls)
	return slices.Compact(urls), nil
}

// methods are tried on every URL; WATCH is a GET with watch=1.
var methods = []string{"GET", "WATCH", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "LOCK"}

// telling lists the rows whose status shows whether a credential is accepted.
var telling = []string{
	"GET /healthz", "GET /version", "GET /api", "GET /metrics", "GET /nothing", "GET /debug/pprof/",
	"GET /api/v1/namespaces/other/secrets", "GET /api/v1/namespaces/other/secrets/x",
	"WATCH /api/v1/secrets", "POST /api/v1/namespaces/other/configmaps", "PUT /api/v1/namespaces/other/configmaps/x",
	"PATCH /api/v1/namespaces/other/configmaps/x",
	"DELETE /api/v1/namespaces/other/configmaps/x", "DELETE /api/v1/namespaces/other/configmaps",
	"GET /api/v1/namespaces/other/pods/x/exec?command=sh", "POST /api/v1/namespaces/other/pods/x/portforward",
	"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "GET /api/v1/namespaces/team/configmaps/x",
	"GET /api/v1/nodes/x/proxy/",
}

// gotIn says whether a response shows that the request was authorized although the user lacks the permission. It does
// not depend on the records.
func gotIn(user, method, url string, code int) bool {
	if code >= 300 && code < 500 && code != http.StatusSwitchingProtocols && code != http.StatusNotModified {
		return false
	}
	path, _, _ := strings.Cut(url, "?")
	if plain, err := neturl.PathUnescape(path); err == nil {
		path = plain
	}
	reads := method == "GET" || method == "HEAD" || method == "WATCH"
	switch {
	case slices.Contains(public, path) && reads:
		return false
	case user == "":
		return code < 300 || code == http.StatusSwitchingProtocols
	}
	// Every authenticated user may read discovery documents and request their own permissions.
	discovery := []string{"/api", "/apis", "/openapi", "/healthz", "/livez", "/readyz", "/version"}
	for _, prefix := range discovery {
		if reads && (path == prefix || strings.HasPrefix(path, prefix+"/")) && !strings.Contains(path, "namespaces") &&
			len(strings.Split(strings.Trim(path, "/"), "/")) <= 4 && code < 300 &&
			!isResource(path) {
			return false
		}
	}
	if reads && (path == "/.well-known/openid-configuration" || path == "/openid/v1/jwks") &&
		strings.HasPrefix(user, "system:serviceaccount:") {
		return false
	}
	if method == "POST" && strings.HasPrefix(path[strings.LastIndexByte(path, '/')+1:], "selfsubject") {
		return false
	}
	if user == team && (path == teamMaps || strings.HasPrefix(path, teamMaps+"/") ||
		path == "/api/v1/watch/namespaces/team/configmaps") {
		return false
	}
	return code < 300 || code == http.StatusSwitchingProtocols
}

const teamMaps = "/api/v1/namespaces/team/configmaps"

// isResource says whether a path is one of objects rather than of a discovery document.
func isResource(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return parts[0] == "api" && len(parts) > 2 || parts[0] == "apis" && len(parts) > 3
}

// rowName returns the name under which a row is recorded.
func rowName(c, method, url string) string { return fmt.Sprintf("%s\t%s\t%s", c, url, method) }
