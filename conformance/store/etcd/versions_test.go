package etcd

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/feature"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
	"plinth/internal/store"
	"plinth/internal/store/etcd"
)

// connected says how a connection to endpoints ends.
func connected(t *testing.T, endpoints ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := etcd.Connect(ctx, etcd.Config{Endpoints: endpoints, Prefix: "/registry", Layout: plain{}})
	if err != nil {
		return err
	}
	return e.Close()
}

// An etcd of a version whose watches lose changes is refused, also if another endpoint has a version that works. The
// server ends with an error that says which ones do.
//
// SPEC: STORE-9
func TestRefusedVersion(t *testing.T) {
	old := startEtcd(t, reference.EtcdOptions{Refused: true})
	now := startEtcd(t, reference.EtcdOptions{})
	if err := connected(t, now.URL); err != nil {
		t.Errorf("etcd %s: %v", reference.Etcd, err)
	}
	for _, endpoints := range [][]string{{old.URL}, {now.URL, old.URL}, {old.URL, now.URL}} {
		err := connected(t, endpoints...)
		if err == nil || !strings.Contains(err.Error(), old.URL+" is 3.5.7") || !strings.Contains(err.Error(), "3.5.13") {
			t.Errorf("etcd %s: %v", reference.EtcdRefused, err)
		}
	}
	s, err := harness.Start(harness.Options{Kind: harness.Plinth, Etcd: old.URL, Dir: t.TempDir()})
	if err == nil {
		s.Kill()
		t.Fatalf("a server has started on etcd %s", reference.EtcdRefused)
	}
	for _, part := range []string{"ended before it was ready", "--etcd-servers", "is 3.5.7", "3.4.31", "3.5.13"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the server does not say %q: %v", part, err)
		}
	}
}

// A cluster of which one member is gone, or frozen, is one on which a server starts.
//
// SPEC: STORE-9
func TestStartWithoutAMember(t *testing.T) {
	members := startMembers(t, 3)
	for _, m := range members {
		awaitHealth(t, m.URL)
	}
	starts := func(without int, what string) {
		t.Helper()
		s := onMembers(t, members)
		putPlain(t, s, pod("a"), what)
		if _, err := s.Fresh(t.Context(), store.Key{}, true); err != nil {
			t.Errorf("member %d is %s: %v", without, what, err)
		}
		s.Close()
	}
	for i, m := range members {
		m.signal(t, syscall.SIGKILL)
		_ = m.Command.Wait()
		starts(i, "gone")
		m.EtcdProcess = startEtcd(t, m.options)
		awaitHealth(t, m.URL)
		m.signal(t, syscall.SIGSTOP)
		starts(i, "frozen")
		m.signal(t, syscall.SIGCONT)
		awaitHealth(t, m.URL)
	}
}

// versionStub answers the requests of a connection as an etcd of a version.
type versionStub struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedMaintenanceServer
	version string
}

// Range implements etcdserverpb.KVServer.
func (*versionStub) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 1}}, nil
}

// Status implements etcdserverpb.MaintenanceServer.
func (s *versionStub) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{}, Version: s.version}, nil
}

// versionClient is the client that the reference asks.
type versionClient string

// Endpoints is the method of clientv3.Client.
func (versionClient) Endpoints() []string { return []string{"one"} }

// Status is the method of clientv3.Client.
func (c versionClient) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: string(c)}, nil
}

// The versions that are refused are those on which the reference sends no progress requests.
//
// SPEC: STORE-9
func TestVersionsAreTheReferences(t *testing.T) {
	works := map[bool]int{}
	for _, version := range []string{
		"3.3.27", "3.4.0", "3.4.24", "3.4.25", "3.4.30", "3.4.31", "3.4.32", "3.4.100",
		"3.5.0", "3.5.7", "3.5.8", "3.5.12", "3.5.13-rc.0", "3.5.13", "3.5.14", "3.5.30",
		"3.6.0-rc.1", "3.6.0", "3.7.3", "4.0.0", "", "3.5", "unknown",
	} {
		theirs := false
		synctest.Test(t, func(t *testing.T) {
			checker := feature.NewDefaultFeatureSupportChecker()
			checker.CheckClient(t.Context(), versionClient(version), storage.RequestWatchProgress)
			synctest.Wait()
			theirs = checker.Supports(storage.RequestWatchProgress)
		})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server, stub := grpc.NewServer(), &versionStub{version: version}
		etcdserverpb.RegisterKVServer(server, stub)
		etcdserverpb.RegisterMaintenanceServer(server, stub)
		go func() { _ = server.Serve(listener) }()
		err = connected(t, "http://"+listener.Addr().String())
		server.Stop()
		if errors.Is(err, context.DeadlineExceeded) || (err == nil) != theirs {
			t.Errorf("%q: the reference says %v, ours %v", version, theirs, err)
		}
		works[theirs]++
	}
	if works[true] < 8 || works[false] < 8 {
		t.Errorf("the reference takes %d versions and refuses %d: the comparison says little", works[true], works[false])
	}
}
