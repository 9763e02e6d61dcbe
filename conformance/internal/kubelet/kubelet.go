// Package kubelet simulates the nodes of a cluster: it registers Nodes, maintains their Leases and conditions, and
// writes the status of the Pods that are bound to them as a kubelet would, without running anything. Each node is a
// separate user, with the permissions that the node authorizer gives it: it watches only its own Pods, and reads the
// objects that they refer to before it reports them as running.
//
// A container that runs to completion (restartPolicy is not Always) ends after RunTime, with the exit code in the
// annotation ExitCode of its Pod. Deleted Pods get a terminal phase and are then removed, as by a kubelet.
package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	authentication "k8s.io/api/authentication/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// ExitCode is the annotation of a Pod with the exit code of its containers; the default is 0.
const ExitCode = "conformance.plinth/exit-code"

const (
	heartbeat = 5 * time.Second // of a Node's Lease and conditions
	workers   = 8
)

// Kubelet simulates all nodes of a cluster.
type Kubelet struct {
	// Client returns the client of a node, which authenticates as system:node:NAME in the group system:nodes.
	Client func(node string) (kubernetes.Interface, error)
	// Nodes are the names of the nodes.
	Nodes []string
	// RunTime is how long a container that runs to completion runs.
	RunTime time.Duration
	// Read is called for each object that a node has read for a Pod, as KIND/NAME; nil disables it.
	Read func(node string, pod *core.Pod, what string)
	// Ports are those at which the nodes serve, at 127.0.0.1. Nil: they do not.
	Ports map[string]int

	address atomic.Int64 // of the last Pod
}

// node simulates one node.
type node struct {
	*Kubelet
	name   string
	client kubernetes.Interface
	pods   listers.PodLister
	queue  workqueue.TypedRateLimitingInterface[string]
}

// Run registers the nodes and simulates them until ctx ends. If a Node cannot be registered, it stops the others and
// returns an error.
func (k *Kubelet) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	errs := make([]error, len(k.Nodes))
	for i, name := range k.Nodes {
		running.Go(func() {
			client, err := k.Client(name)
			if err == nil {
				err = (&node{Kubelet: k, name: name, client: client}).run(ctx)
			}
			if errs[i] = err; err != nil {
				cancel()
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func (n *node) run(ctx context.Context) error {
	if err := n.register(ctx); err != nil {
		return fmt.Errorf("registering node %s: %w", n.name, err)
	}
	n.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	// A node may list and watch Pods only with a field selector for those that are bound to it.
	factory := informers.NewSharedInformerFactoryWithOptions(n.client, 0,
		informers.WithTweakListOptions(func(o *meta.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", n.name).String()
		}))
	informer := factory.Core().V1().Pods()
	n.pods = informer.Lister()
	enqueue := func(obj any) {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
			n.queue.Add(key)
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var work sync.WaitGroup
	for range workers {
		work.Go(func() { n.work(ctx) })
	}
	for ctx.Err() == nil {
		n.beat(ctx) // the next heartbeat retries it
		select {
		case <-ctx.Done():
		case <-time.After(heartbeat):
		}
	}
	n.queue.ShutDown()
	work.Wait()
	factory.Shutdown()
	return nil
}

// register makes a Node and its Lease.
func (n *node) register(ctx context.Context) error {
	own := &core.Node{ObjectMeta: meta.ObjectMeta{Name: n.name, Labels: map[string]string{
		core.LabelHostname: n.name, core.LabelOSStable: "linux", core.LabelArchStable: "amd64"}}}
	if _, err := n.client.CoreV1().Nodes().Create(ctx, own, meta.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return err
	}
	seconds := int32(40)
	lease := &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: n.name, Namespace: core.NamespaceNodeLease},
		Spec: coordination.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: &seconds}}
	_, err := n.client.CoordinationV1().Leases(core.NamespaceNodeLease).Create(ctx, lease, meta.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return n.beat(ctx)
}

// beat renews the Lease of a node and reports its condition.
func (n *node) beat(ctx context.Context) error {
	now := time.Now()
	renewal, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": meta.NewMicroTime(now)}})
	if err != nil {
		return err
	}
	leases := n.client.CoordinationV1().Leases(core.NamespaceNodeLease)
	if _, err := leases.Patch(ctx, n.name, types.MergePatchType, renewal, meta.PatchOptions{}); err != nil {
		return err
	}
	room := core.ResourceList{core.ResourceCPU: resource.MustParse("16"), core.ResourceMemory: resource.MustParse("64Gi"),
		core.ResourcePods: resource.MustParse("110"), core.ResourceEphemeralStorage: resource.MustParse("100Gi")}
	condition := func(kind core.NodeConditionType, status core.ConditionStatus, reason string) core.NodeCondition {
		return core.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: meta.NewTime(now)}
	}
	status := core.NodeStatus{Capacity: room, Allocatable: room,
		NodeInfo: core.NodeSystemInfo{KubeletVersion: "v1.37.1", OperatingSystem: "linux", Architecture: "amd64"},
		Conditions: []core.NodeCondition{
			condition(core.NodeReady, core.ConditionTrue, "KubeletReady"),
			condition(core.NodeMemoryPressure, core.ConditionFalse, "KubeletHasSufficientMemory"),
			condition(core.NodeDiskPressure, core.ConditionFalse, "KubeletHasNoDiskPressure"),
			condition(core.NodePIDPressure, core.ConditionFalse, "KubeletHasSufficientPID"),
		}}
	if port := n.Ports[n.name]; port != 0 {
		status.Addresses = []core.NodeAddress{{Type: core.NodeInternalIP, Address: "127.0.0.1"}}
		status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().Nodes().Patch(ctx, n.name, types.StrategicMergePatchType, patch,
		meta.PatchOptions{}, "status")
	return err
}

func (n *node) work(ctx context.Context) {
	for {
		key, down := n.queue.Get()
		if down {
			return
		}
		if err := n.sync(ctx, key); err != nil && !apierrors.IsNotFound(err) {
			n.queue.AddRateLimited(key)
		} else {
			n.queue.Forget(key)
		}
		n.queue.Done(key)
	}
}

// sync takes the next step for a Pod. Each step writes the Pod, and the event of the write leads to the next call.
func (n *node) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	pod, err := n.pods.Pods(namespace).Get(name)
	if err != nil || pod.Spec.NodeName == "" {
		return err
	}
	done := pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed
	ends := pod.Spec.RestartPolicy != core.RestartPolicyAlways
	switch {
	case pod.DeletionTimestamp != nil && !done:
		return n.report(ctx, pod, end(pod, core.PodFailed, 137))
	case pod.DeletionTimestamp != nil:
		now := int64(0)
		return n.client.CoreV1().Pods(namespace).Delete(ctx, name, meta.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: meta.NewUIDPreconditions(string(pod.UID))})
	case pod.Status.Phase == core.PodPending:
		if err := n.read(ctx, pod); err != nil {
			return err
		}
		return n.report(ctx, pod, n.begin(pod))
	case pod.Status.Phase == core.PodRunning && ends:
		if wait := n.RunTime - time.Since(pod.Status.StartTime.Time); wait > 0 {
			n.queue.AddAfter(key, wait)
			return nil
		}
		code, phase := exitCode(pod), core.PodSucceeded
		if code != 0 {
			phase = core.PodFailed
		}
		return n.report(ctx, pod, end(pod, phase, code))
	}
	return nil
}

// read reads what a Pod needs to start: its ConfigMaps, Secrets and claims, and a token of its service account.
func (n *node) read(ctx context.Context, pod *core.Pod) error {
	told := func(kind, name string, err error) error {
		if err != nil {
			return fmt.Errorf("%s reads %s %s: %w", n.name, kind, name, err)
		}
		if n.Read != nil {
			n.Read(n.name, pod, kind+"/"+name)
		}
		return nil
	}
	c := n.client.CoreV1()
	var errs []error
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			_, err := c.ConfigMaps(pod.Namespace).Get(ctx, v.ConfigMap.Name, meta.GetOptions{})
			errs = append(errs, told("ConfigMap", v.ConfigMap.Name, err))
		case v.Secret != nil:
			_, err := c.Secrets(pod.Namespace).Get(ctx, v.Secret.SecretName, meta.GetOptions{})
			errs = append(errs, told("Secret", v.Secret.SecretName, err))
		case v.PersistentVolumeClaim != nil:
			_, err := c.PersistentVolumeClaims(pod.Namespace).Get(ctx, v.PersistentVolumeClaim.ClaimName, meta.GetOptions{})
			errs = append(errs, told("PersistentVolumeClaim", v.PersistentVolumeClaim.ClaimName, err))
		}
	}
	if account := pod.Spec.ServiceAccountName; account != "" {
		_, err := c.ServiceAccounts(pod.Namespace).CreateToken(ctx, account,
			&authentication.TokenRequest{Spec: authentication.TokenRequestSpec{
				BoundObjectRef: &authentication.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
			}}, meta.CreateOptions{})
		errs = append(errs, told("token", account, err))
	}
	return errors.Join(errs...)
}

func exitCode(pod *core.Pod) int32 {
	code, err := strconv.ParseInt(pod.Annotations[ExitCode], 10, 32)
	if err != nil {
		return 0
	}
	return int32(code)
}

// begin returns the status of a Pod whose containers run and are ready.
func (k *Kubelet) begin(pod *core.Pod) core.PodStatus {
	now := meta.Now()
	n := k.address.Add(1)
	ip := fmt.Sprintf("10.%d.%d.%d", 200+n/62500, n/250%250, n%250+1)
	status := core.PodStatus{Phase: core.PodRunning, PodIP: ip, PodIPs: []core.PodIP{{IP: ip}}, StartTime: &now,
		Conditions: conditions(core.ConditionTrue, "")}
	for _, c := range pod.Spec.Containers {
		started := true
		status.ContainerStatuses = append(status.ContainerStatuses,
			core.ContainerStatus{Name: c.Name, Image: c.Image, Ready: true,
				Started: &started, State: core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: now}}})
	}
	return status
}

// end returns the status of a Pod whose containers have ended.
func end(pod *core.Pod, phase core.PodPhase, code int32) core.PodStatus {
	reason := "PodCompleted"
	if phase == core.PodFailed {
		reason = "PodFailed"
	}
	status := core.PodStatus{Phase: phase, Conditions: conditions(core.ConditionFalse, reason)}
	for _, c := range pod.Spec.Containers {
		started := false
		status.ContainerStatuses = append(status.ContainerStatuses,
			core.ContainerStatus{Name: c.Name, Image: c.Image, Started: &started,
				State: core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: code, FinishedAt: meta.Now(),
					Reason: "Completed"}}})
	}
	return status
}

func conditions(ready core.ConditionStatus, reason string) []core.PodCondition {
	now := meta.Now()
	condition := func(kind core.PodConditionType, status core.ConditionStatus, reason string) core.PodCondition {
		return core.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: now}
	}
	return []core.PodCondition{
		condition(core.PodInitialized, core.ConditionTrue, ""),
		condition(core.PodReady, ready, reason),
		condition(core.ContainersReady, ready, reason),
	}
}

// report writes the status of a Pod.
func (n *node) report(ctx context.Context, pod *core.Pod, status core.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		meta.PatchOptions{}, "status")
	return err
}
