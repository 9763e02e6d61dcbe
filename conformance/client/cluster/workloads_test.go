package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"plinth/conformance/internal/harness"
	"plinth/conformance/internal/kubelet"
)

// template returns a Pod template with one container.
func template(app string, restart core.RestartPolicy) core.PodTemplateSpec {
	grace := int64(1)
	return core.PodTemplateSpec{
		ObjectMeta: meta.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: core.PodSpec{RestartPolicy: restart, TerminationGracePeriodSeconds: &grace, Containers: []core.Container{{
			Name: "main", Image: "registry.example/" + app + ":1", Ports: []core.ContainerPort{{ContainerPort: 8080}},
			Resources: core.ResourceRequirements{Requests: core.ResourceList{core.ResourceCPU: resource.MustParse("100m")}},
		}}},
	}
}

func selector(app string) *meta.LabelSelector {
	return &meta.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func deployment(app string, replicas int32) *apps.Deployment {
	return &apps.Deployment{ObjectMeta: meta.ObjectMeta{Name: app}, Spec: apps.DeploymentSpec{
		Replicas: &replicas, Selector: selector(app), Template: template(app, core.RestartPolicyAlways)}}
}

// deploy creates a Deployment and waits until it is available.
func (s *scene) deploy(app string, replicas int32) {
	s.Helper()
	_, err := s.client.AppsV1().Deployments(s.namespace).Create(s.Context(), deployment(app, replicas),
		meta.CreateOptions{})
	s.must(err)
	s.rolledOut(app, replicas)
}

// rolledOut waits until a Deployment is completely rolled out.
func (s *scene) rolledOut(app string, replicas int32) {
	s.Helper()
	s.wait(fmt.Sprintf("%s has %d replicas", app, replicas), func(ctx context.Context) error {
		d, err := s.client.AppsV1().Deployments(s.namespace).Get(ctx, app, meta.GetOptions{})
		if err != nil {
			return err
		}
		return errors.Join(same("spec.replicas", *d.Spec.Replicas, replicas),
			same("observedGeneration", d.Status.ObservedGeneration, d.Generation), same("replicas", d.Status.Replicas, replicas),
			same("updatedReplicas", d.Status.UpdatedReplicas, replicas),
			same("availableReplicas", d.Status.AvailableReplicas, replicas))
	})
}

// addresses returns the addresses of the ready Pods of an app.
func (s *scene) addresses(ctx context.Context, app string) ([]string, error) {
	pods, err := s.client.CoreV1().Pods(s.namespace).List(ctx, meta.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	var ready []string
	for _, pod := range pods.Items {
		if pod.Status.Phase == core.PodRunning && pod.DeletionTimestamp == nil {
			ready = append(ready, pod.Status.PodIP)
		}
	}
	slices.Sort(ready)
	return ready, nil
}

// served waits until the EndpointSlices of a Service have the Pods of an app, and no others.
func (s *scene) served(app string, replicas int) {
	s.Helper()
	s.wait("EndpointSlices follow "+app, func(ctx context.Context) error {
		want, err := s.addresses(ctx, app)
		if err != nil {
			return err
		}
		slicesOf, err := s.client.DiscoveryV1().EndpointSlices(s.namespace).List(ctx,
			meta.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + app})
		if err != nil {
			return err
		}
		found := map[string]bool{}
		for _, slice := range slicesOf.Items {
			for _, endpoint := range slice.Endpoints {
				if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
					found[endpoint.Addresses[0]] = true
				}
			}
		}
		have := slices.Sorted(maps.Keys(found))
		return errors.Join(same("the number of ready Pods", len(want), replicas),
			same("endpoints", strings.Join(have, " "), strings.Join(want, " ")))
	})
}

func (s *scene) expose(app string, headless bool) {
	s.Helper()
	service := &core.Service{ObjectMeta: meta.ObjectMeta{Name: app}, Spec: core.ServiceSpec{
		Selector: map[string]string{"app": app}, Ports: []core.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
	if headless {
		service.Spec.ClusterIP = core.ClusterIPNone
	}
	_, err := s.client.CoreV1().Services(s.namespace).Create(s.Context(), service, meta.CreateOptions{})
	s.must(err)
}

// A Deployment of 20 becomes 20 running Pods on all nodes, scales, and rolls without falling below its minimum of
// available Pods.
func (s *scene) deployments() {
	const app = "web"
	s.expose(app, false)
	s.deploy(app, 20)
	s.served(app, 20)
	pods, err := s.client.CoreV1().Pods(s.namespace).List(s.Context(), meta.ListOptions{LabelSelector: "app=" + app})
	s.must(err)
	on := map[string]int{}
	for _, pod := range pods.Items {
		on[pod.Spec.NodeName]++
	}
	if len(on) != len(harness.Nodes) {
		s.Errorf("the Pods are on the nodes %v", on)
	}
	deployments := s.client.AppsV1().Deployments(s.namespace)
	for _, replicas := range []int32{25, 10} {
		scale := &autoscaling.Scale{ObjectMeta: meta.ObjectMeta{Name: app, Namespace: s.namespace},
			Spec: autoscaling.ScaleSpec{Replicas: replicas}}
		_, err = deployments.UpdateScale(s.Context(), app, scale, meta.UpdateOptions{})
		s.must(err)
		s.rolledOut(app, replicas)
		s.served(app, int(replicas))
	}
	s.roll(app)
}

// roll changes the image of a Deployment of 10.
func (s *scene) roll(app string) {
	deployments := s.client.AppsV1().Deployments(s.namespace)
	before, err := deployments.Get(s.Context(), app, meta.GetOptions{})
	s.must(err)
	events, err := deployments.Watch(s.Context(), meta.ListOptions{
		FieldSelector: "metadata.name=" + app, ResourceVersion: before.ResourceVersion})
	s.must(err)
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"registry.example/web:2"}]}}}}`
	_, err = deployments.Patch(s.Context(), app, types.StrategicMergePatchType, []byte(patch), meta.PatchOptions{})
	s.must(err)
	s.rolledOut(app, 10)
	s.served(app, 10)
	after, err := deployments.Get(s.Context(), app, meta.GetOptions{})
	s.must(err)
	s.until(events, func(event watch.Event) (done bool) {
		d := event.Object.(*apps.Deployment)
		if d.Status.AvailableReplicas < 8 || d.Status.Replicas > 13 {
			s.Errorf("while it rolls, %d of %d Pods are available", d.Status.AvailableReplicas, d.Status.Replicas)
		}
		return d.ResourceVersion == after.ResourceVersion
	})
	sets, err := s.client.AppsV1().ReplicaSets(s.namespace).List(s.Context(),
		meta.ListOptions{LabelSelector: "app=" + app})
	s.must(err)
	if len(sets.Items) != 2 {
		s.Errorf("after the roll there are %d ReplicaSets", len(sets.Items))
	}
}

// Jobs complete, and fail if their Pods do.
func (s *scene) jobs() {
	jobs := s.client.BatchV1().Jobs(s.namespace)
	completions, parallelism := int32(4), int32(2)
	good := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: "good"}, Spec: batch.JobSpec{
		Completions: &completions, Parallelism: &parallelism, Template: template("good", core.RestartPolicyNever)}}
	bad := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: "bad"}, Spec: batch.JobSpec{
		BackoffLimit: new(int32), Template: template("bad", core.RestartPolicyNever)}}
	bad.Spec.Template.Annotations = map[string]string{kubelet.ExitCode: "3"}
	for _, job := range []*batch.Job{good, bad} {
		_, err := jobs.Create(s.Context(), job, meta.CreateOptions{})
		s.must(err)
	}
	finished := func(name string, how batch.JobConditionType, succeeded, failed int32) {
		s.wait("Job "+name+" ends", func(ctx context.Context) error {
			job, err := jobs.Get(ctx, name, meta.GetOptions{})
			if err != nil {
				return err
			}
			ended := slices.ContainsFunc(job.Status.Conditions, func(c batch.JobCondition) bool {
				return c.Type == how && c.Status == core.ConditionTrue
			})
			return errors.Join(same(string(how), ended, true),
				same("succeeded", job.Status.Succeeded, succeeded), same("failed", job.Status.Failed, failed))
		})
	}
	finished("good", batch.JobComplete, 4, 0)
	finished("bad", batch.JobFailed, 0, 1)
}

// A CronJob makes a Job that completes. It makes the first Job at once, and then at most one a minute.
func (s *scene) cronJobs() {
	cron := &batch.CronJob{ObjectMeta: meta.ObjectMeta{Name: "tick"}, Spec: batch.CronJobSpec{Schedule: "@every 2s",
		JobTemplate: batch.JobTemplateSpec{Spec: batch.JobSpec{Template: template("tick", core.RestartPolicyNever)}}}}
	crons := s.client.BatchV1().CronJobs(s.namespace)
	_, err := crons.Create(s.Context(), cron, meta.CreateOptions{})
	s.must(err)
	s.wait("the CronJob fires", func(ctx context.Context) error {
		c, err := crons.Get(ctx, "tick", meta.GetOptions{})
		if err != nil {
			return err
		}
		jobs, err := s.client.BatchV1().Jobs(s.namespace).List(ctx, meta.ListOptions{})
		if err != nil {
			return err
		}
		done := slices.ContainsFunc(jobs.Items, func(job batch.Job) bool {
			return meta.IsControlledBy(&job, c) && job.Status.Succeeded == 1
		})
		return errors.Join(same("lastSuccessfulTime", c.Status.LastSuccessfulTime != nil, true), same("a Job", done, true))
	})
	_, err = crons.Patch(s.Context(), "tick", types.MergePatchType, []byte(`{"spec":{"suspend":true}}`),
		meta.PatchOptions{})
	s.must(err)
}

// A StatefulSet makes its Pods one after the other, and deletes them from the last to the first.
func (s *scene) statefulSets() {
	const app = "base"
	s.expose(app, true)
	pods := s.client.CoreV1().Pods(s.namespace)
	list, err := pods.List(s.Context(), meta.ListOptions{LabelSelector: "app=" + app})
	s.must(err)
	events, err := pods.Watch(s.Context(), meta.ListOptions{LabelSelector: "app=" + app,
		ResourceVersion: list.ResourceVersion})
	s.must(err)
	replicas := int32(3)
	sets := s.client.AppsV1().StatefulSets(s.namespace)
	_, err = sets.Create(s.Context(), &apps.StatefulSet{ObjectMeta: meta.ObjectMeta{Name: app}, Spec: apps.StatefulSetSpec{
		Replicas: &replicas, ServiceName: app, Selector: selector(app), Template: template(app, core.RestartPolicyAlways)}},
		meta.CreateOptions{})
	s.must(err)
	ready := func(n int32) {
		s.wait(fmt.Sprintf("the StatefulSet has %d replicas", n), func(ctx context.Context) error {
			set, err := sets.Get(ctx, app, meta.GetOptions{})
			if err != nil {
				return err
			}
			return errors.Join(same("observedGeneration", set.Status.ObservedGeneration, set.Generation),
				same("replicas", set.Status.Replicas, n), same("readyReplicas", set.Status.ReadyReplicas, n))
		})
	}
	ready(3)
	_, err = sets.Patch(s.Context(), app, types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), meta.PatchOptions{})
	s.must(err)
	ready(1)
	s.served(app, 1)
	var order []string
	running := map[string]bool{}
	s.until(events, func(event watch.Event) (done bool) {
		pod := event.Object.(*core.Pod)
		switch {
		case event.Type == watch.Added:
			order = append(order, "+"+pod.Name)
		case event.Type == watch.Deleted:
			order = append(order, "-"+pod.Name)
		case pod.Status.Phase == core.PodRunning && !running[pod.Name]:
			running[pod.Name] = true
			order = append(order, pod.Name)
		}
		return event.Type == watch.Deleted && pod.Name == "base-1"
	})
	if have, want := strings.Join(order, " "),
		"+base-0 base-0 +base-1 base-1 +base-2 base-2 -base-2 -base-1"; have != want {
		s.Errorf("the Pods came and went as %s, and not as %s", have, want)
	}
}

// A DaemonSet has a Pod on each node.
func (s *scene) daemonSets() {
	const app = "agent"
	sets := s.client.AppsV1().DaemonSets(s.namespace)
	_, err := sets.Create(s.Context(), &apps.DaemonSet{ObjectMeta: meta.ObjectMeta{Name: app}, Spec: apps.DaemonSetSpec{
		Selector: selector(app), Template: template(app, core.RestartPolicyAlways)}}, meta.CreateOptions{})
	s.must(err)
	s.wait("the DaemonSet is on all nodes", func(ctx context.Context) error {
		set, err := sets.Get(ctx, app, meta.GetOptions{})
		if err != nil {
			return err
		}
		return errors.Join(same("desiredNumberScheduled", set.Status.DesiredNumberScheduled, int32(len(harness.Nodes))),
			same("numberReady", set.Status.NumberReady, int32(len(harness.Nodes))))
	})
}

// A PodDisruptionBudget refuses evictions that it does not allow, and lets the others through.
func (s *scene) disruptions() {
	const app = "quorum"
	// Its nodes are open only until it is rolled out, so that the replacement of an evicted Pod has to wait: as soon as
	// it was ready, the budget would allow the next eviction.
	open := func(value string) {
		for _, node := range harness.Nodes {
			_, err := s.client.CoreV1().Nodes().Patch(s.Context(), node, types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"example.com/quorum":`+value+`}}}`), meta.PatchOptions{})
			s.must(err)
		}
	}
	open(`"open"`)
	d := deployment(app, 3)
	d.Spec.Template.Spec.NodeSelector = map[string]string{"example.com/quorum": "open"}
	_, err := s.client.AppsV1().Deployments(s.namespace).Create(s.Context(), d, meta.CreateOptions{})
	s.must(err)
	s.rolledOut(app, 3)
	open("null")
	budgets := s.client.PolicyV1().PodDisruptionBudgets(s.namespace)
	all := intstr.FromInt32(3)
	_, err = budgets.Create(s.Context(), &policy.PodDisruptionBudget{ObjectMeta: meta.ObjectMeta{Name: app},
		Spec: policy.PodDisruptionBudgetSpec{MinAvailable: &all, Selector: selector(app)}}, meta.CreateOptions{})
	s.must(err)
	budget := func(healthy, allowed int32) {
		s.Helper()
		s.wait(fmt.Sprintf("the budget allows %d disruptions", allowed), func(ctx context.Context) error {
			b, err := budgets.Get(ctx, app, meta.GetOptions{})
			if err != nil {
				return err
			}
			return errors.Join(same("observedGeneration", b.Status.ObservedGeneration, b.Generation),
				same("expectedPods", b.Status.ExpectedPods, 3),
				same("currentHealthy", b.Status.CurrentHealthy, healthy),
				same("disruptionsAllowed", b.Status.DisruptionsAllowed, allowed))
		})
	}
	budget(3, 0)
	pods, err := s.client.CoreV1().Pods(s.namespace).List(s.Context(), meta.ListOptions{LabelSelector: "app=" + app})
	s.must(err)
	evict := func(pod core.Pod) error {
		return s.client.PolicyV1().Evictions(s.namespace).Evict(s.Context(),
			&policy.Eviction{ObjectMeta: meta.ObjectMeta{Name: pod.Name, Namespace: s.namespace}})
	}
	if err := evict(pods.Items[0]); !apierrors.IsTooManyRequests(err) {
		s.Fatalf("an eviction that the budget does not allow is answered with %v", err)
	}
	_, err = budgets.Patch(s.Context(), app, types.MergePatchType, []byte(`{"spec":{"minAvailable":2}}`),
		meta.PatchOptions{})
	s.must(err)
	budget(3, 1)
	s.must(evict(pods.Items[0]))
	if err := evict(pods.Items[1]); !apierrors.IsTooManyRequests(err) {
		s.Errorf("the second eviction at once is answered with %v", err)
	}
	s.wait("the evicted Pod goes", func(ctx context.Context) error {
		pod, err := s.client.CoreV1().Pods(s.namespace).Get(ctx, pods.Items[0].Name, meta.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("Pod %s, deleted at %v: %w", pod.Name, pod.DeletionTimestamp, err)
	})
	budget(2, 0)
	open(`"open"`)
	budget(3, 1)
}

// removed deletes the namespace with everything in it.
func (s *scene) removed() {
	began := time.Now()
	s.must(s.client.CoreV1().Namespaces().Delete(s.Context(), s.namespace, meta.DeleteOptions{}))
	s.wait("the namespace goes", func(ctx context.Context) error {
		n, err := s.client.CoreV1().Namespaces().Get(ctx, s.namespace, meta.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is %s: %+v", n.Status.Phase, n.Status.Conditions)
	})
	s.Logf("the namespace was gone after %s", time.Since(began).Round(time.Millisecond))
	pods, err := s.client.CoreV1().Pods("").List(s.Context(), meta.ListOptions{})
	s.must(err)
	if len(pods.Items) > 0 {
		s.Errorf("%d Pods are left", len(pods.Items))
	}
}
