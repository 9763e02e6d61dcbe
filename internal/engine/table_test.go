package engine

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// SPEC: MED-6
func TestDurationsReadAsKubernetesWritesThem(t *testing.T) {
	check := func(d time.Duration) {
		t.Helper()
		if got, want := string(AppendDuration(nil, d)), duration.HumanDuration(d); got != want {
			t.Errorf("%v (%d ns): %s, want %s", d, d, got, want)
		}
	}
	for _, edge := range []time.Duration{
		math.MinInt64, math.MaxInt64, 0, 60, 119, 120, 600, 3600, 3 * 3600, 8 * 3600, 24 * 3600, 48 * 3600, 8 * 24 * 3600,
		365 * 24 * 3600, 2 * 365 * 24 * 3600, 3 * 365 * 24 * 3600, 8 * 365 * 24 * 3600, 9 * 365 * 24 * 3600,
	} {
		if edge > 0 && edge < math.MaxInt64 {
			edge *= time.Second
		}
		for _, off := range []time.Duration{0, 1, time.Second, time.Minute, time.Hour, 24 * time.Hour} {
			check(edge + off)
			check(edge - off)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		check(time.Duration(math.Exp(rng.Float64() * math.Log(math.MaxInt64))))
	}
}

func TestAge(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if got := (Age{Since: now.Add(5 * time.Minute), Due: true}).Text(now); got != "in 5m" {
		t.Errorf("a time that is due is %q", got)
	}
	if got := (Age{Since: now.Add(-5 * time.Minute), Due: true}).Text(now); got != "5m ago" {
		t.Errorf("a time that was due is %q", got)
	}
	if got := (Age{Before: "3 (", Since: now.Add(-5 * time.Minute), After: " ago)"}).Text(now); got != "3 (5m ago)" {
		t.Error(got)
	}
}
