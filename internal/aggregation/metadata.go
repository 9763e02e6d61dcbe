package aggregation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/discovery"
	"plinth/object"
)

// Resource is a resource of a backend whose objects can be read.
type Resource struct {
	Group, Version, Name, Kind string
	Namespaced                 bool
	// Followed is set if its objects can be listed, watched and deleted, and no version of its group that clients prefer
	// has it, too.
	Followed bool
	// Migratable is set if its objects can be listed, patched and updated.
	Migratable bool
}

// APIVersion is the apiVersion of its objects.
func (r Resource) APIVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// Inventory is what is known of the resources of all backends.
type Inventory struct {
	Resources []Resource
	// Silent are the group versions that go to backends whose resources are not known now, and Awaited is set if one of
	// them should be known soon, since its backend is available.
	Silent  map[[2]string]bool
	Awaited bool
}

// Inventory returns what is known now. changed is called once when it may have changed, with locks held; nil: nobody
// is.
func (a *Aggregator) Inventory(changed func()) Inventory {
	var i Inventory
	if changed != nil {
		a.fetchers.mu.Lock()
		a.fetchers.changed = append(a.fetchers.changed, changed)
		a.fetchers.mu.Unlock()
	}
	routes := a.now()
	if len(routes) == 0 {
		return i
	}
	i.Silent = map[[2]string]bool{}
	current := map[groupVersion]*discovery.Remote{}
	for _, remote := range a.Remotes() {
		if remote.Discovery.At("freshness").Str() == "Current" {
			current[groupVersion{remote.Group, remote.Version}] = remote
		}
	}
	var known []*discovery.Remote
	for key, r := range routes {
		if remote := current[key]; remote != nil {
			known = append(known, remote)
		} else {
			i.Silent[[2]string{key.group, key.version}] = true
			i.Awaited = i.Awaited || r.available
		}
	}
	slices.SortFunc(known, func(x, y *discovery.Remote) int {
		return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(y.VersionPriority, x.VersionPriority),
			version.CompareKubeAwareVersionStrings(y.Version, x.Version))
	})
	preferred := map[[2]string]bool{} // by group and name
	for _, remote := range known {
		for _, r := range readable(remote) {
			if key := [2]string{r.Group, r.Name}; r.Followed {
				r.Followed, preferred[key] = !preferred[key], true
			}
			i.Resources = append(i.Resources, r)
		}
	}
	return i
}

// readable are the resources of a group version that have objects.
func readable(remote *discovery.Remote) (all []Resource) {
	for _, entry := range remote.Discovery.At("resources").Items() {
		verbs := map[string]bool{}
		for _, verb := range entry.At("verbs").Items() {
			verbs[verb.Str()] = true
		}
		r := Resource{Group: remote.Group, Version: remote.Version, Name: entry.At("resource").Str(),
			Kind: entry.At("responseKind", "kind").Str(), Namespaced: entry.At("scope").Str() == "Namespaced",
			Followed:   verbs["list"] && verbs["watch"] && verbs["delete"],
			Migratable: verbs["list"] && verbs["patch"] && verbs["update"]}
		if verbs["get"] && r.Kind != "" && r.Name != "" && url.PathEscape(r.Name) == r.Name {
			all = append(all, r)
		}
	}
	return all
}

const (
	nowhere = "fake-svm-namespace" // see Latest

	mediaObjectMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	mediaMergePatch     = "application/merge-patch+json"

	// maxObject is the size of the largest object or event that is read.
	maxObject = 4 << 20
	// listTimeout limits a list of all objects: there are backends whose lists never end.
	listTimeout = 5 * time.Minute
	// A watch is asked to end after a time between watchTimeout and twice that, and is ended a little later if it does
	// not.
	watchTimeout = 5 * time.Minute
)

var (
	// ErrUnavailable means that a backend is known not to answer, and was not asked.
	ErrUnavailable = errors.New("the aggregated API server is not available")
	// ErrExpired means that a backend has forgotten what happened since a revision.
	ErrExpired = errors.New("the aggregated API server has no events since that revision")
)

// Metadata reads and writes the metadata of the objects of one resource. Errors that the backend answers are
// *apierr.Error; the others say that it did not answer, or not in a form that can be used.
type Metadata struct {
	// FieldManager owns what patches change. "": the name of this program does.
	FieldManager string

	of       *Aggregator
	resource Resource
	user     access.User
}

// Metadata gives a user access to the objects of a resource.
func (a *Aggregator) Metadata(r Resource, user access.User) *Metadata {
	return &Metadata{of: a, resource: r, user: user}
}

// route is where requests go now.
func (m *Metadata) route() (*route, error) {
	r := m.of.now()[groupVersion{m.resource.Group, m.resource.Version}]
	if r == nil || !r.available {
		return nil, ErrUnavailable
	}
	return r, nil
}

// path is the path of an object.
func (m *Metadata) path(r *route, namespace, name string) string {
	path := r.path()
	if m.resource.Namespaced {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	return path + "/" + m.resource.Name + "/" + url.PathEscape(name)
}

// send sends a request about one object, and returns the object of the answer.
func (m *Metadata) send(ctx context.Context, c call, namespace, name string) (object.Value, error) {
	r, err := m.route()
	if err != nil {
		return object.Nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c.path, c.accept, c.user, c.limit = m.path(r, namespace, name), mediaObjectMetadata+", "+mediaJSON, &m.user, maxObject
	if m.FieldManager != "" && c.method == http.MethodPatch {
		c.path += "?fieldManager=" + url.QueryEscape(m.FieldManager)
	}
	body, _, err := r.exchange(ctx, c)
	if err != nil {
		return object.Nil, statusOf(err)
	}
	parsed, err := object.ParseJSON(body)
	if err != nil {
		return object.Nil, fmt.Errorf("%s: %w", c.path, err)
	}
	return parsed.Value, nil
}

// statusOf makes an *apierr.Error of an answer that is no success. One that is no Status says what its code says, as
// it does to the reference's clients: a page 404 means that there is no such object.
func statusOf(err error) error {
	var refused errStatus
	if errors.As(err, &refused) {
		return &apierr.Error{Code: refused.code, Reason: refused.reason, Message: refused.message}
	}
	return err
}

// Get returns an object.
func (m *Metadata) Get(ctx context.Context, namespace, name string) (object.Value, error) {
	obj, err := m.send(ctx, call{method: http.MethodGet}, namespace, name)
	if err != nil {
		return object.Nil, err
	}
	if err := checkMetadata(obj); err != nil {
		return object.Nil, err
	}
	if meta := obj.At("metadata"); meta.At("name").Str() != name ||
		m.resource.Namespaced && meta.At("namespace").Str() != namespace {
		return object.Nil, fmt.Errorf("another object was answered for %s of %s", name, m.resource.Name)
	}
	return obj, nil
}

// checkMetadata says what an object lacks that every object has.
func checkMetadata(obj object.Value) error {
	for _, key := range []string{"name", "uid", "resourceVersion"} {
		if obj.At("metadata", key).Str() == "" {
			return fmt.Errorf("an object has no %s", key)
		}
	}
	return nil
}

// Delete deletes an object; options are DeleteOptions.
func (m *Metadata) Delete(ctx context.Context, namespace, name string, options object.Value) error {
	_, err := m.send(ctx, call{method: http.MethodDelete, content: object.AppendJSON(nil, options)}, namespace, name)
	return err
}

// Patch changes an object with a JSON Merge Patch, and returns the result.
func (m *Metadata) Patch(ctx context.Context, namespace, name string, patch object.Value) (object.Value, error) {
	obj, err := m.send(ctx, call{method: http.MethodPatch, content: object.AppendJSON(nil, patch),
		contentType: mediaMergePatch}, namespace, name)
	if err == nil {
		err = checkMetadata(obj)
	}
	return obj, err
}

// Latest returns the revision of the objects now. A resource with namespaces is asked for those of a namespace that is
// not likely to exist, as in the reference, since the answer is small.
func (m *Metadata) Latest(ctx context.Context) (revision string, err error) {
	r, err := m.route()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	path := r.path()
	if m.resource.Namespaced {
		path += "/namespaces/" + nowhere
	}
	body, _, err := r.exchange(ctx, call{method: http.MethodGet, path: path + "/" + m.resource.Name + "?limit=1",
		accept: mediaMetadata + ", " + mediaJSON, user: &m.user})
	if err != nil {
		return "", statusOf(err)
	}
	list, err := object.ParseJSON(body)
	if err != nil {
		return "", fmt.Errorf("a list of %s: %w", m.resource.Name, err)
	}
	return list.Value.At("metadata", "resourceVersion").Str(), nil
}

// List calls each with all objects, and returns the revision of the list.
func (m *Metadata) List(ctx context.Context, each func(obj object.Value) error) (revision string, err error) {
	r, err := m.route()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	revision, err = r.list(ctx, r.path()+"/"+m.resource.Name, &m.user, func(obj object.Value) error {
		if err := checkMetadata(obj); err != nil {
			return err
		}
		return each(obj)
	})
	if err == nil && revision == "" {
		err = fmt.Errorf("a list of %s has no resourceVersion", m.resource.Name)
	}
	return revision, statusOf(err)
}

// Watch calls each with the events after a revision, until the backend ends the watch or something fails. An event of
// the type BOOKMARK has an object that has a resourceVersion alone.
func (m *Metadata) Watch(ctx context.Context, revision string, each func(event string, obj object.Value) error) error {
	r, err := m.route()
	if err != nil {
		return err
	}
	limit := watchTimeout + rand.N(watchTimeout)
	ctx, cancel := context.WithTimeout(ctx, limit+requestTimeout)
	defer cancel()
	query := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {revision},
		"timeoutSeconds": {strconv.Itoa(int(limit.Seconds()))}}
	answer, err := r.open(ctx, call{method: http.MethodGet, path: r.path() + "/" + m.resource.Name + "?" + query.Encode(),
		accept: mediaObjectMetadata + ", " + mediaJSON, user: &m.user})
	if err != nil {
		var refused errStatus
		if errors.As(err, &refused) && refused.code == http.StatusGone {
			return ErrExpired
		}
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body := &limited{r: answer.Body}
	frames := json.NewDecoder(body)
	for {
		body.left = maxObject
		var frame struct {
			Type   string
			Object json.RawMessage
		}
		switch err := frames.Decode(&frame); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		parsed, err := object.ParseJSON(frame.Object)
		if err != nil {
			return err
		}
		if err := event(frame.Type, parsed.Value, each); err != nil {
			return err
		}
	}
}

// event handles one event of a watch.
func event(kind string, obj object.Value, each func(event string, obj object.Value) error) error {
	switch kind {
	case "ADDED", "MODIFIED", "DELETED":
		if err := checkMetadata(obj); err != nil {
			return err
		}
		return each(kind, obj)
	case "BOOKMARK":
		if obj.At("metadata", "resourceVersion").Str() == "" {
			return errors.New("a bookmark has no resourceVersion")
		}
		return each(kind, obj)
	case "ERROR":
		if obj.At("code").Int() == http.StatusGone {
			return ErrExpired
		}
		return fmt.Errorf("a watch ended with the error %q", obj.At("message").Str())
	}
	return fmt.Errorf("an event has the type %q", kind)
}

// limited reads at most left bytes.
type limited struct {
	r    io.Reader
	left int
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("an event has more than %d bytes", maxObject)
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}
