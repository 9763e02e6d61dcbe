package etcd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// relay passes the calls of a client on to an etcd, and can lose requests and answers of them. A line (faults_test.go)
// loses bytes, and which call they belong to is chance; a relay knows which request it has lost.
type relay struct {
	url  string
	far  *grpc.ClientConn
	held chan struct{} // receives when a transaction was lost on its way to etcd

	mu     sync.Mutex
	fault  fault
	mended chan struct{} // closed when the fault is mended; new for the next one
	delay  *delayed      // nil: nothing is delayed
}

// delayed is a transaction that reaches etcd later, whether or not its client still waits for it.
type delayed struct {
	key      string        // that it writes
	held     chan struct{} // closed when there is one
	released chan struct{} // closed by the test
	answer   chan []byte   // what etcd has said to it then
}

// fault is what a relay does to messages.
type fault int

const (
	loseRequests fault = iota + 1 // to etcd
	loseAnswers                   // from etcd
)

// txn is the method of transactions.
const txn = "/etcdserverpb.KV/Txn"

// newRelay opens a relay to an etcd.
func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{url: "http://" + listener.Addr().String(), held: make(chan struct{}, 1), mended: make(chan struct{})}
	r.far, err = grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(asItIs{})))
	if err != nil {
		t.Fatal(err)
	}
	calls := grpc.NewServer(grpc.ForceServerCodecV2(asItIs{}), grpc.UnknownServiceHandler(r.serve))
	pages := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: target}) // etcd's version is one
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, rq *http.Request) {
		if rq.ProtoMajor == 2 {
			calls.ServeHTTP(w, rq)
		} else {
			pages.ServeHTTP(w, rq)
		}
	}), Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go server.Serve(listener) //nolint:errcheck // it ends when the test does
	t.Cleanup(func() { server.Close(); r.far.Close() })
	return r
}

// begin loses messages from now on.
func (r *relay) begin(f fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
	select {
	case <-r.held: // of the fault before
	default:
	}
}

// hold delays the next transaction that has a key in it.
func (r *relay) hold(key string) *delayed {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = &delayed{key: key, held: make(chan struct{}), released: make(chan struct{}), answer: make(chan []byte, 1)}
	return r.delay
}

// delays says whether a message is to be delayed.
func (r *relay) delays(method string, m []byte) *delayed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.delay; d != nil && method == txn && bytes.Contains(m, []byte(d.key)) {
		r.delay = nil
		return d
	}
	return nil
}

// passOn waits until the message is released, and passes it on.
func (d *delayed) passOn(far *grpc.ClientConn, m []byte) {
	close(d.held)
	<-d.released
	var answer []byte
	if err := far.Invoke(context.Background(), txn, &m, &answer); err != nil {
		answer = []byte(err.Error())
	}
	d.answer <- answer
}

// mend ends the fault: every call that is under way fails, as if its connection were lost.
func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = 0
	close(r.mended)
	r.mended = make(chan struct{})
}

// state is the present fault, and what is closed when it, or the next one, is mended.
func (r *relay) state() (fault, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault, r.mended
}

// serve passes on one call.
func (r *relay) serve(_ any, near grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(near)
	header, _ := metadata.FromIncomingContext(near.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(near.Context(), header))
	defer cancel()
	_, mended := r.state()
	far, err := r.far.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go r.requests(method, near, far)
	ended := make(chan error, 1)
	go func() { ended <- r.answers(near, far) }()
	select {
	case err := <-ended:
		if !errors.Is(err, errLost) {
			return err
		}
		<-mended
	case <-mended:
	}
	return status.Error(codes.Unavailable, "the connection was lost")
}

// requests passes on the messages of the client, until it has sent them all.
func (r *relay) requests(method string, near grpc.ServerStream, far grpc.ClientStream) {
	for {
		var m []byte
		if near.RecvMsg(&m) != nil {
			_ = far.CloseSend()
			return
		}
		if f, _ := r.state(); f == loseRequests {
			if method == txn {
				select {
				case r.held <- struct{}{}:
				default:
				}
			}
			continue
		}
		if d := r.delays(method, m); d != nil {
			go d.passOn(r.far, m)
			return // it is the only message of its call, which is to stay without an answer
		}
		if far.SendMsg(&m) != nil {
			return
		}
	}
}

// errLost says that an answer of the call was lost.
var errLost = errors.New("an answer was lost")

// answers passes on the messages of etcd, and returns how it ends the call, or errLost.
func (r *relay) answers(near grpc.ServerStream, far grpc.ClientStream) error {
	lost := false
	for {
		var m []byte
		if err := far.RecvMsg(&m); err != nil {
			near.SetTrailer(far.Trailer())
			switch {
			case lost:
				return errLost
			case errors.Is(err, io.EOF):
				return nil
			}
			return err
		}
		if f, _ := r.state(); f == loseAnswers {
			lost = true
			continue
		}
		if err := near.SendMsg(&m); err != nil {
			return err
		}
	}
}

// asItIs is a codec of messages that are not looked at.
type asItIs struct{}

func (asItIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (asItIs) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (asItIs) Name() string { return "proto" }
