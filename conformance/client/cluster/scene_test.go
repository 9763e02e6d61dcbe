package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/kubelet"
)

// patience is the time limit for things that take a moment on an idle machine.
const patience = 60 * time.Second

// scene is a cluster and the namespace that a test has in it.
type scene struct {
	*testing.T
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	plane     *controlplane.Plane
	namespace string
	// kubeconfig is the file of the administrator.
	kubeconfig string
	// node returns the client of a node; read holds what nodes have read for Pods, by the app of the Pod and the object.
	node func(name string) (kubernetes.Interface, error)
	read *sync.Map
}

// manager has the flags that make kube-controller-manager as quick as possible.
var manager = []string{
	"--horizontal-pod-autoscaler-sync-period=1s",
	"--horizontal-pod-autoscaler-cpu-initialization-period=1ms",
	"--horizontal-pod-autoscaler-initial-readiness-delay=1ms",
}

// raise starts the programs and the nodes on a server.
func raise(t *testing.T, server *harness.Server) *scene {
	t.Helper()
	config, err := server.Config()
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{T: t, client: kubernetes.NewForConfigOrDie(config), dynamic: dynamic.NewForConfigOrDie(config),
		namespace: "shop", kubeconfig: server.Kubeconfig}
	s.plane = controlplane.Run(t, server, controlplane.Options{Manager: manager})
	s.read = &sync.Map{}
	s.node = func(name string) (kubernetes.Interface, error) {
		own, err := server.ConfigOf(harness.NodeToken(name))
		if err != nil {
			return nil, err
		}
		own.QPS, own.Burst = 500, 1000
		return kubernetes.NewForConfig(own)
	}
	simulated := &kubelet.Kubelet{
		Client: s.node, Nodes: harness.Nodes, RunTime: 100 * time.Millisecond,
		Read: func(_ string, pod *core.Pod, what string) { s.read.Store(pod.Labels["app"]+" "+what, true) },
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- simulated.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	_, err = s.client.CoreV1().Namespaces().Create(t.Context(),
		&core.Namespace{ObjectMeta: meta.ObjectMeta{Name: s.namespace}}, meta.CreateOptions{})
	s.must(err)
	s.wait("Pods can be on all nodes", func(ctx context.Context) error {
		for _, name := range harness.Nodes {
			node, err := s.client.CoreV1().Nodes().Get(ctx, name, meta.GetOptions{})
			if err != nil {
				return err
			}
			if len(node.Spec.Taints) > 0 || len(node.Status.Conditions) == 0 {
				return fmt.Errorf("%s: %v, %v", name, node.Spec.Taints, node.Status.Conditions)
			}
		}
		return nil
	})
	return s
}

// in returns the scene for a subtest.
func (s *scene) in(t *testing.T) *scene {
	inner := *s
	inner.T = t
	return &inner
}

// run runs a part of the scenario, in parallel with the others.
func (s *scene) run(name string, part func(*scene)) {
	s.Run(name, func(t *testing.T) {
		t.Parallel()
		part(s.in(t))
	})
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// wait calls check until it returns nil.
func (s *scene) wait(what string, check func(context.Context) error) {
	s.Helper()
	began := time.Now()
	for {
		err := check(s.Context())
		if err == nil {
			return
		}
		if time.Since(began) > patience || s.Context().Err() != nil {
			s.Fatalf("%s: after %s: %v", what, time.Since(began).Round(time.Second), err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// until passes the events of a watch to look, until that returns true, and ends the watch.
func (s *scene) until(w watch.Interface, look func(watch.Event) (last bool)) {
	s.Helper()
	defer w.Stop()
	late := time.After(patience)
	for {
		select {
		case event, open := <-w.ResultChan():
			if !open || event.Type == watch.Error {
				s.Fatalf("the watch ends with %v", event)
			}
			if look(event) {
				return
			}
		case <-late:
			s.Fatal("the watch does not tell of what has happened")
		}
	}
}

// same returns an error if two values differ.
func same[T comparable](what string, have, want T) error {
	if have == want {
		return nil
	}
	return fmt.Errorf("%s is %v, and is to be %v", what, have, want)
}
