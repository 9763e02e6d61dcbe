package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"plinth/internal/admission/hooks"
	"plinth/internal/engine"
	"plinth/object"
)

// paramKind is the type of the params of a policy.
type paramKind struct {
	none bool // the policy has none
	of   *engine.Resource
	// gone: the type is not served any more, so there are no params.
	gone bool
}

// typed says that Kubernetes' client library has a Go type for the kind.
func (k paramKind) typed() bool {
	return k.of != nil && k.of.Written == nil && k.of.Group != "apiextensions.k8s.io"
}

// paramKind finds the type of the params of a policy. A type that has never been there is an error.
func (p *Plugin) paramKind(of *policy) (paramKind, error) {
	if of.params == "" {
		return paramKind{none: true}, nil
	}
	apiVersion, kind, _ := strings.Cut(of.params, ", Kind=")
	if r := p.types().OfKind(apiVersion, kind); r != nil {
		of.found.Store(r)
		return paramKind{of: r}, nil
	}
	if r := of.found.Load(); r != nil {
		return paramKind{of: r, gone: true}, nil
	}
	if !strings.Contains(apiVersion, "/") {
		apiVersion = "/" + apiVersion
	}
	return paramKind{}, fmt.Errorf("failed to find resource referenced by paramKind: '%s, Kind=%s'", apiVersion, kind)
}

// noParams is what a policy without params is evaluated with, once.
var noParams = []object.Value{object.Nil}

// params returns the params that a binding names, for a request in a namespace: null alone if the policy or the binding
// names none, and nothing if there are none and that is no error.
func (p *Plugin) params(ctx context.Context, kind paramKind, ref object.Value, namespace string) ([]object.Value,
	error) {
	if kind.none || ref.IsNull() {
		return noParams, nil
	}
	in := ref.At("namespace").Str()
	if kind.of.Namespaced {
		if in == "" {
			in = namespace
		}
		if in == "" {
			return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
		}
	} else if in != "" {
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	}
	found, err := p.find(ctx, kind, ref, in)
	if err == nil && len(found) == 0 && ref.At("parameterNotFoundAction").Str() == "Deny" {
		err = errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	return found, err
}

// find returns the params in a namespace, "" for cluster scope, that a reference names or selects.
func (p *Plugin) find(ctx context.Context, kind paramKind, ref object.Value, namespace string) ([]object.Value,
	error) {
	name, selector := ref.At("name").Str(), ref.At("selector")
	switch {
	case name != "" && !selector.IsNull():
		return nil, errors.New("paramRef.name and paramRef.selector are mutually exclusive")
	case name == "" && selector.IsNull():
		return nil, errors.New("one of name or selector must be provided")
	case kind.gone:
		return nil, nil
	case name != "":
		obj, err := p.objects.Get(ctx, kind.of, namespace, name)
		if err != nil || obj.IsNull() {
			return nil, err
		}
		return []object.Value{obj}, nil
	}
	selects, err := hooks.Selector(selector)
	if err != nil {
		return nil, err
	}
	return p.objects.List(ctx, kind.of, namespace, selects)
}
