package patches

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plinth/object"
)

var (
	cases  = flag.Uint64("cases", 1000, "how many random cases each test compares")
	seed   = flag.Uint64("seed", 1, "what they are made from")
	enough = flag.Int64("enough", 5, "how many differences end the run")
)

// tally counts what the cases consist of, so that a generator that no longer produces something is noticed.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
}

// run compares families of cases until there are enough differences. differs compares one case of those that prepare
// has made; cases of one family are compared by one goroutine.
func run[F any](t *testing.T, prepare func(number uint64) F,
	differs func(number uint64, f F, count *tally) string) *tally {
	t.Logf("seed %d", *seed)
	var next atomic.Uint64
	var found atomic.Int64
	count := &tally{counts: map[string]int{}}
	t.Run("all", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for {
					first := (next.Add(1) - 1) * members
					if first >= *cases {
						return
					}
					f := prepare(first)
					for number := first; number < min(*cases, first+members) && found.Load() < *enough; number++ {
						if told := differs(number, f, count); told != "" {
							found.Add(1)
							t.Errorf("case %d of seed %d: %s", number, *seed, told)
						}
					}
				}
			})
		}
	})
	for _, what := range keysOf(count.counts) {
		t.Logf("%7d %s", count.counts[what], what)
	}
	return count
}

// SPEC: WRITE-2
func TestStrategicIsUpstreams(t *testing.T) {
	kinds := kindsOf(t)
	prepare := func(number uint64) family { return newGenerator(*seed+1<<32, number).family(kinds) }
	count := run(t, prepare, func(number uint64, f family, count *tally) string {
		g := newGenerator(*seed, number)
		c, how := g.strategic(f)
		d := c.difference(g.rng, count.add)
		if d == nil {
			count.add("patches " + how)
			return ""
		}
		c = c.minimised(g.rng, d)
		if smaller := c.difference(g.rng, nil); smaller != nil {
			d = smaller
		}
		return c.tell(d)
	})
	for _, outcome := range []string{"made by CreateTwoWayMergePatch", "made by CreateThreeWayMergePatch", "made up",
		"spoilt"} {
		if *cases >= 1000 && count.counts["patches "+outcome] < int(*cases/20) {
			t.Errorf("only %d patches %s", count.counts["patches "+outcome], outcome)
		}
	}
	// Explained differences must be rare, so that our errors cannot hide among upstream's.
	for what, percent := range map[string]int{"of which upstream is of several minds": 4, "explained: a crash": 8,
		"explained: room behind a list with duplicates": 1} {
		if most := int(*cases) * percent / 100; *cases >= 1000 && count.counts[what] > most {
			t.Errorf("%d cases are %s, and not %d at most", count.counts[what], what, most)
		}
	}
	for _, met := range []string{"applied", "applied without a change", "status 400", "status 422", "status 500"} {
		if *cases >= 10_000 && count.counts[met] == 0 {
			t.Errorf("no case has come to: %s", met)
		}
	}
	for _, e := range explanations {
		if *cases >= 50_000 && count.counts["explained: "+e.name] == 0 {
			t.Errorf("no case is explained by: %s", e.name)
		}
	}
}

// difference holds two outcomes that differ.
type difference struct{ want, got outcome }

// difference returns nil if the outcomes agree, or if their difference is explained.
func (c strategic) difference(rng *rand.Rand, count func(string)) *difference {
	want, got := c.upstream(nil), c.plinth()
	if count != nil {
		switch {
		case want.status != 200:
			count(fmt.Sprintf("status %d", want.status))
		case want.text == string(object.AppendJSON(nil, c.live)):
			count("applied without a change")
		default:
			count("applied")
		}
	}
	if want == got {
		return nil
	}
	tries := 300
	if count == nil { // during minimisation
		tries = 40
	}
	for range tries {
		if other := c.upstream(rng); other == got {
			if count != nil {
				count("of which upstream is of several minds")
			}
			return nil
		} else if name, ok := explain(c, other, got); ok {
			if count != nil {
				count("explained: " + name)
			}
			return nil
		}
	}
	return &difference{want, got}
}

// kind classifies a difference, so that a minimised case keeps the difference for which it is minimised.
func (d *difference) kind() string {
	return fmt.Sprint(d.want.status, d.got.status, d.want.crashed)
}

func (c strategic) tell(d *difference) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", c.kind.name)
	for _, line := range []struct {
		what string
		text any
	}{{"live", string(object.AppendJSON(nil, c.live))}, {"patch", string(object.AppendJSON(nil, c.patch))},
		{"upstream", d.want}, {"plinth", d.got}} {
		fmt.Fprintf(&b, "%-9s %v\n", line.what, line.text)
	}
	return b.String()
}
