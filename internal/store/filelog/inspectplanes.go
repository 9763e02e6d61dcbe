package filelog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"plinth/internal/store"
)

// This file has what an inspection knows of planes besides the first one.
//
// What a plane has begun with is what another one had at that moment, so commits and checkpoints have to be taken in
// the order of their revisions: those of the first plane are taken in any order, as the version with the greatest
// revision counts. If the newest checkpoint is damaged, an older one and the history are read up to its revision,
// and then what the damaged one has is added (merge).

// overlay is what a plane has, or had when others began with it, as the difference from what that has begun with. So
// what ten thousand planes have in common is there once. One with which another begins does not change any more.
type overlay struct {
	origin   *overlay                     // nil: it is everything
	own      map[store.Key]*store.Version // nil: there is none, whatever the origin has
	revision int64                        // of the plane at that moment
	partial  bool                         // there may be more than is known
}

func newOverlay(origin *overlay, revision int64) *overlay {
	return &overlay{origin: origin, own: map[store.Key]*store.Version{}, revision: revision,
		partial: origin != nil && origin.partial}
}

// find returns the version of a key; known says that something tells that there is this one, or none.
func (o *overlay) find(k store.Key) (v *store.Version, known bool) {
	for ; o != nil; o = o.origin {
		if v, known = o.own[k]; known {
			return v, true
		}
	}
	return nil, false
}

// difference is what must change in an earlier overlay of the chain to get o; nil: in nothing. A nil version says that
// there is none.
func (o *overlay) difference(from *overlay) map[store.Key]*store.Version {
	all := map[store.Key]*store.Version{}
	for ; o != from; o = o.origin {
		for k, v := range o.own {
			if _, newer := all[k]; !newer {
				all[k] = v
			}
		}
	}
	for k, v := range all {
		if was, _ := from.find(k); was == v {
			delete(all, k)
		}
	}
	return all
}

// Plane is what another plane than the first one has.
type Plane struct {
	ID       string
	Revision int64 // of its newest readable commit
	Begun    int64 // the revision with which it has begun; 0: not known
	// Partial says that what it has begun with is not known, or not all of it.
	Partial bool

	resting int64 // see store.Layer
	content *overlay
}

// Versions are its newest readable versions, ordered by key.
func (p *Plane) Versions() []*store.Version {
	return slices.SortedFunc(maps.Values(p.content.difference(nil)), byKey)
}

func byKey(a, b *store.Version) int { return compareKeys(a.Key, b.Key) }

func compareKeys(a, b store.Key) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
}

// fork is what the plane has now, for another one to begin with.
func (p *Plane) fork() *overlay {
	now := p.content
	if len(now.own) == 0 && now.origin != nil && now.origin.partial == now.partial {
		return now.origin // nothing has changed since
	}
	now.revision = p.Revision
	p.content = newOverlay(now, p.Revision)
	return now
}

// put makes a copy of a lent version, or nil, that of a key.
func (p *Plane) put(k store.Key, lent *store.Version) { p.content.put(k, lent) }

func (o *overlay) put(k store.Key, lent *store.Version) {
	if k = cloned(k); lent == nil || lent.Sidecar == nil {
		o.own[k] = nil
	} else {
		o.own[k] = copied(k, lent)
	}
}

// copied is a copy of a lent version, for a key that is not lent.
func copied(k store.Key, lent *store.Version) *store.Version {
	sidecar := *lent.Sidecar
	return store.NewVersion(k, lent.Revision, append([]byte{}, lent.Data()...), &sidecar)
}

// planesOf is what an inspection knows of the planes besides the first one.
type planesOf struct {
	all   map[string]*Plane
	ended map[string]bool
	// lineage has of each plane whose beginning was read with which it begins, also of those in the history.
	lineage map[string]lineage
	// unknown are those of which there were commits before anything told how they began: what to say unless something
	// does.
	unknown map[string]Finding
	// inherited are the planes that have begun with one of which not all is known, by its ID.
	inherited map[string]Finding
	// restored are the checkpoints that were read, oldest first, until they are merged. The commits up to reached are in
	// one that is whole.
	restored []*restored
	reached  int64
}

func newPlanesOf() planesOf {
	return planesOf{all: map[string]*Plane{}, ended: map[string]bool{}, lineage: map[string]lineage{},
		unknown: map[string]Finding{}, inherited: map[string]Finding{}}
}

// lineage is the first revision of a plane and what it has begun with; first is 0 if only the last revision of the
// commit with which it began is known, begun.
type lineage struct {
	first, begun int64
	origin       string
}

// owner returns whose commit a version is that a plane has at a revision: its own, or of the one with which it has
// begun. known is false if nothing tells.
func (i *planesOf) owner(plane string, revision int64) (owner string, known bool) {
	for range len(i.lineage) + 1 {
		if plane == "" {
			return "", true
		}
		from, ok := i.lineage[plane]
		switch {
		case ok && (from.first > 0 && revision >= from.first || revision > from.begun):
			return plane, true
		case !ok || from.first == 0 || from.origin == "":
			return "", false
		}
		plane = from.origin
	}
	return "", false
}

// applyToPlanes takes over what a commit changes in planes besides the first one, unless a checkpoint has it. at is
// where the commit is, for findings.
func (i *inspector) applyToPlanes(c *store.Commit, at Finding) {
	if b := c.Begins; b != nil {
		begun := lineage{first: c.Revision, begun: c.Revision, origin: strings.Clone(b.Origin)}
		if len(b.Records) > 0 {
			begun.first = b.Records[0].Revision
		}
		i.planes.lineage[strings.Clone(b.Plane)] = begun
	}
	if c.Revision <= i.planes.reached {
		return
	}
	i.merge(c.First() - 1)
	if c.Plane != "" {
		if p := i.planeOf(c.Plane, at, "has changes"); p != nil {
			for _, r := range c.Records {
				p.put(r.Key, r.New)
			}
			p.Revision = c.Revision
		}
	}
	if b := c.Begins; b != nil {
		i.begin(b, c.Revision, at)
	}
	if c.Ends != "" && i.planeOf(c.Ends, at, "ends") != nil {
		id := strings.Clone(c.Ends)
		delete(i.planes.all, id)
		i.planes.ended[id] = true
	}
}

// planeOf returns a plane that a commit names; nil if it cannot be the one, which is a finding then. One that is not
// known was begun by a commit that is lost: what it has from here on is known.
func (i *inspector) planeOf(id string, at Finding, does string) *Plane {
	if p := i.planes.all[id]; p != nil {
		return p
	}
	id = strings.Clone(id)
	at.Planes = []string{id}
	if i.planes.ended[id] {
		at.Reason = fmt.Sprintf("the plane %q %s, and it has ended before", id, does)
		i.find(at)
		return nil
	}
	at.Reason = fmt.Sprintf("the plane %q %s, and how it began is lost: of its objects only those are known that have "+
		"changed since", id, does)
	i.planes.unknown[id] = at
	p := &Plane{ID: id, content: newOverlay(nil, 0)}
	p.content.partial = true
	i.planes.all[id] = p
	return p
}

// begin begins a plane.
func (i *inspector) begin(b *store.Beginning, revision int64, at Finding) {
	id := strings.Clone(b.Plane)
	if i.planes.all[id] != nil || i.planes.ended[id] || id == "" {
		at.Reason = fmt.Sprintf("the plane %q begins, and there was one with its ID before", id)
		at.Planes = []string{id}
		i.find(at)
		return
	}
	var origin *overlay
	partial := false
	if b.Origin != "" {
		if from := i.planeOf(b.Origin, at, fmt.Sprintf("is what the plane %q begins with", id)); from != nil {
			origin = from.fork()
		} else {
			partial = true
		}
	}
	p := &Plane{ID: id, Revision: revision, Begun: revision, content: newOverlay(origin, revision)}
	if p.content.partial = p.content.partial || partial; p.content.partial {
		f := i.planes.inherited[b.Origin]
		if f.File == "" {
			f = at
			f.Reason = fmt.Sprintf("of the plane %q not all is known, and others begin with it", b.Origin)
		}
		f.Planes = append(f.Planes, id)
		i.planes.inherited[strings.Clone(b.Origin)] = f
	}
	for _, r := range b.Records {
		p.put(r.Key, r.New)
	}
	i.planes.all[id] = p
}

// restored is what a checkpoint has of the planes besides the first one.
type restored struct {
	revision int64
	whole    bool
	planes   map[string]*Plane
}

// merge adds what checkpoints up to a revision have. A checkpoint that is whole is the first one. Another one may have
// planes that are not known, or known in part; what is known of others is as of its revision, too.
func (i *inspector) merge(revision int64) {
	for len(i.planes.restored) > 0 && i.planes.restored[0].revision <= revision {
		r := i.planes.restored[0]
		i.planes.restored = i.planes.restored[1:]
		for _, id := range slices.Sorted(maps.Keys(r.planes)) {
			switch p, have := r.planes[id], i.planes.all[id]; {
			case i.planes.ended[id]:
			case have == nil || have.content.partial && !p.content.partial:
				i.planes.all[id] = p
				delete(i.planes.unknown, id)
			case have.content.partial:
				have.merge(p)
				delete(i.planes.unknown, id)
			}
		}
		if r.whole {
			i.planes.reached = max(i.planes.reached, r.revision)
		}
	}
}

// merge adds what else is known in part of a plane.
func (p *Plane) merge(other *Plane) {
	for k, v := range other.content.difference(nil) {
		if have, known := p.content.find(k); !known || have != nil && have.Revision < v.Revision {
			p.content.own[k] = v
		}
	}
	p.Revision, p.Begun = max(p.Revision, other.Revision), max(p.Begun, other.Begun)
}

// layerReading is the layers of a checkpoint that is being read. Each part says of which layer it is, so what is lost
// between two parts belongs to the layers from that of the first one to that of the second.
type layerReading struct {
	into  *restored
	known map[int64]*layer
	last  int64 // the number of the layer of the newest part; 0: the first plane
	lost  []lostLayers
}

// layer is one that was read, at least in part.
type layer struct {
	overlay *overlay
	origin  int64
	headed  bool // its beginning was read
	plane   string
	scope   string // in which its versions are encrypted; "", in which none is, until its beginning was read
	damaged bool   // a part of it is lost
}

// lostLayers are the layers of which something was lost in one place. open says that the next part is not known yet, or
// that there is none.
type lostLayers struct {
	finding     int // its index
	first, last int64
	open        bool
	keys        []PlaneKey // that the damaged bytes seem to have, in the layer number
	number      int64
}

func newLayerReading(revision int64) *layerReading {
	return &layerReading{into: &restored{revision: revision, planes: map[string]*Plane{}}, known: map[int64]*layer{}}
}

// lose notes that something is lost after the newest part.
func (l *layerReading) lose(finding int) {
	l.lost = append(l.lost, lostLayers{finding: finding, first: l.last, last: l.last, open: true})
}

// hint adds to the newest loss what the damaged bytes seem to be.
func (l *layerReading) hint(raw []byte) {
	var f frame
	if f.parse(raw) {
		lost := &l.lost[len(l.lost)-1]
		lost.keys, _, _ = hintsOf(raw)
		lost.number = f.synced
	}
}

// first takes a part of the first plane.
func (l *layerReading) first() {
	for n := range l.lost {
		l.lost[n].open = false
	}
}

// part takes a part of a layer other than its beginning, or (begins) that. It returns the layer.
func (l *layerReading) part(number int64, begins bool) (*layer, error) {
	if number < l.last || number < 1 {
		return nil, fmt.Errorf("a part of the layer %d follows one of the layer %d", number, l.last)
	}
	resumed := false // something is lost before it
	for n := range l.lost {
		if lost := &l.lost[n]; lost.open {
			lost.open, resumed = false, true
			if lost.last = number; begins {
				lost.last--
			}
		}
	}
	jumps := number > l.last+1 || number > l.last && !begins || number == l.last && begins
	l.last = number
	if jumps && !resumed {
		return nil, fmt.Errorf("a part of the layer %d is not where it should be", number)
	}
	at := l.known[number]
	if at == nil {
		at = &layer{overlay: newOverlay(nil, 0)}
		l.known[number] = at
	}
	return at, nil
}

// begins takes the beginning of a layer.
func (l *layerReading) begins(number int64, payload []byte) error {
	at, err := l.part(number, true)
	if err != nil {
		return err
	}
	says, err := parseLayer(payload)
	switch {
	case err != nil:
		return err
	case int64(says.Number) != number || says.Origin >= says.Number:
		return errLayer
	}
	at.headed, at.plane, at.origin, at.scope = true, strings.Clone(says.Plane), int64(says.Origin), says.Scope()
	at.overlay.revision = says.Revision
	if from := l.known[at.origin]; at.origin != 0 && from != nil {
		if from.headed && from.plane != "" {
			return fmt.Errorf("layer %d is the difference from %d, which is that of a plane", number, at.origin)
		}
		at.overlay.origin = from.overlay
	}
	if at.plane == "" {
		return nil
	}
	if l.into.planes[at.plane] != nil {
		return fmt.Errorf("there are two layers of the plane %q", at.plane)
	}
	l.into.planes[at.plane] = &Plane{ID: at.plane, Revision: says.Revision, Begun: says.Begun, resting: says.Resting,
		content: at.overlay}
	return nil
}

// finish says in the findings which planes they are about, and which planes are not known as a whole: those whose
// layer, or one from which it is the difference, is damaged.
func (l *layerReading) finish(in *inspector, whole bool) *restored {
	l.into.whole = whole
	var numbers []int64
	for n, at := range l.known {
		numbers = append(numbers, n)
		at.damaged = !at.headed
	}
	slices.Sort(numbers)
	for _, lost := range l.lost {
		for _, n := range numbers {
			if n >= lost.first && n <= lost.last {
				l.known[n].damaged = true
			}
		}
	}
	// An origin comes before the layers that are differences from it.
	for _, n := range numbers {
		at := l.known[n]
		from := l.known[at.origin]
		at.overlay.partial = at.damaged || at.origin != 0 && (from == nil || from.overlay.partial)
	}
	for _, lost := range l.lost {
		l.say(&in.in.Findings[lost.finding], lost)
	}
	for id, p := range l.into.planes {
		in.planes.lineage[id] = lineage{begun: p.Begun, origin: in.planes.lineage[id].origin}
	}
	return l.into
}

// say adds to a finding what is known of the planes that it concerns.
func (l *layerReading) say(f *Finding, lost lostLayers) {
	hit := func(n int64) bool { return n >= lost.first && n <= lost.last && n > 0 }
	concerns := func(n int64) bool {
		for range len(l.known) {
			at := l.known[n]
			switch {
			case hit(n):
				return true
			case at == nil || at.origin == 0 || at.origin >= n:
				return false
			}
			n = at.origin
		}
		return false
	}
	for n, at := range l.known {
		if at.plane != "" && concerns(n) {
			f.Planes = append(f.Planes, at.plane)
		}
	}
	slices.Sort(f.Planes)
	f.Planes = slices.Compact(f.Planes)
	if at := l.known[lost.number]; lost.number == lost.first || lost.number == lost.last {
		for _, k := range lost.keys {
			switch {
			case lost.number == 0:
				f.Keys = append(f.Keys, k)
			case at != nil && at.plane != "":
				f.Keys = append(f.Keys, PlaneKey{at.plane, k.Key})
			}
		}
	}
	unknown, own := 0, 0
	for n := max(lost.first, 1); n <= lost.last; n++ {
		if at := l.known[n]; at == nil || !at.headed {
			if unknown++; at != nil {
				own += len(at.overlay.own)
			}
		}
	}
	if unknown > 0 {
		f.Reason += fmt.Sprintf("; of %d planes, or states that planes have begun with, it is lost which ones they are", unknown)
	}
	if own > 0 {
		f.Reason += fmt.Sprintf(", and %d objects read back of which it is not known whose they are", own)
	}
	if lost.open {
		f.Reason += "; which planes followed is not known"
	}
}

// layers are the planes as layers of a checkpoint, all of a revision if they are raised. What no two of them have begun
// with is no layer of its own.
func (in *Inspection) layers(revision int64, raised bool) []*store.Layer {
	// How many planes, and states that planes have begun with, have a state as their origin.
	users := map[*overlay]int{}
	for _, p := range in.Planes {
		for o := p.content.origin; o != nil; o = o.origin {
			if users[o]++; users[o] > 1 {
				break // its own origins have counted it already
			}
		}
	}
	shared := func(o *overlay) *overlay {
		for o = o.origin; o != nil && users[o] == 1; {
			o = o.origin
		}
		return o
	}
	var all []*store.Layer
	numbers := map[*overlay]int{nil: 0}
	add := func(o, origin *overlay, l *store.Layer) {
		l.Number, l.Origin, l.Since = len(all)+1, numbers[origin], l.Revision
		l.Collections, l.Versions = layerOf(o, origin, l.Revision)
		all = append(all, l)
	}
	for _, p := range in.Planes {
		var chain []*overlay // those that are no layers yet, each before its origin
		for o := shared(p.content); o != nil; o = shared(o) {
			if _, done := numbers[o]; done {
				break
			}
			chain = append(chain, o)
		}
		for _, o := range slices.Backward(chain) {
			add(o, shared(o), &store.Layer{Revision: o.revision})
			numbers[o] = len(all)
		}
	}
	for _, p := range in.Planes {
		l := &store.Layer{Plane: p.ID, Revision: p.Revision, Begun: p.Begun, Resting: p.resting}
		if raised {
			l.Revision, l.Resting = revision, 0
		}
		add(p.content, shared(p.content), l)
	}
	return all
}

// layerOf is what has changed since an origin.
func layerOf(o, origin *overlay, revision int64) (collections []store.LayerCollection,
	versions func(func(*store.Version, error) bool)) {
	changed := map[string]bool{}
	for k := range o.difference(origin) {
		changed[k.Resource] = true
	}
	for _, resource := range slices.Sorted(maps.Keys(changed)) {
		collections = append(collections, store.LayerCollection{Resource: resource, Changed: revision})
	}
	return collections, func(yield func(*store.Version, error) bool) {
		all := o.difference(origin)
		for _, k := range slices.SortedFunc(maps.Keys(all), compareKeys) {
			v := all[k]
			if v == nil {
				v = &store.Version{Key: k}
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}
