package validation

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// slot is a place in a document whose value can be changed.
type slot struct {
	path string // keys, with # for list items: the same path in all documents
	key  string
	get  func() any
	set  func(any)
	drop func()
	// add adds another item to the list that contains this one; nil if this is not an item of a list.
	add func(any)
}

// slots lists every place of a document.
func slots(doc map[string]any) []slot {
	var found []slot
	var walk func(path, key string, v any, set func(any))
	walk = func(path, key string, v any, set func(any)) {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				if path == "" && (k == "apiVersion" || k == "kind") {
					continue
				}
				below := path + "." + k
				found = append(found, slot{below, k, func() any { return v[k] }, func(x any) { v[k] = x },
					func() { delete(v, k) }, nil})
				walk(below, k, v[k], func(x any) { v[k] = x })
			}
		case []any:
			for i := range v {
				found = append(found, slot{path + ".#", key, func() any { return v[i] }, func(x any) { v[i] = x },
					func() { set(slices.Delete(slices.Clone(v), i, i+1)) },
					func(x any) { set(append(slices.Clone(v), x)) }})
				walk(path+".#", key, v[i], func(x any) { v[i] = x })
			}
		}
	}
	walk("", "", doc, nil)
	return found
}

// mutator changes documents of one kind, the same way for the same seed.
type mutator struct {
	rng *rand.Rand
	// at holds the values that the documents of the kind have, by path.
	at map[string][]any
	// members holds, for the path of a map, the names of the members that any document has there.
	members map[string][]string
	// named holds the values under a key, at any path.
	named map[string][]any
}

func newMutator(docs []map[string]any) *mutator {
	m := &mutator{at: map[string][]any{}, members: map[string][]string{}, named: map[string][]any{}}
	for _, doc := range docs {
		for _, s := range slots(doc) {
			m.at[s.path] = append(m.at[s.path], s.get())
			m.named[s.key] = append(m.named[s.key], s.get())
			if i := strings.LastIndexByte(s.path, '.'); s.path[i+1:] != "#" && !slices.Contains(m.members[s.path[:i]],
				s.key) {
				m.members[s.path[:i]] = append(m.members[s.path[:i]], s.key)
			}
		}
	}
	return m
}

func clone(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var copied any
	if err := json.Unmarshal(text, &copied); err != nil {
		panic(err)
	}
	return copied
}

// variant returns a document with a few changes below a path.
func (m *mutator) variant(seed uint64, doc map[string]any, below string) map[string]any {
	m.rng = rand.New(rand.NewPCG(seed, 0x7a11))
	out := clone(doc).(map[string]any)
	if member := strings.TrimPrefix(below, "."); below != "" && len(m.at[below]) > 0 &&
		(out[member] == nil || m.rng.IntN(4) == 0) {
		out[member] = clone(pick(m, m.at[below]))
	}
	for range 1 + m.rng.IntN(3) {
		all := slots(out)
		if below != "" {
			all = slices.DeleteFunc(all, func(s slot) bool { return !strings.HasPrefix(s.path, below) })
		}
		if len(all) == 0 {
			return out
		}
		m.change(all[m.rng.IntN(len(all))])
	}
	return out
}

func pick[T any](m *mutator, from []T) T { return from[m.rng.IntN(len(from))] }

func (m *mutator) change(s slot) {
	switch roll := m.rng.IntN(20); {
	case roll < 3:
		s.drop()
	case roll < 4:
		s.set(nil)
	case roll < 6 && s.add != nil: // duplicate it
		s.add(clone(s.get()))
	case roll < 7 && s.add != nil && m.at[s.path] != nil: // an item of another document
		s.add(clone(pick(m, m.at[s.path])))
	case roll < 9 && m.at[s.path] != nil:
		s.set(clone(pick(m, m.at[s.path])))
	case roll < 10 && m.named[s.key] != nil:
		s.set(clone(pick(m, m.named[s.key])))
	case roll < 12:
		m.graft(s)
	default:
		s.set(m.bad(s))
	}
}

// graft adds a member to a map.
func (m *mutator) graft(s slot) {
	into, ok := s.get().(map[string]any)
	if !ok {
		s.set(m.bad(s))
		return
	}
	if members := m.members[s.path]; len(members) > 0 && m.rng.IntN(4) > 0 {
		key := pick(m, members)
		into[key] = clone(pick(m, m.at[s.path+"."+key]))
		return
	}
	into[pick(m, texts)] = pick(m, texts)
}

// bad returns a replacement for a value, mostly of the same type.
func (m *mutator) bad(s slot) any {
	switch v := s.get().(type) {
	case string:
		if m.rng.IntN(12) == 0 {
			return pick(m, numbers) // int-or-string
		}
		switch m.rng.IntN(6) {
		case 0:
			return v + pick(m, texts)
		case 1:
			return pick(m, texts) + v
		}
		return pick(m, texts)
	case float64:
		if m.rng.IntN(10) == 0 {
			return pick(m, texts)
		}
		return pick(m, numbers)
	case bool:
		return !v
	case []any:
		return []any{}
	case map[string]any:
		return map[string]any{}
	}
	return nil
}

var texts = []string{
	"", "a", "b", "A", "-a", "a-", "a.b", "a_b", "a..b", ".a", "a b", " a", "é<&>\"", "\t", "a/b", "a/b/c", "/", "/a",
	"//", "a//b",
	"example.com/a", "EXAMPLE.com/A", "kubernetes.io/a", "requests.a/b", "https://a.b/c", "*", "*.a.b", "a.*",
	".", "..", "..a", "../a", "a/../b", "/a/../b", "a:b", "a:b:c", "a=b", "1", "0", "-1", "007", "+5", "1.5", "100m",
	"1500m", "1Gi", "-1Gi", "1n", "3Mi",
	"10%", "110%", "0%", "%", "a%", "10.0.0.1", "010.0.0.1", "::1", "fd00::1", "fd00::0001", "::ffff:1.2.3.4",
	"0.0.0.0", "127.0.0.1", "169.254.0.1", "224.0.0.1", "300.0.0.1",
	"10.0.0.0/8", "10.0.0.1/8", "fd00::/8", "10.0.0.0/99", "None", "none", "True", "Unknown", "cpu", "memory",
	"storage", "pods", "hugepages-2Mi", "hugepages-x", "requests.cpu",
	"ephemeral-storage", "example.com/gpu", "example.com/a/b", "Equal", "Exists", "In", "Lt", "Always", "Never",
	"OnFailure", "Retain", "Recycle", "Windows", "windows", "linux",
	"metadata.name", "metadata.labels['a']", "metadata.annotations['A']", "metadata.labels['a b']", "spec.host",
	"status.phase", "spec.x", "metadata.name['a']",
	"limits.cpu", "requests.hugepages-2Mi", "localhost/a", "runtime/default", "Localhost", "RuntimeDefault", "TCP",
	"SCTP", "HTTP", "Bidirectional",
	"kubernetes", "orphan", "foregroundDeletion", "v1", "v1/", "a/v1", "User", "ServiceAccount", "Event",
	"2024-01-01T00:00:00Z", "YQ==", "e30=", "W10=", "@hourly", "TZ=UTC * * * * *", "Local", "UTC",
	"0-3", "0,2-5", "3-1", "net.ipv4.a", "kernel.shmmax", "net/ipv4/a.b", "iqn.2001-04.com.example:a", "iqn",
	"eui.0123456789abcdef",
	strings.Repeat("a", 15), strings.Repeat("a", 16), strings.Repeat("a", 63), strings.Repeat("a", 64),
	strings.Repeat("a", 129), strings.Repeat("a", 253), strings.Repeat("a", 254), strings.Repeat("ab.", 90),
	strings.Repeat("x", 2100),
}

var numbers = []float64{-1, 0, 1, 2, 3, 59, 80, 100, 101, 255, 256, 300, 511, 512, 600, 3599, 3600, 32767, 65535, 65536,
	86400, 86401, 100000, 1 << 30, 1<<31 - 1, 1 << 31, 1 << 33, -5}
