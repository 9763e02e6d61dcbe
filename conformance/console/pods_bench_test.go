package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/chromedp"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/load"
)

const (
	livePeriod = 20 * time.Second
	liveRate   = 1000 // changes a second
)

var phases = []string{"Pending", "Running", "Succeeded", "Failed"}

// BenchmarkPods opens a list of 100,000 Pods, of which 1,000 a second change while it is open: when the first rows are
// seen, the longest frame meanwhile, the memory of the page's process, and the processor time of the server for each
// change, with nobody who watches, with the page, and with a kubectl that watches the same. At the end the page has the
// phases that the Pods have.
func BenchmarkPods(b *testing.B) {
	server := harness.Run(b, harness.Options{Kind: harness.Plinth, Flags: []string{"--storage=memory"}})
	kubectl, err := harness.Kubectl()
	if err != nil {
		b.Fatal(err)
	}
	w := &podWriter{tb: b, server: server, client: server.Client()}
	defer w.client.CloseIdleConnections()
	w.each(manyRows, 0, func(n int) {
		w.send(http.MethodPost, "", fmt.Sprintf(`{"metadata":{"name":"pod-%06d","labels":{"app":"web"}},`+
			`"spec":{"automountServiceAccountToken":false,"containers":[{"name":"web","image":"web:1"}]}}`, n))
	})
	for b.Loop() {
		b.ReportMetric(w.change(), "µs-cpu/change-alone")

		watch := exec.CommandContext(b.Context(), kubectl, "--kubeconfig", server.Kubeconfig, "get", "pods",
			"-w", "--chunk-size=2000")
		watch.Stdout = io.Discard
		if err := watch.Start(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(10 * time.Second) // it lists all of them first
		b.ReportMetric(w.change(), "µs-cpu/change-kubectl")
		if rss, err := privateBytes(watch.Process.Pid); err == nil {
			b.ReportMetric(rss, "MiB-kubectl")
		}
		_ = watch.Process.Kill()
		_ = watch.Wait()

		tab := open(b, server)
		tab.signIn()
		began := time.Now()
		tab.visit("r/core/v1/pods?ns=default")
		tab.wait(`document.querySelector(".space .row")`)
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/first-rows")
		tab.wait(`document.body.textContent.includes("100,000 objects · live")`)
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/all-rows")
		tab.run(chromedp.Evaluate[chromedp.Void](`(() => {
			let last = performance.now();
			window.longest = 0;
			const next = (now) => {
				window.longest = Math.max(window.longest, now - last);
				last = now;
				requestAnimationFrame(next);
			};
			requestAnimationFrame(next);
		})()`))
		b.ReportMetric(w.change(), "µs-cpu/change-page")
		b.ReportMetric(result(tab, chromedp.Evaluate[float64](`window.longest`)), "ms/longest-live-frame")
		w.compare(tab)
		b.ReportMetric(rendererBytes(b), "MiB-page-with-garbage")
		tab.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, heapprofiler.CollectGarbage, cdp.Empty{})
			return err
		}))
		b.ReportMetric(rendererBytes(b), "MiB-page")
		b.ReportMetric(result(tab, chromedp.Evaluate[float64](`performance.memory.usedJSHeapSize / 2 ** 20`)), "MiB-heap")
	}
}

// podWriter creates Pods and changes their phases.
type podWriter struct {
	tb     testing.TB
	server *harness.Server
	client *http.Client

	mu     sync.Mutex
	phases [manyRows]string
	turn   int
}

// each calls f for the numbers up to n on 16 goroutines, at most rate a second; 0: as many as can be.
func (w *podWriter) each(n, rate int, f func(n int)) {
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for n := range numbers {
				f(n)
			}
		})
	}
	began := time.Now()
	for i := range n {
		if rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		}
		numbers <- i
	}
	close(numbers)
	workers.Wait()
}

func (w *podWriter) send(method, path, body string) {
	rq, err := http.NewRequestWithContext(w.tb.Context(), method, w.server.URL+"/api/v1/namespaces/default/pods"+path,
		strings.NewReader(body))
	if err != nil {
		w.tb.Error(err)
		return
	}
	rq.Header.Set("Authorization", "Bearer "+harness.AdminToken)
	rq.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		rq.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := w.client.Do(rq)
	if err != nil {
		w.tb.Error(err)
		return
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode >= 300 {
		w.tb.Errorf("%s: %.200s", answer.Status, text)
	}
}

// change changes phases for a while, and returns the server's processor time for each change, in microseconds.
func (w *podWriter) change() float64 {
	before, err := load.CPU(w.server)
	if err != nil {
		w.tb.Fatal(err)
	}
	const n = int(livePeriod/time.Second) * liveRate
	w.turn++
	turn := w.turn
	w.each(n, liveRate, func(i int) {
		// Each change is of another Pod, far from the one before in the list.
		pod, phase := i*4999%manyRows, phases[(i+turn)%len(phases)]
		w.send(http.MethodPatch, fmt.Sprintf("/pod-%06d/status", pod), fmt.Sprintf(`{"status":{"phase":%q}}`, phase))
		w.mu.Lock()
		w.phases[pod] = phase
		w.mu.Unlock()
	})
	after, err := load.CPU(w.server)
	if err != nil {
		w.tb.Fatal(err)
	}
	return float64((after - before).Microseconds()) / float64(n)
}

// compare waits until the page shows of each phase as many Pods as have it.
func (w *podWriter) compare(tab *tab) {
	counts := map[string]int{}
	for _, phase := range w.phases {
		if phase != "" {
			counts[phase]++
		}
	}
	for _, phase := range phases[1:] { // a Pod that was not changed is Pending
		tab.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => {
			const field = document.querySelector("[data-search]");
			field.value = %q;
			field.dispatchEvent(new Event("input", { bubbles: true }));
		})()`, phase)))
		// A Pod that has ended is shown as Completed or Error where its containers say so; these have none that ran.
		tab.wait(fmt.Sprintf(`document.querySelector("[role=status]").textContent.replaceAll(",", "").startsWith("%d of ")`, counts[phase]))
	}
}

// privateBytes is the memory that a process has for itself, in MiB.
func privateBytes(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	total := 0.0
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[0], "Private_") {
			n, _ := strconv.ParseFloat(fields[1], 64)
			total += n / 1024
		}
	}
	return total, err
}

// rendererBytes is the memory of the largest process of a browser that renders a page, in MiB.
func rendererBytes(tb testing.TB) (most float64) {
	tb.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		tb.Fatal(err)
	}
	for _, file := range all {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "--type=renderer") {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
		if n, err := privateBytes(pid); err == nil {
			most = max(most, n)
		}
	}
	return most
}
