package addresses

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"plinth/internal/engine"
	"plinth/internal/store"
)

// Adopt completes Services that were stored by a version without claims: it allocates their addresses, or claims
// those that they have, so that no other Service gets them. It looks at the sidecars of all Services, and parses only
// those that lack something:
//
//	a Service is complete  ⇔  it is of type ExternalName, or headless, or the IPAddress of its first address exists
//
// since all claims of a Service are written in one commit. An error of one Service does not stop the others.
func (a *Allocator) Adopt(ctx context.Context, e *engine.Engine, s *store.Store) error {
	sn, err := s.Snapshot(0)
	if err != nil {
		return err
	}
	var lacking []string
	sn.Ascend(a.services.Stored.Path, "", "", func(v *store.Version) bool {
		if a.lacks(v, s) {
			lacking = append(lacking, v.Key.Name)
		}
		return ctx.Err() == nil
	})
	errs := []error{ctx.Err()}
	for _, key := range lacking {
		namespace, name, _ := strings.Cut(key, "/")
		rq := &engine.Request{Resource: a.services, Namespace: namespace, Name: name, FieldManager: "kube-apiserver",
			OwnStart: true}
		if _, err := e.Patch(ctx, rq, engine.Patch{Type: engine.MergePatch, Body: []byte(`{}`)}); err != nil {
			errs = append(errs, fmt.Errorf("the addresses and ports of Service %s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// lacks says whether a stored Service is not complete.
func (a *Allocator) lacks(v *store.Version, s *store.Store) bool {
	if v.Sidecar.Unreadable != nil {
		return false
	}
	var clusterIP, kind string
	for _, field := range v.Sidecar.Fields {
		switch field.Name {
		case "spec.clusterIP":
			clusterIP = field.Value
		case "spec.type":
			kind = field.Value
		}
	}
	if kind == externalName || clusterIP == none {
		return false
	}
	ip, ok := parseIP(clusterIP)
	if !ok {
		return true
	}
	_, has := s.Get(a.addresses.Key("", ip.String()))
	return !has
}
