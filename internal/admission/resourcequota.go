package admission

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/admission/hooks"
	"plinth/internal/admission/quota"
	"plinth/internal/configfile"
	"plinth/internal/engine"
	"plinth/internal/recent"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/object"
)

// resourceQuota is the plugin ResourceQuota: a request is refused if it needs more than the ResourceQuotas of its
// namespace allow (AUTH-5).
//
// The reference adds each request to status.used, and counts again from time to time. Here what is used follows from
// the stored objects (the ledgers of package store), so the plugin only says what the request adds to which sums. That
// is judged at once, and again when the commit gets its place in the order of commits (Attributes.Limit). The limit is
// spec.hard; the reference takes what its controller has copied to status.hard.
type resourceQuota struct {
	store    *store.Store
	registry *engine.Registry
	now      engine.Clock
	limited  []limitedResource
	rules    recent.Cache[string, *quota.Rule]
	classes  *view.View[*quota.Classes]
}

// resourceQuotaConfiguration is the configuration of the plugin.
type resourceQuotaConfiguration struct {
	APIVersion       string            `json:"apiVersion"`
	Kind             string            `json:"kind"`
	LimitedResources []limitedResource `json:"limitedResources"`
}

// limitedResource is a type whose objects need a quota: one that limits an amount whose name contains one of
// MatchContains, or that has the scope of MatchScopes which the object matches.
type limitedResource struct {
	APIGroup      string                                     `json:"apiGroup"`
	Resource      string                                     `json:"resource"`
	MatchContains []string                                   `json:"matchContains"`
	MatchScopes   []corev1.ScopedResourceSelectorRequirement `json:"matchScopes"`

	scopes []quota.Scope
}

// newResourceQuota makes the plugin.
func newResourceQuota(c *Config) (steps, error) {
	limited, err := limitedResources(c.Configurations["ResourceQuota"])
	q := &resourceQuota{store: c.Store, registry: c.Registry, now: c.Now, limited: limited,
		classes: quota.ClassesOf(c.Store)}
	return steps{validate: q.validate}, err
}

// limitedResources reads the configuration of the plugin, which has one kind in v1 and another one before; an empty
// text limits nothing.
func limitedResources(text []byte) ([]limitedResource, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var c resourceQuotaConfiguration
	lenient, err := configfile.Decode(text, "ResourceQuotaConfiguration", []string{"apiserver.config.k8s.io/v1"}, &c)
	if err != nil && bytes.Contains(text, []byte("resourcequota.admission.k8s.io/")) {
		lenient, err = configfile.Decode(text, "Configuration", []string{"resourcequota.admission.k8s.io/v1beta1",
			"resourcequota.admission.k8s.io/v1alpha1"}, &c)
	}
	if err == nil {
		err = configfile.Strict(lenient)
	}
	if err != nil {
		return nil, err
	}
	var errs field.ErrorList
	for i := range c.LimitedResources {
		l := &c.LimitedResources[i]
		if l.Resource == "" {
			errs = append(errs, field.Required(field.NewPath("limitedResources").Index(i).Child("resource"), ""))
		}
		for _, e := range l.MatchScopes {
			l.scopes = append(l.scopes, quota.NewScope(e))
		}
	}
	return c.LimitedResources, errs.ToAggregate()
}

func (q *resourceQuota) validate(ctx context.Context, a *engine.Attributes) error {
	rq := a.Request
	if q.store.Others != nil && writes(a) && about(a, "", "resourcequotas", "status") {
		return a.Move(ctx, guardOfLowering(a))
	}
	if rq.Namespace == "" || rq.Resource.Stored == nil || !changesUse(a) {
		return nil
	}
	if rules, _, err := q.store.Rules(ctx, rq.Namespace); err != nil || len(rules)+len(q.limited) == 0 {
		return err
	}
	return a.Limit(ctx, quotaGuard(rq.Namespace), func(ctx context.Context) (*engine.Limits, error) {
		return q.limits(ctx, a)
	})
}

// quotaGuard is the guard of the quotas of a namespace (engine.Attributes.Limit). All namespaces share 64 of them, as
// a guard is never removed.
func quotaGuard(namespace string) string {
	h := fnv.New32a()
	h.Write([]byte(namespace))
	return fmt.Sprintf("quotas-%02x", h.Sum32()%64)
}

// guardOfLowering is the guard that a write of the status of a quota moves, which takes back what was recorded there;
// "": it takes nothing back.
func guardOfLowering(a *engine.Attributes) string {
	now := a.Object.At("status", "used")
	for _, m := range a.Old.At("status", "used").Members() {
		before, err := resource.ParseQuantity(m.Value.Str())
		after, failed := resource.ParseQuantity(now.At(m.Key).Str())
		if err == nil && (failed != nil || after.Cmp(before) < 0) {
			return quotaGuard(a.Request.Namespace)
		}
	}
	return ""
}

// changesUse says whether a request may be one that uses more: which ones do depends on the type.
func changesUse(a *engine.Attributes) bool {
	r, sub := a.Request.Resource, a.Request.Subresource
	switch path := r.Stored.Path; {
	case !writes(a) || !quota.Counted(path):
		return false
	case a.Operation == engine.OperationCreate:
		return sub == nil
	case about(a, "", "pods", "resize"):
		return true
	case about(a, "", "pods", ""):
		return quota.Terminating(a.Object) != quota.Terminating(a.Old)
	}
	// The status of a claim may change what it uses, and is not refused.
	return about(a, "", "services", "") || about(a, "", "persistentvolumeclaims", "") ||
		about(a, "resource.k8s.io", "resourceclaims", "")
}

// demand is what a request adds, to be compared with one rule after the other.
type demand struct {
	path     string // of the type
	classes  *quota.Classes
	now, old *store.Charge
	uses     []store.Amount // the object as it will be
	adds     []store.Amount // more than the object that is there
}

// concerns says whether a limit of that name is on something that objects of the type use.
func (d *demand) concerns(name string) bool {
	return quota.Concerns(d.path, name) || quota.CountsDevices(d.path) && d.classes.Concern(name)
}

// usesOf is what an object of the request uses, by its charge.
func (q *resourceQuota) usesOf(a *engine.Attributes, d *demand, charge *store.Charge) (uses []store.Amount) {
	if !quota.CountsDevices(d.path) {
		return quota.AmountsAt(charge, q.now())
	}
	q.store.Charged(a.Request.Namespace, func(in *store.Charged) {
		uses = d.classes.Extend(a.Object.At("metadata", "name").Str(), charge, in)
	})
	return uses
}

// classesFor returns the DeviceClasses. If one cannot be read, it is not known how much of an extended resource is
// used, and a request that may use some is refused.
func (q *resourceQuota) classesFor(ctx context.Context, a *engine.Attributes, uses *store.Charge) (
	*quota.Classes, error) {
	classes, err := q.classes.Now()
	if err == nil {
		return classes, nil
	}
	extended := func(use store.Amount) bool {
		return strings.HasPrefix(use.Name, corev1.DefaultResourceRequestsPrefix) && strings.Contains(use.Name, "/")
	}
	if quota.CountsDevices(a.Request.Resource.Stored.Path) ||
		slices.ContainsFunc(quota.AmountsAt(uses, q.now()), extended) {
		return hooks.Await(ctx, a, q.classes.Now)
	}
	return classes, nil
}

// limits returns the limits of a request; nil: there are none.
func (q *resourceQuota) limits(ctx context.Context, a *engine.Attributes) (*engine.Limits, error) {
	rules, generation, err := q.store.Rules(ctx, a.Request.Namespace)
	if err != nil {
		return nil, err
	}
	path := a.Request.Resource.Stored.Path
	d := &demand{path: path, now: quota.Use(path, a.Object)}
	if d.classes, err = q.classesFor(ctx, a, d.now); err != nil {
		return nil, err
	}
	d.uses = q.usesOf(a, d, d.now)
	d.adds = d.uses
	if a.Operation == engine.OperationUpdate {
		d.old = quota.Use(path, a.Old)
		d.adds = more(d.uses, q.usesOf(a, d, d.old))
	}
	scopes, err := q.limitedScopes(d.now.Class)
	if err != nil {
		return nil, nil // as in the reference: nothing is limited then
	}
	limits := &store.Limits{Namespace: a.Request.Namespace, Generation: generation}
	cover := coverage{}
	var named []namedLimits
	for _, rule := range rules {
		r, err := q.rule(rule.Text)
		if err != nil {
			return nil, unknown(err.Error())
		}
		each, err := q.ruleLimits(a, d, r, &cover)
		if err != nil {
			return nil, err
		}
		if len(each) > 0 {
			if err := q.recorded(rule, each); err != nil {
				return nil, err
			}
			named = append(named, namedLimits{r.Name, rule, len(limits.Each), len(limits.Each) + len(each)})
			limits.Each = append(limits.Each, each...)
		}
	}
	if negative := negatives(d.uses); len(negative) > 0 {
		return nil, forbidden(a, "quota usage is negative for resource(s): "+strings.Join(negative, ","))
	}
	if cover.adds || len(d.adds) > 0 {
		if err := q.covered(a, d, &cover, scopes); err != nil {
			return nil, err
		}
	}
	if len(limits.Each) == 0 {
		return nil, nil
	}
	limits.Refuse = func(over []store.Over) error { return exceeded(a, limits, named, over) }
	return &engine.Limits{Limits: limits, Of: q.registry.Builtin().Find("", "v1", "resourcequotas"),
		Record: func() []engine.StatusOfOther { return q.record(limits, named) }}, nil
}

// recorded sets what the status of a quota has recorded, by whichever server, as the least that is used. Where no other
// process writes, only the ledger counts.
func (q *resourceQuota) recorded(rule store.Rule, each []store.Limit) error {
	if q.store.Others == nil {
		return nil
	}
	obj, err := engine.ObjectOf(rule.Version)
	if err != nil {
		return err
	}
	for i := range each {
		// What cannot be read counts as nothing: the status is the server's.
		each[i].Least, _ = resource.ParseQuantity(obj.At("status", "used", each[i].Name).Str())
	}
	return nil
}

// record returns the statuses of quotas that count what a request adds, one for each quota: what is used, by the ledger
// or by the status, whichever is more, and what is added.
func (q *resourceQuota) record(limits *store.Limits, named []namedLimits) []engine.StatusOfOther {
	sums, ok := q.store.Used(limits)
	if !ok {
		return nil // the namespace has no quotas any more
	}
	var all []engine.StatusOfOther
	for _, n := range named {
		obj, err := engine.ObjectOf(n.rule.Version)
		if err != nil {
			continue // recorded has read it
		}
		status := obj.At("status")
		for i := n.begin; i < n.end; i++ {
			l, used := &limits.Each[i], sums[i]
			if used.Cmp(l.Least) < 0 {
				used = l.Least.DeepCopy()
			}
			used.Add(l.Add)
			status = status.WithAt(object.StringOf(used.String()), "used", l.Name)
		}
		all = append(all, engine.StatusOfOther{Version: n.rule.Version, Status: status})
	}
	return all
}

// rule reads the text of a rule, or remembers it.
func (q *resourceQuota) rule(text string) (*quota.Rule, error) {
	if r, ok := q.rules.Get(text); ok {
		return r, nil
	}
	r, err := quota.ParseRule(text)
	if err == nil {
		q.rules.Set(text, r, 1)
	}
	return r, err
}

// coverage is what the rules of a namespace cover of the needs of one request.
type coverage struct {
	names  map[string]bool                    // amounts that a rule limits
	scopes map[corev1.ResourceQuotaScope]bool // scopes of rules that the object matches
	adds   bool                               // the request adds something for a rule that matches the object
}

// ruleLimits returns the limits that a rule sets for a request.
func (q *resourceQuota) ruleLimits(a *engine.Attributes, d *demand, r *quota.Rule, cover *coverage) ([]store.Limit,
	error) {
	matches := true
	for i := range r.Scopes {
		s := &r.Scopes[i]
		holds, err := s.Matches(d.now.Class)
		if err != nil {
			return nil, unknown(fmt.Sprintf("error matching scopes of quota %s, err: error on matching scope %v: %v", r.Name,
				s.ScopedResourceSelectorRequirement, err))
		}
		if holds {
			if cover.scopes == nil {
				cover.scopes = map[corev1.ResourceQuotaScope]bool{}
			}
			cover.scopes[s.ScopeName] = true
		}
		matches = matches && holds
	}
	var names []string
	for name := range r.Hard {
		if d.concerns(name) {
			names = append(names, name)
		}
	}
	if !matches || len(names) == 0 {
		return nil, nil
	}
	if about(a, "", "pods", "") || about(a, "", "pods", "resize") {
		limited := func(name string) bool { return slices.Contains(names, name) }
		if lacks := quota.Missing(a.Object, limited); lacks != "" {
			return nil, forbidden(a, fmt.Sprintf("failed quota: %s: %s", r.Name, lacks))
		}
	}
	if cover.names == nil {
		cover.names = map[string]bool{}
	}
	for _, name := range names {
		cover.names[name] = true
	}
	// An object that the rule did not count before is new to it.
	adds := d.adds
	if d.old != nil && !r.Counts(d.old.Class) {
		adds = d.uses
	}
	cover.adds = cover.adds || len(adds) > 0
	var each []store.Limit
	for _, amount := range adds {
		if most, limited := r.Hard[amount.Name]; limited {
			each = append(each, store.Limit{Name: amount.Name, Counts: counts(r), More: r.More(d.classes, amount.Name),
				Add: amount.Value, Most: most})
		}
	}
	return each, nil
}

// counts is Limit.Counts of a rule.
func counts(r *quota.Rule) func(class string) bool {
	if len(r.Scopes) == 0 {
		return nil
	}
	return r.Counts
}

// limitedScopes are the scopes that an object of a class matches and that need a quota, by the configuration.
func (q *resourceQuota) limitedScopes(class string) (scopes []corev1.ScopedResourceSelectorRequirement, err error) {
	for i := range q.limited {
		for j := range q.limited[i].scopes {
			s := &q.limited[i].scopes[j]
			holds, err := s.Matches(class)
			if err != nil {
				return nil, err
			}
			if holds {
				scopes = append(scopes, s.ScopedResourceSelectorRequirement)
			}
		}
	}
	return scopes, nil
}

// covered refuses a request that needs a quota, by the configuration of the plugin, and has none. scopes are the
// limited ones that the object matches.
func (q *resourceQuota) covered(a *engine.Attributes, d *demand, cover *coverage,
	scopes []corev1.ScopedResourceSelectorRequirement) error {
	r := a.Request.Resource
	var names []string
	for i := range q.limited {
		l := &q.limited[i]
		if l.APIGroup != r.Group || l.Resource != r.Name {
			continue
		}
		for _, amount := range d.uses {
			contained := func(part string) bool { return strings.Contains(amount.Name, part) }
			if !cover.names[amount.Name] && slices.ContainsFunc(l.MatchContains, contained) &&
				!slices.Contains(names, amount.Name) {
				names = append(names, amount.Name)
			}
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		return forbidden(a, "insufficient quota to consume: "+strings.Join(names, ","))
	}
	scopes = slices.DeleteFunc(scopes, func(s corev1.ScopedResourceSelectorRequirement) bool {
		return cover.scopes[s.ScopeName]
	})
	if len(scopes) > 0 {
		return unknown(fmt.Sprintf("insufficient quota to match these scopes: %v", scopes))
	}
	return nil
}

// more is what now has more than old: amounts that are above zero.
func more(now, old []store.Amount) []store.Amount {
	var adds []store.Amount
	for _, amount := range now {
		sum := amount.Value.DeepCopy()
		for i := range old {
			if old[i].Name == amount.Name {
				sum.Sub(old[i].Value)
			}
		}
		if sum.Sign() > 0 {
			adds = append(adds, store.Amount{Name: amount.Name, Value: sum})
		}
	}
	return adds
}

// negatives are the names of amounts below zero.
func negatives(all []store.Amount) []string {
	var names []string
	for _, amount := range all {
		if amount.Value.Sign() < 0 {
			names = append(names, amount.Name)
		}
	}
	return names
}

// namedLimits says which limits are those of a quota: from begin to before end.
type namedLimits struct {
	quota      string
	rule       store.Rule
	begin, end int
}

// exceeded is the refusal of a request that would pass limits. It names the first quota.
func exceeded(a *engine.Attributes, limits *store.Limits, named []namedLimits, over []store.Over) error {
	for _, n := range named {
		var requested, used, limited []string
		for _, o := range over {
			for i := n.begin; i < n.end; i++ {
				if l := &limits.Each[i]; o.Limit == l {
					text := func(q resource.Quantity) string { return l.Name + "=" + q.String() }
					requested, used = append(requested, text(l.Add)), append(used, text(o.Used))
					limited = append(limited, text(l.Most))
				}
			}
		}
		if len(requested) > 0 {
			return forbidden(a, fmt.Sprintf("exceeded quota: %s, requested: %s, used: %s, limited: %s", n.quota,
				strings.Join(requested, ","), strings.Join(used, ","), strings.Join(limited, ",")))
		}
	}
	return forbidden(a, "exceeded quota")
}
