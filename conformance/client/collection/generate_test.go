package collection

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// generated is a random case: objects that own each other in one of a few shapes, some of them in cycles, in other
// namespaces or without one, some with dangling references, some held by other finalizers. Some of them are deleted,
// with one of the propagation policies, and in the end the other finalizers are removed.
//
// A calm case waits between steps whose order matters: its outcome can be recorded.
func generated(seed uint64, calm bool) *graph {
	r := rand.New(rand.NewPCG(seed, 13))
	g := &graph{title: fmt.Sprintf("graph %d", seed)}
	n := 3 + r.IntN(9)
	var objects []step
	shape := []string{"chain", "tree", "fan", "mesh"}[r.IntN(4)]
	for i := range n {
		s := step{verb: "create", name: fmt.Sprintf("o%d", i), kind: randomKind(r)}
		if !kinds[s.kind].cluster {
			if s.namespace = "a"; r.IntN(6) == 0 {
				s.namespace = "b"
			}
		}
		for _, to := range parents(r, shape, i) {
			owner := objects[to]
			// Most owners are valid: they have no namespace, or the same one.
			if mayOwn(owner, s) || r.IntN(20) == 0 {
				s.owners = append(s.owners, reference{to: owner.name, block: r.IntN(2) == 0})
			}
		}
		if r.IntN(8) == 0 {
			s.finalizers = append(s.finalizers, "x.example.com/hold")
		}
		objects = append(objects, s)
	}
	g.steps = append(g.steps, objects...)
	if r.IntN(3) == 0 { // cycles
		for range 1 + r.IntN(2) {
			from, to := r.IntN(n), r.IntN(n)
			from, to = min(from, to), max(from, to)
			if mayOwn(objects[to], objects[from]) {
				g.steps = append(g.steps, step{verb: "own", name: objects[from].name,
					owners: []reference{{to: objects[to].name, block: r.IntN(2) == 0}}})
			}
		}
	}
	g.steps = append(g.steps, step{verb: "wait"})
	if r.IntN(3) == 0 { // dangling references
		for range 1 + r.IntN(2) {
			owner, dependent := objects[r.IntN(n)], objects[r.IntN(n)]
			wrong := []string{"name", "uid", "kind", "group"}[r.IntN(4)]
			// An owner reference with the UID of an object in another namespace leads to an event: with the reference's
			// collector always, with ours only if the rest of the reference is right (written.txt).
			if mayOwn(owner, dependent) || wrong == "uid" {
				g.steps = append(g.steps, step{verb: "own", name: dependent.name,
					owners: []reference{{to: owner.name, block: r.IntN(2) == 0, wrong: wrong}}}, step{verb: "wait"})
			}
		}
	}
	for range 1 + r.IntN(3) {
		deletes := 1
		if !calm && r.IntN(3) == 0 {
			deletes = 2
		}
		for range deletes {
			at := min(r.IntN(n), r.IntN(n)) // mostly near the roots
			g.steps = append(g.steps, step{verb: "delete", name: objects[at].name,
				policy: []string{"", "background", "foreground", "foreground", "orphan"}[r.IntN(5)]})
		}
		g.steps = append(g.steps, step{verb: "wait"})
		if r.IntN(6) == 0 { // create another one with the same name
			again := objects[0]
			again.owners, again.finalizers = nil, nil
			g.steps = append(g.steps, again, step{verb: "wait"})
		}
	}
	if r.IntN(12) == 0 && !calm && slices.ContainsFunc(objects, func(s step) bool { return s.namespace == "a" }) {
		g.steps = append(g.steps, step{verb: "empty", namespace: "a"}, step{verb: "wait"})
	}
	held := false
	for _, s := range objects {
		if len(s.finalizers) > 0 {
			g.steps = append(g.steps, step{verb: "release", name: s.name})
			held = true
		}
	}
	if held {
		g.steps = append(g.steps, step{verb: "wait"})
	}
	return g
}

func randomKind(r *rand.Rand) string {
	weights := []struct {
		kind   string
		weight int
	}{
		{"configmap", 30}, {"link", 20}, {"hub", 14}, {"replicaset", 8}, {"secret", 7}, {"clusterrole", 6}, {"job", 5},
		{"controller", 5}, {"pod", 5},
	}
	at := r.IntN(100)
	for _, w := range weights {
		if at -= w.weight; at < 0 {
			return w.kind
		}
	}
	panic("the weights do not come to 100")
}

// mayOwn says whether an owner is one that its dependent can refer to: without a namespace, or in the same one.
func mayOwn(owner, dependent step) bool {
	return owner.namespace == "" || owner.namespace == dependent.namespace
}

// parents returns the owners of the i-th object, which precede it.
func parents(r *rand.Rand, shape string, i int) []int {
	if i == 0 || r.IntN(12) == 0 {
		return nil
	}
	switch shape {
	case "chain":
		return []int{i - 1}
	case "fan":
		return []int{0}
	case "tree":
		return []int{r.IntN(i)}
	}
	var all []int
	for range 1 + r.IntN(3) {
		if at := r.IntN(i); !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	return all
}
