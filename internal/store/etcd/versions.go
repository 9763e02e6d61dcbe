package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/version"

	"plinth/internal/execution"
)

// # Which versions of etcd work
//
// The problem: the answer to a progress request says up to which revision a watch has delivered all changes. In older
// versions it may overtake changes (etcd's issues 15220 and 17507). The state would advance to a revision of which it
// lacks changes, and ignore these when they come, as older than the state. A client can only tell this from the version
// of the member that sends.
//
//	an answer of a watch is used  ⇒  the member that sends it had a version that works when its stream began
//
// At the start every endpoint is asked, and one with another version refuses the start (checkVersions). But one that
// does not answer then, and one that is replaced later, may have any version. So each stream of a watch is checked as
// well, those that etcd's client begins by itself after a lost connection among them (watchStream): all answers of
// watches come through it.

// The oldest versions that work, of 3.4 and of 3.5; all later minor versions work. They are those to which the
// reference sends progress requests.
var oldest34, oldest35 = version.MustParseSemantic("3.4.31"), version.MustParseSemantic("3.5.13")

// versionWorks says whether members of a version send the answers to progress requests behind the changes that precede
// them. As in the reference, a version that cannot be parsed counts as one that does not.
func versionWorks(text string) bool {
	v, err := version.ParseSemantic(text)
	if err != nil {
		return false
	}
	if v.Major() == 3 && v.Minor() == 5 {
		return v.AtLeast(oldest35)
	}
	return v.AtLeast(oldest34)
}

// versionError says of which versions members are that do not work: "http://a is 3.5.7".
func versionError(members []string) error {
	return fmt.Errorf("etcd: of this version, watches lose changes: %s. Versions that work are %s and later ones of 3.4, "+
		"%s and later ones of 3.5, and 3.6 and later ones", strings.Join(members, ", "), oldest34, oldest35)
}

const (
	// statusTimeout bounds how long the version of a member is waited for.
	statusTimeout = time.Second
	// silentEndpoints is how long the start waits for further endpoints after the first one has told its version.
	silentEndpoints = 3 * time.Second
)

// checkVersions returns an error if one of the endpoints has a version that does not work. It waits for one of them to
// tell its version, until ctx ends, and for the others as long as they may be about to. Those that do not answer are
// checked when they are used.
func (e *Cluster) checkVersions(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type told struct {
		endpoint, version string
		err               error
	}
	answers, endpoints := make(chan told), e.config.Endpoints
	for _, endpoint := range endpoints {
		go func() {
			for ctx.Err() == nil {
				version, err := e.versionAt(ctx, endpoint)
				select {
				case answers <- told{endpoint, version, err}:
				case <-ctx.Done():
				}
				if err == nil {
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		}()
	}
	var refused []string
	var late <-chan time.Time
	failed := map[string]error{} // of those that were asked and have not answered
	answered := 0
	for waiting := true; waiting && (answered == 0 || answered+len(failed) < len(endpoints)); {
		select {
		case a := <-answers:
			if a.err != nil {
				failed[a.endpoint] = a.err
				continue
			}
			delete(failed, a.endpoint)
			answered++
			if late == nil {
				late = time.After(silentEndpoints)
			}
			if !versionWorks(a.version) {
				refused = append(refused, a.endpoint+" is "+a.version)
			}
		case <-late:
			waiting = false
		case <-ctx.Done():
			return fmt.Errorf("etcd: the versions of %v are not known: %w", endpoints, ctx.Err())
		}
	}
	if len(refused) > 0 {
		return versionError(refused)
	}
	if answered < len(endpoints) {
		e.config.Logger.Warn("some endpoints of etcd do not tell their version, and are asked again when they are used",
			"endpoints", len(endpoints), "answered", answered, "errors", failed)
	}
	return nil
}

// versionAt is the version of the member at an endpoint. It does not wait for one that refuses connections.
func (e *Cluster) versionAt(ctx context.Context, endpoint string) (string, error) {
	conn, err := e.client.Dial(endpoint)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	answer, err := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
	return answer.GetVersion(), err
}

// assertOutside is an option of the connection, by which no request holds a place while it waits for etcd.
func assertOutside() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, answer any,
		conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		execution.AssertOutside(ctx, "etcd")
		return invoke(ctx, method, request, answer, conn, opts...)
	})
}

// checkStreams is an option of the connection, by which all its watches are checked.
func (e *Cluster) checkStreams() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn,
		method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if method != etcdserverpb.Watch_Watch_FullMethodName {
			return streamer(ctx, desc, conn, method, opts...)
		}
		ctx, stop := context.WithCancel(ctx)
		stream, err := streamer(ctx, desc, conn, method, opts...)
		if err != nil {
			stop()
			return nil, err
		}
		return &watchStream{ClientStream: stream, stop: stop, cluster: e, conn: conn}, nil
	})
}

// watchStream is a stream of watches. Its answers come once the member that sends them is known to have a version that
// works. If it has none, the stream ends, and etcd's client goes on with the next member.
type watchStream struct {
	grpc.ClientStream
	stop    context.CancelFunc
	cluster *Cluster
	conn    *grpc.ClientConn
	checked bool // used by the goroutine that receives
}

// SendMsg is grpc.ClientStream.SendMsg. Before etcd 3.5.16 a watch from the very revision of a compaction on is not
// told of it, and a deletion at that revision does not come. So each watch begins one revision earlier than asked for:
// etcd then says that it is compacted. Who receives the changes of that revision passes over them.
func (s *watchStream) SendMsg(m any) error {
	if r, ok := m.(*etcdserverpb.WatchRequest); ok {
		if c := r.GetCreateRequest(); c != nil && c.StartRevision > 1 {
			c.StartRevision--
		}
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg is grpc.ClientStream.RecvMsg.
func (s *watchStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if answer, ok := m.(*etcdserverpb.WatchResponse); ok && err == nil && !s.checked {
		err = s.cluster.checkMember(s.Context(), s.conn, answer.GetHeader().GetMemberId())
		s.checked = true
	}
	if err != nil {
		s.stop()
	}
	return err
}

// checkMember returns an error unless a member has a version that works. The request for the version goes over the
// connections of the watches, of which there is one for each endpoint, taken in turn, so that it is answered by the
// process that sends the watch. Which one has answered, it says itself.
func (e *Cluster) checkMember(ctx context.Context, conn *grpc.ClientConn, member uint64) error {
	answer, err := e.statusOf(ctx, conn, member)
	if err != nil {
		return status.Errorf(codes.Unavailable, "the version of member %x is not known: %v", member, err)
	}
	if versionWorks(answer.Version) {
		e.unusable.Store(nil)
		return nil
	}
	err = versionError([]string{fmt.Sprintf("member %x is %s", member, answer.Version)})
	if before := e.unusable.Swap(&err); before == nil || (*before).Error() != err.Error() {
		e.config.Logger.Error("this member of etcd is not used for watches", "error", err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(statusTimeout): // the next attempt may be with the same member
	}
	return status.Error(codes.Unavailable, err.Error())
}

// statusOf asks for the status of a member, on a connection to all of them. There are as many requests on their way as
// there are members, so that it does not matter if one of them is frozen.
func (e *Cluster) statusOf(ctx context.Context, conn *grpc.ClientConn, member uint64) (*etcdserverpb.StatusResponse,
	error) {
	ctx, stop := context.WithTimeout(ctx, statusTimeout)
	defer stop()
	n := len(e.config.Endpoints)
	found, failed := make(chan *etcdserverpb.StatusResponse, n), make(chan error, n)
	var asking sync.WaitGroup
	for range n {
		asking.Go(func() {
			for {
				answer, err := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
				switch {
				case err != nil:
					failed <- err
				case answer.GetHeader().GetMemberId() == member:
					found <- answer
				default: // another request was in turn between
					select {
					case <-ctx.Done():
					case <-time.After(progressAfter):
					}
					continue
				}
				return
			}
		})
	}
	defer asking.Wait()
	defer stop()
	for last := error(nil); ; n-- {
		if n == 0 {
			return nil, last
		}
		select {
		case answer := <-found:
			return answer, nil
		case last = <-failed:
		}
	}
}
