// Package planes has the planes of a process besides the first one: it finds the plane of a request, opens it when it
// is used, and lets it go when it is not.
//
// A plane is an object of the first plane (package kind), and a part of its store (store.Begin). Both begin and end
// with one commit, so this package keeps no list of planes that could be wrong: it looks the object up for each
// request.
//
//	a plane is served  ⇔  its object is in the store
//
// What is in the store of a plane is in memory all the time. All else (types, views, admission, controllers, the
// handler) is a plane.Plane, which is made when somebody asks for the plane, and closed when nobody has for a while and
// its controllers have nothing to do. So ten thousand planes cost what they have, and a few hundred that are in use
// what servers cost.
//
// A new plane begins with what a server makes in an empty store. The template has that: a plane which the process
// brings up to date at its start, and which nobody can reach.
//
// A type can be listed and watched in all planes at once (across.go).
package planes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"plinth/internal/apierr"
	"plinth/internal/crd"
	"plinth/internal/engine"
	"plinth/internal/fairness"
	"plinth/internal/plane"
	"plinth/internal/planes/kind"
	"plinth/internal/planes/route"
	"plinth/internal/storage"
	"plinth/internal/store"
)

// Config says how planes are made.
type Config struct {
	// First is the plane whose objects the planes are.
	First *plane.Plane
	// Domain has the host names of planes (route.Router).
	Domain string
	// Make returns what a plane is made of, except for its storage.
	Make func(ctx context.Context, of Plane) (*plane.Config, error)
	// Secret identifies the secret from which the keys of planes are derived, and Adopted says that it may be another one
	// than those that are in the store were served with.
	Secret  string
	Adopted bool
	// Controllers identifies the controllers that run in planes.
	Controllers string
	// Idle is how long a plane stays open that nobody uses. 0: DefaultIdle.
	Idle time.Duration
	// Definitions has what the definitions of all planes have in common.
	Definitions *crd.Shared
	Now         func() time.Time
	Logger      *slog.Logger
}

// DefaultIdle is Config.Idle, if that is not set.
const DefaultIdle = 10 * time.Second

// Resources are the types of the first plane's store whose objects stand for planes.
var Resources = []string{kind.Path, Templates}

// Plane is what is known of a plane before it is opened.
type Plane struct {
	Name, UID string
	Created   time.Time
	Spec      kind.Spec
	revision  int64 // with which it has begun
}

// Planes are the planes of a process. Its methods may be called concurrently.
type Planes struct {
	config Config
	router route.Router

	// mu guards the following, and the fields of planes that say so.
	mu     sync.Mutex
	open   map[string]*opened // by UID
	closed bool
	// begun are the planes that this process has opened before, by UID: what every plane has is up to date in them.
	begun map[string]bool
	// records are what the process knows of planes, by UID, and refreshed is when their objects were brought up to
	// date.
	records   map[string]*record
	refreshed time.Time
	alarms    map[string]alarm // of planes that are closed, by UID
	// current is the revision of the template since which a plane that begins with it has all that it should have.
	current int64
	// noted is what the store says of the time before; it is written by New, and by visit later.
	noted noted
	// closing is cancelled by quit when the process closes. work counts what Close waits for.
	closing context.Context
	quit    context.CancelFunc
	work    sync.WaitGroup
	across  across
}

// opened is a plane that is open, or is being opened or closed.
//
//	users > 0  ⇒  plane is open, unless it has ended
//	gone  ⇒  it is not in Planes.open: who finds the plane from then on makes another entry
type opened struct {
	Plane
	version *store.Version // of the object by which it was configured; Planes.mu guards it and Plane

	mu      sync.Mutex // held while the plane is opened, too
	plane   *plane.Plane
	share   *fairness.Share // Planes.mu guards it, and what record has
	record  *record
	users   int       // requests, and visits
	last    time.Time // when the last one ended
	gone    bool
	drained chan struct{} // closed when no user is left; nil: nobody waits for that
}

// New begins to serve planes. It brings the template up to date. The caller calls Run and Close.
func New(ctx context.Context, c Config) (*Planes, error) {
	if c.Idle == 0 {
		c.Idle = DefaultIdle
	}
	p := &Planes{config: c, router: route.Router{Domain: c.Domain}, open: map[string]*opened{},
		begun: map[string]bool{}, records: map[string]*record{}, alarms: map[string]alarm{},
		across: across{types: map[string]*acrossType{}}}
	p.across.refuser = sync.OnceValues(func() (http.Handler, error) { return c.First.Refuser(forAll) })
	p.closing, p.quit = context.WithCancel(context.WithoutCancel(ctx))
	if err := p.makeTemplate(ctx); err != nil {
		return nil, fmt.Errorf("the objects with which planes begin: %w", err)
	}
	return p, nil
}

// ServeHTTP serves a request to whichever plane it is for.
func (p *Planes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, inner, err := p.router.Route(r)
	switch {
	case err != nil:
		p.refuse(w, r, err)
	case name == "":
		p.config.First.Handler().ServeHTTP(w, r)
	case name == route.All:
		p.serveAll(w, inner)
	default:
		p.serve(name, w, inner)
	}
}

// refuse answers a request with an error.
func (p *Planes) refuse(w http.ResponseWriter, _ *http.Request, err error) {
	if !errors.As(err, new(*apierr.Error)) {
		p.config.Logger.Error("a request to a plane was not served", "error", err)
		err = apierr.NewInternal(errors.New("the plane cannot be opened"))
	}
	route.Refuse(w, err)
}

// serve serves a request to a plane. It holds the plane open until the handler returns, which for a watch or a
// connection is when that ends.
func (p *Planes) serve(name string, w http.ResponseWriter, r *http.Request) {
	o, err := p.use(r.Context(), name)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer p.release(o)
	p.mu.Lock()
	o.record.requests++
	p.mu.Unlock()
	o.plane.Handler().ServeHTTP(w, r)
}

// find returns the object of a plane; nil: there is none.
func (p *Planes) find(name string) *store.Version {
	v, _ := p.config.First.Store.Get(store.Key{Resource: kind.Path, Name: name})
	return v
}

// describe reads what an object says of its plane.
func describe(v *store.Version) (Plane, error) {
	obj, err := engine.ObjectOf(v)
	if err != nil {
		return Plane{}, err
	}
	created, err := time.Parse(time.RFC3339, obj.At("metadata", "creationTimestamp").Str())
	return Plane{Name: v.Key.Name, UID: v.Sidecar.UID, Created: created, Spec: kind.SpecOf(obj)}, err
}

// use returns a plane, open, until release.
func (p *Planes) use(ctx context.Context, name string) (*opened, error) {
	v := p.find(name)
	if v == nil {
		return nil, noPlane(name)
	}
	for {
		o, err := p.known(v)
		if err != nil {
			return nil, err
		}
		if ok, err := p.enter(ctx, o); ok || err != nil {
			return o, err
		}
	}
}

// known returns the entry of a plane, with what its object says now.
func (p *Planes) known(v *store.Version) (*opened, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, apierr.NewUnavailable("the server is closing")
	}
	o := p.open[v.Sidecar.UID]
	if o != nil && o.version.Revision >= v.Revision {
		return o, nil
	}
	of, err := describe(v)
	if err == nil {
		err = p.limit(of)
	}
	if err != nil { // also for a plane that has ended since it was found: it gets no entry
		return nil, err
	}
	if o == nil {
		o = &opened{}
		p.open[of.UID] = o
		if o.record = p.records[of.UID]; o.record == nil {
			o.record = &record{}
			p.records[of.UID] = o.record
		}
	}
	o.Plane, o.version = of, v
	if o.share != nil {
		o.share.SetWeight(int(of.Spec.Weight))
		o.share.SetRequests(Requests(of.Spec))
	}
	return o, nil
}

// Requests is the limit of requests of a plane, for its share; 0: none.
func Requests(s kind.Spec) int { return max(0, int(s.Limits.Requests)) }

// limit sets the limits of a plane that its store judges.
func (p *Planes) limit(of Plane) error {
	s, err := p.config.First.Store.Plane(of.UID)
	if errors.Is(err, store.ErrNoPlane) {
		return noPlane(of.Name)
	}
	if err != nil {
		return err
	}
	// A limit of 0 allows nothing, which for the store is the least that there can be.
	bound := func(n int64) int64 {
		switch {
		case n == kind.Unlimited:
			return 0
		case n == 0:
			return 1
		}
		return n
	}
	l := of.Spec.Limits
	return s.SetBounds(store.Bounds{Objects: bound(l.Objects), Bytes: bound(l.Bytes), ReadOnly: of.Spec.ReadOnly})
}

// enter makes the caller a user of a plane, and opens it for the first one. It returns false if the entry is not that
// of the plane any more.
func (p *Planes) enter(ctx context.Context, o *opened) (ok bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return false, nil
	}
	if o.plane == nil {
		p.mu.Lock()
		of := o.Plane
		p.mu.Unlock()
		var share *fairness.Share
		if o.plane, share, err = p.openPlane(ctx, of); err != nil {
			p.forget(o)
			return false, err
		}
		p.mu.Lock()
		o.share = share
		p.mu.Unlock()
	}
	o.users++
	return true, nil
}

// openPlane makes a plane of what is in its store.
func (p *Planes) openPlane(ctx context.Context, of Plane) (*plane.Plane, *fairness.Share, error) {
	s, err := p.config.First.Store.Plane(of.UID)
	if errors.Is(err, store.ErrNoPlane) {
		return nil, nil, noPlane(of.Name)
	}
	if err != nil {
		return nil, nil, err
	}
	of.revision = s.Begun()
	// The request that opens the plane does not end what is opened.
	made, share, err := p.make(context.WithoutCancel(ctx), of, s)
	if err != nil {
		return nil, nil, fmt.Errorf("the plane %s cannot be opened: %w", of.Name, err)
	}
	p.mu.Lock()
	p.begun[of.UID] = !of.Spec.ReadOnly
	delete(p.alarms, of.UID)
	p.mu.Unlock()
	made.Run(nil)
	return made, share, nil
}

// storage opens the store of a plane.
func (p *Planes) storage(s *store.Store) func(context.Context, *engine.Registry, engine.Define) (*storage.Storage,
	error) {
	return func(context.Context, *engine.Registry, engine.Define) (*storage.Storage, error) {
		return p.config.First.Storage.Plane(s), nil
	}
}

// make makes a plane over a store, with its share of the process.
func (p *Planes) make(ctx context.Context, of Plane, s *store.Store) (*plane.Plane, *fairness.Share, error) {
	config, err := p.config.Make(ctx, of)
	if err != nil {
		return nil, nil, err
	}
	config.Storage, config.Begin = p.storage(s), p.begins(of)
	made, err := plane.New(ctx, *config)
	return made, config.Limits.Share, err
}

// begins says what is to be made in a plane that is opened: nothing if this process has done so before or nothing may
// be written, and little if it has begun with the template as it is.
func (p *Planes) begins(of Plane) plane.Begin {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.begun[of.UID], of.Spec.ReadOnly:
		return plane.BeginNone
	case of.Spec.From == (kind.From{}) && p.current > 0 && of.revision > p.current:
		return plane.BeginSelf
	}
	return plane.BeginAll
}

// release ends the use of a plane by a request.
func (p *Planes) release(o *opened) {
	o.mu.Lock()
	o.last = p.config.Now()
	o.mu.Unlock()
	p.leave(o)
}

// leave ends the use of a plane without a request.
func (p *Planes) leave(o *opened) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.users--; o.users == 0 && o.drained != nil {
		close(o.drained)
	}
}

// forget takes an entry out of the open planes. The caller holds the lock of the entry.
func (p *Planes) forget(o *opened) {
	o.gone = true
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[o.UID] == o {
		delete(p.open, o.UID)
	}
}

// Run closes planes that nobody uses, and follows the objects of planes, until Close.
func (p *Planes) Run() {
	p.work.Go(p.rest)
	p.work.Go(p.follow)
	p.work.Go(p.keep)
	p.work.Go(p.visit)
}

// visitsAtOnce is how many planes are visited at a time. More would be done sooner, and take the processors from those
// who use planes.
const visitsAtOnce = 4

// visit opens those planes once in which something has changed since their controllers had nothing to do, as far as is
// known: the process has ended meanwhile. They are closed again when there is nothing left to do. What is known is of
// the controllers that ran then: if others run now, all planes are opened.
func (p *Planes) visit() {
	all := p.noted.Controllers != p.config.Controllers
	visited := p.toVisit(all)
	names := make(chan string)
	var visits sync.WaitGroup
	for range min(visitsAtOnce, len(visited)) {
		visits.Go(func() {
			for name := range names {
				p.visitPlane(name)
			}
		})
	}
	var uids []string
	for _, v := range visited {
		if p.closing.Err() != nil {
			break
		}
		names <- v.Key.Name
		uids = append(uids, v.Sidecar.UID)
	}
	close(names)
	visits.Wait()
	if all && p.await(uids) {
		p.noted.Controllers = p.config.Controllers
		if err := p.note(p.closing); err != nil && p.closing.Err() == nil {
			p.config.Logger.Warn("all planes will be opened again at the next start", "error", err)
		}
	}
}

// toVisit are the objects of the planes that do not rest, or of all.
func (p *Planes) toVisit(all bool) (planes []*store.Version) {
	sn, err := p.config.First.Store.Snapshot(0)
	if err != nil {
		return nil
	}
	sn.Ascend(kind.Path, "", "", func(v *store.Version) bool {
		s, err := p.config.First.Store.Plane(v.Sidecar.UID)
		if err != nil {
			return true
		}
		if u := s.Usage(); u.Resting != u.Revision || all {
			planes = append(planes, v)
		}
		return true
	})
	return planes
}

// visitPlane opens a plane, and closes it as soon as its controllers have nothing to do, unless somebody else uses it.
// One that is busy for longer is left to rest, for the others wait.
func (p *Planes) visitPlane(name string) {
	o, err := p.use(p.closing, name)
	if err != nil {
		if p.closing.Err() == nil && !apierr.Is(err, apierr.NotFound) {
			p.config.Logger.Error("a plane was not opened", "plane", name, "error", err)
		}
		return
	}
	o.awaitQuiet(time.Now().Add(p.config.Idle))
	p.leave(o)
	p.close(o, false)
}

// awaitQuiet waits until several looks in a row at a plane find nothing to do, for a moment, or for the plane's end.
func (o *opened) awaitQuiet(until time.Time) {
	for quiet := 0; quiet < visitLooks && time.Now().Before(until); {
		select {
		case <-o.plane.Ends():
			return
		case <-time.After(visitPause):
		}
		if quiet++; o.plane.Busy() {
			quiet = 0
		}
	}
}

// A controller is busy as soon as a change that concerns it is made, but for a moment: the store may wake who follows
// changes up to 20 ms later, so a pause is longer than that, and one look is not enough.
const (
	visitLooks = 3
	visitPause = 25 * time.Millisecond
)

// await waits until planes have been closed, which they are when they have nothing to do. It returns false if the
// process closes before.
func (p *Planes) await(planes []string) bool {
	for {
		p.mu.Lock()
		planes = slices.DeleteFunc(planes, func(uid string) bool { return p.open[uid] == nil })
		p.mu.Unlock()
		if len(planes) == 0 {
			return p.closing.Err() == nil
		}
		select {
		case <-p.closing.Done():
			return false
		case <-time.After(p.config.Idle / 4):
		}
	}
}

// rest closes planes that nobody uses.
func (p *Planes) rest() {
	ticker := time.NewTicker(p.config.Idle / 4)
	defer ticker.Stop()
	for {
		select {
		case <-p.closing.Done():
			return
		case <-ticker.C:
		}
		for _, o := range p.all() {
			p.close(o, false)
		}
		p.ring()
		p.restTypes(false)
	}
}

// all are the open planes.
func (p *Planes) all() []*opened {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*opened, 0, len(p.open))
	for _, o := range p.open {
		all = append(all, o)
	}
	return all
}

// close closes a plane if nobody has used it for a while and it has nothing to do; with end set it does so in any case,
// makes its users go, and waits for them.
func (p *Planes) close(o *opened, end bool) {
	o.mu.Lock()
	if o.gone || o.plane == nil || !end && (o.users > 0 || p.config.Now().Sub(o.last) < p.config.Idle || o.plane.Busy()) {
		o.mu.Unlock()
		return
	}
	due := o.plane.Due()
	if !end && !due.IsZero() && time.Until(due) < p.config.Idle {
		o.mu.Unlock()
		return
	}
	alarmed := !end && p.setAlarm(o, due)
	p.forget(o)
	if o.users > 0 {
		o.drained = make(chan struct{})
	}
	o.mu.Unlock()
	if o.drained != nil {
		o.plane.Quit()
		<-o.drained
	}
	s := o.plane.Store
	if err := o.plane.Close(); err != nil {
		p.config.Logger.Error("a plane was not closed well", "plane", o.Name, "error", err)
	}
	s.Rest(!end && !alarmed)
}

// Figures are figures about planes.
type Figures struct {
	Planes int // besides the first one
	Open   int
}

// Figures returns the figures.
func (p *Planes) Figures() Figures {
	sn, err := p.config.First.Store.Snapshot(0)
	if err != nil {
		return Figures{}
	}
	return Figures{Planes: sn.Count(kind.Path, ""), Open: len(p.all())}
}

// Quit ends the watches of all planes, and what runs beside requests. Other requests may go on until Close.
func (p *Planes) Quit() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.quit()
	for _, o := range p.all() {
		o.mu.Lock()
		if o.plane != nil {
			o.plane.Quit()
		}
		o.mu.Unlock()
	}
}

// Close closes all planes. No request may be under way that the end of its plane's watches does not end.
func (p *Planes) Close() {
	p.Quit()
	p.work.Wait()
	for _, o := range p.all() {
		p.close(o, true)
	}
	p.restTypes(true)
}
