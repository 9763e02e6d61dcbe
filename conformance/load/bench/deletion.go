package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

// deletedObjects is how many objects are in a namespace that is deleted, and how many dependents an owner has.
const deletedObjects = 10000

// controllers starts, on the reference, the controllers that Plinth contains, with the request rate that Kubernetes'
// documentation recommends for large clusters.
func (b *bench) controllers() (stop func(), err error) {
	if b.kind != harness.Reference {
		return func() {}, nil
	}
	plane, err := controlplane.Start(filepath.Join(b.dir, "controllers"), b.server,
		controlplane.Options{NoScheduler: true, Manager: []string{
			"--controllers=garbage-collector-controller,namespace-controller", "--leader-elect=false",
			"--kube-api-qps=1000", "--kube-api-burst=2000",
		}})
	if err != nil {
		return nil, err
	}
	time.Sleep(15 * time.Second) // it reads all objects
	return plane.Stop, nil
}

// emptyNamespace measures how long the deletion of a namespace with its objects takes, from the request on.
func (b *bench) emptyNamespace(ctx context.Context) error {
	const name = "emptied"
	return b.deletion(ctx, "empty", name, "", func() error {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodDelete, Path: "/api/v1/namespaces/" + name})
		return err
	}, func() (bool, error) {
		_, err := b.one.Discard(ctx, load.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/" + name})
		return load.Refused(err), ignoreRefused(err)
	})
}

// collectDependents measures how long the deletion of an owner's dependents takes, from the request for the owner on.
func (b *bench) collectDependents(ctx context.Context) error {
	const name = "owned"
	return b.deletion(ctx, "collect", name, "owner", func() error {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodDelete, Path: configMaps(name) + "/owner",
			Body: []byte(`{"propagationPolicy":"Background"}`)})
		return err
	}, func() (bool, error) {
		list, err := b.one.Do(ctx, load.Request{Method: http.MethodGet,
			Path: configMaps(name) + "?limit=1&labelSelector=is%3Ddeleted"})
		return err == nil && !bytes.Contains(list, []byte(`"name":`)), err
	})
}

// orphanDependents measures how long the deletion of an owner takes that orphans its dependents: first, its reference
// is removed from each of them.
func (b *bench) orphanDependents(ctx context.Context) error {
	const name = "orphaned"
	return b.deletion(ctx, "orphan", name, "owner", func() error {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodDelete, Path: configMaps(name) + "/owner",
			Body: []byte(`{"propagationPolicy":"Orphan"}`)})
		return err
	}, func() (bool, error) {
		_, err := b.one.Discard(ctx, load.Request{Method: http.MethodGet, Path: configMaps(name) + "/owner"})
		return load.Refused(err), ignoreRefused(err)
	})
}

func ignoreRefused(err error) error {
	if load.Refused(err) {
		return nil
	}
	return err
}

func configMaps(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }

// deletion creates objects in a namespace, with an owner if one is named, has them deleted, and waits until they are
// gone. It measures reads meanwhile, and before on the idle server.
func (b *bench) deletion(ctx context.Context, key, namespace, owner string, begin func() error,
	gone func() (bool, error)) error {
	stop, err := b.controllers()
	if err != nil {
		return err
	}
	defer stop()
	if err := b.client.Namespace(ctx, namespace); err != nil {
		return err
	}
	references := ""
	if owner != "" {
		body, err := b.client.Do(ctx, load.Request{Method: http.MethodPost, Path: configMaps(namespace),
			Body: fmt.Appendf(nil, `{"metadata":{"name":%q}}`, owner)})
		if err != nil {
			return err
		}
		var made struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal(body, &made); err != nil {
			return err
		}
		references = fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q}]`, owner,
			made.Metadata.UID)
	}
	err = load.Each(connections, deletedObjects, func(i int) error {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: configMaps(namespace),
			Body: fmt.Appendf(nil, `{"metadata":{"name":"c-%d","labels":{"is":"deleted"}%s},"data":{"a":"b"}}`, i, references)})
		return err
	})
	if err != nil {
		return err
	}
	time.Sleep(3 * time.Second)

	alone := b.reads()
	time.Sleep(3 * time.Second)
	calm, err := alone()
	if err != nil {
		return err
	}
	beside := b.reads()
	began := time.Now()
	if err := begin(); err != nil {
		return err
	}
	for {
		done, err := gone()
		if err != nil {
			return errors.Join(err, ignore(beside))
		}
		if done {
			break
		}
		if time.Since(began) > 5*time.Minute {
			return errors.Join(fmt.Errorf("%s: it does not end", key), ignore(beside))
		}
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(began)
	busy, err := beside()
	if err != nil {
		return err
	}
	b.set(key, took.Seconds())
	b.set(key+"-get", busy/calm)
	b.set(key+"-p99", busy)
	return nil
}

func ignore(stop func() (float64, error)) error {
	_, err := stop()
	return err
}

// reads starts a process that reads Pods until it is stopped, and then returns the 99th percentile of how long that
// took, in milliseconds.
func (b *bench) reads() (stop func() (p99 float64, err error)) {
	end := load.Reads(b.server, podsPath+"/"+podPattern, 4)
	return func() (float64, error) {
		took, err := end()
		return took.P99, err
	}
}
