package object

import (
	"slices"
	"strings"
	"unsafe"

	"plinth/internal/invariants"
)

// Part says which members of an object are parsed: the values at some paths, of which one or more are below metadata.
type Part struct {
	key     string
	members []*Part // sorted by key; nil: the whole value
	size    int     // how many members the maps in the part have, without those of whole values
}

// NewPart is the part that has the values at these paths, each of which has one key or more.
func NewPart(paths ...[]string) *Part {
	p := &Part{members: []*Part{}}
	for _, path := range paths {
		p.add(path)
	}
	p.count()
	return p
}

// count sets size.
func (p *Part) count() int {
	p.size = len(p.members)
	for _, m := range p.members {
		p.size += m.count()
	}
	return p.size
}

// add adds a path. A path that another one begins with includes it.
func (p *Part) add(path []string) {
	if len(path) == 0 {
		p.members = nil
		return
	}
	i, ok := p.find(path[0])
	switch {
	case !ok:
		p.members = slices.Insert(p.members, i, &Part{key: path[0], members: []*Part{}})
	case p.members[i].members == nil:
		return
	}
	p.members[i].add(path[1:])
}

func (p *Part) find(key string) (int, bool) {
	return slices.BinarySearchFunc(p.members, key, func(m *Part, key string) int { return strings.Compare(m.key, key) })
}

// ParsePart parses a part of a stored object, and checks the rest. A restart has to know the labels and a few fields of
// each object, which are a hundredth of it, and to notice when one cannot be read; a parse of all of it takes four
// times as long.
//
//	ok  ⇒  data is a JSON object, its values at the paths are those of v, and at is what Locate returns
//
// It is not ok for bytes that are no stored object, and for a few others: those that this package has not printed
// (white space, keys with escapes), and very deep ones.
func ParsePart(data []byte, part *Part) (v Value, at Offsets, ok bool) {
	if len(data) == 0 || data[0] != '{' {
		return Nil, at, false
	}
	st := pooledStacks.Get().(*stacks)
	defer st.free()
	p := partParser{
		parser: parser{in: unsafe.String(unsafe.SliceData(data), len(data)), stacks: st,
			memberSlab: make([]Member, 0, part.size+spareMembers)},
		data: data, metadata: -1,
	}
	v, ok = p.part(part)
	ok = ok && p.pos == len(data) && p.at.Splice > 0
	if invariants.Enabled && ok {
		at, located := locate(data)
		mustHold(located && at == p.at, "object: a part has other places than the object")
	}
	return v, p.at, ok
}

// spareMembers is how many members of whole values find room beside those of the part: a few labels, an owner.
const spareMembers = 8

// partParser is the state of one ParsePart.
type partParser struct {
	parser
	data     []byte // is in
	at       Offsets
	metadata int // where the value of metadata begins; -1: it has not come, or has passed
}

// mark notes what Locate looks for: a key of the map at begin, between two offsets, and its value, which ends at pos.
func (p *partParser) mark(begin, from int, key string) {
	switch {
	case begin == 0 && p.at.Item == 0 && key != "apiVersion" && key != "kind":
		p.at.Item = from
	case begin != p.metadata || p.at.Splice > 0:
	case key > "resourceVersion":
		p.at.Splice = from
	case key == "managedFields" && p.data[p.pos] == ',':
		p.at.Managed, p.at.ManagedEnd = from, p.pos+1
	}
}

// part parses a part of the map at pos.
func (p *partParser) part(part *Part) (v Value, ok bool) {
	data, start := p.data, p.pos
	base, sorted := len(p.members), true
	for first := true; ; first = false {
		p.pos++ // a brace or a comma
		if first && p.pos < len(data) && data[p.pos] == '}' {
			break
		}
		begin := p.pos
		if p.pos, ok = keyEnd(data, p.pos); !ok {
			return Nil, false
		}
		key := p.in[begin+1 : p.pos-2]
		if strings.IndexByte(key, '\\') >= 0 {
			return Nil, false
		}
		if start == 0 && key == "metadata" && p.metadata < 0 {
			p.metadata = p.pos
		}
		if i, wanted := part.find(key); wanted {
			if v, ok = p.member(part.members[i]); ok {
				if n := len(p.members); n > base && p.members[n-1].Key >= key {
					sorted = false
				}
				p.members = append(p.members, Member{Key: key, Value: v})
			}
		} else {
			p.pos, ok = wellFormed(data, p.pos)
		}
		if !ok || p.pos >= len(data) {
			return Nil, false
		}
		p.mark(start, begin, key)
		if data[p.pos] == '}' {
			break
		}
		if data[p.pos] != ',' {
			return Nil, false
		}
	}
	p.pos++
	members := p.members[base:]
	if !sorted { // as those of the top level, where metadata comes early
		slices.SortStableFunc(members, func(a, b Member) int { return strings.Compare(a.Key, b.Key) })
		members = lastOfEach(members)
	}
	v = mapOf(keep(&p.memberSlab, members, len(p.in)-p.pos))
	p.members = p.members[:base]
	return v, true
}

// member parses the value at pos, or a part of it if it is a map.
func (p *partParser) member(part *Part) (Value, bool) {
	if part.members != nil && p.pos < len(p.data) && p.data[p.pos] == '{' {
		return p.part(part)
	}
	v, err := p.value()
	return v, err == nil
}
