package httpapi

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"plinth/internal/store"
)

// dial opens a watch over a WebSocket.
func (s *server) dial(query string, header ...string) (*websocket.Conn, *http.Response, error) {
	s.t.Helper()
	d := websocket.Dialer{
		NetDialContext:  s.transport().DialContext,
		TLSClientConfig: &tls.Config{RootCAs: s.transport().TLSClientConfig.RootCAs},
	}
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return d.Dial("wss"+strings.TrimPrefix(s.url, "https")+configMaps+"?watch=1&"+query, h)
}

// messages reads a WebSocket to its end, and returns the code with which it was closed.
func messages(t *testing.T, c *websocket.Conn) (kinds []int, texts []string, end int) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for {
		kind, text, err := c.ReadMessage()
		if err != nil {
			closed, ok := err.(*websocket.CloseError)
			if !ok {
				t.Fatal(err)
			}
			return kinds, texts, closed.Code
		}
		kinds, texts = append(kinds, kind), append(texts, string(text))
	}
}

// endings returns a channel of the watches of a server that have ended.
func endings(c *Config) <-chan Observation {
	ended := make(chan Observation, 10)
	c.Metrics.Request = func(o Observation) {
		if o.Verb == "WATCH" {
			ended <- o
		}
	}
	return ended
}

// Each event is one message, in every encoding.
//
// SPEC: WATCH-1, WATCH-6, URI-9
func TestWatchOverWebSocket(t *testing.T) { inBubble(t, nil, testWatchOverWebSocket) }

func testWatchOverWebSocket(t *testing.T, s *server) {
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	s.create(configMaps, `{"metadata":{"name":"b"}}`)
	for _, c := range []struct {
		accept string
		kind   int
		begins string
	}{
		{"application/json", websocket.TextMessage, `{"type":"ADDED","object":{"apiVersion":"v1","kind":"ConfigMap"`},
		{"application/json;as=Table;g=meta.k8s.io;v=v1", websocket.TextMessage, `{"type":"ADDED","object":{"kind":"Table"`},
		{"application/vnd.kubernetes.protobuf", websocket.BinaryMessage, "\n\x05ADDED\x12"},
		{"application/cbor", websocket.BinaryMessage, "\xd9\xd9\xf7\xbf"},
	} {
		conn, _, err := s.dial("timeoutSeconds=1", "Accept", c.accept)
		if err != nil {
			t.Fatalf("%s: %v", c.accept, err)
		}
		kinds, texts, end := messages(t, conn)
		conn.Close()
		if len(texts) != 2 || end != websocket.CloseNormalClosure {
			t.Errorf("%s: %d messages, closed with code %d: %q", c.accept, len(texts), end, texts)
			continue
		}
		for i, text := range texts {
			if kinds[i] != c.kind || !strings.HasPrefix(text, c.begins) {
				t.Errorf("%s: message %d is of kind %d: %q", c.accept, i, kinds[i], text)
			}
		}
	}

	// The error of a watch that has begun is its last message.
	conn, _, err := s.dial("timeoutSeconds=-1")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, texts, end := messages(t, conn)
	var e event
	if len(texts) != 1 || json.Unmarshal([]byte(texts[0]), &e) != nil || e.String() != "ERROR 504 Timeout" ||
		end != websocket.CloseNormalClosure {
		t.Errorf("a watch that ends at once: %q, closed with code %d", texts, end)
	}
}

// Events arrive when they happen, and the watch ends when the client disconnects.
//
// SPEC: WATCH-6
func TestWebSocketGoesOn(t *testing.T) {
	var ended <-chan Observation
	s := newServer(t, func(c *Config) { ended = endings(c) })
	conn, _, err := s.dial("resourceVersion=0")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		s.create(configMaps, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		var e event
		if _, text, err := conn.ReadMessage(); err != nil || json.Unmarshal(text, &e) != nil || e.String() != "ADDED "+name {
			t.Fatalf("%v, %q", err, text)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case o := <-ended:
		if o.Code != http.StatusSwitchingProtocols || o.Bytes == 0 {
			t.Errorf("its metrics are %+v", o)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the client has disconnected, and the watch continues")
	}
}

// A stalled client is disconnected, as without a WebSocket.
//
// SPEC: WATCH-6
func TestStalledWebSocket(t *testing.T) { synctest.Test(t, testStalledWebSocket) }

func testStalledWebSocket(t *testing.T) {
	const stall = 30 * time.Second
	var ended <-chan Observation
	s := newServerInBubble(t, store.Config{}, func(c *Config) {
		c.StallTimeout = stall
		ended = endings(c)
	})
	conn, _, err := s.dial("")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.create(configMaps, `{"metadata":{"name":"a"}}`)
	time.Sleep(stall - time.Millisecond)
	synctest.Wait()
	if len(ended) > 0 {
		t.Error("the watch was ended before StallTimeout")
	}
	time.Sleep(10 * time.Second) // sending the close message takes up to closeTimeout
	synctest.Wait()
	if len(ended) == 0 {
		t.Error("the stalled watch was not ended")
	}
}

// A request that is refused is answered with its status, without a WebSocket.
func TestWebSocketsThatAreNone(t *testing.T) {
	s := newServer(t, nil)
	for _, c := range []struct {
		name, query string
		header      []string
		code        int
		protocol    string
	}{
		{name: "one subprotocol", header: []string{"Sec-WebSocket-Protocol", "a"}, code: 101, protocol: "a"},
		{name: "another origin", header: []string{"Origin", "https://example.com"}, code: 101},
		{name: "two subprotocols", header: []string{"Sec-WebSocket-Protocol", "a, b"}, code: 400},
		{name: "an invalid selector", query: "labelSelector=a==,,", code: 400},
		{name: "a media type without streams", header: []string{"Accept", "application/yaml"}, code: 406},
		{name: "a user without rights", header: []string{"Authorization", "Bearer nobody"}, code: 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, response, err := s.dial("resourceVersion=0&"+c.query, c.header...)
			if response == nil {
				t.Fatal(err)
			}
			if conn != nil {
				defer conn.Close()
			}
			if response.StatusCode != c.code || response.Header.Get("Sec-WebSocket-Protocol") != c.protocol {
				t.Errorf("%s, %v", response.Status, response.Header)
			}
		})
	}
}
