package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"plinth/internal/scenario"
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
func (flat) Decode(_ store.Key, value []byte) ([]byte, *store.Sidecar, error) {
	return value, &store.Sidecar{}, nil
}

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

// A member with a version that does not work refuses the start, also if others have one that does; one that does not
// answer refuses no start. A member that gets an old version while a store follows it is not used: what it says about
// the progress of a watch would make the store pass over a change.
//
// SPEC: STORE-9
func TestVersions(t *testing.T) {
	scenario.Run(t, "testdata/versions.txt", func(t *testing.T, steps []string) string {
		p := &versionsPlayer{T: t, etcds: map[string]*stub{}, urls: map[string]string{}}
		for _, line := range steps {
			p.step(line)
		}
		return p.printed.String()
	})
}

// versionsPlayer plays a scenario with members of an etcd and a store.
type versionsPlayer struct {
	*testing.T
	etcds   map[string]*stub
	urls    map[string]string
	cluster *Cluster
	store   *store.Store
	logs    lockedBuffer
	printed strings.Builder
}

// step plays one step:
//
//	member NAME VERSION           start a member
//	gone NAME                     a member whose port refuses connections
//	silent NAME                   a member that accepts none
//	connect NAME…                 connect to these members
//	open                          open a store over the connection
//	become NAME VERSION REVISION  the member restarts with this version and revision; if it works, the change of the
//	                              revision comes by the watch
//	read                          read what is newest, and print the revision, and whether the key is there
//	refused                       wait until the check reports an error, and see that a read gets no answer
//	check                         print what the check reports
//	warnings                      print how often the log says that a member is not used
//	began NAME                    print at which revision the last watch began
func (p *versionsPlayer) step(line string) {
	p.Helper()
	s := scenario.Parse(line)
	name := s.Word(1)
	switch s.Word(0) {
	case "member":
		p.etcds[name] = startStub(p.T, uint64(len(p.etcds)+1), s.Word(2))
		p.urls[name] = p.etcds[name].url
	case "gone", "silent":
		listener, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
		if err != nil {
			p.Fatal(err)
		}
		if s.Word(0) == "gone" {
			listener.Close()
		} else {
			p.Cleanup(func() { listener.Close() })
		}
		p.urls[name] = "http://" + listener.Addr().String()
	case "connect":
		var endpoints []string
		for _, name := range s.Words[1:] {
			endpoints = append(endpoints, p.urls[name])
		}
		var err error
		p.cluster, err = connectTo(p.T, &p.logs, endpoints...)
		p.print(line, err, "connected")
	case "open":
		describe := func(store.Key, []byte) *store.Sidecar { return &store.Sidecar{} }
		var err error
		if p.store, err = p.cluster.Open(p.Context(), store.Config{Describe: describe}, nil); err != nil {
			p.Fatal(err)
		}
		p.Cleanup(func() { p.store.Close() })
	case "become":
		revision, err := strconv.ParseInt(s.Word(3), 10, 64)
		if err != nil {
			p.Fatal(err)
		}
		p.etcds[name].become(s.Word(2), revision)
	case "read":
		p.read(p.Context(), line)
	case "refused":
		for end := time.Now().Add(time.Minute); p.cluster.Check(p.Context()) == nil && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
		soon, cancel := context.WithTimeout(p.Context(), time.Second)
		defer cancel()
		p.read(soon, line)
	case "check":
		p.print(line, p.cluster.Check(p.Context()), "nothing")
	case "warnings":
		fmt.Fprintf(&p.printed, "%s: %d\n", line, strings.Count(p.logs.String(), "not used for watches"))
	case "began":
		p.etcds[name].mu.Lock()
		defer p.etcds[name].mu.Unlock()
		fmt.Fprintf(&p.printed, "%s: %d\n", line, p.etcds[name].began[len(p.etcds[name].began)-1])
	default:
		p.Fatalf("%s: there is no such step", line)
	}
	if err := s.Unused(); err != nil {
		p.Fatalf("%s: %v", line, err)
	}
}

// read reads the newest state, and prints it.
func (p *versionsPlayer) read(ctx context.Context, line string) {
	p.Helper()
	_, err := p.store.Fresh(ctx, store.Key{}, true)
	_, found := p.store.Get(store.Key{Resource: "pods", Name: "late"})
	text := "current"
	if errors.Is(err, context.DeadlineExceeded) {
		text = "no answer"
	} else if err != nil {
		text = err.Error()
	}
	fmt.Fprintf(&p.printed, "%s: %s, revision %d, the key is there: %v\n", line, text, p.store.Revision(), found)
}

// print prints an error, with the names of members in the place of their URLs, or what to say without one.
func (p *versionsPlayer) print(line string, err error, without string) {
	text := without
	if err != nil {
		text = err.Error()
	}
	for name, url := range p.urls {
		text = strings.ReplaceAll(text, url, name)
	}
	fmt.Fprintf(&p.printed, "%s: %s\n", line, text)
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
