package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/access"
	"plinth/internal/engine"
	"plinth/object"
)

// aggregator is the name of the controller, and its field manager.
const aggregator = "clusterrole-aggregation-controller"

// Aggregation sets the rules of ClusterRoles with an aggregationRule to those of the ClusterRoles that it selects
// (AUTH-2). It watches the ClusterRoles, and after each change updates all roles with an aggregationRule: these are
// few, and may select each other.
type Aggregation struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
}

// Run works until ctx ends.
func (c *Aggregation) Run(ctx context.Context) {
	roles := c.Registry.Now().Find("rbac.authorization.k8s.io", "v1", "clusterroles")
	for roles != nil && ctx.Err() == nil {
		pass := &aggregationPass{Aggregation: c, of: roles, user: serviceAccount(aggregator),
			roles: map[string]*engine.Object{}}
		if err := pass.follow(ctx); err != nil && ctx.Err() == nil {
			c.Logger.Warn("aggregating cluster roles failed, trying again", "error", err)
			pause(ctx, minRetry)
		}
	}
}

// aggregationPass is one watch of the ClusterRoles.
type aggregationPass struct {
	*Aggregation
	of    *engine.Resource
	user  access.User
	roles map[string]*engine.Object
}

func (p *aggregationPass) follow(ctx context.Context) error {
	watch, err := p.Engine.Watch(ctx, &engine.Request{Resource: p.of, User: p.user}, engine.WatchOptions{})
	if err != nil {
		return err
	}
	defer watch.Close()
	for {
		events, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		for _, event := range events {
			if name := event.Object.Key.Name; event.Type == engine.Deleted {
				delete(p.roles, name)
			} else {
				p.roles[name] = event.Object
			}
		}
		if err := p.aggregate(ctx); err != nil {
			return err
		}
	}
}

// aggregate updates all roles with an aggregationRule. An error of one does not stop the others.
func (p *aggregationPass) aggregate(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(p.roles))
	var failed []error
	for _, name := range names {
		role := p.roles[name]
		if !bytes.Contains(role.Data, []byte(`"aggregationRule":{`)) {
			continue
		}
		obj, err := parsed(role)
		if err != nil {
			continue // it cannot be decoded
		}
		if selectors := obj.At("aggregationRule", "clusterRoleSelectors"); !obj.At("aggregationRule").IsNull() {
			if err := p.renew(ctx, name, obj, selectors.Items(), names); err != nil {
				failed = append(failed, fmt.Errorf("cluster role %s: %w", name, err))
			}
		}
	}
	return errors.Join(failed...)
}

// renew sets the rules of one role to those of the roles that its selectors select, ordered by selector, then by
// name.
func (p *aggregationPass) renew(ctx context.Context, name string, obj object.Value, selectors []object.Value,
	names []string) error {
	var rules []object.Value
	for _, s := range selectors {
		selector, err := labelSelector(s)
		if err != nil {
			return err
		}
		for _, other := range names {
			role := p.roles[other]
			if other == name || !selector.Matches(sidecarLabels{role}) {
				continue
			}
			from, err := parsed(role)
			if err != nil {
				continue
			}
			for _, rule := range from.At("rules").Items() {
				if !slices.ContainsFunc(rules, func(r object.Value) bool { return object.Equal(r, rule) }) {
					rules = append(rules, rule)
				}
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
	_, err := p.Engine.Apply(ctx, &engine.Request{
		Resource: p.of, Name: name, User: p.user, FieldManager: aggregator, Force: true,
	}, object.Parsed{Value: intent})
	return err
}

func parsed(o *engine.Object) (object.Value, error) {
	if o.Sidecar.Unreadable != nil {
		return object.Nil, o.Sidecar.Unreadable
	}
	p, err := object.ParseJSON(bytes.Clone(o.Data))
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

// sidecarLabels returns the labels of an object as a selector matches them.
type sidecarLabels struct{ of *engine.Object }

func (l sidecarLabels) Lookup(label string) (string, bool) {
	for _, pair := range l.of.Sidecar.Labels {
		if pair.Name == label {
			return pair.Value, true
		}
	}
	return "", false
}

func (l sidecarLabels) Has(label string) bool           { _, ok := l.Lookup(label); return ok }
func (l sidecarLabels) Get(label string) (value string) { value, _ = l.Lookup(label); return value }
