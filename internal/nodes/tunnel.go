package nodes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"plinth/internal/execution"
	"plinth/internal/forward"
)

// refusalTime is how long the answer of a kubelet that does not upgrade the connection may take.
const refusalTime = 10 * time.Second

// tunnel opens a SPDY connection to a kubelet and passes its bytes on in the messages of a WebSocket: kubectl
// port-forward speaks SPDY within a WebSocket, because proxies on the way understand nothing else.
func (n *Nodes) tunnel(w http.ResponseWriter, r *http.Request, at *url.URL, transport *http.Transport) error {
	inner := innerProtocols(r)
	if len(inner) == 0 {
		n.Metrics.Tunneled(http.StatusBadRequest)
		http.Error(w, "unable to upgrade: no tunneling spdy protocols provided", http.StatusBadRequest)
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel() // it ends a connection to a kubelet that does not answer
	upgrading, lift := forward.Upgrading(ctx, transport)
	execution.AssertOutside(ctx, "a kubelet")
	connection, err := proxy.DialURL(ctx, at, upgrading)
	if err != nil {
		return fmt.Errorf("error dialing backend: %w", err)
	}
	defer connection.Close()
	if err := tunnelRequest(r, at, inner).Write(connection); err != nil {
		return fmt.Errorf("error sending request: %w", err)
	}
	in := bufio.NewReader(connection)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	lift()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		n.Metrics.Tunneled(answer.StatusCode)
		return refuseTunnel(w, answer, connection)
	}
	upgraded := func(header, want string) bool {
		return strings.Contains(strings.ToLower(answer.Header.Get(header)), strings.ToLower(want))
	}
	if !upgraded(httpstream.HeaderConnection, httpstream.HeaderUpgrade) ||
		!upgraded(httpstream.HeaderUpgrade, spdy.HeaderSpdy31) {
		n.Metrics.Tunneled(http.StatusInternalServerError)
		http.Error(w, "unable to upgrade: missing upgrade headers in response", http.StatusInternalServerError)
		return nil
	}
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }} // httpapi has checked it
	if protocol := strings.TrimSpace(answer.Header.Get(httpstream.HeaderProtocolVersion)); protocol != "" {
		upgrader.Subprotocols = []string{portforward.WebsocketsSPDYTunnelingPrefix + protocol}
	}
	socket, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		n.Metrics.Tunneled(http.StatusInternalServerError)
		return nil // the library has answered
	}
	n.Metrics.Tunneled(http.StatusSwitchingProtocols)
	n.copyTunnel(socket, connection, in)
	return nil
}

// innerProtocols are the protocols within SPDY that a client offers.
func innerProtocols(r *http.Request) (inner []string) {
	for _, protocol := range websocket.Subprotocols(r) {
		name, tunneled := strings.CutPrefix(protocol, portforward.WebsocketsSPDYTunnelingPrefix)
		if tunneled && strings.HasSuffix(protocol, portforward.KubernetesSuffix) {
			inner = append(inner, name)
		}
	}
	return inner
}

// tunnelRequest is the request of a SPDY connection in place of that of a WebSocket.
func tunnelRequest(r *http.Request, at *url.URL, inner []string) *http.Request {
	out := utilnet.CloneRequest(r)
	out.Method, out.URL, out.Body, out.ContentLength = http.MethodPost, at, nil, 0
	forward.CleanUpgrade(out.Header)
	for name := range out.Header {
		if strings.HasPrefix(name, "Sec-Websocket-") {
			delete(out.Header, name)
		}
	}
	out.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	out.Header[httpstream.HeaderProtocolVersion] = inner
	utilnet.AppendForwardedForHeader(out)
	return out
}

// refuseTunnel passes on why a kubelet does not upgrade the connection.
func refuseTunnel(w http.ResponseWriter, answer *http.Response, connection net.Conn) error {
	defer answer.Body.Close()
	if answer.StatusCode < http.StatusBadRequest {
		return fmt.Errorf("invalid upgrade response: status code %d", answer.StatusCode)
	}
	_ = connection.SetReadDeadline(time.Now().Add(refusalTime)) // every connection has deadlines
	for _, name := range []string{"Content-Type", "Content-Length", "X-Content-Type-Options"} {
		if value := answer.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body) // the client is told the code, if nothing else
	return nil
}

// copyTunnel copies in both directions until one side closes its connection, and closes both. in reads from connection.
func (n *Nodes) copyTunnel(socket *websocket.Conn, connection net.Conn, in *bufio.Reader) {
	ended := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(n.limitedWriter(connection), &messages{socket: socket})
		ended <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(messageWriter{socket}, n.limitedReader(in))
		ended <- struct{}{}
	}()
	<-ended
	goodbye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = socket.WriteControl(websocket.CloseMessage, goodbye, time.Now().Add(time.Second)) // fails if the client is gone
	connection.Close()
	socket.Close()
	<-ended
}

// messages reads the content of the messages of a WebSocket.
type messages struct {
	socket  *websocket.Conn
	message io.Reader // the one that is being read; nil: the next one
}

func (m *messages) Read(p []byte) (int, error) {
	for {
		if m.message == nil {
			kind, next, err := m.socket.NextReader()
			if err != nil {
				return 0, err
			}
			if kind != websocket.BinaryMessage {
				return 0, errors.New("a tunnel has binary messages only")
			}
			m.message = next
		}
		n, err := m.message.Read(p)
		if n > 0 || err != io.EOF {
			return n, err
		}
		m.message = nil
	}
}

// messageWriter sends each write as a message.
type messageWriter struct{ socket *websocket.Conn }

func (m messageWriter) Write(p []byte) (int, error) {
	if err := m.socket.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}
