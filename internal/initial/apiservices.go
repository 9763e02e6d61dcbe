package initial

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/labels"

	"plinth/internal/aggregation"
	"plinth/internal/apierr"
	"plinth/internal/discovery"
	"plinth/internal/engine"
	"plinth/object"
)

// localAPIServices are the APIServices of the built-in group versions that are served.
func (o *Objects) localAPIServices() (all []Object) {
	for _, gv := range o.Registry.Builtin().GroupVersions() {
		ofGroup, ofVersion, ok := discovery.Priorities(gv.Group, gv.Version)
		if !ok {
			continue
		}
		text := object.StringOf
		spec := []object.Member{{Key: "version", Value: text(gv.Version)},
			{Key: "groupPriorityMinimum", Value: object.IntOf(ofGroup)},
			{Key: "versionPriority", Value: object.IntOf(ofVersion)}}
		if gv.Group != "" {
			spec = append(spec, object.Member{Key: "group", Value: text(gv.Group)})
		}
		wanted := object.MapOf(spec...)
		labels := object.Fields(aggregation.Automanaged, text(aggregation.ManagedOnStart))
		all = append(all, Object{
			Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices", Name: gv.Version + "." + gv.Group,
			Body: object.Fields("metadata", object.Fields("labels", labels), "spec", wanted),
			Revise: func(live object.Value) object.Value {
				switch live.At("metadata", "labels", aggregation.Automanaged).Str() {
				case aggregation.ManagedOnStart, aggregation.ManagedContinuous:
					if !object.Equal(live.At("spec"), wanted) {
						return live.With("spec", wanted)
					}
				}
				return live
			},
		})
	}
	return all
}

// deleteObsoleteAPIServices deletes the APIServices that earlier servers have written at their start, of group
// versions that are not served any more.
func (o *Objects) deleteObsoleteAPIServices(ctx context.Context, wanted []Object) error {
	r := o.Registry.Builtin().Find("apiregistration.k8s.io", "v1", "apiservices")
	if r == nil {
		return nil
	}
	known := map[string]bool{}
	for _, i := range wanted {
		known[i.Name] = true
	}
	list, err := o.Engine.List(ctx, &engine.Request{Resource: r}, engine.ListOptions{
		Labels: labels.SelectorFromSet(labels.Set{aggregation.Automanaged: aggregation.ManagedOnStart})})
	var errs []error
	if apierr.Is(err, apierr.StoreReadError) {
		o.Logger.Warn("APIServices that nobody needs any more may be left", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	for item := range list.Items {
		if known[item.Key.Name] {
			continue
		}
		rq := &engine.Request{Resource: r, Name: item.Key.Name}
		_, err := o.Engine.Delete(ctx, rq, engine.DeleteOptions{PreconditionUID: item.Sidecar.UID})
		if err != nil && !apierr.Is(err, apierr.NotFound) && !apierr.Is(err, apierr.Conflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, list.Err())...)
}
