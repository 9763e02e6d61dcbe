package nodes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/mxk/go-flowrate/flowrate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"plinth/internal/execution"
	"plinth/internal/forward"
)

const (
	socketIdle  = 4 * time.Hour // how long a WebSocket may be silent
	pingPeriod  = 5 * time.Second
	statusWrite = 10 * time.Second // how long the client may take to receive the status
	maxStatus   = 1 << 20          // bytes of the status that a kubelet sends
)

// streams are those of a remote command.
type streams struct{ stdin, stdout, stderr, tty bool }

// translate joins a WebSocket, whose messages begin with the number of a channel, to the SPDY streams of a kubelet.
// Both carry the same streams. The channel of errors gets a Status at the end: that of the command, or why there is
// none.
//
// Either side can end the connection. A client that goes away ends that to the kubelet; the reference notices it only
// when it writes.
func (n *Nodes) translate(w http.ResponseWriter, r *http.Request, at *url.URL, transport *http.Transport,
	s streams) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	channels, socket, err := openSocket(&hijacker{w, cancel}, r, s)
	if err != nil {
		n.Metrics.Translated(http.StatusBadRequest)
		return nil // the library has answered
	}
	defer socket.Close()
	status, code := n.run(ctx, channels, at, transport, s)
	n.Metrics.Translated(code)
	text, err := json.Marshal(status)
	if err != nil {
		return nil // a Status can be encoded
	}
	socket.SetWriteDeadline(statusWrite)
	_, _ = channels[remotecommand.StreamErr].Write(text) // it fails if the client is gone
	return nil
}

// openSocket answers with a WebSocket, and opens its channels. An empty message tells the client that it is there.
func openSocket(w http.ResponseWriter, r *http.Request, s streams) ([]io.ReadWriteCloser, *wsstream.Conn, error) {
	kind := func(used bool, kind wsstream.ChannelType) wsstream.ChannelType {
		if used {
			return kind
		}
		return wsstream.IgnoreChannel
	}
	socket := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{remotecommand.StreamProtocolV5Name: {
		Binary: true,
		Channels: []wsstream.ChannelType{
			remotecommand.StreamStdIn:  kind(s.stdin, wsstream.ReadChannel),
			remotecommand.StreamStdOut: kind(s.stdout, wsstream.WriteChannel),
			remotecommand.StreamStdErr: kind(s.stderr, wsstream.WriteChannel),
			remotecommand.StreamErr:    wsstream.WriteChannel,
			remotecommand.StreamResize: wsstream.ReadChannel,
		},
	}})
	socket.SetIdleTimeout(socketIdle)
	_, channels, err := socket.Open(w, r)
	if err != nil {
		return nil, nil, err
	}
	first := remotecommand.StreamErr
	switch {
	case s.stdout:
		first = remotecommand.StreamStdOut
	case s.stderr:
		first = remotecommand.StreamStdErr
	}
	if _, err := channels[first].Write(nil); err != nil {
		socket.Close()
		return nil, nil, err
	}
	return channels, socket, nil
}

// run runs a command at a kubelet, or attaches to one, and returns how it ended, and the code that is counted for it: a
// command that fails is no error of this server.
func (n *Nodes) run(ctx context.Context, channels []io.ReadWriteCloser, at *url.URL, transport *http.Transport,
	s streams) (status *metav1.Status, code int) {
	connection, err := dialStreams(ctx, at, transport)
	if err != nil {
		return internal(err), http.StatusInternalServerError
	}
	defer connection.Close()
	ended := make(chan *metav1.Status, 1)
	go func() { ended <- n.join(connection, channels, s) }()
	select {
	case status = <-ended:
	case <-ctx.Done():
		status = internal(ctx.Err())
	}
	if status.Status == metav1.StatusSuccess || status.Reason == remotecommand.NonZeroExitCodeReason {
		return status, http.StatusOK
	}
	return status, http.StatusInternalServerError
}

// internal is the Status of an error that is not the command's.
func internal(err error) *metav1.Status { return &apierrors.NewInternalError(err).ErrStatus }

// dialStreams opens a SPDY connection to a kubelet.
func dialStreams(ctx context.Context, at *url.URL, transport *http.Transport) (httpstream.Connection, error) {
	upgrading, upgraded := forward.Upgrading(ctx, transport)
	dialer, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: upgrading,
		PingPeriod: pingPeriod})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("error creating request: %w", err)
	}
	request.Header[httpstream.HeaderProtocolVersion] = []string{remotecommand.StreamProtocolV5Name,
		remotecommand.StreamProtocolV4Name}
	client := http.Client{Transport: dialer, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("redirect not allowed")
	}}
	execution.AssertOutside(ctx, "a kubelet")
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("error sending request: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusSwitchingProtocols { // another answer is read as a whole, and stays limited
		upgraded()
	}
	return dialer.NewConnection(answer)
}

// join creates the streams, copies them until the kubelet has closed its own, and returns the Status that it has sent.
func (n *Nodes) join(connection httpstream.Connection, channels []io.ReadWriteCloser, s streams) *metav1.Status {
	var failed error
	stream := func(used bool, kind string) httpstream.Stream {
		if !used || failed != nil {
			return nil
		}
		header := http.Header{}
		header.Set(corev1.StreamType, kind)
		created, err := connection.CreateStream(header)
		failed = err
		return created
	}
	status := stream(true, corev1.StreamTypeError)
	stdin := stream(s.stdin, corev1.StreamTypeStdin)
	stdout := stream(s.stdout, corev1.StreamTypeStdout)
	stderr := stream(s.stderr && !s.tty, corev1.StreamTypeStderr)
	resize := stream(s.tty, corev1.StreamTypeResize)
	if failed != nil {
		return internal(failed)
	}
	if resize != nil {
		go copyResizes(resize, channels[remotecommand.StreamResize])
	}
	if stdin != nil {
		var once sync.Once
		closeStdin := func() { once.Do(func() { stdin.Close() }) }
		go func() {
			defer closeStdin() // a command that reads to the end of its input would wait otherwise
			_, _ = io.Copy(stdin, n.limitedReader(channels[remotecommand.StreamStdIn]))
		}()
		go func() {
			defer closeStdin()
			_, _ = io.Copy(io.Discard, stdin) // the kubelet sends nothing, but closes its side
		}()
	}
	var out sync.WaitGroup
	for from, to := range map[httpstream.Stream]io.Writer{stdout: channels[remotecommand.StreamStdOut],
		stderr: channels[remotecommand.StreamStdErr]} {
		if from != nil {
			out.Go(func() {
				_, _ = io.Copy(n.limitedWriter(to), from)
				_, _ = io.Copy(io.Discard, from) // what is left must not block the other streams
			})
		}
	}
	text, err := io.ReadAll(io.LimitReader(status, maxStatus+1))
	if len(text) > maxStatus {
		return internal(fmt.Errorf("error reading from error stream: more than %d bytes", maxStatus))
	}
	out.Wait()
	if err != nil {
		return internal(fmt.Errorf("error reading from error stream: %w", err))
	}
	return statusOf(text)
}

// copyResizes copies the sizes of a terminal.
func copyResizes(to io.Writer, from io.Reader) {
	in, out := json.NewDecoder(from), json.NewEncoder(to)
	for {
		var size struct{ Width, Height uint16 }
		if in.Decode(&size) != nil || out.Encode(&size) != nil {
			return
		}
	}
}

// statusOf returns the Status for the client: as in the reference, it is made anew from what the kubelet has sent.
func statusOf(text []byte) *metav1.Status {
	if len(text) == 0 {
		return &metav1.Status{Status: metav1.StatusSuccess}
	}
	var sent metav1.Status
	if err := json.Unmarshal(text, &sent); err != nil {
		return internal(fmt.Errorf("error stream protocol error: %w in %q", err, text))
	}
	switch {
	case sent.Status == metav1.StatusSuccess:
		return &metav1.Status{Status: metav1.StatusSuccess}
	case sent.Status != metav1.StatusFailure:
		return internal(errors.New("error stream protocol error: unknown error"))
	case sent.Reason != remotecommand.NonZeroExitCodeReason:
		return internal(errors.New(sent.Message))
	case sent.Details == nil:
		return internal(errors.New("error stream protocol error: details must be set"))
	}
	for _, cause := range sent.Details.Causes {
		if cause.Type != remotecommand.ExitCodeCauseType {
			continue
		}
		code, err := strconv.ParseUint(cause.Message, 10, 8)
		if err != nil {
			return internal(fmt.Errorf("error stream protocol error: invalid exit code value %q", cause.Message))
		}
		return &metav1.Status{Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: remotecommand.ExitCodeCauseType, Message: strconv.FormatUint(code, 10)}}},
			Message: fmt.Sprintf("command terminated with non-zero exit code: command terminated with exit code %d", code)}
	}
	return internal(fmt.Errorf("error stream protocol error: no %s cause given", remotecommand.ExitCodeCauseType))
}

// limitedReader reads no faster than the limit of an upgraded connection.
func (n *Nodes) limitedReader(r io.Reader) io.Reader {
	if n.BytesPerSecond > 0 {
		return flowrate.NewReader(r, n.BytesPerSecond)
	}
	return r
}

func (n *Nodes) limitedWriter(w io.Writer) io.Writer {
	if n.BytesPerSecond > 0 {
		return flowrate.NewWriter(w, n.BytesPerSecond)
	}
	return w
}

// hijacker is a ResponseWriter whose connection, when it is taken over and then closed, calls closed.
type hijacker struct {
	http.ResponseWriter
	closed func()
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	connection, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &closing{connection, h.closed}, buffered, nil
}

// closing is a connection that tells when it is closed.
type closing struct {
	net.Conn
	closed func()
}

func (c *closing) Close() error {
	c.closed()
	return c.Conn.Close()
}
