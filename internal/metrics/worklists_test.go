package metrics

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"plinth/internal/controller/pace"
	"plinth/internal/controller/steps"
	"plinth/internal/controller/worklist"
)

// shownWorklists are the lines of the metrics, without those of buckets.
func shownWorklists(t *testing.T, w *Worklists) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	var shown strings.Builder
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket") {
			shown.WriteString(strings.ReplaceAll(strings.TrimPrefix(line, "workqueue_"), `{name="c"}`, ""))
		}
	}
	return shown.String()
}

// Four tasks are executed at once, for three seconds each; the first one fails then, and succeeds the second time. The
// fifth waits for them. What is ready when the list ends is not ready any more.
//
// SPEC: RUN-3
func TestWorklists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorklists()
		ctx, cancel := context.WithCancel(t.Context())
		failed := false
		var busy pace.Busy
		group := steps.NewPool(64).Group(ctx, 64)
		list := worklist.New(ctx, group, worklist.Config[int, struct{}]{Name: "c", Observe: w.Observe(),
			Busy: &busy,
			Do: func(ctx context.Context, n int, _ struct{}) error {
				select {
				case <-time.After(3 * time.Second):
				case <-ctx.Done():
				}
				if n == 0 && !failed {
					failed = true
					return errors.New("once")
				}
				return nil
			},
			Failed: func(int, error) {}})
		add := func(from, to int) {
			for n := from; n < to; n++ {
				list.Add(n, struct{}{})
			}
		}
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := shownWorklists(t, w); got != want {
				t.Errorf("%s:\n%s\nnot\n%s", when, got, want)
			}
		}
		add(0, 1)
		time.Sleep(time.Second)
		add(1, 5)
		expect("after a second", `adds_total 5
depth 1
longest_running_processor_seconds 1
queue_duration_seconds_sum 0
queue_duration_seconds_count 4
unfinished_work_seconds 1
`)
		time.Sleep(10 * time.Second)
		expect("when all is done", `adds_total 6
depth 0
longest_running_processor_seconds 0
queue_duration_seconds_sum 2.99
queue_duration_seconds_count 6
retries_total 1
unfinished_work_seconds 0
work_duration_seconds_sum 18
work_duration_seconds_count 6
`)
		add(10, 16)
		synctest.Wait()
		cancel()
		group.Close()
		add(20, 30)
		if got := shownWorklists(t, w); !strings.Contains(got, "adds_total 12\ndepth 0\n") {
			t.Errorf("when the list has ended:\n%s", got)
		}
		if n := busy.Tasks(); n != 0 {
			t.Errorf("a list that has ended has %d tasks", n)
		}
	})
}
