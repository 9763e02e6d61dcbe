package plinthtest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"plinth/plinthtest"
)

// send sends a request, and prints its status.
func send(transport http.RoundTripper, method, url, body string) {
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := transport.RoundTrip(r)
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	fmt.Println(method, answer.StatusCode)
}

// example is the testing.TB of an example. In a test, t is that of the test.
type example struct {
	testing.TB
	cleanups []func()
}

func (e *example) Helper()                  {}
func (e *example) Context() context.Context { return context.Background() }
func (e *example) Cleanup(f func())         { e.cleanups = append(e.cleanups, f) }
func (e *example) Errorf(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
}
func (e *example) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (e *example) end() {
	for _, f := range e.cleanups {
		f()
	}
}

func Example() {
	t := &example{}
	defer t.end()
	p := plinthtest.New(t)
	send(p.Transport(), "POST", p.Host()+"/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)
	send(p.Transport(plinthtest.User{Name: "jane"}), "GET", p.Host()+"/api/v1/namespaces/shop", "")
	// Output:
	// POST 201
	// GET 403
}

func ExampleBubble() {
	var t *testing.T // that of the test
	plinthtest.Bubble(t, func(t *testing.T, p *plinthtest.Plane) {
		const events = "/api/v1/namespaces/default/events"
		send(p.Transport(), "POST", p.Host()+events, `{"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}`)
		time.Sleep(2 * time.Hour)                            // virtual: Events are kept for an hour
		send(p.Transport(), "GET", p.Host()+events+"/e", "") // 404
	})
}

func ExamplePlane_Fault() {
	t := &example{}
	defer t.end()
	p := plinthtest.New(t)
	p.Fault(plinthtest.On{Verb: "create", Resource: "namespaces", Nth: 1}, plinthtest.CommitThenTimeout)
	for range 2 {
		send(p.Transport(), "POST", p.Host()+"/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)
	}
	for _, rq := range p.Requests() {
		fmt.Println(rq.String())
	}
	// Output:
	// POST 504
	// POST 409
	// create namespaces shop 504
	// create namespaces shop 409
}

func ExamplePlane_Snapshot() {
	t := &example{}
	defer t.end()
	p := plinthtest.New(t)
	send(p.Transport(), "POST", p.Host()+"/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)
	fork := plinthtest.New(t, plinthtest.From(p.Snapshot()))
	send(fork.Transport(), "DELETE", fork.Host()+"/api/v1/namespaces/shop", "")
	send(p.Transport(), "GET", p.Host()+"/api/v1/namespaces/shop", "")
	// Output:
	// POST 201
	// DELETE 200
	// GET 200
}
