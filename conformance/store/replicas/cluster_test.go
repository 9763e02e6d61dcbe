package replicas

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

// member is one member of the etcd cluster.
type member struct {
	id      uint64
	options reference.EtcdOptions
	url     string // of the process itself, which only the test uses

	mu      sync.Mutex
	process *reference.EtcdProcess
	client  *clientv3.Client // of this member alone
	disk    *disk            // nil: it has none of its own
}

func (m *member) start() error {
	p, err := reference.StartEtcd(context.Background(), m.options)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process = p
	return nil
}

func (m *member) signal(s syscall.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.process.Command.Process.Signal(s) // it may have ended
}

// kill kills the process, frozen or not.
func (m *member) kill() {
	m.signal(syscall.SIGKILL)
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.process.Command.Wait()
}

// replica is one server.
type replica struct {
	*harness.Server
	url    atomic.Pointer[string] // a kube-apiserver has another one when it is started again
	client *http.Client
	clock  string // the file with the offset of its clock
	disk   *disk  // of the embedded store; nil: it has none of its own
}

func (r *replica) restart() error {
	err := r.Restart()
	if err == nil {
		url := r.URL
		r.url.Store(&url)
	}
	return err
}

func (r *replica) signal(s syscall.Signal) {
	for _, pid := range r.Pids() {
		_ = syscall.Kill(pid, s)
	}
}

// cluster is what the clients talk to, and the wires between its processes.
type cluster struct {
	replicas []*replica
	members  []*member
	// toMember are the wires from replicas to members, and between those from members to others.
	toMember, between [][]*wire
	etcd              *clientv3.Client // of all members
}

const size = 3

// startMembers starts an etcd cluster whose members reach each other over wires.
func (c *cluster) startMembers(t *testing.T) {
	t.Helper()
	peers := make([]*socket, size)
	var cluster []string
	for i := range size {
		peers[i] = listen(t)
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, peers[i].url()))
	}
	for i := range size {
		own, peer := free(t), free(t)
		dir := t.TempDir()
		c.members = append(c.members, &member{url: own, disk: newDisk(t, dir), options: reference.EtcdOptions{Dir: dir,
			URL: own, Flags: []string{"--max-wals=2", "--name", fmt.Sprint("m", i), "--listen-peer-urls", peer,
				"--initial-advertise-peer-urls", peers[i].url(), "--initial-cluster", strings.Join(cluster, ",")}}})
		peers[i].to = strings.TrimPrefix(peer, "http://")
		c.between = append(c.between, make([]*wire, size))
		for j := range size {
			c.between[i][j] = &wire{}
		}
	}
	var urls []string
	for i, m := range c.members {
		// Until the identities are known, all wires are in order.
		peers[i].choose = always(&wire{})
		go peers[i].serve()
		if err := m.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.kill)
		m.client = connect(t, m.url)
		urls = append(urls, m.url)
	}
	c.etcd = connect(t, urls...)
	byID := map[string]int{}
	eventually(t, "the members of etcd are together", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for i, m := range c.members {
			status, err := m.client.Status(ctx, m.url)
			if err != nil {
				return err
			}
			m.id = status.Header.MemberId
			byID[fmt.Sprintf("%x", m.id)] = i
		}
		return nil
	})
	for i, p := range peers {
		wires := map[string]*wire{}
		for id, from := range byID {
			wires[id] = c.between[from][i]
		}
		p.change(fromHeader(wires, &wire{}))
	}
}

// connect is a client of etcd beside the replicas.
func connect(t *testing.T, urls ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: urls, Logger: zap.NewNop(),
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// free is a URL at which nothing listens now.
func free(t *testing.T) string {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return l.url()
}

// startReplicas starts servers of these kinds on the members, each over wires of its own; or without members one with
// the embedded store.
func (c *cluster) startReplicas(t *testing.T, kinds ...harness.Kind) {
	t.Helper()
	keys := t.TempDir()
	if err := reference.ServiceAccountKeys(keys); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	c.replicas = make([]*replica, len(kinds))
	for i, kind := range kinds {
		dir := t.TempDir()
		r := &replica{clock: filepath.Join(t.TempDir(), "clock")}
		c.replicas[i] = r
		if c.members == nil {
			data := filepath.Join(dir, "data")
			if err := os.Mkdir(data, 0o700); err != nil {
				t.Fatal(err)
			}
			r.disk = newDisk(t, data)
		}
		o := harness.Options{Kind: kind, Dir: dir}
		if c.members != nil {
			var urls []string
			wires := make([]*wire, size)
			for j, m := range c.members {
				wires[j] = &wire{}
				s := listen(t)
				s.to, s.choose = strings.TrimPrefix(m.url, "http://"), always(wires[j])
				go s.serve()
				urls = append(urls, s.url())
			}
			c.toMember = append(c.toMember, wires)
			o.Etcd = strings.Join(urls, ",")
			o.Flags = []string{fmt.Sprintf("--advertise-address=10.77.0.%d", i+1),
				"--service-account-key-file=" + filepath.Join(keys, "sa.pub"),
				"--service-account-signing-key-file=" + filepath.Join(keys, "sa.key")}
		}
		o.Flags = append(o.Flags, "--service-cluster-ip-range=10.96.0.0/27", "--service-node-port-range=30000-30011")
		if kind == harness.Plinth {
			o.Environment = []string{"PLINTH_CLOCK_OFFSET=" + r.clock}
		}
		wait.Go(func() {
			s, err := harness.Start(o)
			if err != nil {
				t.Error(err)
				return
			}
			r.Server, r.client = s, s.Client()
			url := s.URL
			r.url.Store(&url)
		})
	}
	wait.Wait()
	for _, r := range c.replicas {
		if r.Server != nil {
			t.Cleanup(func() { r.signal(syscall.SIGCONT); r.Kill() })
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// answers says whether a member that is not frozen does.
func (m *member) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := m.client.Status(ctx, m.url)
	return err == nil
}

// leader is the member that leads, or -1.
func (c *cluster) leader(ctx context.Context) int {
	for _, m := range c.members {
		status, err := m.client.Status(ctx, m.url)
		if err != nil {
			continue
		}
		for i, other := range c.members {
			if other.id == status.Leader {
				return i
			}
		}
	}
	return -1
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}
