package httpapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/access"
	"plinth/internal/store"
)

// slowly begins a request whose body is sent while the caller writes it.
func (s *server) slowly(method, path, token string) (body *io.PipeWriter, done <-chan answer) {
	s.t.Helper()
	out, in := io.Pipe()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, out)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answered := make(chan answer, 1)
	go func() {
		response, err := s.client.Do(request)
		if err != nil {
			answered <- answer{body: err.Error()}
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		answered <- answer{response.StatusCode, response.Header, string(text)}
	}()
	s.t.Cleanup(func() { in.Close() })
	return in, answered
}

// everybody allows every request.
var everybody = access.AuthorizerFunc(func(context.Context, *access.Attributes) (access.Decision, string, error) {
	return access.Allow, "", nil
})

// A client that sends slowly, the masters, and health probes hold no slot.
func TestWhoHoldsNoSlot(t *testing.T) { synctest.Test(t, testWhoHoldsNoSlot) }

func testWhoHoldsNoSlot(t *testing.T) {
	inside, leave := make(chan bool, 10), make(chan bool)
	s := newServerInBubble(t, store.Config{}, func(c *Config) {
		c.Acquire, c.Authorizer = NewSlots(1, nil, nil).Acquire, everybody
		c.Handlers = map[string]http.Handler{"/wait": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			inside <- true
			<-leave
		})}
	})
	jane := []string{"Authorization", "Bearer jane"}
	code := func(path string, header ...string) int { t.Helper(); return s.do("GET", path, "", header...).code }
	wait := func(header ...string) <-chan answer {
		ended := make(chan answer, 1)
		go func() { ended <- s.do("GET", "/wait", "", header...) }()
		<-inside
		return ended
	}

	body, posted := s.slowly("POST", configMaps, "jane")
	fmt.Fprint(body, "{")
	synctest.Wait() // the server is reading it
	if got := code(configMaps, jane...); got != 200 {
		t.Errorf("while a slow body is being read: %d", got)
	}
	master := wait()
	if got := code(configMaps, jane...); got != 200 {
		t.Errorf("while a master's request runs: %d", got)
	}
	held := wait(jane...)
	for path, want := range map[string]int{configMaps: 429, "/version": 429, "/healthz": 200, "/livez": 200,
		"/readyz": 200} {
		if got := code(path, jane...); got != want {
			t.Errorf("%s without a free slot: %d", path, got)
		}
	}
	if got := code(configMaps); got != 200 {
		t.Errorf("a master without a free slot: %d", got)
	}
	// A request takes its slot when its body is complete.
	fmt.Fprint(body, `"metadata":{"name":"late"}}`)
	body.Close()
	if got := <-posted; got.code != 429 || got.header.Get("Retry-After") != "1" {
		t.Errorf("a body that is complete when no slot is free: %d %v", got.code, got.body)
	}
	close(leave)
	<-master
	<-held
	synctest.Wait() // the slot is free when the request has ended, which is a moment after its answer
	if got := s.do("POST", configMaps, `{"metadata":{"name":"late"}}`, jane...).code; got != 201 {
		t.Errorf("after the slot was given back: %d", got)
	}
}

// The memory of all bodies that are being read has one bound.
func TestBodiesAreBoundedTogether(t *testing.T) {
	inBubble(t, func(c *Config) {
		c.BodyMemory, c.Authorizer, c.Acquire = 150_000, everybody, NewSlots(100, nil, nil).Acquire
	}, testBodiesAreBoundedTogether)
}

func testBodiesAreBoundedTogether(t *testing.T, s *server) {
	var open []*io.PipeWriter
	for range 2 { // each takes 64 KiB before any of it has arrived
		body, _ := s.slowly("POST", configMaps, "jane")
		fmt.Fprint(body, "{")
		open = append(open, body)
	}
	synctest.Wait() // both are being read
	third, refused := s.slowly("POST", configMaps, "jane")
	fmt.Fprint(third, "{")
	if got := <-refused; got.code != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("the third body: %d %s", got.code, got.body)
	}
	if got := s.do("POST", configMaps, `{"metadata":{"name":"small"}}`, "Authorization", "Bearer jane").code; got != 201 {
		t.Errorf("a small body: %d", got)
	}
	// Users who need no slot share the bound on memory.
	master, bounded := s.slowly("POST", configMaps, "")
	fmt.Fprint(master, "{")
	if got := <-bounded; got.code != 429 {
		t.Errorf("a master's third body: %d %s", got.code, got.body)
	}
	if got := s.do("POST", configMaps, `{"metadata":{"name":"b"}}`).code; got != 201 {
		t.Errorf("a master's small body: %d", got)
	}
	for _, body := range open {
		body.CloseWithError(io.ErrUnexpectedEOF)
	}
	large := fmt.Sprintf(`{"metadata":{"name":"large"},"data":{"x":%q}}`, strings.Repeat("x", 90_000))
	synctest.Wait() // their memory has been given back
	if got := s.do("POST", configMaps, large, "Authorization", "Bearer jane").code; got != 201 {
		t.Errorf("afterwards: %d", got)
	}
	over := fmt.Sprintf(`{"metadata":{"name":"over"},"data":{"x":%q}}`, strings.Repeat("x", 200_000))
	if got := s.do("POST", configMaps, over, "Authorization", "Bearer jane").code; got != 429 {
		t.Errorf("a body that grows past the bound: %d", got)
	}
}

// The body of a request that waits for its slot counts as held memory, and no longer once it has the slot.
//
// SPEC: WRITE-6
func TestBodiesAreHeldUntilTheSlotIsTaken(t *testing.T) {
	synctest.Test(t, testBodiesAreHeldUntilTheSlotIsTaken)
}

func testBodiesAreHeldUntilTheSlotIsTaken(t *testing.T) {
	taken, ends := make(chan bool), 0
	s := newServerInBubble(t, store.Config{}, func(c *Config) {
		c.BodyMemory, c.Authorizer = 10_000, everybody
		c.Acquire = func(_ context.Context, class Class, asked *access.Attributes) (func(), error) {
			if asked.User.Name != "jane" {
				return nil, nil
			}
			if asked.Verb != "create" || asked.Resource != "configmaps" || class != Mutating {
				t.Errorf("%+v, %v", asked, class)
			}
			<-taken
			return func() { ends++ }, nil
		}
	})
	large := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"data":{"x":%q}}`, name, strings.Repeat("x", 4_000))
	}
	posted := make(chan int)
	post := func(name string) {
		go func() {
			posted <- s.do("POST", configMaps, large(name), "Authorization", "Bearer jane").code
		}()
		synctest.Wait()
	}
	post("a")
	post("b")
	if got := s.do("POST", configMaps, large("c")); got.code != 429 || got.header.Get("Retry-After") != "1" {
		t.Errorf("a third body while two wait for their slots: %d %s", got.code, got.body)
	}
	taken <- true
	if got := <-posted; got != 201 {
		t.Errorf("a request with its slot: %d", got)
	}
	synctest.Wait()
	if got := s.do("POST", configMaps, large("c")); got.code != 201 || ends != 1 {
		t.Errorf("a third body while one waits: %d %s, %d slots given back", got.code, got.body, ends)
	}
	taken <- true
	if got := <-posted; got != 201 {
		t.Errorf("the other request: %d", got)
	}
}

// The body of a request that needs no slot counts as held memory until the request ends: nothing else bounds how many
// there are.
//
// SPEC: WRITE-6
func TestBodiesWithoutASlotAreBounded(t *testing.T) {
	synctest.Test(t, testBodiesWithoutASlotAreBounded)
}

func testBodiesWithoutASlotAreBounded(t *testing.T) {
	inside, leave := make(chan bool), make(chan bool)
	s := newServerInBubble(t, store.Config{}, func(c *Config) {
		c.BodyMemory = 10_000
		c.Acquire = NewSlots(100, nil, nil).Acquire
		c.Authorizer = access.AuthorizerFunc(func(_ context.Context, a *access.Attributes) (access.Decision, string, error) {
			if a.Verb == "create" && a.Resource == "leases" { // a PUT that creates is authorized a second time
				inside <- true
				<-leave
			}
			return access.Allow, "", nil
		})
	})
	put := func(name string) answer {
		return s.do("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/"+name,
			fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{"x":%q}}}`, name, strings.Repeat("x", 4_000)))
	}
	done := make(chan int)
	for _, name := range []string{"a", "b"} {
		go func() { done <- put(name).code }()
		<-inside
	}
	if got := put("c"); got.code != 429 {
		t.Errorf("a master's third body while two are being stored: %d %s", got.code, got.body)
	}
	close(leave)
	if a, b := <-done, <-done; a != 201 || b != 201 {
		t.Errorf("the first two: %d %d", a, b)
	}
	synctest.Wait()
	go func() { done <- put("c").code }()
	<-inside
	if got := <-done; got != 201 {
		t.Errorf("afterwards: %d", got)
	}
}

// A body must arrive at a minimum rate; then it may take long.
func TestBodiesThatComeSlowly(t *testing.T) { inBubble(t, nil, testBodiesThatComeSlowly) }

func testBodiesThatComeSlowly(t *testing.T, s *server) {
	const grace = 10 * time.Second // the default of BodyGrace
	drip, late := s.slowly("POST", configMaps, "")
	began := time.Now()
	stop := make(chan bool)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				fmt.Fprint(drip, " ")
			}
		}
	}()
	got := <-late
	close(stop)
	if took := time.Since(began); got.code != 504 || took < grace || took > grace+time.Second {
		t.Errorf("50 bytes per second: %d %s after %v", got.code, got.body, took)
	}
	began = time.Now()
	steady, done := s.slowly("POST", configMaps, "")
	fmt.Fprint(steady, `{"metadata":{"name":"steady"},"data":{"x":"`)
	for range 25 {
		fmt.Fprint(steady, strings.Repeat("x", bodyRate))
		time.Sleep(time.Second)
	}
	fmt.Fprint(steady, `"}}`)
	steady.Close()
	if got := <-done; got.code != 201 || time.Since(began) < 2*grace {
		t.Errorf("a body that arrives at bodyRate: %d %s", got.code, got.body)
	}
}

// The server does not wait forever for a body that no verb reads, whether the request is answered without it or
// refused.
func TestBodiesThatNobodyReads(t *testing.T) { inBubble(t, nil, testBodiesThatNobodyReads) }

func testBodiesThatNobodyReads(t *testing.T, s *server) {
	for _, c := range []struct{ request, body, want string }{
		{"POST /version", "{", "504"},
		{"GET /healthz", "{", "504"},
		{"GET " + configMaps, "{", "504"},
		{"GET " + configMaps + "?watch=1&timeoutSeconds=1", "{", "504"},
		{"GET " + configMaps, strings.Repeat("x", maxSkipped+1), "413"},
		{"GET " + configMaps, strings.Repeat("x", 1000), "200"},
		{"GET " + configMaps + "?watch=1&timeoutSeconds=1", strings.Repeat("x", 1000), "200"},
		{"POST /api/v1/made-up", "{", "404"},
		{"POST " + configMaps + "\r\nAuthorization: Bearer jane", "{", "403"},
		{"POST " + configMaps + "\r\nAuthorization: Bearer wrong", "{", "401"},
	} {
		connection, err := s.transport().DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		socket := tls.Client(connection, &tls.Config{InsecureSkipVerify: true})
		line, header, _ := strings.Cut(c.request, "\r\n")
		if header != "" {
			header += "\r\n"
		}
		length := len(c.body)
		if c.body == "{" {
			length = 1000 // the rest never arrives
		}
		fmt.Fprintf(socket, "%s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", line, header, length, c.body)
		if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		status := make([]byte, 12)
		if _, err := io.ReadFull(socket, status); err != nil || string(status[9:]) != c.want {
			t.Errorf("%s: %q, %v", line, status, err)
		}
		if length == 1000 && c.body == "{" { // the connection cannot be reused
			if _, err := io.Copy(io.Discard, socket); err != nil {
				t.Errorf("%s: the connection stays open: %v", line, err)
			}
		}
		socket.Close()
	}
}
