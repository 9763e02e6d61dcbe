package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"plinth/internal/access"
	"plinth/internal/addresses"
	"plinth/internal/apierr"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// serviceCIDRController is the name of the controller, and the field manager of its conditions. (Its patches of
// finalizers name no manager, so that it is the program.)
const serviceCIDRController = "service-cidr-controller"

// ServiceCIDRs keeps a deleted ServiceCIDR as long as a Service has an address of it that is in no other ServiceCIDR,
// and reports that in its condition Ready (DEL-1).
//
// Between the last look at the addresses and the removal of the finalizer no address can be allocated from it, as an
// allocation has the precondition that the ServiceCIDR is not being deleted. So the finalizer is removed at once, and
// not after ten seconds, as in the reference, unless there may be servers whose allocations have no such precondition:
// see Grace.
type ServiceCIDRs struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
	// Grace is how long a deleted ServiceCIDR stays although none of its addresses is needed: until then a
	// kube-apiserver on the same etcd may not know that it was deleted, and give an address of it to a Service.
	Grace time.Duration
}

// AllocatorsLag is the Grace with which kube-controller-manager waits for kube-apiservers.
const AllocatorsLag = 10 * time.Second

// Start begins its loop.
func (c *ServiceCIDRs) Start(g *steps.Group) {
	types := c.Registry.Now()
	cidrs, ips := types.Find("networking.k8s.io", "v1", "servicecidrs"), types.Find("networking.k8s.io", "v1",
		"ipaddresses")
	if c.Now == nil {
		c.Now = time.Now
	}
	if cidrs == nil || ips == nil {
		return
	}
	user := access.ControllerAccount(serviceCIDRController)
	p := &cidrPass{ServiceCIDRs: c, cidrs: cidrs, ips: ips, user: user}
	(&watcher{engine: c.Engine, of: cidrs, user: user, handle: p.handle, ended: p.unblock,
		begin: func(context.Context) { p.all = map[string]*serviceCIDR{} },
		failed: func(err error) {
			p.unblock()
			c.Logger.Warn("looking after ServiceCIDRs failed, trying again", "error", err)
		}}).start(g)
}

// cidrPass is the state of one watch of the ServiceCIDRs, which makes a pass after each change. While a ServiceCIDR
// waits for addresses to be released, or for the end of its grace, the IPAddresses are watched, too.
type cidrPass struct {
	*ServiceCIDRs
	cidrs, ips *engine.Resource
	user       access.User

	all      map[string]*serviceCIDR
	due      time.Time     // the first end of a grace; zero: there is none
	released *engine.Watch // of the IPAddresses; nil: no ServiceCIDR waits
}

type serviceCIDR struct {
	name     string
	obj      object.Value
	prefixes []netip.Prefix
}

func (p *cidrPass) handle(ctx context.Context, l *steps.Loop, events []engine.Event) (next time.Time, err error) {
	for _, event := range events {
		delete(p.all, event.Object.Key.Name)
		if event.Type == engine.Deleted {
			continue
		}
		if c, err := readCIDR(event.Object); err == nil { // an unreadable one has no addresses
			p.all[c.name] = c
		}
	}
	gone, err := p.addressesGone(ctx, l)
	if err != nil {
		return next, err
	}
	if len(events) == 0 && !gone && (p.due.IsZero() || p.due.After(p.Now())) {
		return p.nextDue(), nil
	}
	blocked, err := p.look(ctx)
	switch {
	case err != nil:
		return next, err
	case !blocked:
		p.unblock()
		return next, nil
	case p.released != nil:
		return p.nextDue(), nil
	}
	// An address that is released before the watch begins is seen by another look.
	p.released, err = p.Engine.Watch(ctx, &engine.Request{Resource: p.ips, User: p.user}, engine.WatchOptions{})
	if err != nil {
		p.released = nil
		return next, err
	}
	if _, err := p.addressesGone(ctx, l); err != nil {
		return next, err
	}
	if blocked, err = p.look(ctx); !blocked {
		p.unblock()
	}
	return p.nextDue(), err
}

// addressesGone reads the events of the IPAddresses, if they are watched, and says whether one was deleted.
func (p *cidrPass) addressesGone(ctx context.Context, l *steps.Loop) (gone bool, err error) {
	for p.released != nil {
		events, err := p.released.Ready(ctx, l.Waker())
		if err != nil || len(events) == 0 {
			return gone, err
		}
		gone = gone || slices.ContainsFunc(events, func(e engine.Event) bool { return e.Type == engine.Deleted })
	}
	return gone, nil
}

// unblock ends the watch of the IPAddresses.
func (p *cidrPass) unblock() {
	if p.released != nil {
		p.released.Close()
		p.released = nil
	}
}

// nextDue is when the first grace ends, by the clock of the machine.
func (p *cidrPass) nextDue() (at time.Time) {
	if p.due.IsZero() {
		return at
	}
	return time.Now().Add(p.due.Sub(p.Now()))
}

func readCIDR(o *engine.Object) (*serviceCIDR, error) {
	obj, err := parsed(o)
	if err != nil {
		return nil, err
	}
	c := &serviceCIDR{name: o.Key.Name, obj: obj}
	for _, text := range obj.At("spec", "cidrs").Items() {
		if prefix, err := netip.ParsePrefix(text.Str()); err == nil {
			c.prefixes = append(c.prefixes, prefix.Masked())
		}
	}
	return c, nil
}

// look reconciles all ServiceCIDRs, and says whether one of them waits.
func (p *cidrPass) look(ctx context.Context) (blocked bool, err error) {
	p.due = time.Time{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(p.all)) {
		waits, err := p.reconcile(ctx, p.all[name])
		blocked = blocked || waits
		if err != nil && !apierr.Is(err, apierr.NotFound) {
			errs = append(errs, fmt.Errorf("ServiceCIDR %s: %w", name, err))
		}
	}
	return blocked, errors.Join(errs...)
}

// The condition Ready.
const (
	cidrReady     = "Kubernetes Service CIDR is ready"
	cidrInUse     = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
	cidrFinalizer = "networking.k8s.io/service-cidr-finalizer"
)

// reconcile sets the finalizer and the condition of a ServiceCIDR, or removes the finalizer if it is being deleted
// and none of its addresses is needed.
func (p *cidrPass) reconcile(ctx context.Context, c *serviceCIDR) (waits bool, err error) {
	held := slices.ContainsFunc(c.obj.At("metadata", "finalizers").Items(),
		func(f object.Value) bool { return f.Str() == cidrFinalizer })
	if c.obj.At("metadata", "deletionTimestamp").IsNull() {
		if !held {
			if err := p.patch(ctx, c, `{"metadata":{"finalizers":["`+cidrFinalizer+`"]}}`); err != nil {
				return false, err
			}
		}
		return false, p.setReady(ctx, c, "True", "", cidrReady)
	}
	if !held {
		return false, nil
	}
	needed, err := p.needed(ctx, c)
	if err != nil {
		return false, err
	}
	if needed {
		return true, p.setReady(ctx, c, "False", "Terminating", cidrInUse)
	}
	if p.waits(c) {
		return true, nil
	}
	return false, p.patch(ctx, c, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+cidrFinalizer+`"]}}`)
}

// waits says whether the grace of a deleted ServiceCIDR goes on, and sees to it that its end is noticed.
func (p *cidrPass) waits(c *serviceCIDR) bool {
	deleted, err := time.Parse(time.RFC3339, c.obj.At("metadata", "deletionTimestamp").Str())
	if err != nil {
		return false
	}
	end := deleted.Add(p.Grace)
	if !end.After(p.Now()) {
		return false
	}
	if p.due.IsZero() || end.Before(p.due) {
		p.due = end
	}
	return true
}

// needed says whether a Service has an address of this ServiceCIDR that is in no other one.
func (p *cidrPass) needed(ctx context.Context, c *serviceCIDR) (bool, error) {
	if !slices.ContainsFunc(c.prefixes, func(prefix netip.Prefix) bool { return !p.within(c, prefix) }) {
		return false, nil
	}
	list, err := p.Engine.List(ctx, &engine.Request{Resource: p.ips, User: p.user}, engine.ListOptions{})
	if err != nil {
		return false, err
	}
	needed := false
	for o := range list.Items {
		if ip, err := netip.ParseAddr(o.Key.Name); err == nil && c.has(ip) && addresses.Managed(o) {
			needed = true
			for name, other := range p.all {
				needed = needed && (name == c.name || !other.has(ip))
			}
			if needed {
				break
			}
		}
	}
	return needed, list.Err()
}

// within says whether another ServiceCIDR contains all of a range.
func (p *cidrPass) within(c *serviceCIDR, prefix netip.Prefix) bool {
	for name, other := range p.all {
		if name != c.name && slices.ContainsFunc(other.prefixes,
			func(o netip.Prefix) bool { return o.Overlaps(prefix) && o.Bits() <= prefix.Bits() }) {
			return true
		}
	}
	return false
}

func (c *serviceCIDR) has(ip netip.Addr) bool {
	return slices.ContainsFunc(c.prefixes, func(prefix netip.Prefix) bool { return addresses.Contains(prefix, ip) })
}

func (p *cidrPass) patch(ctx context.Context, c *serviceCIDR, body string) error {
	rq := &engine.Request{Resource: p.cidrs, Name: c.name, User: p.user, FieldManager: manager}
	_, err := p.Engine.Patch(ctx, rq, engine.Patch{Type: engine.StrategicPatch, Body: []byte(body)})
	return err
}

// setReady sets the condition Ready, unless it is the same already.
func (p *cidrPass) setReady(ctx context.Context, c *serviceCIDR, status, reason, message string) error {
	for _, has := range c.obj.At("status", "conditions").Items() {
		if has.At("type").Str() == "Ready" && has.At("status").Str() == status && has.At("reason").Str() == reason &&
			has.At("message").Str() == message {
			return nil
		}
	}
	text := object.StringOf
	condition := object.Fields("type", text("Ready"), "status", text(status), "reason", text(reason), "message",
		text(message),
		"lastTransitionTime", text(p.Now().UTC().Format(time.RFC3339)))
	intent := object.Fields("apiVersion", text(p.cidrs.APIVersion()), "kind", text(p.cidrs.Kind),
		"metadata", object.Fields("name", text(c.name)), "status", object.Fields("conditions",
			object.ListOf(condition)))
	_, err := p.Engine.Apply(ctx, &engine.Request{
		Resource: p.cidrs, Subresource: p.cidrs.Subresource("status"), Name: c.name, User: p.user,
		FieldManager: serviceCIDRController, Force: true,
	}, object.Parsed{Value: intent})
	return err
}
