package builtin

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"plinth/conformance/internal/strategies"
	"plinth/conformance/internal/valuediff"
	"plinth/internal/access"
	"plinth/internal/builtin"
	"plinth/internal/engine"
	"plinth/object"
)

var (
	objects = flag.Int("objects", 100, "how many variants of each kind are compared")
	seed    = flag.Uint64("seed", 1, "which variants they are")
)

// elsewhere are the groups whose strategies are not in k8s.io/kubernetes: conformance/oracle/crd and
// conformance/http/requests compare definitions with the reference, conformance/oracle/apiregistration and
// conformance/client/aggregation APIServices.
var elsewhere = []string{"apiextensions.k8s.io", "apiregistration.k8s.io"}

// each calls f with every kind that both sides have.
func each(t *testing.T, f func(t *testing.T, k kindUnderTest)) {
	all := vectorsByKind(t)
	unserved := maps.Clone(strategies.Of)
	for _, r := range builtin.Resources(builtin.Config{}.Every()) {
		gvk := schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
		upstream, known := strategies.Of[gvk.GroupKind()]
		if !r.Has("update") || slices.Contains(elsewhere, r.Group) {
			continue
		}
		if !known {
			t.Errorf("no strategies for %s", gvk)
			continue
		}
		delete(unserved, gvk.GroupKind())
		t.Run(gvk.String(), func(t *testing.T) {
			t.Parallel()
			f(t, kindUnderTest{gvk, all[gvk], upstream, r})
		})
	}
	for gk := range unserved {
		t.Errorf("there are strategies for %s, which is not served", gk)
	}
}

// enough fails the test of a kind that has compared less than a third of its variants: the generator makes too many
// invalid ones.
func (k kindUnderTest) enough(t *testing.T, compared int) {
	t.Helper()
	if compared < *objects/3 {
		t.Errorf("only %d of %d variants were compared", compared, *objects)
	}
}

type kindUnderTest struct {
	gvk      schema.GroupVersionKind
	vector   document
	upstream strategies.Strategies
	resource *engine.Resource
}

// pair is one object as both sides see it.
type pair struct {
	theirs runtime.Object
	ours   object.Value
}

// mutator makes the variants of a round.
func (k kindUnderTest) mutator(round int) *mutator {
	h := fnv.New64a()
	fmt.Fprint(h, k.gvk, round)
	rng := rand.New(rand.NewPCG(h.Sum64(), *seed))
	rates := []float64{0.005, 0.02, 0.05, 0.1, 0.2}
	return &mutator{rng, rates[rng.IntN(len(rates))]}
}

// make makes a pair of a document; ok is false for one that no API server could decode.
func (k kindUnderTest) make(t *testing.T, doc document) (p pair, ok bool) {
	if !k.resource.Namespaced {
		delete(doc["metadata"].(document), "namespace")
	}
	p.theirs, p.ours, ok = received(t, k.resource, k.gvk, doc)
	return p, ok
}

func (k kindUnderTest) context() context.Context {
	ctx := request.WithUser(context.Background(), &user.DefaultInfo{Name: "writer"})
	if k.resource.Namespaced {
		ctx = request.WithNamespace(ctx, "default")
	}
	return request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, APIGroup: k.gvk.Group, APIVersion: k.gvk.Version, Resource: k.resource.Name,
	})
}

// settled returns a value as it would be stored, with all times near now made equal.
func (k kindUnderTest) settled(v object.Value, now time.Time) object.Value {
	return justNow(k.resource.Schema().Settle(v), now)
}

func justNow(v object.Value, now time.Time) object.Value {
	switch v.Kind() {
	case object.String:
		if len(v.Str()) < len("2006-01-02T15:04:05Z") {
			return v
		}
		if t, err := time.Parse(time.RFC3339, v.Str()); err == nil && t.Sub(now).Abs() < 10*time.Second {
			return object.StringOf("now")
		}
	case object.List:
		for i, item := range v.Items() {
			if changed := justNow(item, now); changed != item {
				v = v.WithItem(i, changed)
			}
		}
	case object.Map:
		for _, m := range v.Members() {
			if changed := justNow(m.Value, now); changed != m.Value {
				v = v.With(m.Key, changed)
			}
		}
	}
	return v
}

// compare compares the objects that both sides have prepared, and says whether that was possible. The generation is
// compared separately.
func (k kindUnderTest) compare(
	t *testing.T, round int, what string, theirs runtime.Object, ours object.Value, now time.Time,
) bool {
	t.Helper()
	_, want, ok := stored(t, k.gvk, theirs)
	if !ok {
		return false
	}
	want = justNow(want, now).WithoutAt("metadata", "generation")
	got := k.settled(ours, now).WithoutAt("metadata", "generation")
	switch k.gvk.Kind {
	case "Service":
		want = asRead(want)
	case "HorizontalPodAutoscaler", "Node": // as the engine does, where a default is not for an empty value
		got = k.resource.Default(got)
	}
	if d := valuediff.First(tidy(want), tidy(got)); d != "" {
		t.Fatalf("round %d, %s: %s", round, what, d)
	}
	return true
}

// asRead returns a Service as the reference shows it: of a Service of type ExternalName, it drops some stored fields on
// read. Objects that validation refuses are never read.
func asRead(v object.Value) object.Value {
	policy := v.At("spec", "internalTrafficPolicy").Str()
	if v.At("spec", "type").Str() == "ExternalName" && (policy == "Cluster" || policy == "Local") {
		v = v.WithoutAt("spec", "internalTrafficPolicy")
	}
	return v
}

// tidy drops empty maps of metadata, which Go does not print.
func tidy(v object.Value) object.Value {
	for _, key := range []string{"labels", "annotations"} {
		if m, has := v.At("metadata").Get(key); has && m.Len() == 0 {
			v = v.WithoutAt("metadata", key)
		}
	}
	return v
}

// SPEC: WRITE-4
func TestCreate(t *testing.T) {
	each(t, func(t *testing.T, k kindUnderTest) {
		compared := 0
		defer func() { k.enough(t, compared) }()
		for round := range *objects {
			p, ok := k.make(t, k.mutator(round).variant(k.vector))
			if !ok {
				continue
			}
			now := time.Now().Truncate(time.Second)
			meta := metaOf(t, p.theirs)
			meta.SetCreationTimestamp(metav1.NewTime(now))
			ours := p.ours.WithAt(object.StringOf(now.UTC().Format(time.RFC3339)), "metadata", "creationTimestamp")
			sent := meta.GetGeneration()
			if k.resource.Generation != nil { // as the engine does
				ours = ours.WithAt(object.IntOf(1), "metadata", "generation")
			}
			k.upstream.Main.PrepareForCreate(k.context(), p.theirs)
			k.upstream.Main.Canonicalize(p.theirs)
			ours = k.resource.PrepareCreate(ours, access.User{Name: "writer"})
			if k.compare(t, round, "create", p.theirs, ours, now) {
				compared++
			}
			want, got := meta.GetGeneration(), ours.At("metadata", "generation").Int()
			if uncounted := got == 0 && want == sent; want != got && !uncounted {
				t.Fatalf("round %d: generation %d, want %d", round, got, want)
			}
		}
	})
}

// comparedInMemory are the kinds for which upstream distinguishes an empty list in a request from the stored one, which
// is absent: there, each such update increments the generation. Here it does not.
var comparedInMemory = map[string]bool{
	"MutatingWebhookConfiguration": true, "ValidatingWebhookConfiguration": true, "NetworkPolicy": true,
}

// SPEC: WRITE-4
func TestUpdate(t *testing.T) {
	each(t, func(t *testing.T, k kindUnderTest) {
		bumped, compared := 0, 0
		defer func() { k.enough(t, compared) }()
		for round := range *objects {
			old, new, ok := k.oldAndNew(t, round)
			if !ok {
				continue
			}
			now := time.Now()
			before := metaOf(t, old.theirs).GetGeneration()
			k.upstream.Main.PrepareForUpdate(k.context(), new.theirs, old.theirs)
			k.upstream.Main.Canonicalize(new.theirs)
			ours := k.resource.PrepareUpdate(new.ours, old.ours)
			if k.compare(t, round, "update", new.theirs, ours, now) {
				compared++
			}
			want := metaOf(t, new.theirs).GetGeneration() != before
			if got := k.newGeneration(ours, old.ours); got != want && !(want && comparedInMemory[k.gvk.Kind]) {
				t.Fatalf("round %d: a new generation: %v, want %v", round, got, want)
			}
			if want {
				bumped++
			}
		}
		if counts := k.resource.Generation != nil && k.resource.Kind != "PriorityClass"; counts != (bumped > 0) {
			t.Errorf("%d of the updates made a new generation", bumped)
		}
	})
}

func (k kindUnderTest) newGeneration(obj, old object.Value) bool {
	g := k.resource.Generation
	return g != nil && !object.Equal(g(k.resource.Schema().Settle(obj)), g(k.resource.Schema().Settle(old)))
}

// oldAndNew makes an object and a variant of it, with the system metadata that an update carries over. Defaults that
// are the time, in whole seconds, differ between the sides if a second begins in between: then all is made once more.
func (k kindUnderTest) oldAndNew(t *testing.T, round int) (old, new pair, ok bool) {
	for {
		began := time.Now().Unix()
		if old, new, ok = k.makeBoth(t, round); time.Now().Unix() == began {
			return old, new, ok
		}
	}
}

func (k kindUnderTest) makeBoth(t *testing.T, round int) (old, new pair, ok bool) {
	m := k.mutator(round)
	first := m.variant(k.vector)
	delete(first["metadata"].(document), "deletionTimestamp")
	if old, ok = k.make(t, first); !ok {
		return old, new, false
	}
	if old.theirs, old.ours, ok = stored(t, k.gvk, old.theirs); !ok {
		return old, new, false
	}
	m.rate = []float64{0, 0.003, 0.01, 0.05}[m.rng.IntN(4)]
	second := m.variant(first)
	delete(second["metadata"].(document), "deletionTimestamp")
	if new, ok = k.make(t, second); !ok {
		return old, new, false
	}
	was, is := metaOf(t, old.theirs), metaOf(t, new.theirs)
	is.SetGeneration(was.GetGeneration())
	is.SetCreationTimestamp(was.GetCreationTimestamp())
	for _, key := range []string{"creationTimestamp", "generation"} {
		if v, has := old.ours.At("metadata").Get(key); has {
			new.ours = new.ours.WithAt(v, "metadata", key)
		} else {
			new.ours = new.ours.WithoutAt("metadata", key)
		}
	}
	return old, new, true
}

// otherwise are the writable subresources that upstream does not update by a strategy: conformance/http/requests tests
// them.
var otherwise = []string{"scale", "binding", "eviction", "token"}

// SPEC: WRITE-4, URI-7
func TestSubresources(t *testing.T) {
	each(t, func(t *testing.T, k kindUnderTest) {
		for name, strategy := range k.upstream.Subresources {
			sub := k.resource.Subresource(name)
			if sub == nil {
				t.Errorf("%s is missing", name)
				continue
			}
			t.Run(name, func(t *testing.T) { k.subresource(t, sub, strategy) })
		}
		for _, sub := range k.resource.Subresources {
			if known := k.upstream.Subresources[sub.Name] != nil; sub.Write != nil && !known &&
				!slices.Contains(otherwise, sub.Name) {
				t.Errorf("%s is written here, and has no strategy", sub.Name)
			}
		}
	})
}

func (k kindUnderTest) subresource(t *testing.T, sub *engine.Subresource, strategy rest.RESTUpdateStrategy) {
	compared := 0
	defer func() { k.enough(t, compared) }()
	for round := range *objects {
		old, new, ok := k.oldAndNew(t, round)
		if !ok {
			continue
		}
		now := time.Now()
		before := metaOf(t, old.theirs).GetGeneration()
		strategy.PrepareForUpdate(k.context(), new.theirs, old.theirs)
		strategy.Canonicalize(new.theirs)
		ours, err := sub.Write(old.ours, new.ours)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if k.compare(t, round, sub.Name, new.theirs, ours, now) {
			compared++
		}
		want := metaOf(t, new.theirs).GetGeneration() != before
		if got := sub.Name != "status" && k.newGeneration(ours, old.ours); got != want { // the engine makes none for a status
			t.Fatalf("round %d: a new generation: %v, want %v", round, got, want)
		}
	}
}
