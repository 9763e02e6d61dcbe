package nodes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"plinth/internal/access"
)

// shellKubelet is a kubelet whose command repeats its input in upper case, complains, and ends with the exit code 3.
// gone gets a value when the client of the command "wait" has gone.
func shellKubelet(t *testing.T, gone chan<- bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("command") == "refuse" {
			http.Error(w, "no such container", http.StatusNotFound)
			return
		}
		if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
			t.Error(err)
			return
		}
		streams := make(chan httpstream.Stream, 5)
		connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r,
			func(s httpstream.Stream, _ <-chan struct{}) error { streams <- s; return nil })
		if connection == nil {
			return
		}
		defer connection.Close()
		byType := map[string]httpstream.Stream{}
		want := 1
		for _, name := range []string{"input", "output", "error", "tty"} {
			if r.URL.Query().Get(name) == "1" {
				want++
			}
		}
		for len(byType) < want {
			s := <-streams
			byType[s.Headers().Get(corev1.StreamType)] = s
		}
		if r.URL.Query().Get("command") == "status" {
			fmt.Fprint(byType[corev1.StreamTypeError], strings.Repeat("a", maxStatus+1))
			<-connection.CloseChan()
			return
		}
		if r.URL.Query().Get("command") == "wait" {
			fmt.Fprint(byType[corev1.StreamTypeStdout], "running")
			_, _ = io.Copy(io.Discard, byType[corev1.StreamTypeError]) // it is reset
			gone <- true
			return
		}
		if in := byType[corev1.StreamTypeStdin]; in != nil {
			text, err := io.ReadAll(in)
			if err != nil {
				t.Error(err)
			}
			fmt.Fprint(byType[corev1.StreamTypeStdout], strings.ToUpper(string(text)))
		}
		fmt.Fprint(byType[corev1.StreamTypeStderr], "complaint")
		fmt.Fprint(byType[corev1.StreamTypeError], `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[`+
			`{"reason":"ExitCode","message":"3"}]}}`)
		for _, s := range byType {
			s.Close()
		}
		<-connection.CloseChan() // the client reads all of it first
	}
}

// serve serves the requests of a cluster over TCP.
func (x *cluster) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(r.URL.Path, "/")
		asked := &access.Attributes{Path: r.URL.Path, Namespace: parts[4], Resource: parts[5], Name: parts[6],
			Subresource: parts[7]}
		if err := x.Backend(asked.Resource, asked.Subresource)(w, r, asked); err != nil {
			http.Error(w, err.Error(), http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func dialSocket(t *testing.T, url string, protocols ...string) *websocket.Conn {
	t.Helper()
	dialer := &websocket.Dialer{Subprotocols: protocols, WriteBufferSize: 1 << 20} // each message is one frame
	socket, answer, err := dialer.DialContext(t.Context(), strings.Replace(url, "http", "ws", 1), nil)
	if err != nil {
		t.Fatalf("%v %v", answer, err)
	}
	t.Cleanup(func() { socket.Close() })
	return socket
}

// A WebSocket of a command is translated into the streams of a kubelet, and its end into a Status.
//
// SPEC: URI-7
func TestCommandsOverWebSockets(t *testing.T) {
	for _, limit := range []int64{0, 1 << 20} {
		x := newCluster(t, shellKubelet(t, nil), func(c *Config) { c.BytesPerSecond = limit })
		socket := dialSocket(t, x.serve(t)+pods+"p/exec?command=x&stdin=1&stdout=1&stderr=1", "v5.channel.k8s.io",
			"v4.channel.k8s.io")
		if socket.Subprotocol() != "v5.channel.k8s.io" {
			t.Errorf("protocol %q", socket.Subprotocol())
		}
		large := strings.Repeat("text ", 20000)
		for _, message := range []string{"\x00" + large, "\x00end", "\xff\x00"} { // the last closes the channel
			if err := socket.WriteMessage(websocket.BinaryMessage, []byte(message)); err != nil {
				t.Fatal(err)
			}
		}
		var got [5]bytes.Buffer
		for {
			_, message, err := socket.ReadMessage()
			if err != nil {
				break
			}
			got[message[0]].Write(message[1:])
		}
		var status metav1.Status
		if err := json.Unmarshal(got[3].Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		if got[1].String() != strings.ToUpper(large)+"END" || got[2].String() != "complaint" ||
			status.Status != "Failure" || status.Details.Causes[0].Message != "3" {
			t.Errorf("%d bytes, %q, %+v", got[1].Len(), &got[2], status)
		}
	}
}

// The channel of errors says that a kubelet refuses a command. A kubelet that declares it gets the WebSocket itself.
//
// SPEC: URI-7
func TestCommandsThatAreNotTranslated(t *testing.T) {
	x := newCluster(t, shellKubelet(t, nil), nil)
	url := x.serve(t) + pods + "p/exec?command=refuse&stdout=1"
	socket := dialSocket(t, url, "v5.channel.k8s.io")
	for {
		_, message, err := socket.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if message[0] == 3 {
			if !strings.Contains(string(message), "unable to upgrade connection: no such container") {
				t.Errorf("%s", message)
			}
			break
		}
	}
	x.add("nodes//node-a", `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}],
		"declaredFeatures":["ExtendWebSocketsToKubelet"]}}`)
	_, answer, err := websocket.DefaultDialer.DialContext(t.Context(), strings.Replace(url, "http", "ws", 1), nil)
	if err == nil || answer.StatusCode != http.StatusNotFound {
		t.Errorf("%v, %v", answer, err)
	}
}

// A client that goes away ends the connection to the kubelet, also while the command is silent.
//
// SPEC: URI-7
func TestClientsThatGoAway(t *testing.T) {
	gone := make(chan bool, 1)
	x := newCluster(t, shellKubelet(t, gone), nil)
	socket := dialSocket(t, x.serve(t)+pods+"p/exec?command=wait&stdout=1", "v5.channel.k8s.io")
	for message := ""; message != "\x01running"; {
		_, got, err := socket.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		message = string(got)
	}
	socket.Close()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the kubelet still serves a client that has gone")
	}
}

// A client that goes away also ends the connection to a kubelet that has not answered yet.
//
// SPEC: URI-7
func TestKubeletsThatDoNotAnswer(t *testing.T) {
	asked, gone := make(chan bool, 1), make(chan bool, 1)
	x := newCluster(t, func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		asked <- true
		_, _ = io.Copy(io.Discard, connection)
		gone <- true
	}, nil)
	address := strings.TrimPrefix(x.serve(t), "http://")
	const socket = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" +
		"Sec-WebSocket-Protocol: "
	for path, upgrade := range map[string]string{
		"exec?command=x&stdout=1": socket + "v5.channel.k8s.io", "portforward": socket + "SPDY/3.1+portforward.k8s.io",
		"attach?stdout=1": "Upgrade: SPDY/3.1"} {
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(client, "GET %sp/%s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n%s\r\n\r\n", pods, path, upgrade)
		for _, end := range []chan bool{asked, gone} {
			select {
			case <-end:
			case <-time.After(time.Minute):
				t.Fatalf("%s: the kubelet is not asked, or still serves a client that has gone", path)
			}
			client.Close()
		}
	}
}

// A port over a WebSocket is the SPDY of a kubelet within messages. One that upgrades nothing, or something else, is
// refused.
//
// SPEC: URI-7
func TestTunnels(t *testing.T) {
	answers := map[string]string{
		"p": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n" +
			"X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\nfirst",
		"h2c":    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
		"plain":  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"refuse": "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nSet-Cookie: a=b\r\n\r\nno",
	}
	x := newCluster(t, func(w http.ResponseWriter, r *http.Request) {
		connection, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		pod := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		fmt.Fprint(connection, answers[pod])
		if pod == "p" {
			echo(connection, buffered.Reader)
		}
	}, nil)
	for pod := range answers {
		if pod != "p" {
			x.add("pods/default/"+pod, `{"metadata":{"name":"`+pod+`"},"spec":{"nodeName":"node-a"}}`)
		}
	}
	url := x.serve(t)
	socket := dialSocket(t, url+pods+"p/portforward", "SPDY/3.1+portforward.k8s.io")
	if socket.Subprotocol() != "SPDY/3.1+portforward.k8s.io" {
		t.Errorf("protocol %q", socket.Subprotocol())
	}
	for _, part := range []string{"", "second", strings.Repeat("third", 10000)} {
		if part == "" {
			part = "first" // it came with the answer
		} else if err := socket.WriteMessage(websocket.BinaryMessage, []byte(part)); err != nil {
			t.Fatal(err)
		}
		got := ""
		for len(got) < len(part) {
			_, message, err := socket.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			got += string(message)
		}
		if got != part {
			t.Errorf("%.20q came back", got)
		}
	}
	for pod, want := range map[string]string{"h2c": "500 unable to upgrade: missing upgrade headers in response\n",
		"plain": "418 invalid upgrade response: status code 200\n", "refuse": "403 no"} {
		_, answer, err := (&websocket.Dialer{Subprotocols: []string{"SPDY/3.1+portforward.k8s.io"}}).DialContext(t.Context(),
			strings.Replace(url, "http", "ws", 1)+pods+pod+"/portforward", nil)
		if err == nil {
			t.Fatalf("%s is a WebSocket", pod)
		}
		text, _ := io.ReadAll(answer.Body)
		if got := fmt.Sprint(answer.StatusCode, " ", string(text)); got != want || answer.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %q %v", pod, got, answer.Header)
		}
	}
}

func echo(to net.Conn, from io.Reader) { _, _ = io.Copy(to, from) }

// The refusal of a kubelet is an error of this server in the channel of errors, and is counted so; that of a tunnel is
// passed on with its code.
//
// SPEC: URI-7
func TestRefusalsAreCounted(t *testing.T) {
	const refusal = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not here","code":403}`
	codes, tunneled := make(chan int, 1), make(chan int, 2)
	x := newCluster(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, refusal)
	}, func(c *Config) {
		c.Metrics.Translated = func(code int) { codes <- code }
		c.Metrics.Tunneled = func(code int) { tunneled <- code }
	})
	url := x.serve(t) + pods + "p/"
	socket := dialSocket(t, url+"exec?command=x&stdout=1", "v5.channel.k8s.io")
	for {
		_, message, err := socket.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		if message[0] != 3 {
			continue
		}
		var status metav1.Status
		if err := json.Unmarshal(message[1:], &status); err != nil || status.Code != 500 ||
			!strings.Contains(status.Message, "unable to upgrade connection: not here") {
			t.Errorf("%s, %v", message, err)
		}
		break
	}
	if code := <-codes; code != http.StatusInternalServerError {
		t.Errorf("%d is counted", code)
	}
	dialer := websocket.Dialer{Subprotocols: []string{"SPDY/3.1+portforward.k8s.io"}}
	_, answer, err := dialer.DialContext(t.Context(), strings.Replace(url, "http", "ws", 1)+"portforward?ports=80", nil)
	if err == nil || answer.StatusCode != http.StatusForbidden || <-tunneled != http.StatusForbidden {
		t.Errorf("a tunnel: %v, %v", answer, err)
	}
}

// What a kubelet says before, or in place of, the streams of a command is kept in memory; it has a limit.
//
// SPEC: URI-7
func TestAnswersOfKubeletsAreLimited(t *testing.T) {
	const most = 64 << 20 // so that each answer ends in any case
	endless := func(w io.Writer, line string) error {
		for sent := 0; sent < most; sent += len(line) {
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
		}
		return nil
	}
	line := "X-A: " + strings.Repeat("a", 1000) + "\r\n"
	const switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
	ended := make(chan error, 1)
	shells := shellKubelet(t, nil)
	x := newCluster(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("command") {
		case "status":
			shells(w, r)
			return
		case "body":
			ended <- endless(w, line)
			return
		}
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			ended <- err
			return
		}
		defer connection.Close()
		io.WriteString(connection, switched)
		ended <- endless(connection, line)
	}, nil)
	url := x.serve(t) + pods + "p/"
	for command, want := range map[string]string{"head": "a header of more than 1048576 bytes",
		"body": "unable to read error from server response", "status": "more than 1048576 bytes"} {
		socket := dialSocket(t, url+"exec?stdout=1&command="+command, "v5.channel.k8s.io")
		for {
			_, message, err := socket.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			if message[0] != 3 || len(message) == 1 {
				continue
			}
			if !strings.Contains(string(message), want) {
				t.Errorf("%s: %.300s", command, message)
			}
			break
		}
		if command != "status" && <-ended == nil {
			t.Errorf("%s: all of it was read", command)
		}
	}
	dialer := websocket.Dialer{Subprotocols: []string{"SPDY/3.1+portforward.k8s.io"}}
	_, answer, err := dialer.DialContext(t.Context(), strings.Replace(url, "http", "ws", 1)+"portforward?ports=80", nil)
	if err == nil || answer.StatusCode != http.StatusTeapot || <-ended == nil {
		t.Errorf("a tunnel: %v, %v", answer, err)
	}
}
