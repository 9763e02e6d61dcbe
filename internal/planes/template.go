package planes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"plinth/internal/apierr"
	"plinth/internal/engine"
	"plinth/internal/planes/kind"
	"plinth/internal/store"
	"plinth/object"
)

// Templates is the resource of the first plane's store whose only object stands for the template. It is no type of the
// API.
const (
	Templates = "plinth/templates"
	Template  = "template" // its name, and the ID of the plane
)

// templateCreated is the time from which on the certificates of the template are valid, which no client ever sees. It
// is always the same one, so that what the template publishes of them does not change with each start.
var templateCreated = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// makeTemplate makes the template if there is none, and brings it up to date: a later version of the program may have
// other objects. Planes that have begun with an earlier one are brought up to date when they are opened.
func (p *Planes) makeTemplate(ctx context.Context) error {
	first := p.config.First.Store
	k := store.Key{Resource: Templates, Name: Template}
	if _, found := first.Get(k); !found {
		if _, err := first.Commit(ctx, []store.Precondition{store.Absent(k)}, []store.Change{{Key: k, Data: []byte(`{}`),
			Sidecar: &store.Sidecar{UID: Template}, Begin: &store.Begin{Plane: Template}}}); err != nil {
			return err
		}
	}
	if err := p.recall(ctx); err != nil {
		return err
	}
	s, err := first.Plane(Template)
	if err != nil {
		return err
	}
	of := Plane{Name: Template, UID: Template, Created: templateCreated, Spec: kind.Spec{Weight: 1}}
	made, _, err := p.make(ctx, of, s)
	if err != nil {
		return err
	}
	made.Run(nil)
	p.complete(made.Store, made.Busy)
	err = made.Close()
	s.Rest(err == nil)
	p.current = s.Revision()
	return err
}

// noted is what the object of the template says besides: with what the planes of the store were served.
type noted struct {
	// Secret is Config.Secret: a store that was restored without its secret is not served with another one.
	Secret string `json:"secret,omitempty"`
	// Controllers are those that have had nothing to do in planes that rest (store.Usage).
	Controllers string `json:"controllers,omitempty"`
}

// recall reads what is noted, and compares the secret.
func (p *Planes) recall(ctx context.Context) error {
	v, found := p.config.First.Store.Get(store.Key{Resource: Templates, Name: Template})
	if !found {
		return errors.New("there is no template")
	}
	if err := json.Unmarshal(v.Data(), &p.noted); err != nil {
		return err
	}
	is := p.config.Secret
	if p.noted.Secret == is {
		return nil
	}
	if p.noted.Secret != "" && !p.config.Adopted {
		return errors.New("planes.key is another one than that with which the planes of this store were served; restore " +
			"the one that belongs to it: the keys of all planes are derived from it. Or remove planes.id to go on with this " +
			"one, for which all tokens and certificates that planes have issued are invalid")
	}
	p.noted.Secret = is
	return p.note(ctx)
}

// note writes what is noted.
func (p *Planes) note(ctx context.Context) error {
	data, err := json.Marshal(p.noted)
	if err != nil {
		return err
	}
	first, k := p.config.First.Store, store.Key{Resource: Templates, Name: Template}
	v, found := first.Get(k)
	if !found {
		return errors.New("there is no template")
	}
	_, err = first.Commit(ctx, []store.Precondition{store.At(v)}, []store.Change{{Key: k, Data: data,
		Sidecar: &store.Sidecar{UID: Template}}})
	return err
}

// complete waits until the controllers of the template have made what they make in every plane: until nothing has
// changed for a moment. What is missing then, because the machine is slow, is made in each plane.
func (p *Planes) complete(s *store.Store, busy func() bool) {
	const moment, longest = 20 * time.Millisecond, time.Second
	for since, at, revision := time.Now(), time.Now(), int64(0); time.Since(since) < longest; time.Sleep(moment / 10) {
		if now := s.Revision(); now != revision || busy() {
			revision, at = now, time.Now()
		}
		if time.Since(at) > moment {
			return
		}
	}
}

// Origin is kind.Config.Origin.
func (p *Planes) Origin(name, resourceVersion string) (kind.Origin, error) {
	v := p.find(name)
	if v == nil {
		return kind.Origin{}, noPlane(name)
	}
	s, err := p.config.First.Store.Plane(v.Sidecar.UID)
	if err != nil {
		return kind.Origin{}, noPlane(name)
	}
	found := kind.Origin{UID: v.Sidecar.UID, Revision: s.Revision()}
	if resourceVersion == "" {
		return found, nil
	}
	if found.Revision, err = strconv.ParseInt(resourceVersion, 10, 64); err != nil {
		return found, apierr.NewBadRequest(err.Error())
	}
	return found, asOf(s.Reaches(found.Revision))
}

func noPlane(name string) error {
	return apierr.NewNotFound(apierr.Type{Group: kind.Group, Name: kind.Plural}, name)
}

// asOf is the API error for a look at a revision.
func asOf(err error) error {
	switch {
	case errors.Is(err, store.ErrCompacted):
		return apierr.NewExpired("the plane to begin with does not reach back to that resourceVersion any more")
	case errors.Is(err, store.ErrFuture):
		return apierr.NewBadRequest("the plane to begin with has not reached that resourceVersion yet")
	}
	return err
}

// Begin is kind.Config.Begin: a plane begins with the template, or with the plane that its spec names, as it is now or
// was. It is called again if the commit loses a race.
func (p *Planes) Begin(ctx context.Context, created *store.Version) (*store.Begin, error) {
	obj, err := engine.ObjectOf(created)
	if err != nil {
		return nil, apierr.NewInternal(err)
	}
	of, err := describe(created)
	if err != nil {
		return nil, apierr.NewInternal(err)
	}
	b := &store.Begin{Plane: of.UID, Origin: Template}
	from := of.Spec.From
	if from == (kind.From{}) {
		b.Changes, err = p.own(of.Created)
		return b, err
	}
	// It begins with what its status says, not with what the other plane has become since that was set.
	origin, err := kind.OriginOf(obj)
	if err != nil {
		return nil, apierr.NewInternal(err)
	}
	b.Origin = origin.UID
	s, err := p.config.First.Store.Plane(origin.UID)
	if err != nil {
		return nil, noPlane(from.Name)
	}
	then, changes, seen, err := s.AsOf(ctx, origin.Revision)
	if err != nil {
		return nil, asOf(err)
	}
	// What changes after this look is no part of the plane: it might be something that connects to others.
	b.Seen = seen
	off := copies(s.State, then)
	again := map[store.Key]bool{}
	for _, ch := range off {
		again[ch.Key] = true
	}
	b.Changes = append(off, slices.DeleteFunc(changes, func(ch store.Change) bool { return again[ch.Key] })...)
	return b, nil
}

// own are the objects that a plane has for itself, in the place of those of the template: the system namespaces, whose
// UIDs programs take for that of the cluster.
func (p *Planes) own(created time.Time) (changes []store.Change, err error) {
	s, err := p.config.First.Store.Plane(Template)
	if err != nil {
		return nil, err
	}
	sn, err := s.Snapshot(0)
	if err != nil {
		return nil, err
	}
	now := object.StringOf(created.UTC().Format(time.RFC3339))
	for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
		v, found := sn.Get(store.Key{Resource: "/namespaces", Name: name})
		if !found {
			continue // --runtime-config has turned them off
		}
		obj, err := engine.ObjectOf(v)
		if err != nil {
			return nil, err
		}
		meta := obj.At("metadata").With("uid", object.StringOf(uuid.NewString())).With("creationTimestamp", now)
		if managers := meta.At("managedFields").Items(); len(managers) > 0 {
			all := make([]object.Value, len(managers))
			for i, m := range managers {
				all[i] = m.With("time", now)
			}
			meta = meta.With("managedFields", object.ListOf(all...))
		}
		data := object.AppendObject(nil, obj.With("metadata", meta))
		sidecar := s.Describe(v.Key, data, time.Time{}, v.Sidecar.Form)
		if sidecar.Unreadable != nil {
			return nil, fmt.Errorf("the namespace %s of a new plane: %w", name, sidecar.Unreadable)
		}
		changes = append(changes, store.Change{Key: v.Key, Data: data, Sidecar: sidecar})
	}
	return changes, nil
}
