package aggregation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"plinth/internal/access"
	"plinth/internal/discovery"
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
	// requestTimeout limits a request about the objects of a namespace, and emptyTimeout all of them to one backend: one
	// whose lists never end would hold up the deletion of other namespaces.
	requestTimeout = 30 * time.Second
	emptyTimeout   = 2 * time.Minute
	// pageSize is how many objects are counted with one request.
	pageSize = 500

	mediaMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// deletion are the options of the deletes.
var deletion = []byte(`{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`)

// Add adds what another server has.
func (c *Contents) Add(other Contents) {
	for name, n := range other.Remaining {
		c.Remaining[name] += n
	}
	for name, n := range other.Finalizers {
		c.Finalizers[name] += n
	}
	c.Stale = append(c.Stale, other.Stale...)
	c.Failed = append(c.Failed, other.Failed...)
}

// Empty deletes the objects of a namespace at all backends, as a user, and counts those that are left.
func (a *Aggregator) Empty(ctx context.Context, namespace string, user access.User) Contents {
	c := Contents{Remaining: map[string]int{}, Finalizers: map[string]int{}}
	known, stale := a.reachable()
	c.Stale = stale
	for _, at := range known {
		limited, cancel := context.WithTimeout(ctx, emptyTimeout)
		for _, name := range emptied(at.remote.Discovery) {
			if err := at.route.empty(limited, namespace, name, &user, &c); err != nil {
				c.Failed = append(c.Failed, err)
			}
		}
		cancel()
	}
	return c
}

// Stale are the group versions of which it is not known what objects they have.
func (a *Aggregator) Stale() []string {
	_, stale := a.reachable()
	return stale
}

// reachableRoute is a route to a backend that can be asked, and what is known of its documents.
type reachableRoute struct {
	route  *route
	remote *discovery.Remote
}

// reachable returns the routes to backends that can be asked now, and the group versions of the others, sorted.
func (a *Aggregator) reachable() (known []reachableRoute, stale []string) {
	routes, seen := a.now(), map[groupVersion]bool{}
	for _, remote := range a.Remotes() {
		key := groupVersion{remote.Group, remote.Version}
		seen[key] = true
		switch r := routes[key]; {
		case r == nil:
		case remote.Discovery.At("freshness").Str() != "Current" || !r.available:
			stale = append(stale, remote.Group+"/"+remote.Version)
		default:
			known = append(known, reachableRoute{r, remote})
		}
	}
	for key := range routes {
		if !seen[key] { // nobody has asked for its documents yet
			stale = append(stale, key.group+"/"+key.version)
		}
	}
	slices.Sort(stale)
	return known, stale
}

// emptied are the resources of a group version whose objects belong to namespaces and can be deleted.
func emptied(version object.Value) (names []string) {
	for _, resource := range version.At("resources").Items() {
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

// EmptyAt does what Empty does at another server than those of APIServices, of which it is known what it serves: the
// groups of its aggregated discovery. Resources that skip is true for are left alone.
func EmptyAt(ctx context.Context, at Connect, header http.Header, groups []object.Value,
	skip func(group, version, resource string) bool, namespace string, user access.User) Contents {
	c := Contents{Remaining: map[string]int{}, Finalizers: map[string]int{}}
	ctx, cancel := context.WithTimeout(ctx, emptyTimeout)
	defer cancel()
	for _, group := range groups {
		for _, version := range group.At("versions").Items() {
			k := &client{groupVersion{group.At("metadata", "name").Str(), version.At("version").Str()}, at, header}
			for _, name := range emptied(version) {
				if skip(k.group, k.version, name) {
					continue
				}
				if err := k.empty(ctx, namespace, name, &user, &c); err != nil {
					c.Failed = append(c.Failed, err)
				}
			}
		}
	}
	return c
}

// empty deletes the objects of one resource, and counts those that are left.
func (k *client) empty(ctx context.Context, namespace, resource string, user *access.User, c *Contents) error {
	path := k.path() + "/namespaces/" + namespace + "/" + resource
	var refused errStatus
	_, err := k.request(ctx, http.MethodDelete, path, deletion, user)
	if errors.As(err, &refused) && (refused.code == http.StatusMethodNotAllowed || refused.code == http.StatusNotFound) {
		err = k.deleteEach(ctx, path, user)
	}
	if err != nil {
		return err
	}
	_, err = k.list(ctx, path, user, func(item object.Value) error {
		c.Remaining[resource+"."+k.group]++
		for _, f := range item.At("metadata", "finalizers").Items() {
			c.Finalizers[f.Str()]++
		}
		return nil
	})
	return err
}

// deleteEach deletes the objects of a collection one by one.
func (k *client) deleteEach(ctx context.Context, path string, user *access.User) error {
	_, err := k.list(ctx, path, user, func(item object.Value) error {
		name := item.At("metadata", "name").Str()
		_, err := k.request(ctx, http.MethodDelete, path+"/"+url.PathEscape(name), deletion, user)
		if refused := (errStatus{}); errors.As(err, &refused) && refused.code == http.StatusNotFound {
			return nil
		}
		return err
	})
	return err
}

// list calls each with all objects of a collection, and returns the revision of the list.
func (k *client) list(ctx context.Context, path string, user *access.User, each func(item object.Value) error) (
	revision string, err error) {
	for next := ""; ; {
		body, err := k.request(ctx, http.MethodGet, fmt.Sprintf("%s?limit=%d&continue=%s", path, pageSize,
			url.QueryEscape(next)), nil, user)
		if err != nil {
			return "", err
		}
		list, err := object.ParseJSON(body)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		for _, item := range list.Value.At("items").Items() {
			if err := each(item); err != nil {
				return "", err
			}
		}
		before, meta := next, list.Value.At("metadata")
		if next = meta.At("continue").Str(); next == "" {
			return meta.At("resourceVersion").Str(), nil
		}
		if next == before {
			return "", fmt.Errorf("%s: the same part of the list again", path)
		}
	}
}

// request sends a request about objects to the server, and returns the body of its answer.
func (k *client) request(ctx context.Context, method, path string, content []byte, user *access.User) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, _, err := k.exchange(ctx, call{method: method, path: path, accept: mediaMetadata + ", " + mediaJSON,
		content: content, user: user})
	return body, err
}
