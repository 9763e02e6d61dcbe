package admission

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// random makes the objects of attempts. A test that needs many has a seed of its own, so that it is the same each time.
type random struct{ *rand.Rand }

func seeded(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 1))} }

// one returns one of the texts.
func (r random) one(texts ...string) string { return texts[r.IntN(len(texts))] }

// some returns some of the texts, in order.
func (r random) some(texts ...string) []string {
	var chosen []string
	for _, text := range texts {
		if r.IntN(2) == 0 {
			chosen = append(chosen, text)
		}
	}
	return chosen
}

// list returns a YAML list of up to n items.
func (r random) list(n int, item func() string) string {
	items := make([]string, r.IntN(n+1))
	for i := range items {
		items[i] = item()
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// fields returns a YAML map of those of the pairs whose value is not "".
func fields(pairs ...string) string {
	var all []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, pairs[i]+": "+pairs[i+1])
		}
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// doc is a document. meta and rest are members of its metadata, and of itself: pairs as for fields.
func doc(apiVersion, kind, namespace, name string, meta []string, rest ...string) string {
	meta = append([]string{"name", name, "namespace", namespace}, meta...)
	return fields(append([]string{"apiVersion", apiVersion, "kind", kind, "metadata", fields(meta...)}, rest...)...)
}

// pod is a Pod p in ns with a container, and these members of its spec.
func pod(meta []string, spec ...string) string {
	has := false
	for i := 0; i < len(spec); i += 2 {
		has = has || spec[i] == "containers"
	}
	if !has {
		spec = append([]string{"containers", "[{name: c, image: i}]"}, spec...)
	}
	return doc("v1", "Pod", "ns", "p", meta, "spec", fields(spec...))
}

// ofPod is an attempt on that Pod.
func ofPod(operation admission.Operation, object, old string) attempt {
	return attempt{operation: operation, version: "v1", resource: "pods", namespace: "ns", name: "p", object: object,
		old: old, user: user.DefaultInfo{Name: "jane"}}
}

// namespace is a Namespace with these annotations, and labels.
func namespaceDoc(name, annotations, labels string) string {
	return doc("v1", "Namespace", "", name, []string{"annotations", annotations, "labels", labels})
}

// quoted is a YAML string.
func quoted(text string) string { return fmt.Sprintf("%q", text) }
