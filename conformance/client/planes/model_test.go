package planes

import (
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// content is what an object has: bytes that follow from a number. 0: there is no object.
type content struct{ serial, size int }

// text is the content as base64, which a ConfigMap and a Secret can have.
func (c content) text() string {
	b := make([]byte, c.size)
	seed := [32]byte{byte(c.serial), byte(c.serial >> 8), byte(c.serial >> 16)}
	_, _ = rand.NewChaCha8(seed).Read(b) // it has no error
	return base64.StdEncoding.EncodeToString(fmt.Appendf(b, "%d", c.serial))
}

// version is what an object has been.
type version struct {
	content
	revision int64 // 0: that of a deletion, which is not known
}

// change is one change of an object, acknowledged or decided.
type change struct {
	name string
	version
}

// forever is later than any revision.
const forever = math.MaxInt64

// life is a plane from its creation to its deletion.
type life struct {
	slot     int
	name     string
	uid, url string
	created  int64 // the revision of its creation; the last one that is known to be before its first change
	// origin is the plane that it has begun with, as of the revision at; nil: a new one.
	origin *life
	at     int64
	base   map[string]version // what it has begun with; nil: no client has seen it yet
	// history has the changes since, in order.
	history []change
	// doubt is the write that was not answered; nil: there is none.
	doubt *change
	// creating and deleting are set from the request until that is answered. ended: it is deleted.
	creating, deleting, ended bool
	asked                     int64 // the resourceVersion that the request to create it has named; 0: none
}

// live is what the plane has, by the names of the objects.
func (l *life) live() map[string]version {
	all := map[string]version{}
	for name, v := range l.base {
		all[name] = v
	}
	for _, c := range l.history {
		if c.serial == 0 {
			delete(all, c.name)
		} else {
			all[c.name] = c.version
		}
	}
	return all
}

// revisions are those that change i of the history can have. A deletion is not answered with its revision, but those of
// the changes before and after it are known.
func (l *life) revisions(i int) (low, high int64) {
	if r := l.history[i].revision; r != 0 {
		return r, r
	}
	low, high = l.created+1, forever
	for _, c := range l.history[:i] {
		low = max(low, c.revision+1)
	}
	for _, c := range l.history[i+1:] {
		if c.revision != 0 {
			high = c.revision - 1
			break
		}
	}
	return low, high
}

// possible is what an object can have been as of a revision, and whether it may have changed since.
func (l *life) possible(name string, at int64) (versions []version, since bool) {
	versions = []version{l.base[name]}
	for i, c := range l.history {
		if c.name != name {
			continue
		}
		switch low, high := l.revisions(i); {
		case high <= at:
			versions = []version{c.version}
		case low <= at:
			versions, since = append(versions, c.version), true
		default:
			since = true
		}
	}
	return versions, since
}

// begins checks what a fork has begun with: the origin's objects as they were. An object that has changed in the origin
// after that may have a revision of its own in the fork.
func (l *life) begins(have map[string]version) error {
	names := map[string]bool{}
	for name := range have {
		names[name] = true
	}
	if l.origin == nil {
		if len(have) > 0 {
			return fmt.Errorf("the new plane %s has %d objects", l.name, len(have))
		}
		return nil
	}
	for name := range l.origin.base {
		names[name] = true
	}
	for _, c := range l.origin.history {
		names[c.name] = true
	}
	for name := range names {
		is := have[name]
		possible, since := l.origin.possible(name, l.at)
		if !slices.ContainsFunc(possible, func(was version) bool {
			return was.content == is.content && (was.revision == is.revision || is.serial == 0 || since && is.revision > l.at)
		}) {
			return fmt.Errorf("%s has begun with %s as of %d, where %s was %+v: it has %+v", l.name, l.origin.name, l.at, name,
				possible, is)
		}
	}
	return nil
}

// decide looks at what a write in doubt has become, and checks all that the plane has.
func (l *life) decide(have map[string]version) (happened bool, err error) {
	if d := l.doubt; d != nil {
		l.doubt = nil
		was, is := l.live()[d.name], have[d.name]
		if is.content == d.content && was != is {
			l.history = append(l.history, change{d.name, is})
			happened = true
		}
	}
	want := l.live()
	for name, v := range want {
		if have[name] != v {
			return happened, fmt.Errorf("%s: %s is %+v, and was %+v", l.name, name, have[name], v)
		}
	}
	for name, v := range have {
		if _, ok := want[name]; !ok {
			return happened, fmt.Errorf("%s: %s is %+v, and was deleted, or never there", l.name, name, v)
		}
	}
	return happened, nil
}
