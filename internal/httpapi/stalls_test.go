package httpapi

import (
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stalledStreams answers are begun and not read, each of an object of about this length, of random text.
const (
	stalledStreams = 40
	stalledLength  = 900 << 10
)

// stall opens answers over a protocol, whose clients read their headers and almost nothing else. It returns when all
// of them wait.
func (s *server) stall(protocol, path string, header ...string) (end func()) {
	s.t.Helper()
	transport := s.transport().Clone()
	if transport.HTTP2 = (&http.HTTP2Config{MaxReceiveBufferPerStream: 16 << 10}); protocol == "HTTP/1.1" {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(true)
		transport.TLSClientConfig.NextProtos = nil
	}
	reading := s.client.Transport
	s.client.Transport = transport
	var bodies []io.Closer
	for range stalledStreams {
		response := s.openFor(time.Hour, "GET", path, "", header...)
		if response.StatusCode != http.StatusOK || response.Proto != protocol {
			s.t.Fatalf("%s over %s", response.Status, response.Proto)
		}
		bodies = append(bodies, response.Body)
	}
	s.client.Transport = reading
	synctest.Wait()
	return func() {
		for _, body := range bodies {
			body.Close()
		}
		transport.CloseIdleConnections()
		time.Sleep(6 * time.Second) // crypto/tls takes five to close a connection that is not read
		synctest.Wait()
	}
}

// createLong makes a ConfigMap of incompressible text.
func (s *server) createLong() {
	s.t.Helper()
	random := rand.NewChaCha8([32]byte{})
	text := make([]byte, stalledLength*3/4)
	_, _ = random.Read(text) // it never fails
	s.create(configMaps, fmt.Sprintf(`{"metadata":{"name":"a"},"data":{"t":%q}}`, base64.StdEncoding.EncodeToString(text)))
}

// bytesWaiting are the private bytes that are counted.
func (s *server) bytesWaiting() int64 {
	s.handler.stalls.mu.Lock()
	defer s.handler.stalls.mu.Unlock()
	return s.handler.stalls.bytes
}

// heap is the size of all objects that are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools have kept
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

// Answers that wait for clients that do not read have no copies of the object that they send.
//
// SPEC: WATCH-6, LIST-8
func TestStalledAnswersShareTheObject(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for name, c := range map[string]struct{ path, accept string }{
			"watch":            {configMaps + "?watch=1", "application/json"},
			"watch, protobuf":  {configMaps + "?watch=1", "application/vnd.kubernetes.protobuf;stream=watch"},
			"watch, lean":      {configMaps + "?watch=1", "application/json;drop=metadata.managedFields"},
			"list":             {configMaps, "application/json"},
			"list, protobuf":   {configMaps, "application/vnd.kubernetes.protobuf"},
			"get":              {configMaps + "/a", "application/json"},
			"get with a query": {configMaps + "/a?resourceVersion=0", "application/json"},
		} {
			t.Run(protocol+" "+name, func(t *testing.T) {
				inBubble(t, nil, func(t *testing.T, s *server) {
					s.createLong()
					before := heap()
					end := s.stall(protocol, c.path, "Accept", c.accept)
					grown, counted := heap()-before, s.bytesWaiting()
					if most := int64(stalledStreams * stalledLength / 2); grown > most || counted > most {
						t.Errorf("%d answers of %d bytes that wait take %d bytes, of which %d are counted", stalledStreams,
							stalledLength, grown, counted)
					}
					end()
					if counted := s.bytesWaiting(); counted != 0 {
						t.Errorf("%d bytes are counted after the end of all answers", counted)
					}
				})
			})
		}
	}
}

// What answers that wait do not share is bounded for all of them together: those end that have waited longest. Clients
// that read are served meanwhile, and in the end nothing is held.
//
// SPEC: WATCH-6, LIST-8
func TestStalledAnswersAreBounded(t *testing.T) {
	const fit = 8
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for name, c := range map[string]struct{ path, accept, encoding string }{
			"watch, CBOR":    {configMaps + "?watch=1", "application/cbor", ""},
			"list, CBOR":     {configMaps, "application/cbor", ""},
			"list, indented": {configMaps + "?pretty=1", "application/json", ""},
			"list, gzip":     {configMaps, "application/json", "gzip"},
			"get, YAML":      {configMaps + "/a", "application/yaml", ""},
			"get, gzip":      {configMaps + "/a", "application/json", "gzip"},
			"get, protobuf":  {configMaps + "/a", "application/vnd.kubernetes.protobuf", ""},
		} {
			t.Run(protocol+" "+name, func(t *testing.T) {
				var ended atomic.Int64
				inBubble(t, func(c *Config) {
					c.StallMemory = fit * stalledLength
					c.Metrics.Request = func(o Observation) {
						if o.Resource == "configmaps" && o.Verb != "POST" {
							ended.Add(1)
						}
					}
				}, func(t *testing.T, s *server) {
					s.createLong()
					end := s.stall(protocol, c.path, "Accept", c.accept, "Accept-Encoding", c.encoding)
					if counted := s.bytesWaiting(); counted <= 0 || counted > s.config.StallMemory {
						t.Errorf("%d bytes are counted, the limit is %d", counted, s.config.StallMemory)
					}
					// HTTP/1.1 needs a moment to close the connections, and the others wait for StallTimeout.
					time.Sleep(6 * time.Second)
					if waiting := stalledStreams - ended.Load(); waiting <= 0 || waiting > fit+1 {
						t.Errorf("%d of %d answers wait, where %d have room", waiting, stalledStreams, fit)
					}
					if got := s.do("GET", configMaps, "", "Accept", "application/cbor"); len(got.body) < stalledLength {
						t.Errorf("another client has read %d and %d bytes", got.code, len(got.body))
					}
					end()
					if counted, left := s.bytesWaiting(), stalledStreams+1-ended.Load(); counted != 0 || left != 0 {
						t.Errorf("%d answers are left in the end, %d bytes are counted", left, counted)
					}
				})
			})
		}
	}
}

// compressorBytes is what a compressor takes.
func TestCompressorBytes(t *testing.T) {
	const n = 16
	text := make([]byte, 256<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text) // it never fails
	kept := make([]any, n)
	before := heap()
	for i := range kept {
		gz := compressors.New().(*compressor)
		gz.reset(io.Discard)
		if _, err := gz.Write(text); err != nil {
			t.Fatal(err)
		}
		kept[i] = gz
	}
	if each := (heap() - before) / n; each < compressorBytes/2 || each > compressorBytes*5/4 {
		t.Errorf("a compressor takes %d bytes, compressorBytes is %d", each, compressorBytes)
	}
	runtime.KeepAlive(kept)
}
