package validation

import (
	"flag"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"plinth/internal/builtin/validation/validationtest"
)

var (
	objects = flag.Int("objects", 300,
		"how many variants of each kind are compared, by each of create, update and status")
	seed   = flag.Uint64("seed", 1, "which variants they are")
	report = flag.Int("report", 0, "how many differences of each kind to print")
)

// score counts how our errors compare with upstream's.
type score struct {
	compared, refused int // by upstream
	caught            int // of those, refused by us too
	causes, same      int // upstream's causes; those that we report in the same words
	extra             int // causes that only we report
	exact             int // verdicts with all causes equal
	printed           int
}

func (s *score) add(t *testing.T, what string, v verdict) {
	s.compared++
	theirs, ours := validationtest.Errors(v.theirs, false), validationtest.Errors(v.ours, false)
	if len(theirs) == 0 && len(ours) > 0 {
		t.Errorf("%s: refused by us alone\n%s", what, v)
		return
	}
	if len(theirs) > 0 {
		s.refused++
		if len(ours) > 0 {
			s.caught++
		}
	}
	missing, extra := without(validationtest.Errors(v.theirs, true), validationtest.Errors(v.ours, true)),
		without(validationtest.Errors(v.ours, true), validationtest.Errors(v.theirs, true))
	s.causes += len(validationtest.Errors(v.theirs, true))
	s.same += len(validationtest.Errors(v.theirs, true)) - len(missing)
	s.extra += len(extra)
	if len(missing)+len(extra) == 0 {
		s.exact++
	} else if s.printed < *report {
		s.printed++
		t.Logf("%s:\n  missing %q\n  extra %q", what, missing, extra)
	}
}

func (s *score) String() string {
	return fmt.Sprintf("%d compared, %d refused, %d of them by us (%s); %d causes, %d of them ours in the same words (%s)",
		s.compared, s.refused, s.caught, percent(s.caught, s.refused), s.causes, s.same, percent(s.same, s.causes))
}

func percent(part, whole int) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// SPEC: VAL-1, VAL-4, VAL-6
func TestValidationIsUpstreams(t *testing.T) {
	documents := corpus(t)
	all := readScores(t)
	t.Cleanup(func() { all.write(t) })
	for _, k := range kindsUnderTest(t) {
		t.Run(k.gvk.String(), func(t *testing.T) {
			t.Parallel()
			docs := documents[k.gvk]
			k.scores = all.of(k)
			h := fnv.New64a()
			_, _ = h.Write([]byte(k.gvk.String())) // never fails
			start := h.Sum64() + *seed<<32
			m := newMutator(docs)
			good := k.accepted(t, docs)
			k.creates(t, m, docs, start)
			if len(good) > 0 {
				k.updates(t, m, good, "", start)
				if k.upstream.Subresources["status"] != nil {
					k.updates(t, m, good, "status", start)
				}
				if k.upstream.Subresources["approval"] != nil {
					k.updates(t, m, good, "approval", start)
				}
			}
		})
	}
}

// stored is a document and the object made from it.
type stored struct {
	doc map[string]any
	obj runtime.Object
}

// accepted returns the documents that upstream accepts; only the last one, the vector, may be refused.
func (k *kindUnderTest) accepted(t *testing.T, docs []map[string]any) []stored {
	var good []stored
	for i, doc := range docs {
		v, obj, err := k.create(t, doc)
		switch {
		case err != nil && i == len(docs)-1:
			t.Logf("the vector: %v", err) // upstream itself panics on objects that cannot have been stored
		case err != nil:
			t.Fatalf("document %d: %v", i, err)
		case len(v.theirs) == 0:
			good = append(good, stored{doc, k.withStatus(t, doc, obj)})
		case i < len(docs)-1:
			t.Errorf("document %d is to be valid: %v", i, v.theirs)
		}
	}
	return good
}

// withStatus gives a new object the status of its document, which create has dropped and both sides accept.
func (k *kindUnderTest) withStatus(t *testing.T, doc map[string]any, obj runtime.Object) runtime.Object {
	obj, writes, err := k.restored(t, doc, obj)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range writes {
		if len(v.theirs)+len(v.ours) > 0 {
			t.Fatalf("the status is to be valid: %s", v)
		}
	}
	return obj
}

// restored is withStatus for a document whose status may be invalid: an older version may have stored it. The verdicts
// are those of the writes of the status.
func (k *kindUnderTest) restored(t *testing.T, doc map[string]any, obj runtime.Object) (_ runtime.Object,
	writes []verdict, _ error) {
	if k.upstream.Subresources["status"] == nil || doc["status"] == nil {
		return obj, nil, nil
	}
	subresources := []string{"status"}
	if k.upstream.Subresources["approval"] != nil {
		subresources = []string{"approval", "status"} // the signer's update keeps what the approver has written
	}
	for _, subresource := range subresources {
		v, updated, err := k.update(t, doc, obj, subresource)
		if err != nil {
			return nil, nil, err
		}
		writes, obj = append(writes, v), updated
	}
	return obj, writes, nil
}

func (k *kindUnderTest) creates(t *testing.T, m *mutator, docs []map[string]any, start uint64) {
	var s score
	for i := 0; s.compared < *objects; i++ {
		doc := docs[i%len(docs)]
		if i >= len(docs) {
			doc = m.variant(start+uint64(i), doc, "")
		}
		if v, _, err := k.create(t, doc); err == nil {
			s.add(t, fmt.Sprintf("%s create %d", k.gvk, i), v)
		}
	}
	k.scores.check(t, "create", &s)
}

func (k *kindUnderTest) updates(t *testing.T, m *mutator, good []stored, subresource string, start uint64) {
	var s score
	below := ""
	if subresource != "" {
		below = ".status"
	}
	for i := 0; s.compared < *objects && i < 3**objects; i++ {
		old := good[i%len(good)]
		doc := old.doc
		if i >= len(good) {
			doc = m.variant(start+uint64(i), doc, below)
		}
		if v, _, err := k.update(t, doc, old.obj, subresource); err == nil {
			s.add(t, fmt.Sprintf("%s update %s %d", k.gvk, subresource, i), v)
		}
	}
	k.scores.check(t, strings.TrimSpace("update "+subresource), &s)
}
