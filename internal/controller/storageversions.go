package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/engine"
	"plinth/object"
)

// StorageVersions maintains the objects of that type: one for each built-in resource, with a record of every API server
// that says in which version it stores the resource (feature gate StorageVersionAPI). A server publishes its own
// records. The controller removes those of servers that are gone, which is when they have no identity Lease any more.
type StorageVersions struct {
	Engine   *engine.Engine
	Registry *engine.Registry
	Logger   *slog.Logger
	Now      func() time.Time
}

// The name of the controller, and that of its service account.
const (
	storageVersionGC      = "storageversion-garbage-collector-controller"
	storageVersionAccount = "storage-version-garbage-collector"
)

// The label of the Leases of API servers.
const (
	identityLabel = "apiserver.kubernetes.io/identity"
	identityValue = "kube-apiserver"
)

func (c *StorageVersions) resource() *engine.Resource {
	return c.Registry.Builtin().Find("internal.apiserver.k8s.io", "v1alpha1", "storageversions")
}

// Publish writes the records of a server. They are written again if somebody has changed them.
func (c *StorageVersions) Publish(ctx context.Context, server string) error {
	of := c.resource()
	if of == nil {
		return nil // not served
	}
	var failed []error
	for _, record := range c.records(server) {
		var err error
		for range pace.Attempts {
			if err = c.publish(ctx, of, record); !apierr.Is(err, apierr.Conflict) && !apierr.Is(err, apierr.AlreadyExists) {
				break
			}
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("the storage version of %s: %w", record.name, err))
		}
	}
	return errors.Join(failed...)
}

// serverRecord is what a server says about one resource.
type serverRecord struct {
	name   string
	record object.Value
}

// records are those of all stored built-in resources, in the order of their names. Resources of several groups that
// share their objects have one, of the first group.
func (c *StorageVersions) records(server string) []serverRecord {
	served := map[*engine.Kind][]object.Value{}
	var kinds []*engine.Kind
	for _, r := range c.Registry.Builtin().Builtin() {
		k := r.Stored
		if k == nil || r.Virtual() || !r.Has("create") {
			continue
		}
		if served[k] == nil {
			kinds = append(kinds, k)
		}
		if group, _, _ := strings.Cut(k.Path, "/"); group == r.Group {
			served[k] = append(served[k], object.StringOf(r.APIVersion()))
		} else if served[k] == nil {
			served[k] = []object.Value{}
		}
	}
	all := make([]serverRecord, 0, len(kinds))
	for _, k := range kinds {
		group, resource, _ := strings.Cut(k.Path, "/")
		var decodable []object.Value
		for _, v := range k.Versions {
			decodable = append(decodable, object.StringOf(v.APIVersion))
		}
		encoding := k.Storage.APIVersion
		if k.ReferenceStorage != "" {
			encoding = group + "/" + k.ReferenceStorage
			decodable = append(decodable, object.StringOf(encoding))
		}
		all = append(all, serverRecord{cmp.Or(group, "core") + "." + resource, object.Fields(
			"apiServerID", object.StringOf(server), "encodingVersion", object.StringOf(encoding),
			"decodableVersions", object.ListOf(decodable...), "servedVersions", object.ListOf(served[k]...))})
	}
	slices.SortFunc(all, func(a, b serverRecord) int { return strings.Compare(a.name, b.name) })
	return all
}

// publish writes one record, and creates the object if there is none.
func (c *StorageVersions) publish(ctx context.Context, of *engine.Resource, r serverRecord) error {
	rq := &engine.Request{Resource: of, Name: r.name, User: serverItself, FieldManager: identityValue}
	result, err := c.Engine.Get(ctx, rq, "")
	if apierr.Is(err, apierr.NotFound) {
		body := object.Fields("apiVersion", object.StringOf(of.APIVersion()), "kind", object.StringOf(of.Kind),
			"metadata", object.Fields("name", object.StringOf(r.name)), "spec", object.MapOf())
		result, err = c.Engine.Create(ctx, &engine.Request{Resource: of, User: serverItself, FieldManager: identityValue},
			object.Parsed{Value: body})
	}
	if err != nil {
		return err
	}
	obj, err := engine.ObjectOf(result.Object)
	if err != nil {
		return err
	}
	records := slices.Clone(obj.At("status", "storageVersions").Items())
	at := slices.IndexFunc(records, func(has object.Value) bool {
		return has.At("apiServerID").Str() == r.record.At("apiServerID").Str()
	})
	if at < 0 {
		records = append(records, r.record)
	} else {
		records[at] = r.record
	}
	return c.write(ctx, of, result.Object, obj, records, serverItself, identityValue)
}

// write stores the records of a resource, unless the object has changed.
func (c *StorageVersions) write(ctx context.Context, of *engine.Resource, o *engine.Object, obj object.Value,
	records []object.Value, user access.User, manager string) error {
	rq := &engine.Request{Resource: of, Name: o.Key.Name, Subresource: of.Subresource("status"), User: user,
		FieldManager: manager}
	body := obj.With("status", c.status(obj, records))
	_, err := c.Engine.Update(ctx, rq, object.Parsed{Value: withRevision(body, o)})
	return err
}

// status is that of an object with these records: the version that all servers store, if they agree, and a condition
// that says whether they do.
func (c *StorageVersions) status(obj object.Value, records []object.Value) object.Value {
	status := obj.At("status").With("storageVersions", object.ListOf(records...)).Without("commonEncodingVersion")
	before, common := obj.At("status", "commonEncodingVersion").Str(), ""
	for i, r := range records {
		if version := r.At("encodingVersion").Str(); i == 0 || version == common {
			common = version
		} else {
			common = ""
			break
		}
	}
	agree := condition{name: "AllEncodingVersionsEqual", status: "False", reason: "CommonEncodingVersionUnset",
		message: "Common encoding version unset", generation: obj.At("metadata", "generation").Int()}
	if common != "" {
		status = status.With("commonEncodingVersion", object.StringOf(common))
		agree.status, agree.reason, agree.message = "True", "CommonEncodingVersionSet", "Common encoding version set"
		agree.renewed = before != "" && before != common
	}
	return status.With("conditions", amend(obj.At("status", "conditions"), []condition{agree}, c.Now()))
}

// Start begins to remove the records of servers that are gone.
func (c *StorageVersions) Start(g *steps.Group) {
	leases, of := c.Registry.Builtin().Find("coordination.k8s.io", "v1", "leases"), c.resource()
	if leases == nil || of == nil {
		return
	}
	user := access.ControllerAccount(storageVersionAccount)
	(&follower{engine: c.Engine, logger: c.Logger, name: storageVersionGC, types: []*engine.Resource{leases, of},
		sync: func(ctx context.Context, changed *engine.Resource, o *engine.Object, gone bool) (time.Duration, error) {
			switch {
			case changed == of && !gone:
				return 0, c.clean(ctx, of, o, user)
			case changed == leases && gone && isIdentity(o):
				return 0, c.cleanAll(ctx, of, user)
			}
			return 0, nil
		}}).start(g)
}

// isIdentity says whether a Lease is that of an API server.
func isIdentity(lease *engine.Object) bool {
	obj, err := parsed(lease)
	return err == nil && strings.HasPrefix(lease.Key.Name, "kube-system/") &&
		obj.At("metadata", "labels", identityLabel).Str() == identityValue
}

func (c *StorageVersions) cleanAll(ctx context.Context, of *engine.Resource, user access.User) error {
	list, err := c.Engine.List(ctx, &engine.Request{Resource: of, User: user}, engine.ListOptions{})
	if err != nil {
		return err
	}
	var failed []error
	for o := range list.Items {
		failed = append(failed, c.clean(ctx, of, o, user))
	}
	return errors.Join(append(failed, list.Err())...)
}

// clean removes the records of servers that are gone from one object, and the object if none is left.
func (c *StorageVersions) clean(ctx context.Context, of *engine.Resource, o *engine.Object, user access.User) error {
	obj, err := parsed(o)
	if err != nil {
		return nil // it is mended or deleted by somebody else
	}
	leases := c.Registry.Builtin().Find("coordination.k8s.io", "v1", "leases")
	all := obj.At("status", "storageVersions").Items()
	var left []object.Value
	for _, r := range all {
		rq := &engine.Request{Resource: leases, Namespace: "kube-system", Name: r.At("apiServerID").Str(), User: user}
		result, err := c.Engine.Get(ctx, rq, "")
		if err != nil && !apierr.Is(err, apierr.NotFound) {
			return err
		}
		if err == nil && isIdentity(result.Object) {
			left = append(left, r)
		}
	}
	switch {
	case len(left) == len(all):
		return nil
	case len(left) == 0:
		rq := &engine.Request{Resource: of, Name: o.Key.Name, User: user}
		return unlessChanged(c.Engine.Delete(ctx, rq, engine.DeleteOptions{PreconditionUID: o.Sidecar.UID,
			PreconditionRV: fmt.Sprint(o.Revision)}))
	}
	return unlessChanged(nil, c.write(ctx, of, o, obj, left, user, manager))
}
