package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/discovery"
	"plinth/internal/planes/route"
	"plinth/internal/wire"
	"plinth/object"
)

// servePath answers URLs outside of the resources: handlers of other packages, pages, health, documents, and the list
// of all these paths.
func (h *Handler) servePath(rs *requestState) error {
	path := rs.r.URL.Path
	if handler := h.handler(path); handler != nil {
		rs.place.Exit() // some wait long (profiles), and none knows of places
		r := rs.r.WithContext(rs.ctx)
		r.Body = http.NoBody // it has been read
		handler.ServeHTTP(rs, r)
		return nil
	}
	if page, ok := h.Pages[strings.TrimSuffix(path, "/")]; ok {
		return rs.page(page)
	}
	if path == "/" || path == "/index.html" {
		return h.index(rs)
	}
	for _, endpoint := range healthEndpoints {
		if rest, ok := strings.CutPrefix(path, "/"+endpoint); ok && (rest == "" || rest[0] == '/') {
			return h.health(rs, endpoint, rest)
		}
	}
	if ok, err := h.zpage(rs); ok {
		return err
	}
	if misspelled(path) {
		return errNotAPath
	}
	document, ok, err := h.Documents.Get(path, rs.r.Header.Get("Accept"))
	if !ok {
		return h.noSuchPath(path)
	}
	if rs.r.Method != http.MethodGet && !anyMethod(path) {
		return apierr.NewMethodNotAllowed()
	}
	if err != nil {
		return err
	}
	if err := rs.recordDocument(path, document); err != nil {
		return err
	}
	return rs.document(path, document)
}

// handler finds the handler of a path, or of the longest path above it that ends in a slash.
func (h *Handler) handler(path string) http.Handler {
	if handler := h.Handlers[path]; handler != nil {
		return handler
	}
	for end := strings.LastIndexByte(path, '/'); end >= 0; end = strings.LastIndexByte(path[:end], '/') {
		if handler := h.Handlers[path[:end+1]]; handler != nil {
			return handler
		}
	}
	return nil
}

// anyMethod says whether the reference serves a document for every method.
func anyMethod(path string) bool {
	if group, ok := strings.CutPrefix(path, "/apis"); ok {
		return !strings.Contains(strings.Trim(group, "/"), "/")
	}
	return strings.HasPrefix(path, "/openapi/")
}

// misspelled says whether a path is outside of the API although its segments look like those of the API. In the
// reference, authorization ignores leading and trailing slashes, but the router serves only paths without leading ones;
// and there is no group with an empty name.
func misspelled(path string) bool {
	return strings.HasPrefix(path, "//") || strings.HasPrefix(path, "/apis//")
}

// noSuchPath returns a Status below the built-in API groups and below /version, and an error in plain text elsewhere.
func (h *Handler) noSuchPath(path string) error {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "api" || parts[0] == "version" || parts[0] == "apis" && len(parts) > 2 &&
		h.Registry.Now().HasBuiltinGroup(parts[1]) {
		return apierr.NewNoSuchPath()
	}
	return errNotAPath
}

// index lists the paths that are served.
func (h *Handler) index(rs *requestState) error {
	list := object.Fields("paths", object.Strings(h.paths()...))
	return rs.send(http.StatusOK, wire.Media{Pretty: true}, object.AppendJSON(nil, list))
}

// paths returns the paths that are served, sorted.
func (h *Handler) paths() []string {
	paths := []string{"/apis", "/apis/", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"}
	paths = append(paths, h.Documents.Paths()...)
	for _, endpoint := range healthEndpoints {
		paths = append(paths, "/"+endpoint)
		for _, check := range h.checks(endpoint) {
			paths = append(paths, "/"+endpoint+"/"+check.Name)
		}
	}
	for path := range h.Handlers {
		if !strings.HasPrefix(path, "/debug/") { // as in the reference, which does not list them
			paths = append(paths, path)
		}
	}
	for path := range h.Pages {
		paths = append(paths, path)
	}
	if h.Statusz != nil {
		paths = append(paths, "/statusz")
	}
	if h.Flagz != nil {
		paths = append(paths, "/flagz")
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// immutable is the Cache-Control header of a document whose URL contains its hash: the document never changes.
const immutable = "public, immutable"

// document answers with a discovery document.
func (rs *requestState) document(path string, d *discovery.Document) error {
	header := rs.w.Header()
	if d.ETag != "" {
		header.Set("Etag", `"`+d.ETag+`"`)
		header.Add("Vary", "Accept")
	}
	if strings.Contains(d.MediaType, ";as=") { // aggregated discovery: clients cache it, and revalidate with If-None-Match
		header.Set("Cache-Control", "public")
	}
	if hash := first(rs.query(), "hash"); hash != "" && d.URL != "" {
		if hash != d.ETag {
			header.Set("Location", newestOf(rs.ctx, d))
			header.Set("Content-Type", d.MediaType)
			rs.WriteHeader(http.StatusMovedPermanently)
			return nil
		}
		header.Set("Cache-Control", immutable)
		header.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	if d.ETag != "" && rs.names(d.ETag) {
		rs.WriteHeader(http.StatusNotModified)
		return nil
	}
	header.Set("Content-Type", d.MediaType)
	if d.Gzip != nil {
		header.Add("Vary", "Accept-Encoding")
		if acceptsGzip(rs.r.Header.Get("Accept-Encoding")) {
			header.Set("Content-Encoding", "gzip")
			return rs.whole(d.Gzip)
		}
		defer rs.guard().arm(0).end()
		rs.WriteHeader(http.StatusOK)
		_, err := d.WriteTo(rs)
		return err
	}
	body := d.Body
	// /version is always indented.
	if d.MediaType == wire.JSON.String() && (rs.pretty() && !strings.HasPrefix(path, "/openapi/") ||
		strings.HasPrefix(path, "/version")) {
		var indented bytes.Buffer
		if err := json.Indent(&indented, body, "", "  "); err != nil {
			return err
		}
		body = indented.Bytes()
	}
	return rs.whole(body)
}

// newestOf is where the newest version of a document is. Below the path of a plane it is relative to the URL of the
// request, at which only the query is another one: so it also leads through a proxy that has added the path of the
// plane (kubectl proxy --append-server-path).
func newestOf(ctx context.Context, d *discovery.Document) string {
	if _, query, ok := strings.Cut(d.URL, "?"); ok && route.Of(ctx).Base != "" {
		return "?" + query
	}
	return d.URL
}

// page answers with a page.
func (rs *requestState) page(p Page) error {
	if rs.r.Method != http.MethodGet {
		return apierr.NewMethodNotAllowed()
	}
	body, err := p.Body()
	if err != nil {
		return err
	}
	header := rs.w.Header()
	header.Set("Content-Type", p.Type)
	header.Set("Cache-Control", p.Caching())
	return rs.whole(body)
}

// whole writes a body with its length: one that is short, or that all its readers share.
func (rs *requestState) whole(body []byte) error { return rs.wholeOf(body, 0) }

// wholeOf is whole for a body of which so many bytes are this answer's alone.
func (rs *requestState) wholeOf(body []byte, private int) error {
	rs.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	defer rs.guard().arm(private).end()
	rs.WriteHeader(http.StatusOK)
	_, err := rs.Write(body)
	return err
}
