package httpapi

import (
	"net/http"
	"regexp"
	"slices"
)

// The rights of web pages of allowed origins, as the reference states them.
var crossOrigin = http.Header{
	"Access-Control-Allow-Methods": {"POST, GET, OPTIONS, PUT, DELETE, PATCH"},
	"Access-Control-Allow-Headers": {
		"Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
	},
	"Access-Control-Expose-Headers":    {"Date"},
	"Access-Control-Allow-Credentials": {"true"},
}

// preflight adds the headers with which a browser decides what pages of an origin may do (CORS). It returns true if the
// request was a preflight, which has been answered.
func (h *Handler) preflight(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if !h.allowsOrigin(origin) {
		return false
	}
	header := w.Header()
	header["Access-Control-Allow-Origin"] = []string{origin}
	for name, values := range crossOrigin {
		header[name] = values
	}
	if r.Method != http.MethodOptions {
		return false
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

// allowsOrigin says whether pages of an origin may send requests; "" is none.
func (h *Handler) allowsOrigin(origin string) bool {
	return origin != "" &&
		slices.ContainsFunc(h.Origins, func(allowed *regexp.Regexp) bool { return allowed.MatchString(origin) })
}
