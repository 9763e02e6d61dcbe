//go:build unix

package webhook

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"plinth/object"
)

// serveEnv makes this program a webhook: it writes its address and its certificate, and ends with its input.
const serveEnv = "PLINTH_TEST_WEBHOOK"

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) == "" {
		os.Exit(m.Run())
	}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.Repeat("x", 150))
	}))
	fmt.Println(s.URL, bundleOf(s).Str())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// otherProcess starts a webhook in a process of its own.
func otherProcess(b *testing.B) (address, bundle string) {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), serveEnv+"=1")
	input, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = input.Close()
		_ = command.Wait()
	})
	if _, err := fmt.Fscanln(bufio.NewReader(output), &address, &bundle); err != nil {
		b.Fatal(err)
	}
	return address, bundle
}

// spent is the processor time of this process, in microseconds.
func spent(b *testing.B) float64 {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return float64(use.Utime.Nano()+use.Stime.Nano()) / 1000
}

// BenchmarkProcessorTime measures the processor time that a call of a webhook in another process takes here, 8 at a
// time. "TLS alone" writes and reads the same bytes on a connection of its own: no client can take less.
func BenchmarkProcessorTime(b *testing.B) {
	address, bundle := otherProcess(b)
	config := object.Fields("url", object.StringOf(address), "caBundle", object.StringOf(bundle))
	body := bytes.Repeat([]byte("x"), 1500)
	for _, by := range []string{"TLS alone", "transport", "http.Transport"} {
		b.Run(by, func(b *testing.B) {
			c := &Clients{}
			made, err := c.of(NewConfig(config))
			if err != nil {
				b.Fatal(err)
			}
			other := made.http.Transport.(*transport).other
			if by == "http.Transport" {
				other.MaxIdleConnsPerHost = maxIdle
				made.http.Transport = other
			}
			of := NewConfig(config)
			call := func() (func() error, error) {
				return func() error {
					_, err := c.CallWithin(b.Context(), of, callTimeout, body)
					return err
				}, nil
			}
			if by == "TLS alone" {
				call = func() (func() error, error) { return bare(address, other.TLSClientConfig.RootCAs, body) }
			}
			eight(b, call)
		})
	}
}

// eight makes the calls of a benchmark on 8 goroutines.
func eight(b *testing.B, call func() (func() error, error)) {
	var calls [8]func() error
	for i := range calls {
		var err error
		if calls[i], err = call(); err != nil {
			b.Fatal(err)
		}
	}
	run := func(n int64) {
		var workers sync.WaitGroup
		for _, call := range calls {
			workers.Go(func() {
				for atomic.AddInt64(&n, -1) >= 0 {
					if err := call(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		workers.Wait()
	}
	run(100) // the connections are open then
	b.ResetTimer()
	before := spent(b)
	run(int64(b.N))
	b.ReportMetric((spent(b)-before)/float64(b.N), "cpu-µs/op")
}

// bare opens a connection and returns a function that writes a request and reads an answer of the same length as the
// first one.
func bare(address string, roots *x509.CertPool, body []byte) (func() error, error) {
	request, err := http.NewRequest(http.MethodPost, address+"/?timeout=30s", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("User-Agent", "kube-apiserver-admission")
	var text bytes.Buffer
	if err := request.Write(&text); err != nil {
		return nil, err
	}
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	conn, err := tls.Dial("tcp", at.Host, &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return nil, err
	}
	answer := make([]byte, 16<<10)
	if _, err := conn.Write(text.Bytes()); err != nil {
		return nil, err
	}
	n, err := conn.Read(answer) // one record
	return func() error {
		if _, err := conn.Write(text.Bytes()); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, answer[:n])
		return err
	}, err
}
