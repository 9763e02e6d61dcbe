// Package plane is a control plane: the API of Kubernetes over a store, with all that stands behind it. Authentication,
// authorization, admission, the verbs, controllers, aggregation and the documents of the API are made of values here
// and connected. A plane knows no flag, file or listener, and no other plane. A process (package server) gives it its
// storage, its keys and a way to clients; a test (package plinthtest) calls its handler.
package plane

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/access"
	"plinth/internal/addresses"
	"plinth/internal/admission"
	"plinth/internal/aggregation"
	"plinth/internal/auth"
	"plinth/internal/auth/serviceaccount"
	"plinth/internal/builtin"
	"plinth/internal/cel"
	"plinth/internal/controller"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/crd"
	"plinth/internal/discovery"
	"plinth/internal/engine"
	"plinth/internal/fairness"
	"plinth/internal/gotypes"
	"plinth/internal/httpapi"
	"plinth/internal/initial"
	"plinth/internal/nodes"
	"plinth/internal/planes/kind"
	"plinth/internal/reviews"
	"plinth/internal/storage"
	"plinth/internal/store"
)

// Plane is a control plane. The exported fields do not change.
type Plane struct {
	Storage    *storage.Storage
	Store      *store.Store // that of Storage
	Registry   *engine.Registry
	Types      *builtin.Types // the built-in types of Registry, without what is this plane's
	Engine     *engine.Engine
	Objects    *initial.Objects
	Aggregator *aggregation.Aggregator
	Documents  *discovery.Documents
	Fairness   *fairness.Fairness // nil without Limits.Fairness
	Verifier   *serviceaccount.Verifier
	// Expressions are the compiled expressions of custom types and of policies.
	Expressions *cel.Cache

	config      Config
	auth        *auth.Authenticator
	issuer      *serviceaccount.Issuer
	allocator   *addresses.Allocator
	admission   admission.Plugins
	definitions *controller.Definitions
	quotas      *controller.ResourceQuotas
	nodes       *nodes.Nodes
	handler     http.Handler
	http        httpapi.Config // of handler
	shared      shared
	busy        pace.Busy
	follow      []func(context.Context) // what runs until the plane closes, besides the controllers
	// serviceError is why the Service kubernetes or its endpoints could not be written; nil if they are up to date.
	serviceError error

	// closing is cancelled (by quit) when the plane closes: it ends watches and background work. work counts the
	// goroutines that Close waits for.
	closing context.Context
	quit    context.CancelFunc
	work    sync.WaitGroup
	// loops are those of the controllers, and upkeep are loops that have something to do only while the plane is used.
	loops, upkeep *steps.Group
}

// New makes a plane: it opens the storage, and makes or repairs the objects that every plane has. ctx bounds that. The
// plane answers requests when New returns, and does nothing by itself until Run is called. The caller calls Close.
func New(ctx context.Context, c Config) (*Plane, error) {
	p := &Plane{config: c}
	p.closing, p.quit = context.WithCancel(context.WithoutCancel(ctx))
	if p.config.Steps == nil {
		p.config.Steps, p.config.StepShare = steps.NewPool(StepShare), StepShare
	}
	p.loops = p.config.Steps.Group(p.closing, p.config.StepShare)
	p.upkeep = p.config.Steps.Group(p.closing, p.config.StepShare)
	for _, stage := range []func(context.Context) error{p.openEngine, p.makeObjects, p.openHandler} {
		if err := stage(ctx); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

// openEngine opens the storage, and makes the verbs over it: the types, who may do what, and what admission says.
func (p *Plane) openEngine(ctx context.Context) error {
	c := &p.config
	definitions := crd.New(gotypes.Of[metav1.ObjectMeta])
	definitions.Call = p.webhooks().Call
	if definitions.Shared = c.Definitions; c.Definitions != nil {
		p.Expressions = c.Definitions.Expressions
	} else {
		p.Expressions = &cel.Cache{Observe: c.Expressions}
	}
	definitions.Expressions = p.Expressions
	definitions.LatestExpressions = c.Releases.LatestExpressions()
	if c.Image != nil {
		definitions.Texts = c.Image.texts
	}
	p.allocator = addresses.New(c.Addresses)
	var err error
	if p.Types = c.Types; p.Types == nil && c.Image != nil && c.Now == nil {
		p.Types = c.Image.types
	}
	if p.Types == nil {
		if p.Types, err = c.Versions.Types(builtin.Config{EventTTL: c.EventTTL, Now: c.Now, Features: c.Features,
			Versions: c.Releases, Issued: c.Issued}, c.Logger); err != nil {
			return err
		}
	}
	types := p.Types.For(builtin.Parts{
		Authenticate: p.reviewToken, Tokens: p.answerToken, NoTokens: !c.Accounts.sign(),
		Definitions: definitions.Complete, Addresses: p.allocator, Authority: c.Authority, CountQuotas: p.countQuotas,
		Components: p.components, NamespaceLabel: p.namespaceLabel,
	})
	if c.Console {
		types = append(types, reviews.Resources(reviews.Config{Authority: c.Authority,
			Engine: func() *engine.Engine { return p.Engine }, Types: func() *engine.Types { return p.Registry.Now() }})...)
	}
	if c.Planes != nil {
		types = append(types, kind.Resource(*c.Planes))
	}
	p.Registry = engine.NewRegistry(types)
	if p.Storage, err = c.Storage(ctx, p.Registry, definitions.Define); err != nil {
		return err
	}
	p.Store = p.Storage.Store
	collection := p.Store.Collection(crd.Path)
	definitions.Open(collection)
	p.allocator.Open(p.Store.Collection(addresses.CIDRs))
	c.Authority.Open(p.Store)
	p.Registry.Define(collection, definitions.Define)
	if p.admission, err = p.plugins(); err != nil {
		return err
	}
	p.Engine = engine.New(engine.Config{
		Store: p.Store, Registry: p.Registry, Now: c.Now, Admission: p.admission.Admission,
		KeepFinalizers: !c.GarbageCollection, Elsewhere: p.Storage.Elsewhere(),
	})
	p.definitions = &controller.Definitions{
		Engine: p.Engine, Registry: p.Registry, Logger: c.Logger, Objects: definitions.Stored, Finalizer: crd.Finalizer,
		Busy: &p.busy, Shared: p.Storage.OnEtcd(),
	}
	p.quotas = &controller.ResourceQuotas{Engine: p.Engine, Registry: p.Registry, Store: p.Store, Logger: c.Logger,
		Busy: &p.busy, Admitted: !c.Controllers.Run(quotaController)}
	if c.Limits.Fairness {
		p.Fairness = fairness.New(fairness.Config{
			Share: c.Limits.Share, Seats: c.Limits.Reading + c.Limits.Writing, Places: c.Limits.Places,
			Schemas: p.Store.Collection(fairness.Group + "/flowschemas"),
			Levels:  p.Store.Collection(fairness.Group + "/prioritylevelconfigurations"),
		})
	}
	return nil
}

// makeObjects makes the objects that every plane has, and repairs those that are there, unless they are the image of
// another plane.
func (p *Plane) makeObjects(ctx context.Context) error {
	c := &p.config
	p.Objects = &initial.Objects{Engine: p.Engine, Registry: p.Registry, Store: p.Store, Features: c.Features,
		Logger: c.Logger, Now: p.clock, Fairness: c.Limits.Fairness, Ranges: c.Addresses.Ranges, NodePort: c.NodePort,
		Self: c.Self}
	p.Objects.Self.Peers = p.Storage.OnEtcd()
	switch {
	case c.Image != nil, c.Begin == BeginNone:
		return nil
	case c.Begin == BeginSelf:
		p.writeSelf(ctx)
		return nil
	}
	// It begins although some Services could not be repaired: it serves the others.
	if err := errors.Join(p.repairClaims(ctx), p.allocator.Adopt(ctx, p.Engine, p.Store)); err != nil {
		c.Logger.Warn("some Services are without what they should have", "error", err)
	}
	if err := p.Objects.Begin(ctx); err != nil {
		return err
	}
	p.writeSelf(ctx)
	return nil
}

// writeSelf writes the objects that say how to reach the plane. The API works without them, so an error is logged and
// does not end the start.
func (p *Plane) writeSelf(ctx context.Context) {
	if err := initial.Concurrently(func() error {
		if p.Objects.Self.Peers {
			return nil
		}
		p.serviceError = p.Objects.EnsureService(ctx)
		return p.serviceError
	}, func() error { return p.Objects.EnsureConfigMaps(ctx) }); err != nil {
		p.config.Logger.Warn("objects of the server are not up to date", "error", err)
	}
}

// openHandler makes what a request passes.
func (p *Plane) openHandler(context.Context) error {
	p.newAggregator()
	p.auth = p.authenticator()
	if err := p.newNodes(); err != nil {
		return err
	}
	return p.newHandler()
}

// Run starts what runs beside the requests: the controllers and other work, until Close. With elect they run while and
// where it calls its argument, whose context ends with that; nil: here, at once.
func (p *Plane) Run(elect func(lead func(context.Context))) {
	p.control(elect)
	if p.Fairness != nil {
		if p.config.Limits.Share == nil {
			p.run(func() { p.Fairness.Run(p.closing) })
		}
		if p.config.Image == nil {
			p.Objects.MaintainDangling(p.upkeep)
		}
	}
	if p.config.Image == nil {
		p.Objects.KeepUp(p.upkeep)
	}
	if p.Storage.Recovers() {
		p.run(func() { p.Storage.Recover(p.closing) })
	}
	for _, follow := range p.follow {
		p.run(func() { follow(p.closing) })
	}
}

func (p *Plane) run(f func()) {
	p.work.Add(1)
	go func() {
		defer p.work.Done()
		f()
	}()
}

// Handler serves the requests of clients. In the same process, the context of a request says who sends it (auth.As); if
// it does not, the credentials in its header do.
func (p *Plane) Handler() http.Handler { return p.handler }

// Authenticate returns the user of a request, as Handler does.
func (p *Plane) Authenticate(r *http.Request) (*access.Identity, error) {
	return p.auth.Authenticate(r.Context(), r)
}

// Busy says whether the plane's controllers have something to do at this moment (pace.Busy), or a watch has events that
// were not read.
func (p *Plane) Busy() bool {
	s := p.Store.Stats()
	return s.Cursors > s.Waiting || p.busy.Tasks() > 0 || p.loops.Busy() || p.upkeep.Busy()
}

// Ends is closed when watches and background work end.
func (p *Plane) Ends() <-chan struct{} { return p.closing.Done() }

// Due is when a controller has something to do that waits for a moment, such as the end of an object; zero: none does.
// The plane has to be open then.
func (p *Plane) Due() time.Time { return p.loops.Due() }

// Quit ends watches and background work. Other requests may go on until Close.
func (p *Plane) Quit() { p.quit() }

// Close ends watches and background work, and closes the storage. No request may be under way that Quit does not end.
func (p *Plane) Close() error {
	p.quit()
	p.loops.Close()
	p.upkeep.Close()
	p.work.Wait()
	if p.Aggregator != nil {
		p.Aggregator.Wait()
	}
	if p.config.Definitions == nil && p.Expressions != nil {
		p.Expressions.Close()
	}
	if p.Engine != nil {
		p.Engine.Close()
	}
	if p.Fairness != nil {
		p.Fairness.Close()
	}
	return p.Storage.Close()
}

// clock is the current time by the configured clock.
func (p *Plane) clock() time.Time {
	if p.config.Now != nil {
		return p.config.Now()
	}
	return time.Now()
}
