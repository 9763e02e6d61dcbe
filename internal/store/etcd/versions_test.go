package etcd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"plinth/internal/store"
)

// stub answers as an etcd with one key, which was put at its newest revision. If its version is an old one, the answer
// to a progress request overtakes that change, which does not come at all.
type stub struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedMaintenanceServer
	etcdserverpb.UnimplementedWatchServer

	url    string
	member uint64

	mu       sync.Mutex
	version  string
	revision int64
	began    []int64       // where the watches began
	cut      chan struct{} // closed to end the streams that are open
}

// startStub starts one that ends with the test.
func startStub(t *testing.T, member uint64, version string) *stub {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &stub{url: "http://" + listener.Addr().String(), member: member, version: version, revision: 1,
		cut: make(chan struct{})}
	server := grpc.NewServer()
	etcdserverpb.RegisterKVServer(server, s)
	etcdserverpb.RegisterWatchServer(server, s)
	etcdserverpb.RegisterMaintenanceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return s
}

// become gives it another version and another revision, and ends its streams.
func (s *stub) become(version string, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.version, s.revision, s.cut = version, revision, make(chan struct{})
}

// now is its version and revision.
func (s *stub) now() (version string, revision int64, cut <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.revision, s.cut
}

func (s *stub) header(revision int64) *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: 1, MemberId: s.member, Revision: revision}
}

// Range implements etcdserverpb.KVServer.
func (s *stub) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	_, revision, _ := s.now()
	return &etcdserverpb.RangeResponse{Header: s.header(revision)}, nil
}

// Status implements etcdserverpb.MaintenanceServer.
func (s *stub) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	version, revision, _ := s.now()
	return &etcdserverpb.StatusResponse{Header: s.header(revision), Version: version}, nil
}

// Watch implements etcdserverpb.WatchServer.
func (s *stub) Watch(stream etcdserverpb.Watch_WatchServer) error {
	version, revision, cut := s.now()
	requests := make(chan *etcdserverpb.WatchRequest)
	go func() {
		defer close(requests)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		select {
		case <-cut:
			return io.ErrUnexpectedEOF
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			for _, answer := range s.answers(r, version, revision) {
				answer.Header = s.header(revision)
				if err := stream.Send(answer); err != nil {
					return err
				}
			}
		}
	}
}

// answers are those to a request of a watch.
func (s *stub) answers(r *etcdserverpb.WatchRequest, version string, revision int64) []*etcdserverpb.WatchResponse {
	if r.GetProgressRequest() != nil {
		return []*etcdserverpb.WatchResponse{{WatchId: -1}}
	}
	c := r.GetCreateRequest()
	if c == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = append(s.began, c.StartRevision)
	all := []*etcdserverpb.WatchResponse{{Created: true}}
	if versionWorks(version) && revision > 1 && c.StartRevision <= revision {
		all = append(all, &etcdserverpb.WatchResponse{Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{
			Key: []byte("/registry/pods/late"), Value: []byte("x"), CreateRevision: revision, ModRevision: revision}}}})
	}
	return all
}

// flat is a layout whose values are the bytes.
type flat struct{}

// Path implements Layout.
func (flat) Path(k store.Key) (string, bool) { return k.Resource + "/" + k.Name, true }

// Key implements Layout.
func (flat) Key(path string) (store.Key, bool) {
	resource, name, ok := strings.Cut(path, "/")
	return store.Key{Resource: resource, Name: name}, ok
}

// Encode implements Layout.
func (flat) Encode(_ store.Key, data []byte) ([]byte, error) { return data, nil }

// Decode implements Layout.
func (flat) Decode(_ store.Key, value []byte) ([]byte, uint64, error) { return value, 0, nil }

func connectTo(t *testing.T, logs io.Writer, endpoints ...string) (*Cluster, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := Connect(ctx, Config{Endpoints: endpoints, Prefix: "/registry", Layout: flat{},
		Logger: slog.New(slog.NewTextHandler(logs, nil))})
	if err == nil {
		t.Cleanup(func() { e.Close() })
	}
	return e, err
}

// A member with a version that does not work refuses the start, also if others have one that does; the error says what
// works. One that does not answer refuses no start.
//
// SPEC: STORE-9
func TestVersions(t *testing.T) {
	good, old := startStub(t, 1, "3.7.3"), startStub(t, 2, "3.5.7")
	if _, err := connectTo(t, io.Discard, good.url); err != nil {
		t.Errorf("3.7.3: %v", err)
	}
	for _, endpoints := range [][]string{{old.url}, {good.url, old.url}, {old.url, good.url}} {
		_, err := connectTo(t, io.Discard, endpoints...)
		if err == nil {
			t.Fatalf("%v: an etcd of version 3.5.7 is used", endpoints)
		}
		for _, part := range []string{old.url + " is 3.5.7", "3.4.31", "3.5.13", "3.6"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v: the error does not say %q: %v", endpoints, part, err)
			}
		}
		if strings.Contains(err.Error(), good.url) {
			t.Errorf("%v: the error names a version that works: %v", endpoints, err)
		}
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	if _, err := connectTo(t, io.Discard, good.url, "http://"+gone.Addr().String()); err != nil {
		t.Errorf("one of two endpoints is gone: %v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := connectTo(t, io.Discard, good.url, "http://"+silent.Addr().String()); err != nil {
		t.Errorf("one of two endpoints is silent: %v", err)
	}
}

// A member that gets an old version while a store follows it is not used: what it says about the progress of a watch
// would make the store pass over a change. The health check says so, and once the member has a version that works, the
// store goes on with all changes. It asks for them from the revision on that it has.
//
// SPEC: STORE-9
func TestMemberIsDowngraded(t *testing.T) {
	etcd, logs := startStub(t, 1, "3.7.3"), &lockedBuffer{}
	e, err := connectTo(t, logs, etcd.url)
	if err != nil {
		t.Fatal(err)
	}
	describe := func(store.Key, []byte) *store.Sidecar { return &store.Sidecar{} }
	s, err := e.Open(t.Context(), store.Config{Describe: describe}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Fresh(t.Context(), store.Key{}, true); err != nil {
		t.Fatal(err)
	}
	etcd.become("3.5.7", 5)
	for end := time.Now().Add(time.Minute); e.Check(t.Context()) == nil && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := s.Fresh(soon, store.Key{}, true); !errors.Is(err, context.DeadlineExceeded) || s.Revision() != 1 {
		t.Errorf("a read of an etcd whose changes may be lost: %v, at revision %d", err, s.Revision())
	}
	if err := e.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "member 1 is 3.5.7") {
		t.Errorf("the check says %v", err)
	}
	if n := strings.Count(logs.String(), "not used for watches"); n != 1 {
		t.Errorf("the log says %d times why:\n%s", n, logs)
	}
	etcd.become("3.5.13", 5)
	if _, err := s.Fresh(t.Context(), store.Key{}, true); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Get(store.Key{Resource: "pods", Name: "late"}); !ok || s.Revision() != 5 {
		t.Errorf("at revision %d the change at 5 is there: %v", s.Revision(), ok)
	}
	if err := e.Check(t.Context()); err != nil {
		t.Errorf("the check says %v", err)
	}
	etcd.become("3.5.13", 6)
	if _, err := s.Fresh(t.Context(), store.Key{}, true); err != nil {
		t.Fatal(err)
	}
	etcd.mu.Lock()
	defer etcd.mu.Unlock()
	if last := etcd.began[len(etcd.began)-1]; last != 5 {
		t.Errorf("a watch after revision 5 began at %d", last)
	}
}

// lockedBuffer is a log.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is what was written.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
