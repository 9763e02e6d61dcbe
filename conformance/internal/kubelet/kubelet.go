// Package kubelet pretends to be the nodes of a cluster: it registers Nodes, keeps their Leases and conditions, and reports of the
// Pods that are bound to them what a kubelet would report, without running anything.
//
// A container that runs to its end (restartPolicy is not Always) ends after RunTime, with the exit code that the annotation
// ExitCode of its Pod has. Pods that are deleted get a terminal phase and are then deleted for good, as a kubelet does it.
package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// ExitCode is the annotation of a Pod that says with which code its containers end; without it they end with 0.
const ExitCode = "conformance.plinth/exit-code"

const (
	heartbeat = 5 * time.Second // of a Node's Lease and conditions
	workers   = 8
)

// Kubelet is all nodes of a cluster.
type Kubelet struct {
	Client kubernetes.Interface
	// Nodes are the names of the nodes.
	Nodes []string
	// RunTime is how long a container that ends runs.
	RunTime time.Duration

	pods    listers.PodLister
	queue   workqueue.TypedRateLimitingInterface[string]
	address atomic.Int64 // of the last Pod
}

// Run registers the nodes and works until ctx ends. It returns an error only if a Node cannot be registered.
func (k *Kubelet) Run(ctx context.Context) error {
	for _, name := range k.Nodes {
		if err := k.register(ctx, name); err != nil {
			return fmt.Errorf("registering node %s: %w", name, err)
		}
	}
	k.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	factory := informers.NewSharedInformerFactory(k.Client, 0)
	informer := factory.Core().V1().Pods()
	k.pods = informer.Lister()
	enqueue := func(obj any) {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
			k.queue.Add(key)
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
		work.Go(func() { k.work(ctx) })
	}
	for ctx.Err() == nil {
		for _, name := range k.Nodes {
			k.beat(ctx, name) // what fails is done again with the next heartbeat
		}
		select {
		case <-ctx.Done():
		case <-time.After(heartbeat):
		}
	}
	k.queue.ShutDown()
	work.Wait()
	factory.Shutdown()
	return nil
}

// register makes a Node and its Lease.
func (k *Kubelet) register(ctx context.Context, name string) error {
	node := &core.Node{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{
		core.LabelHostname: name, core.LabelOSStable: "linux", core.LabelArchStable: "amd64"}}}
	if _, err := k.Client.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	seconds := int32(40)
	lease := &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: name, Namespace: core.NamespaceNodeLease},
		Spec: coordination.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds}}
	_, err := k.Client.CoordinationV1().Leases(core.NamespaceNodeLease).Create(ctx, lease, meta.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return k.beat(ctx, name)
}

// beat renews the Lease of a node and tells its condition.
func (k *Kubelet) beat(ctx context.Context, name string) error {
	now := time.Now()
	renewal, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": meta.NewMicroTime(now)}})
	if err != nil {
		return err
	}
	leases := k.Client.CoordinationV1().Leases(core.NamespaceNodeLease)
	if _, err := leases.Patch(ctx, name, types.MergePatchType, renewal, meta.PatchOptions{}); err != nil {
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
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = k.Client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, meta.PatchOptions{}, "status")
	return err
}

func (k *Kubelet) work(ctx context.Context) {
	for {
		key, down := k.queue.Get()
		if down {
			return
		}
		if err := k.sync(ctx, key); err != nil && !apierrors.IsNotFound(err) {
			k.queue.AddRateLimited(key)
		} else {
			k.queue.Forget(key)
		}
		k.queue.Done(key)
	}
}

// sync does the next thing that is to be done for a Pod. What it writes brings the Pod here again.
func (k *Kubelet) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	pod, err := k.pods.Pods(namespace).Get(name)
	if err != nil || pod.Spec.NodeName == "" {
		return err
	}
	done := pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed
	ends := pod.Spec.RestartPolicy != core.RestartPolicyAlways
	switch {
	case pod.DeletionTimestamp != nil && !done:
		return k.report(ctx, pod, end(pod, core.PodFailed, 137))
	case pod.DeletionTimestamp != nil:
		now := int64(0)
		return k.Client.CoreV1().Pods(namespace).Delete(ctx, name, meta.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: meta.NewUIDPreconditions(string(pod.UID))})
	case pod.Status.Phase == core.PodPending:
		return k.report(ctx, pod, k.begin(pod))
	case pod.Status.Phase == core.PodRunning && ends:
		if wait := k.RunTime - time.Since(pod.Status.StartTime.Time); wait > 0 {
			k.queue.AddAfter(key, wait)
			return nil
		}
		code, phase := exitCode(pod), core.PodSucceeded
		if code != 0 {
			phase = core.PodFailed
		}
		return k.report(ctx, pod, end(pod, phase, code))
	}
	return nil
}

func exitCode(pod *core.Pod) int32 {
	code, err := strconv.ParseInt(pod.Annotations[ExitCode], 10, 32)
	if err != nil {
		return 0
	}
	return int32(code)
}

// begin is the status of a Pod whose containers run and are ready.
func (k *Kubelet) begin(pod *core.Pod) core.PodStatus {
	now := meta.Now()
	n := k.address.Add(1)
	ip := fmt.Sprintf("10.%d.%d.%d", 200+n/62500, n/250%250, n%250+1)
	status := core.PodStatus{Phase: core.PodRunning, PodIP: ip, PodIPs: []core.PodIP{{IP: ip}}, StartTime: &now,
		Conditions: conditions(core.ConditionTrue, "")}
	for _, c := range pod.Spec.Containers {
		started := true
		status.ContainerStatuses = append(status.ContainerStatuses, core.ContainerStatus{Name: c.Name, Image: c.Image, Ready: true,
			Started: &started, State: core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: now}}})
	}
	return status
}

// end is the status of a Pod whose containers have ended.
func end(pod *core.Pod, phase core.PodPhase, code int32) core.PodStatus {
	reason := "PodCompleted"
	if phase == core.PodFailed {
		reason = "PodFailed"
	}
	status := core.PodStatus{Phase: phase, Conditions: conditions(core.ConditionFalse, reason)}
	for _, c := range pod.Spec.Containers {
		started := false
		status.ContainerStatuses = append(status.ContainerStatuses, core.ContainerStatus{Name: c.Name, Image: c.Image, Started: &started,
			State: core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: code, FinishedAt: meta.Now(), Reason: "Completed"}}})
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
func (k *Kubelet) report(ctx context.Context, pod *core.Pod, status core.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = k.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, meta.PatchOptions{}, "status")
	return err
}
