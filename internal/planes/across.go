package planes

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/httpapi"
	"plinth/internal/planes/kind"
	"plinth/internal/store"
	"plinth/object"
)

// What /clusters/* serves is a list and a watch of one type in all planes but the first one: with one connection a
// controller follows ten thousand planes. It is what a plane serves at the same path, with the objects of all of them,
// whose annotation kcp.io/cluster names the plane, as in kcp; informers made for kcp find them by it. The
// resourceVersion of an object is that of its plane, for writes to /clusters/NAME. That of the list, and of bookmarks,
// is the place in the one log of all planes, from which a watch goes on. Objects of a plane that begins are ADDED, and
// those of one that ends are DELETED, each once. A watch that resumes from the resourceVersion of an object with which
// a plane has begun, which may be an old one, may see events again, or is told to list again (410); behind such objects
// there is a bookmark.
//
// A list as a watch (sendInitialEvents) is refused, whereupon client-go lists: its reflector collects such a list by
// namespace and name alone, so that of the objects of all planes with one name it would keep a single one.
//
// The answers come from the ordinary handler, engine and store, over an Across of the store for each type that somebody
// reads. It is made by the first request, and stays until nobody has used it for as long as history is kept.
//
// Only built-in types are served: those of a definition may be another one in each plane, and so may their versions.
// Who reads all planes needs the verb access on all of them, by a rule of the first plane without resourceNames. It
// makes its holder an administrator in each (package credentials), so nothing is shown that could not be read before.

// ofPlane is the annotation that names the plane of an object.
const ofPlane = "kcp.io/cluster"

const sendInitial = "sendInitialEvents"

// acrossIdle is how long an Across stays that nobody uses: a watch that is resumed later than the history reaches back
// has to list again in any case.
const acrossIdle = 5 * time.Minute

// across are the types that are read in all planes.
type across struct {
	mu     sync.Mutex
	types  map[string]*acrossType // by engine.Kind.Path
	closed bool
}

// acrossType is one type in all planes. across.mu guards users and last; made is called without it.
type acrossType struct {
	made    func() error
	store   *store.Across // after made, as handler
	handler http.Handler
	users   int
	last    time.Time // when the last one ended
}

// serveAll serves a request to all planes.
func (p *Planes) serveAll(w http.ResponseWriter, r *http.Request) {
	asked := httpapi.Parse(r)
	first := p.config.First
	resource := first.Registry.Builtin().Find(asked.Group, asked.Version, asked.Resource)
	switch {
	case !asked.IsResource:
		p.refuse(w, r, apierr.NewNoSuchPath())
		return
	case resource == nil || resource.Stored == nil || resource.Made != nil || asked.Group == kind.Group:
		p.refuse(w, r, &apierr.Error{Code: http.StatusNotFound, Reason: apierr.NotFound, Message: "across planes, only " +
			"built-in types that are stored are served, and each plane has its own others"})
		return
	case asked.Verb != "list" && asked.Verb != "watch" || asked.Subresource != "":
		p.refuse(w, r, apierr.NewMethodNotAllowed())
		return
	case asked.Verb == "watch" && r.URL.Query().Has(sendInitial):
		p.refuse(w, r, apierr.NewInvalid(apierr.Type{Group: "meta.k8s.io", Name: "ListOptions"}, "", field.ErrorList{
			field.Forbidden(field.NewPath(sendInitial), sendInitial+" is forbidden across planes")}))
		return
	}
	t, err := p.useType(resource)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer p.releaseType(t)
	t.handler.ServeHTTP(w, r)
}

// useType returns a type, until releaseType.
func (p *Planes) useType(r *engine.Resource) (*acrossType, error) {
	path := r.Stored.Path
	p.across.mu.Lock()
	if p.across.closed {
		p.across.mu.Unlock()
		return nil, apierr.NewUnavailable("the server is closing")
	}
	t := p.across.types[path]
	if t == nil || t.store != nil && t.store.Broken() {
		t = &acrossType{}
		t.made = sync.OnceValue(func() error { return p.makeType(t, path) })
		p.across.types[path] = t
	}
	t.users++
	p.across.mu.Unlock()
	err := t.made()
	if err != nil {
		p.releaseType(t)
		p.across.mu.Lock()
		defer p.across.mu.Unlock()
		if p.across.types[path] == t {
			delete(p.across.types, path) // the next request tries again
		}
		return nil, err
	}
	return t, nil
}

// makeType begins to follow a type.
func (p *Planes) makeType(t *acrossType, path string) error {
	first := p.config.First
	view := &builtIn{engine.Describe(first.Registry)}
	all, err := first.Store.Across(store.AcrossConfig{Resource: path, Planes: kind.Path,
		View: func(*store.Version) store.View { return view }})
	if err != nil {
		return err
	}
	handler, err := first.Reader(engine.New(engine.Config{Store: all.Store, Registry: first.Registry, Now: p.config.Now}),
		kind.AccessTo(""), "that takes the verb access on all planes")
	if err != nil {
		return errors.Join(err, all.Close())
	}
	p.across.mu.Lock()
	defer p.across.mu.Unlock()
	t.store, t.handler = all, handler
	return nil
}

// releaseType ends the use of a type.
func (p *Planes) releaseType(t *acrossType) {
	p.across.mu.Lock()
	defer p.across.mu.Unlock()
	t.users--
	t.last = p.config.Now()
}

// restTypes ends the types that nobody uses; with end set, all of them, whose watches have ended.
func (p *Planes) restTypes(end bool) {
	p.across.mu.Lock()
	var over []*store.Across
	p.across.closed = p.across.closed || end
	for path, t := range p.across.types {
		if end || t.users == 0 && p.config.Now().Sub(t.last) > acrossIdle {
			delete(p.across.types, path)
			if t.store != nil {
				over = append(over, t.store)
			}
		}
	}
	p.across.mu.Unlock()
	for _, s := range over {
		if err := s.Close(); err != nil {
			p.config.Logger.Error("what was followed in all planes was not closed well", "error", err)
		}
	}
}

// builtIn shows the objects of a built-in type, which is the same in all planes.
type builtIn struct {
	describe func(store.Key, []byte) *store.Sidecar
}

// Show implements store.View.
func (b *builtIn) Show(k store.Key, v *store.Version, plane string) ([]byte, *store.Sidecar, error) {
	if v.Sidecar.Unreadable != nil {
		return v.Data(), v.Sidecar, nil
	}
	obj, err := engine.ObjectOf(v)
	if err != nil {
		return nil, nil, err
	}
	data := named(obj, plane)
	described := b.describe(k, data)
	if described.Unreadable != nil {
		return nil, nil, described.Unreadable
	}
	sidecar := *v.Sidecar // what it says of the object is true of this one, too, but Extra is about the bytes
	sidecar.Extra, sidecar.Expire = described.Extra, time.Time{}
	return data, &sidecar, nil
}

// named is an object as that of a plane.
func named(obj object.Value, plane string) []byte {
	data, _ := object.AppendStored(nil, obj.WithAt(object.StringOf(plane), "metadata", "annotations", ofPlane))
	return data
}
