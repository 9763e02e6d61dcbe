package aggregation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/discovery"
	"plinth/internal/forward"
	"plinth/object"
)

// Contents is what backends have in a namespace.
type Contents struct {
	// Remaining are the numbers of objects by "RESOURCE.GROUP", Finalizers those of objects that have a finalizer.
	Remaining, Finalizers map[string]int
	// Stale are the group versions of which it is not known what they have.
	Stale []string
	// Failed are the errors of deleting and counting.
	Failed []error
}

const (
	// requestTimeout limits a request about the objects of a namespace.
	requestTimeout = 30 * time.Second
	// pageSize is how many objects are counted with one request.
	pageSize = 500

	mediaMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// Empty deletes the objects of a namespace at all backends, as a user, and counts those that are left.
func (a *Aggregator) Empty(ctx context.Context, namespace string, user access.User) Contents {
	c := Contents{Remaining: map[string]int{}, Finalizers: map[string]int{}}
	routes := a.routes.Now()
	for _, remote := range a.Remotes() {
		r := routes[groupVersion{remote.Group, remote.Version}]
		if r == nil {
			continue
		}
		if remote.Discovery.At("freshness").Str() != "Current" || !r.available {
			c.Stale = append(c.Stale, remote.Group+"/"+remote.Version)
			continue
		}
		for _, name := range emptied(remote) {
			if err := r.empty(ctx, namespace, name, &user, &c); err != nil {
				c.Failed = append(c.Failed, err)
			}
		}
	}
	for key := range routes { // a route whose documents nobody has asked for yet
		if !slices.ContainsFunc(a.Remotes(), func(r *discovery.Remote) bool {
			return r.Group == key.group && r.Version == key.version
		}) {
			c.Stale = append(c.Stale, key.group+"/"+key.version)
		}
	}
	slices.Sort(c.Stale)
	return c
}

// emptied are the resources of a group version whose objects belong to namespaces and can be deleted.
func emptied(remote *discovery.Remote) (names []string) {
	for _, resource := range remote.Discovery.At("resources").Items() {
		verbs := map[string]bool{}
		for _, verb := range resource.At("verbs").Items() {
			verbs[verb.Str()] = true
		}
		name := resource.At("resource").Str()
		if resource.At("scope").Str() == "Namespaced" && verbs["delete"] && verbs["list"] && url.PathEscape(name) == name {
			names = append(names, name)
		}
	}
	return names
}

// empty deletes the objects of one resource, and counts those that are left.
func (r *route) empty(ctx context.Context, namespace, resource string, user *access.User, c *Contents) error {
	path := r.path() + "/namespaces/" + namespace + "/" + resource
	var refused errStatus
	_, err := r.send(ctx, http.MethodDelete, path, user)
	if errors.As(err, &refused) && (refused.code == http.StatusMethodNotAllowed || refused.code == http.StatusNotFound) {
		err = r.deleteEach(ctx, path, user)
	}
	if err != nil {
		return err
	}
	return r.list(ctx, path, user, func(item object.Value) error {
		c.Remaining[resource+"."+r.group]++
		for _, f := range item.At("metadata", "finalizers").Items() {
			c.Finalizers[f.Str()]++
		}
		return nil
	})
}

// deleteEach deletes the objects of a collection one by one.
func (r *route) deleteEach(ctx context.Context, path string, user *access.User) error {
	return r.list(ctx, path, user, func(item object.Value) error {
		name := item.At("metadata", "name").Str()
		_, err := r.send(ctx, http.MethodDelete, path+"/"+url.PathEscape(name), user)
		if refused := (errStatus{}); errors.As(err, &refused) && refused.code == http.StatusNotFound {
			return nil
		}
		return err
	})
}

// list calls each with all objects of a collection.
func (r *route) list(ctx context.Context, path string, user *access.User, each func(item object.Value) error) error {
	for next := ""; ; {
		body, err := r.send(ctx, http.MethodGet, fmt.Sprintf("%s?limit=%d&continue=%s", path, pageSize,
			url.QueryEscape(next)), user)
		if err != nil {
			return err
		}
		list, err := object.ParseJSON(body)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, item := range list.Value.At("items").Items() {
			if err := each(item); err != nil {
				return err
			}
		}
		before := next
		if next = list.Value.At("metadata", "continue").Str(); next == "" || next == before {
			return nil
		}
	}
}

// send sends a request about objects to the backend, and returns the body of its answer.
func (r *route) send(ctx context.Context, method, path string, user *access.User) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	b := r.server
	transport, err := b.connect()
	if err != nil {
		return nil, err
	}
	address, err := b.of.Endpoint(ctx, b.namespace, b.name, b.port)
	if err != nil {
		return nil, err
	}
	var sent io.Reader
	if method == http.MethodDelete {
		sent = bytes.NewReader([]byte(`{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`))
	}
	request, err := http.NewRequestWithContext(ctx, method, "https://"+address+path, sent)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", mediaMetadata+", "+mediaJSON)
	request.Header.Set("Content-Type", mediaJSON)
	forward.Identify(request.Header, user)
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxDocument+1))
	switch {
	case err != nil:
		return nil, err
	case len(body) > maxDocument:
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxDocument)
	case answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusMultipleChoices:
		path, _, _ = strings.Cut(path, "?")
		return nil, errStatus{path, answer.StatusCode}
	}
	return body, nil
}
