package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/access"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// aggregator is the name of the controller, and its field manager.
const aggregator = "clusterrole-aggregation-controller"

// Aggregation sets the rules of each aggregated role, which is a ClusterRole with an aggregationRule, to those of the
// ClusterRoles that its selectors select (AUTH-2), as the reference's controller of the same name does.
//
// Problem: an aggregated role may select other aggregated roles, so the change of one role may change many others, and
// it is not recorded which. The reference gives each aggregated role the rules that the selected roles have at that
// moment, and starts again after each change. A chain of n aggregated roles then takes n rounds, and in a cycle, where
// each role gets the rules that its predecessor had, the writes may never end.
//
// Here, one pass after any change visits all aggregated roles, which are few (Kubernetes has three). It visits them
// depth first: a role is written after the aggregated roles that it selects. Where that closes a cycle, the selected
// role has not been written yet, and its present rules are used:
//
//	rules(s) = ∪ rules(r) over the roles r that s selects, by selector, then by name, without duplicates
//	s selects the aggregated role r, and r does not lead back to s  ⇒  rules(r) is written before rules(s)
//
// Passes converge. Without a cycle, the second pass makes no change. In a cycle the role that is visited first keeps
// its rules, since they propagate back to it, and gets those of all others; so its rules only grow, and each pass
// propagates them one step further, until all roles of the cycle have the same.
type Aggregation struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
}

// Start begins its loop.
func (c *Aggregation) Start(g *steps.Group) {
	p := &aggregationPass{Aggregation: c, user: access.ControllerAccount(aggregator),
		of: c.Registry.Now().Find("rbac.authorization.k8s.io", "v1", "clusterroles")}
	(&watcher{engine: c.Engine, of: p.of, user: p.user, handle: p.handle,
		begin:  func(context.Context) { p.roles = map[string]*engine.Object{} },
		failed: func(err error) { c.Logger.Warn("aggregating cluster roles failed, trying again", "error", err) },
	}).start(g)
}

// aggregationPass is the state of one watch of the ClusterRoles, which makes a pass after each change.
type aggregationPass struct {
	*Aggregation
	of    *engine.Resource
	user  access.User
	roles map[string]*engine.Object // the newest version of each role that was read or written, by name

	names   []string        // of roles, sorted, for this pass
	visited map[string]bool // the aggregated roles that this pass has begun
	failed  []error
}

func (p *aggregationPass) handle(ctx context.Context, _ *steps.Loop, events []engine.Event) (never time.Time,
	err error) {
	for _, event := range events {
		if name := event.Object.Key.Name; event.Type == engine.Deleted {
			delete(p.roles, name)
		} else {
			p.roles[name] = event.Object
		}
	}
	if len(events) == 0 {
		return never, nil
	}
	return never, p.aggregate(ctx)
}

// aggregate makes a pass. An error of one role does not stop the others.
func (p *aggregationPass) aggregate(ctx context.Context) error {
	p.names, p.visited, p.failed = slices.Sorted(maps.Keys(p.roles)), map[string]bool{}, nil
	for _, name := range p.names {
		p.visit(ctx, name)
	}
	return errors.Join(p.failed...)
}

// visit updates a role if it is an aggregated one, after the aggregated roles that it selects. A role that was visited
// before is skipped.
func (p *aggregationPass) visit(ctx context.Context, name string) {
	if p.visited[name] || !bytes.Contains(p.roles[name].Data(), []byte(`"aggregationRule":{`)) {
		return
	}
	p.visited[name] = true
	obj, err := parsed(p.roles[name])
	if err != nil || obj.At("aggregationRule").IsNull() {
		return // it cannot be decoded, or the text is in another field
	}
	selected, err := p.selected(name, obj.At("aggregationRule", "clusterRoleSelectors").Items())
	if err == nil {
		for _, other := range selected {
			p.visit(ctx, other)
		}
		err = p.write(ctx, name, obj, selected)
	}
	if err != nil {
		p.failed = append(p.failed, fmt.Errorf("cluster role %s: %w", name, err))
	}
}

// selected returns the names of the other roles that some selectors select, ordered by selector, then by name.
func (p *aggregationPass) selected(name string, selectors []object.Value) ([]string, error) {
	var selected []string
	for _, s := range selectors {
		selector, err := labelSelector(s)
		if err != nil {
			return nil, err
		}
		for _, other := range p.names {
			if other != name && selector.Matches(engine.Labels{Of: p.roles[other].Sidecar}) {
				selected = append(selected, other)
			}
		}
	}
	return selected, nil
}

// write sets the rules of a role to those of the selected ones, unless they are the same.
func (p *aggregationPass) write(ctx context.Context, name string, obj object.Value, selected []string) error {
	var rules []object.Value
	for _, other := range selected {
		from, err := parsed(p.roles[other])
		if err != nil {
			continue
		}
		for _, rule := range from.At("rules").Items() {
			if !slices.ContainsFunc(rules, func(r object.Value) bool { return object.Equal(r, rule) }) {
				rules = append(rules, rule)
			}
		}
	}
	if slices.EqualFunc(rules, obj.At("rules").Items(), object.Equal) {
		return nil
	}
	intent := object.Fields("apiVersion", object.StringOf(p.of.APIVersion()), "kind", object.StringOf(p.of.Kind),
		"metadata", object.Fields("name", object.StringOf(name)))
	if len(rules) > 0 {
		intent = intent.With("rules", object.ListOf(rules...))
	}
	result, err := p.Engine.Apply(ctx, &engine.Request{
		Resource: p.of, Name: name, User: p.user, FieldManager: aggregator, Force: true,
	}, object.Parsed{Value: intent})
	if err != nil {
		return err
	}
	p.roles[name] = result.Object
	return nil
}

func parsed(o *engine.Object) (object.Value, error) {
	if o.Sidecar.Unreadable != nil {
		return object.Nil, o.Sidecar.Unreadable
	}
	p, err := object.ParseJSON(bytes.Clone(o.Data()))
	return p.Value, err
}

// labelSelector parses a label selector.
func labelSelector(v object.Value) (labels.Selector, error) {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for _, m := range v.At("matchLabels").Members() {
		s.MatchLabels[m.Key] = m.Value.Str()
	}
	for _, e := range v.At("matchExpressions").Items() {
		requirement := metav1.LabelSelectorRequirement{Key: e.At("key").Str(),
			Operator: metav1.LabelSelectorOperator(e.At("operator").Str())}
		for _, value := range e.At("values").Items() {
			requirement.Values = append(requirement.Values, value.Str())
		}
		s.MatchExpressions = append(s.MatchExpressions, requirement)
	}
	return metav1.LabelSelectorAsSelector(s)
}
