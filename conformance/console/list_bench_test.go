package console

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"plinth/conformance/internal/harness"
)

const manyRows = 100_000

// BenchmarkList opens a list of 100,000 objects: when the first rows are seen and when all are loaded, the longest
// frame while the list is scrolled from its beginning to its end, and the memory of the page's scripts.
func BenchmarkList(b *testing.B) {
	server := harness.Run(b, harness.Options{Kind: harness.Plinth, Flags: []string{"--storage=memory"}})
	fill(b, server)
	tab := open(b, server)
	tab.signIn()
	for b.Loop() {
		began := time.Now()
		tab.visit("r/core/v1/configmaps?ns=default")
		tab.wait(`document.querySelector(".space .row")`)
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/first-rows")
		tab.wait(`document.body.textContent.includes("100,000 objects · live")`)
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/all-rows")
		frames := result(tab, chromedp.Evaluate[[]float64](`new Promise((done) => {
			const box = document.querySelector(".rows"), frames = [];
			let last = performance.now();
			const next = (now) => {
				frames.push(now - last);
				last = now;
				if (frames.length > 300) done(frames.slice(1));
				else requestAnimationFrame(next);
				box.scrollTop = box.scrollHeight * frames.length / 300;
			};
			requestAnimationFrame(next);
		})`, awaited))
		longest := 0.0
		for _, f := range frames {
			longest = max(longest, f)
		}
		b.ReportMetric(longest, "ms/longest-frame")
		heap := result(tab, chromedp.Evaluate[float64](`performance.memory.usedJSHeapSize / 2 ** 20`))
		b.ReportMetric(heap, "MiB-heap")
	}
}

// fill creates the objects.
func fill(b *testing.B, server *harness.Server) {
	b.Helper()
	client := server.Client()
	defer client.CloseIdleConnections()
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for n := range numbers {
				rq, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL+configMaps,
					strings.NewReader(configMap(fmt.Sprintf("map-%06d", n))))
				if err != nil {
					b.Error(err)
					continue
				}
				rq.Header.Set("Authorization", "Bearer "+harness.AdminToken)
				rq.Header.Set("Content-Type", "application/json")
				answer, err := client.Do(rq)
				if err != nil {
					b.Error(err)
					continue
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				if answer.StatusCode != http.StatusCreated {
					b.Error(answer.Status)
				}
			}
		})
	}
	for n := range manyRows {
		numbers <- n
	}
	close(numbers)
	workers.Wait()
}
