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
// A custom type is served as far as planes serve it themselves (acrosscustom.go).
//
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
	types  map[string]*acrossType // by engine.Kind.Path; for a custom type with its version behind it
	closed bool
	// refuser answers who may not read all planes.
	refuser func() (http.Handler, error)
}

// acrossType is one type in all planes. across.mu guards users, last and what is set when it is made; made is called
// without it.
type acrossType struct {
	made      func() error
	store     *store.Across // after made, as handler
	handler   http.Handler
	presenter store.Presenter // of which the handler is
	custom    *customType
	users     int
	last      time.Time // when the last one ended
}

// serveAll serves a request to all planes.
func (p *Planes) serveAll(w http.ResponseWriter, r *http.Request) {
	asked := httpapi.Parse(r)
	types := p.config.First.Registry.Builtin()
	resource := types.Find(asked.Group, asked.Version, asked.Resource)
	custom := resource == nil && asked.Group != "" && !types.HasBuiltinKind(asked.Group+"/"+asked.Resource)
	switch {
	case !asked.IsResource:
		p.refuse(w, r, apierr.NewNoSuchPath())
		return
	case !custom && (resource == nil || resource.Stored == nil || resource.Made != nil) || asked.Group == kind.Group:
		p.refuse(w, r, &apierr.Error{Code: http.StatusNotFound, Reason: apierr.NotFound, Message: "across planes, only " +
			"types of objects are served that are stored in planes"})
		return
	case asked.Verb != "list" && asked.Verb != "watch" || asked.Subresource != "":
		p.refuse(w, r, apierr.NewMethodNotAllowed())
		return
	case asked.Verb == "watch" && r.URL.Query().Has(sendInitial):
		p.refuse(w, r, apierr.NewInvalid(apierr.Type{Group: "meta.k8s.io", Name: "ListOptions"}, "", field.ErrorList{
			field.Forbidden(field.NewPath(sendInitial), sendInitial+" is forbidden across planes")}))
		return
	}
	if !p.mayRead(r) {
		// Nothing is made for who may not read it.
		if refuser, err := p.across.refuser(); err != nil {
			p.refuse(w, r, err)
		} else {
			refuser.ServeHTTP(w, r)
		}
		return
	}
	var t *acrossType
	var err error
	if custom {
		t, err = p.useType(asked.Group+"/"+asked.Resource+"/"+asked.Version, &customType{definitions: p.config.Definitions,
			group: asked.Group, version: asked.Version, plural: asked.Resource})
	} else {
		t, err = p.useType(resource.Stored.Path, nil)
	}
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer p.releaseType(t)
	p.handlerOf(t).ServeHTTP(w, r)
}

// forAll is what those are told who may not read all planes.
const forAll = "that takes the verb access on all planes"

// mayRead says whether the user of a request may read all planes. It spares the making of a type for those who may not:
// the handler of the type decides once more, also for who impersonates another user, which is not looked at here.
func (p *Planes) mayRead(r *http.Request) bool {
	if r.Header.Get("Impersonate-User") != "" {
		return true
	}
	id, err := p.config.First.Authenticate(r)
	return err == nil && p.config.First.Allows(r.Context(), id.User, kind.AccessTo(""))
}

// useType returns a type, until releaseType. custom is nil for a built-in one, whose name is its path.
func (p *Planes) useType(name string, custom *customType) (*acrossType, error) {
	p.across.mu.Lock()
	if p.across.closed {
		p.across.mu.Unlock()
		return nil, apierr.NewUnavailable("the server is closing")
	}
	t := p.across.types[name]
	var over *store.Across
	if t != nil && t.over() {
		// Who still reads it is told to begin again.
		t, over = nil, t.store
	}
	if t == nil {
		t = &acrossType{custom: custom}
		t.made = sync.OnceValue(func() error { return p.makeType(t, name) })
		p.across.types[name] = t
	}
	t.users++
	p.across.mu.Unlock()
	p.closeAcross(over)
	err := t.made()
	if err != nil {
		p.releaseType(t)
		p.across.mu.Lock()
		defer p.across.mu.Unlock()
		if p.across.types[name] == t {
			delete(p.across.types, name) // the next request tries again
		}
		return nil, err
	}
	return t, nil
}

// over says whether nobody can begin to read the type: it does not follow the planes any more, or none of them serves
// it, and if some serve another one of this name, that is to be found.
func (t *acrossType) over() bool {
	return t.store != nil && (t.store.Broken() || t.custom != nil && len(t.store.Presenters()) == 0)
}

// makeType begins to follow a type.
func (p *Planes) makeType(t *acrossType, name string) error {
	first := p.config.First
	config := store.AcrossConfig{Resource: name, Planes: kind.Path}
	var presenter store.Presenter
	var resource *engine.Resource
	if t.custom == nil {
		presenter = &builtIn{engine.Describe(first.Registry)}
		config.Presenter = func(*store.Version) store.Presenter { return presenter }
	} else {
		chosen, err := p.choose(t.custom)
		if err != nil {
			return err
		}
		presenter, resource = custom{chosen}, chosen.Shown
		t.custom.configure(&config, chosen)
	}
	all, err := first.Store.Across(config)
	if err != nil {
		return err
	}
	handler, err := p.handlerOver(all, resource)
	if err != nil {
		return errors.Join(err, all.Close())
	}
	p.across.mu.Lock()
	defer p.across.mu.Unlock()
	t.store, t.handler, t.presenter = all, handler, presenter
	return nil
}

// handlerOver makes the handler for a type; a nil resource is for a built-in one.
func (p *Planes) handlerOver(all *store.Across, resource *engine.Resource) (http.Handler, error) {
	first := p.config.First
	types := first.Registry
	if resource != nil {
		types = engine.NewRegistry([]*engine.Resource{resource})
	}
	return first.Reader(engine.New(engine.Config{Store: all.Store, Registry: types, Now: p.config.Now}), types,
		kind.AccessTo(""), forAll)
}

// handlerOf is the handler of a type. If no plane has the definition any more that it is made of, it is made of the one
// that most planes have, which may have other columns of tables and other selectable fields.
func (p *Planes) handlerOf(t *acrossType) http.Handler {
	p.across.mu.Lock()
	defer p.across.mu.Unlock()
	if t.custom == nil {
		return t.handler
	}
	presenters := t.store.Presenters()
	if presenters[t.presenter] > 0 {
		return t.handler
	}
	best := t.presenter
	for v, n := range presenters {
		if n > presenters[best] {
			best = v
		}
	}
	if best == t.presenter {
		return t.handler
	}
	handler, err := p.handlerOver(t.store, best.(custom).Shown)
	if err != nil {
		p.config.Logger.Error("a type in all planes is served by an old definition", "error", err)
		return t.handler
	}
	t.handler, t.presenter = handler, best
	return handler
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
		p.closeAcross(s)
	}
}

func (p *Planes) closeAcross(s *store.Across) {
	if s == nil {
		return
	}
	if err := s.Close(); err != nil {
		p.config.Logger.Error("what was followed in all planes was not closed well", "error", err)
	}
}

// builtIn shows the objects of a built-in type, which is the same in all planes.
type builtIn struct {
	describe func(store.Key, []byte) *store.Sidecar
}

// Present implements store.Presenter.
func (b *builtIn) Present(k store.Key, v *store.Version, plane string) ([]byte, *store.Sidecar, error) {
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
	data := object.AppendObject(nil, obj.WithAt(object.StringOf(plane), "metadata", "annotations", ofPlane))
	return data
}
