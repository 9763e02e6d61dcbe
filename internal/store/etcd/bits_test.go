package etcd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"plinth/internal/store"
)

// This file is what the simulation knows of keys that are bits (Bits), and of values that are damaged.

// bitmap is the key whose value has the bits: their names, sorted, with a comma behind each.
var bitmap = store.Key{Resource: "r", Name: "bitmap"}

func bit(name string) store.Key { return store.Key{Resource: "bit", Name: name} }

// damage is a value that cannot be read. The words of errDamaged and errSet are looked for by tests.
const damage = "?"

var (
	errDamaged = errors.New("the value is damaged")
	errSet     = errors.New("the bit is set already")
)

func bitNames(data []byte) ([]string, error) {
	if string(data) == damage {
		return nil, errDamaged
	}
	return strings.FieldsFunc(string(data), func(r rune) bool { return r == ',' }), nil
}

func bitsText(names []string) (text string) {
	slices.Sort(names)
	for _, name := range names {
		text += name + ","
	}
	return text
}

// bitsOfModel are the bits of the processes.
func bitsOfModel() *Bits {
	return &Bits{Resource: "bit", Whole: bitmap, Names: bitNames,
		Change: func(data []byte, set, cleared []string) ([]byte, error) {
			names, err := bitNames(data)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(set, func(name string) bool { return slices.Contains(names, name) }) {
				return nil, errSet
			}
			names = append(names, set...)
			names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(cleared, name) })
			return []byte(bitsText(names)), nil
		}}
}

// allocate is a program: an object takes the first bit that is free, and is removed with it, twice. The last one of
// process 1 stays. In between something else is written on the condition that the bit of another object is set, and was
// not cleared.
func (p *process) allocate(int) {
	holder := store.Key{Resource: "r", Name: fmt.Sprintf("holder %d", p.number)}
	for round := range 2 {
		p.take(holder)
		p.note(holder)
		if p.number == 1 && round == 1 {
			return
		}
		of, ok := p.store.Get(holder)
		if !ok {
			continue
		}
		p.change([]store.Key{holder, bit(string(of.Data()))}, func(live []*store.Version) ([]store.Precondition, [][]byte) {
			if live[0] == nil {
				return nil, nil
			}
			return nil, [][]byte{nil, nil}
		})
	}
}

// take makes an object that takes the first bit that is free.
func (p *process) take(holder store.Key) {
	for range 3 {
		free := bit("1")
		for _, taken := p.store.Get(free); taken; _, taken = p.store.Get(free) {
			free.Name += "1"
		}
		p.change([]store.Key{holder, free}, func(live []*store.Version) ([]store.Precondition, [][]byte) {
			if live[0] != nil || live[1] != nil {
				return nil, nil
			}
			return nil, [][]byte{[]byte(free.Name), {}}
		})
	}
}

// note writes something on the condition that a bit of another object stays as it is.
func (p *process) note(holder store.Key) {
	of, _ := p.store.Get(holder)
	for name := "1"; len(name) < 3; name += "1" {
		if v, ok := p.store.Get(bit(name)); ok && (of == nil || string(of.Data()) != name) {
			about := store.Key{Resource: "r", Name: fmt.Sprintf("note %d", p.number)}
			p.change([]store.Key{about}, func([]*store.Version) ([]store.Precondition, [][]byte) {
				return []store.Precondition{store.At(v)}, [][]byte{[]byte(name)}
			})
		}
	}
}

// bitAt is the version of a bit at a revision of the model; nil: it is not set.
func (m *model) bitAt(k store.Key, revision int64) *store.Version {
	since := int64(0)
	for _, c := range m.history {
		for _, e := range c.events {
			if c.revision > revision || string(e.Kv.Key) != "/r/r/"+bitmap.Name {
				continue
			}
			names, _ := bitNames(e.Kv.Value)
			if set := slices.Contains(names, k.Name); !set {
				since = 0
			} else if since == 0 {
				since = c.revision
			}
		}
	}
	if since == 0 {
		return nil
	}
	return store.NewVersion(k, since, []byte{}, &store.Sidecar{})
}

// spoil damages the value of a key, as somebody does who writes to etcd.
func (m *model) spoil(key string) { m.put(key, damage) }

// put writes a value for nobody.
func (m *model) put(key, value string) {
	kv := &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), ModRevision: m.revision + 1}
	m.commit(change{revision: m.revision + 1, by: nobody, events: []*mvccpb.Event{{Kv: kv}}})
}

// repair writes a bitmap that is damaged again, of what the holders say, as Kubernetes' repair loops do.
func (m *model) repair() {
	if kv := m.live["/r/r/"+bitmap.Name]; kv != nil && string(kv.Value) == damage {
		m.put(string(kv.Key), bitsText(m.held()))
	}
}

// held are the bits that the holders say that they have, sorted.
func (m *model) held() (names []string) {
	for key, kv := range m.live {
		if strings.HasPrefix(key, "/r/r/holder ") {
			names = append(names, plainOf(kv.Value))
		}
	}
	slices.Sort(names)
	return names
}

// judgeBits looks for bits that two objects have, and for those that are set without an object, or are not, with one.
func judgeBits(live map[string]string, revision int64, fail func(string, ...any)) {
	var held []string
	for key, value := range live {
		if strings.HasPrefix(key, "holder ") {
			held = append(held, value)
		}
	}
	slices.Sort(held)
	if set, err := bitNames([]byte(live[bitmap.Name])); err == nil && !slices.Equal(set, held) {
		fail("at %d the bits %q are set, and the objects have %q", revision, set, held)
	}
}
