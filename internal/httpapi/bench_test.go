package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"plinth/internal/engine"
	"plinth/object"
)

// podBody is a Pod of two containers, about 1.3 kB when stored.
func podBody(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":"bench","tier":"web"}},"spec":{"containers":[
		{"name":"main","image":"registry.example.com/team/app:1.2.3","ports":[{"containerPort":8080}],"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],
		"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"1","memory":"512Mi"}}},
		{"name":"sidecar","image":"registry.example.com/team/sidecar:4.5","args":["--listen=:9090","--upstream=127.0.0.1:8080"]}]}}`, name)
}

func (s *server) makePods(n int) {
	s.t.Helper()
	rq := &engine.Request{Resource: s.types.Now().Find("", "v1", "pods"), Namespace: "default"}
	for i := range n {
		parsed, err := object.ParseJSON([]byte(podBody(fmt.Sprintf("pod-%05d", i))))
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.engine.Create(context.Background(), rq, parsed); err != nil {
			s.t.Fatal(err)
		}
	}
}

// discardWriter is a ResponseWriter that counts.
type discardWriter struct {
	header http.Header
	bytes  int
}

func (d *discardWriter) Header() http.Header         { return d.header }
func (d *discardWriter) Write(b []byte) (int, error) { d.bytes += len(b); return len(b), nil }
func (d *discardWriter) WriteHeader(int)             {}

// BenchmarkHandler measures the handler and the engine without a network.
func BenchmarkHandler(b *testing.B) {
	s := newServer(b, nil)
	s.makePods(5000)
	h, err := New(s.config)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct{ name, path, accept, encoding string }{
		{"get", "/api/v1/namespaces/default/pods/pod-00042", "application/json", ""},
		{"get-absent", "/api/v1/namespaces/default/pods/nobody", "application/json", ""},
		{"list", "/api/v1/pods", "application/json", ""},
		{"list-labels", "/api/v1/pods?labelSelector=app%3Dbench", "application/json", ""},
		{"list-gzip", "/api/v1/pods", "application/json", "gzip"},
		{"list-table", "/api/v1/pods", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", ""},
		{"get-protobuf", "/api/v1/namespaces/default/pods/pod-00042", "application/vnd.kubernetes.protobuf", ""},
		{"list-protobuf", "/api/v1/pods", "application/vnd.kubernetes.protobuf", ""},
		{"list-metadata-protobuf", "/api/v1/pods",
			"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", ""},
		{"list-metadata", "/api/v1/pods", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			request, err := http.NewRequest("GET", "https://localhost"+c.path, nil)
			if err != nil {
				b.Fatal(err)
			}
			request.Header.Set("Accept", c.accept)
			request.Header.Set("Accept-Encoding", c.encoding)
			b.ReportAllocs()
			total := 0
			for b.Loop() {
				w := &discardWriter{header: http.Header{}}
				h.ServeHTTP(w, request)
				total += w.bytes
			}
			b.SetBytes(int64(total / b.N))
		})
	}
}

// BenchmarkListOverTLS measures a list as its client sees it, over HTTP/2 on the loopback interface.
func BenchmarkListOverTLS(b *testing.B) {
	s := newServer(b, nil)
	s.makePods(5000)
	total := int64(0)
	for b.Loop() {
		response, err := s.client.Get(s.url + "/api/v1/pods")
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, response.Body)
		if err != nil {
			b.Fatal(err)
		}
		response.Body.Close()
		total += n
	}
	b.SetBytes(total / int64(b.N))
}

// BenchmarkWatchOverTLS delivers events of 1.3 kB to 200 watchers over the loopback interface.
func BenchmarkWatchOverTLS(b *testing.B) {
	watchers := 200
	if text := os.Getenv("WATCHERS"); text != "" {
		fmt.Sscan(text, &watchers)
	}
	s := newServer(b, nil)
	s.makePods(1)
	rq := &engine.Request{Resource: s.types.Now().Find("", "v1", "pods"), Namespace: "default", Name: "pod-00000"}
	var ready, done sync.WaitGroup
	for range watchers {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			response, err := s.client.Get(s.url + "/api/v1/pods?watch=1&resourceVersion=0")
			if err != nil {
				b.Error(err)
				return
			}
			defer response.Body.Close()
			in := bufio.NewReaderSize(response.Body, 64<<10)
			if _, err := in.ReadSlice('\n'); err != nil {
				b.Error(err)
				return
			}
			ready.Done()
			for range b.N {
				for {
					if _, err := in.ReadSlice('\n'); err == nil {
						break
					} else if err != bufio.ErrBufferFull {
						b.Error(err)
						return
					}
				}
			}
		}()
	}
	ready.Wait()
	b.ResetTimer()
	began := time.Now()
	for i := range b.N {
		body := []byte(fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, i))
		if _, err := s.engine.Patch(context.Background(), rq, engine.Patch{Type: engine.MergePatch, Body: body}); err != nil {
			b.Fatal(err)
		}
	}
	done.Wait()
	b.ReportMetric(float64(b.N*watchers)/time.Since(began).Seconds(), "events/s")
}
