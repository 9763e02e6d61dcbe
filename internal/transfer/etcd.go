package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"plinth/internal/addresses"
	"plinth/internal/etcdform"
	"plinth/internal/planes"
	"plinth/internal/storage"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
	"plinth/internal/store/filelog"
	"plinth/object"
)

// Etcd is an etcd with the objects of a server.
type Etcd struct {
	storage.Etcd
	Encryption storage.Encryption
	// FirstNodePort and LastNodePort are the range of node ports of its servers.
	FirstNodePort, LastNodePort int64
	Logger                      *slog.Logger
}

// connect connects to it; the caller closes what is returned.
func (e *Etcd) connect(ctx context.Context, define bool) (*storage.Storage, error) {
	registry, definitions := types()
	s, err := storage.Connect(ctx, storage.Config{Etcd: e.Etcd, Encryption: e.Encryption, KMSv1: true, Registry: registry,
		Define: definitions, FirstNodePort: e.FirstNodePort, LastNodePort: e.LastNodePort, Logger: e.Logger, Now: time.Now},
		define)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// bookkeeping are the first parts of the paths of keys that are no objects, and that servers make again: those by which
// servers know of each other, the bitmaps of allocators, and Plinth's guards.
var bookkeeping = []string{"masterleases", "peerserverleases", "ranges", "plinth", "health"}

// FromEtcd reads an etcd. A key that is neither an object of a known kind nor bookkeeping is an error, unless the first
// part of its path is among those to leave out.
func FromEtcd(ctx context.Context, from Etcd, leaveOut []string) (c *Content, end func(context.Context) (int, error),
	err error) {
	s, err := from.connect(ctx, true)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	all, note, revision, err := s.Cluster.Scan(ctx)
	if err != nil {
		return nil, nil, err
	}
	if note != nil {
		return nil, nil, fmt.Errorf("a copy into the source has begun and not ended: %s", note)
	}
	c = &Content{Revision: revision, LeftOut: map[string]int{}}
	unknown := map[string]int{}
	for i := range all {
		folder, _, _ := strings.Cut(all[i].Path, "/")
		switch v := all[i].Version; {
		case v != nil && !own(v.Key.Resource) && v.Key != storage.PortRange && !slices.Contains(leaveOut, folder):
			c.Versions = append(c.Versions, v)
		case v != nil || slices.Contains(leaveOut, folder) || slices.Contains(bookkeeping, folder):
			c.LeftOut[folder]++
		default:
			unknown[folder]++
		}
	}
	if len(unknown) > 0 {
		var texts []string
		for _, folder := range slices.Sorted(maps.Keys(unknown)) {
			texts = append(texts, fmt.Sprintf("%s (%d)", folder, unknown[folder]))
		}
		return nil, nil, named("there are keys of kinds that this release does not know; name what is to be left out", texts)
	}
	if err := readable(c.Versions); err != nil {
		return nil, nil, err
	}
	if c.Versions, err = claim(c.Versions); err != nil {
		return nil, nil, err
	}
	return c, func(ctx context.Context) (int, error) {
		changed, err := s.Cluster.Changed(ctx, revision)
		return changed, errors.Join(err, s.Close())
	}, nil
}

// Progress is told how far a copy into an etcd is.
type Progress interface {
	// Raising is called while the revision of etcd is brought up to that of the source.
	Raising(revision, to int64)
	// Writing is called when objects are written.
	Writing(written, of int)
}

// maxRaise is how far the revision of an etcd is brought up, by as many writes: minutes.
const maxRaise = 10_000_000

// note is what is in the target as long as a copy into it has not ended.
type note struct {
	Objects  int    `json:"objects"`
	Sum      string `json:"sha256"`
	Revision int64  `json:"revision"` // of the source
}

// ToEtcd writes the objects into an etcd, below a prefix where nothing else is. They get new resourceVersions there,
// which are greater than all of the source.
//
// It can be interrupted at any time, and is called again then: it goes on with what is missing, if the source still has
// the same objects.
func (c *Content) ToEtcd(ctx context.Context, to Etcd, progress Progress) (r *Result, err error) {
	s, err := to.connect(ctx, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	want, err := c.asInEtcd(s.Form)
	if err != nil {
		return nil, err
	}
	ports, err := to.portRange(s.NodePorts, want)
	if err != nil {
		return nil, err
	}
	begun, err := json.Marshal(note{len(want), sum(want), c.Revision})
	if err != nil {
		return nil, err
	}
	missing, err := begin(ctx, s.Cluster, begun, want)
	if err != nil {
		return nil, err
	}
	if err := raise(ctx, s.Cluster, begun, c.Revision, progress); err != nil {
		return nil, err
	}
	r = &Result{Objects: len(want), Already: len(want) - len(missing), Plain: c.plain(to.Encryption)}
	written := r.Already
	if err := s.Cluster.Fill(ctx, ports, func(int) {}); err != nil {
		return nil, err
	}
	if err := s.Cluster.Fill(ctx, missing, func(n int) {
		written += n
		progress.Writing(written, len(want))
	}); err != nil {
		return nil, err
	}
	have, _, err := scan(ctx, s.Cluster)
	if err != nil {
		return nil, err
	}
	if err := same(want, have, time.Now()); err != nil {
		return nil, err
	}
	for _, v := range have {
		if v.Revision <= c.Revision {
			return nil, fmt.Errorf("%s has the resourceVersion %d, and the source has given out %d", v.Key, v.Revision,
				c.Revision)
		}
		r.Revision = max(r.Revision, v.Revision)
	}
	r.Sum = sum(have)
	return r, s.Cluster.End(ctx)
}

// portRange is the bitmap of the node ports that Services have; none: they have none. Servers would make it when they
// start, and complain of each port that is missing there, as they do of those that are outside of their range.
func (e *Etcd) portRange(form *etcdform.NodePorts, versions []*store.Version) ([]*store.Version, error) {
	var ports []int64
	for _, v := range versions {
		names, err := portsOf(v)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			port, err := addresses.PortOf(name)
			if err != nil {
				return nil, err
			}
			if port >= e.FirstNodePort && port <= e.LastNodePort {
				ports = append(ports, port)
			}
		}
	}
	if len(ports) == 0 {
		return nil, nil
	}
	value, err := form.Rebuild(nil, ports)
	return []*store.Version{store.NewVersion(storage.PortRange, 0, value, &store.Sidecar{})}, err
}

// scan reads the objects of a target, and the note in it. Anything else there is an error.
func scan(ctx context.Context, cluster *etcd.Cluster) (have []*store.Version, note []byte, err error) {
	all, note, _, err := cluster.Scan(ctx)
	if err != nil {
		return nil, nil, err
	}
	var others []string
	for i := range all {
		switch v := all[i].Version; {
		case v != nil && v.Key == storage.PortRange && note != nil:
		case v != nil:
			have = append(have, v)
		default:
			others = append(others, all[i].Path)
		}
	}
	if len(others) > 0 {
		return nil, nil, named("the target is not empty, or a server runs there; it has", others)
	}
	slices.SortFunc(have, byKey)
	return have, note, nil
}

// begin returns the objects that are missing in a target: all in an empty one.
func begin(ctx context.Context, cluster *etcd.Cluster, note []byte, want []*store.Version) ([]*store.Version, error) {
	have, was, err := scan(ctx, cluster)
	switch {
	case err != nil:
		return nil, err
	case was == nil && len(have) > 0:
		return nil, fmt.Errorf("the target is not empty: it has %s, and %d objects in all", have[0].Key, len(have))
	case was == nil:
		return want, cluster.Begin(ctx, note)
	case !bytes.Equal(was, note):
		return nil, fmt.Errorf("a copy of something else, or of an earlier state, has begun there and not ended (%s, and now %s);"+
			" remove what it has written", was, note)
	}
	there := map[store.Key]bool{}
	for _, v := range have {
		there[v.Key] = true
	}
	var missing, found []*store.Version
	for _, v := range want {
		if there[v.Key] {
			found = append(found, v)
		} else {
			missing = append(missing, v)
		}
	}
	return missing, same(found, have, time.Now())
}

// raise brings the revision of a target up to that of the source.
func raise(ctx context.Context, cluster *etcd.Cluster, note []byte, to int64, progress Progress) error {
	now, err := cluster.Revision(ctx)
	if err != nil {
		return err
	}
	if to-now > maxRaise {
		return fmt.Errorf("the target is at revision %d, and the source at %d: it would take %d writes to get there; make the "+
			"target of a snapshot of an empty etcd, by etcdutl snapshot restore --bump-revision %d --mark-compacted", now, to,
			to-now, to)
	}
	return cluster.Raise(ctx, note, to, func(reached int64) { progress.Raising(reached, to) })
}

// asInEtcd are the objects as they are read from an etcd that they were written to. What a value of etcd cannot say, or
// would not say in the same way, is an error, unless the object is in the form of an earlier release: then it gets the
// form that every read of it has.
func (c *Content) asInEtcd(form *etcdform.Form) ([]*store.Version, error) {
	if slices.ContainsFunc(c.Planes, func(p *filelog.Plane) bool { return p.ID != planes.Template }) {
		return nil, errors.New("the source has several planes, and an etcd has room for one: name the one to copy (--plane); " +
			"/ is the first one")
	}
	if err := readable(c.Versions); err != nil {
		return nil, err
	}
	all := make([]*store.Version, 0, len(c.Versions))
	var wrong []string
	for _, v := range c.Versions {
		if own(v.Key.Resource) {
			continue
		}
		if _, ok := form.Path(v.Key); !ok {
			wrong = append(wrong, v.Key.String()+" has no place there")
			continue
		}
		data, stamp, err := throughEtcd(form, v)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", v.Key, err))
			continue
		}
		all = append(all, store.NewVersion(v.Key, v.Revision, data, &store.Sidecar{Form: stamp, Expire: v.Sidecar.Expire}))
	}
	if len(wrong) > 0 {
		return nil, named("some objects cannot be written to an etcd", wrong)
	}
	return all, nil
}

// throughEtcd is what becomes of the bytes of an object in an etcd.
func throughEtcd(form *etcdform.Form, v *store.Version) (data []byte, stamp uint64, err error) {
	value, err := form.Encode(v.Key, v.Data())
	if err != nil {
		return nil, 0, err
	}
	data, current, _, err := form.Decode(v.Key, value)
	if err != nil {
		return nil, 0, err
	}
	if stamp = current.Form; stamp != 0 && stamp != v.Sidecar.Form {
		return data, stamp, nil // it gets the current form
	}
	was := v.Data()
	if bytes.Contains(was, []byte(`"selfLink":`)) { // which is never stored in an etcd
		parsed, err := object.ParseJSON(bytes.Clone(was))
		if err != nil {
			return nil, 0, err
		}
		was = object.AppendObject(nil, parsed.Value.WithoutAt("metadata", "selfLink"))
	}
	if !bytes.Equal(was, data) {
		return nil, 0, errors.New("a value of etcd would lose a part of it")
	}
	return was, stamp, nil // which is in memory already
}
