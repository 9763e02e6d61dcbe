package aggregation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"plinth/internal/access"
	"plinth/internal/discovery"
	"plinth/object"
)

const (
	// refresh is how long the documents of a backend are believed to be what it serves.
	refresh = time.Minute
	// A fetch that failed is repeated after minRest, and twice as long each time, up to refresh.
	minRest = 500 * time.Millisecond
	// specTimeout limits the requests for OpenAPI documents.
	specTimeout = time.Minute
	// maxDocument is the size of the largest document that is read.
	maxDocument = 32 << 20
)

// listReader is the user of the requests for the list of resources, of backends without aggregated discovery. Unlike
// that of other requests (itself), it is in no group, as in the reference.
var listReader = access.User{Name: itself.Name}

// specReader is the user of the requests for OpenAPI documents.
var specReader = access.User{Name: "system:aggregator"}

// fetcher fetches the documents of one route.
type fetcher struct {
	route  *route
	wake   chan struct{}
	end    context.CancelFunc
	remote *discovery.Remote // what is published
}

// fetchers are those that run.
type fetchers struct {
	mu      sync.Mutex
	work    sync.WaitGroup
	closed  bool
	by      map[groupVersion]*fetcher
	changed []func() // are called once when something else is published
}

// Changed begins to fetch the documents of new routes, and forgets those of routes that are gone. It is called when
// an APIService may have changed, and returns at once; what it begins ends with ctx, which is the same in all calls.
func (a *Aggregator) Changed(ctx context.Context) {
	now := a.now()
	f := &a.fetchers
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || ctx.Err() != nil {
		return
	}
	for key, running := range f.by {
		if now[key] == nil {
			running.end()
			delete(f.by, key)
		}
	}
	for key, r := range now {
		running := f.by[key]
		if running != nil && running.route == r {
			continue
		}
		if running == nil {
			running = &fetcher{wake: make(chan struct{}, 1)}
			var fetching context.Context
			fetching, running.end = context.WithCancel(ctx)
			if f.by == nil {
				f.by = map[groupVersion]*fetcher{}
			}
			f.by[key] = running
			running.remote = r.unknown()
			f.work.Go(func() { a.fetch(fetching, key, running) })
		}
		running.route = r
		select {
		case running.wake <- struct{}{}:
		default:
		}
	}
	a.publish()
}

// Wait waits until what Changed has begun has ended.
func (a *Aggregator) Wait() {
	a.fetchers.mu.Lock()
	a.fetchers.closed = true
	a.fetchers.mu.Unlock()
	a.fetchers.work.Wait()
}

// publish makes the documents of all routes those of Remotes. The caller holds the lock.
func (a *Aggregator) publish() {
	var all []*discovery.Remote
	for _, f := range a.fetchers.by {
		all = append(all, f.remote)
	}
	slices.SortFunc(all, func(x, y *discovery.Remote) int {
		return strings.Compare(x.Group+"/"+x.Version, y.Group+"/"+y.Version)
	})
	if old := a.remotes.Load(); old == nil && len(all) == 0 || old != nil && slices.Equal(*old, all) {
		return
	}
	a.remotes.Store(&all)
	for _, changed := range a.fetchers.changed {
		changed()
	}
	a.fetchers.changed = nil
}

// Remotes are the documents of all backends, for discovery.Config.
func (a *Aggregator) Remotes() []*discovery.Remote {
	if all := a.remotes.Load(); all != nil {
		return *all
	}
	return nil
}

// fetch fetches the documents of one route until ctx ends.
func (a *Aggregator) fetch(ctx context.Context, key groupVersion, f *fetcher) {
	failed := 0
	for ctx.Err() == nil {
		a.fetchers.mu.Lock()
		r := f.route
		a.fetchers.mu.Unlock()
		documents, err := r.documents(ctx)
		if ctx.Err() != nil {
			return
		}
		rest := refresh
		if err == nil {
			failed = 0
		} else {
			rest = min(refresh, minRest<<min(failed, 20))
			if failed++; failed == 1 && r.available {
				a.Logger.Info("documents of an aggregated API server could not be fetched", "apiservice", r.name(), "error", err)
			}
		}
		a.fetchers.mu.Lock()
		if a.fetchers.by[key] == f && f.route == r {
			if !same(documents, f.remote) {
				f.remote = documents
			}
			a.publish()
		}
		a.fetchers.mu.Unlock()
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// same says whether two documents have the same content.
func same(a, b *discovery.Remote) bool {
	list := func(members []object.Member) object.Value { return object.MapOf(members...) }
	return a.GroupPriority == b.GroupPriority && a.VersionPriority == b.VersionPriority &&
		object.Equal(a.Discovery, b.Discovery) && string(a.OpenAPI3) == string(b.OpenAPI3) &&
		object.Equal(list(a.Paths), list(b.Paths)) && object.Equal(list(a.Definitions), list(b.Definitions))
}

// unknown is what is published of a route whose backend has not said what it serves.
func (r *route) unknown() *discovery.Remote {
	return r.remote(object.Fields("version", object.StringOf(r.version)), false)
}

// remote is the document of a route, with its entry of aggregated discovery.
func (r *route) remote(entry object.Value, current bool) *discovery.Remote {
	freshness := "Stale"
	if current {
		freshness = "Current"
	}
	return &discovery.Remote{Group: r.group, Version: r.version, GroupPriority: int(r.groupPriority),
		VersionPriority: int(r.priority), Discovery: entry.With("freshness", object.StringOf(freshness))}
}

// documents asks the backend for its documents. With an error, discovery says that the group version is there, and no
// more; OpenAPI is another matter. As in the reference, a backend that is not available is asked what it serves, but
// not for OpenAPI.
func (r *route) documents(ctx context.Context) (*discovery.Remote, error) {
	remote := r.unknown()
	entry, err := r.discovery(ctx)
	if err == nil {
		remote = r.remote(entry, true)
	}
	if !r.available {
		return remote, err
	}
	var noThird error
	second, noSecond := r.openAPI2(ctx)
	if noSecond == nil {
		remote.Paths, remote.Definitions = r.partOf(second)
	}
	remote.OpenAPI3, noThird = r.openAPI3(ctx)
	if refused := (errStatus{}); errors.As(noThird, &refused) && refused.code == http.StatusNotFound && noSecond == nil {
		remote.OpenAPI3, noThird = object.AppendJSON(nil, OpenAPI3(second)), nil
	}
	if none := errors.Join(noThird, noSecond); none != nil && ctx.Err() == nil {
		r.server.of.Logger.Debug("an aggregated API server has no OpenAPI documents", "apiservice", r.name(), "error", none)
	}
	return remote, err
}

const (
	mediaJSON       = "application/json"
	mediaAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// isAggregated says whether a media type is that of aggregated discovery.
func isAggregated(mediaType string) bool {
	for _, part := range []string{mediaJSON, "g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"} {
		if !slices.Contains(strings.Split(strings.ReplaceAll(mediaType, " ", ""), ";"), part) {
			return false
		}
	}
	return true
}

// discovery returns the entry of the group version in the backend's aggregated discovery, or one that is made of the
// list of its resources.
func (r *route) discovery(ctx context.Context) (object.Value, error) {
	none := object.Fields("version", object.StringOf(r.version))
	body, mediaType, err := r.get(ctx, "/apis", mediaAggregated, &itself, discoveryTimeout)
	var refused errStatus
	switch {
	case err == nil && isAggregated(mediaType):
		list, err := object.ParseJSON(body)
		if err != nil {
			return none, err
		}
		for _, group := range list.Value.At("items").Items() {
			if group.At("metadata", "name").Str() != r.group {
				continue
			}
			for _, version := range group.At("versions").Items() {
				if version.At("version").Str() == r.version {
					return discovery.VersionOf(version), nil
				}
			}
		}
		return none, nil // it does not serve this one, and says so
	case err != nil && (!errors.As(err, &refused) || refused.code == http.StatusServiceUnavailable):
		return none, err
	}
	if body, _, err = r.get(ctx, r.path(), mediaJSON, &listReader, discoveryTimeout); err != nil {
		return none, err
	}
	list, err := object.ParseJSON(body)
	if err != nil {
		return none, err
	}
	if kind := list.Value.At("kind").Str(); kind != "APIResourceList" {
		return none, fmt.Errorf("%s: %q is no APIResourceList", r.path(), kind)
	}
	return none.With("resources", discovery.ListedResources(list.Value.At("resources"))), nil
}

// openAPI3 returns the OpenAPI v3 document of the group version; nil if the backend has none.
func (r *route) openAPI3(ctx context.Context) ([]byte, error) {
	const root = "/openapi/v3"
	body, _, err := r.get(ctx, root, mediaJSON, &specReader, specTimeout)
	if err != nil {
		return nil, err
	}
	index, err := object.ParseJSON(body)
	if err != nil {
		return nil, err
	}
	path := index.Value.At("paths", strings.TrimPrefix(r.path(), "/"), "serverRelativeURL").Str()
	if !strings.HasPrefix(path, root+"/") {
		return nil, fmt.Errorf("%s: there is no %s", root, r.path())
	}
	if body, _, err = r.get(ctx, path, mediaJSON, &specReader, specTimeout); err != nil {
		return nil, err
	}
	document, err := object.ParseJSON(body)
	if err == nil && document.Value.At("paths").Kind() != object.Map {
		err = fmt.Errorf("%s: it has no paths", path)
	}
	if err != nil {
		return nil, err
	}
	return object.AppendJSON(nil, document.Value), nil
}

// openAPI2 returns the OpenAPI v2 document of the backend.
func (r *route) openAPI2(ctx context.Context) (object.Value, error) {
	body, _, err := r.get(ctx, "/openapi/v2", mediaJSON, &specReader, specTimeout)
	if err != nil {
		return object.Nil, err
	}
	document, err := object.ParseJSON(body)
	return document.Value, err
}

const definitionsPrefix = "#/definitions/"

// partOf returns the paths of the group version in an OpenAPI v2 document, and the definitions that they need.
func (r *route) partOf(document object.Value) (paths, definitions []object.Member) {
	all, needed := document.At("definitions"), map[string]bool{}
	var need func(v object.Value)
	need = func(v object.Value) {
		switch v.Kind() {
		case object.List:
			for _, item := range v.Items() {
				need(item)
			}
		case object.Map:
			for _, m := range v.Members() {
				name, ok := strings.CutPrefix(m.Value.Str(), definitionsPrefix)
				if m.Key != "$ref" || !ok {
					need(m.Value)
				} else if definition := all.At(name); !needed[name] && !definition.IsNull() {
					needed[name] = true
					need(definition)
				}
			}
		}
	}
	for _, m := range document.At("paths").Members() {
		if strings.HasPrefix(m.Key, r.path()+"/") {
			paths = append(paths, m)
			need(m.Value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		definitions = append(definitions, object.Member{Key: name, Value: all.At(name)})
	}
	return paths, definitions
}
