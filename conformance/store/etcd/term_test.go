package etcd

import (
	"context"
	"errors"
	"flag"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/reference"
)

var frozenFor = flag.Duration("frozen", 20*time.Second,
	"how long TestFrozenLeader stops the server that runs the controllers; it has a Lease of 15 s")

// signal sends a signal to the processes of a server.
func (s *server) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	for _, pid := range s.Pids() {
		if err := syscall.Kill(pid, signal); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that is frozen while it runs the controllers has lost them when it goes on, and what it had sent is refused:
// a create of one of its controllers reaches etcd after another server has taken over. That one does not run this
// controller, so that nothing else stands in the way of the create.
//
// SPEC: STORE-2
func TestFrozenLeader(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	r := newRelay(t, strings.TrimPrefix(p.URL, "http://"))
	first := atOnceWith(t, r.url, []string{"--controllers=*"}, harness.Plinth)[0]
	if s, _ := holder(t, []*server{first}); s != first {
		t.Fatal("the lone server does not run the controllers")
	}
	next := on(t, harness.Plinth, p.URL, "--advertise-address="+addressOf(1), "--service-cluster-ip-range=10.0.0.0/16",
		"--controllers=*,-root-ca-certificate-publisher-controller")
	next.address = addressOf(1)

	const folder = "/registry/configmaps/held/"
	create := r.hold(folder + "kube-root-ca.crt")
	next.makeNamespace(t, "held")
	select {
	case <-create.held:
	case <-time.After(time.Minute):
		t.Fatal("no controller has made the ConfigMap")
	}
	first.signal(t, syscall.SIGSTOP)
	thawed := false
	defer func() {
		if !thawed {
			first.signal(t, syscall.SIGCONT)
		}
	}()
	stopped := time.Now()
	holder(t, []*server{next}) // waits until it has taken over
	t.Logf("taken over %v after the server was frozen", time.Since(stopped).Round(time.Millisecond))
	time.Sleep(time.Until(stopped.Add(*frozenFor))) // the length of the freeze is what is tested

	close(create.released)
	var answer etcdserverpb.TxnResponse
	if err := proto.Unmarshal(<-create.answer, &answer); err != nil || answer.Header == nil {
		t.Fatal("the late create was not answered", err)
	}
	if answer.Succeeded {
		t.Error("a create of a controller that had lost its Lease was carried out")
	}
	first.signal(t, syscall.SIGCONT)
	thawed = true
	eventually(t, "the server does not notice that it has lost the Lease", func() error {
		text, err := os.ReadFile(first.LogFile())
		if err == nil && !strings.Contains(string(text), "does not run the controllers any more") {
			err = errors.New("it says nothing")
		}
		return err
	})
	if keys := keysUnder(t, etcdClient(t, p.URL), "configmaps/held"); len(keys) > 0 {
		t.Errorf("there is %v", keys)
	}
	if s, _ := holder(t, []*server{first, next}); s != next {
		t.Error("the server that was frozen has taken the Lease back")
	}
	deletesNamespaces(t, first)

	// The way back: the server that is left runs all controllers, under a later term.
	if err := next.Stop(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace has no authority", func() error {
		_, err := first.Resource(configMaps).Namespace("held").Get(context.Background(), "kube-root-ca.crt",
			metav1.GetOptions{})
		return err
	})
}

// How long nobody runs the controllers: when the server that does is stopped, the other one goes on at once; when it is
// killed, after its Lease.
//
// SPEC: STORE-2
func TestHandOver(t *testing.T) {
	p := startEtcd(t, reference.EtcdOptions{})
	all := atOnce(t, p.URL, harness.Plinth, harness.Plinth)
	client := etcdClient(t, p.URL)
	for _, end := range []struct {
		name string
		how  func(*server)
		most time.Duration
	}{
		{"stopped", func(s *server) { s.signal(t, syscall.SIGTERM) }, 15 * time.Second},
		{"killed", func(s *server) { s.Kill() }, time.Minute},
	} {
		first, _ := holder(t, all)
		next := others(all, first)[0]
		changes := client.Watch(t.Context(), "/registry/plinth/terms/plinth-controllers")
		began := time.Now()
		end.how(first)
		select {
		case <-changes:
			t.Logf("%s: taken over after %v", end.name, time.Since(began).Round(time.Millisecond))
		case <-time.After(end.most):
			t.Fatalf("%s: nobody has taken over", end.name)
		}
		deletesNamespaces(t, next)
		first.Kill()
		if err := first.Restart(); err != nil {
			t.Fatal(err)
		}
		first.connect(t)
		all = []*server{first, next}
		if s, _ := holder(t, all); s != next {
			t.Error("a server that starts has taken the controllers away")
		}
	}
}
