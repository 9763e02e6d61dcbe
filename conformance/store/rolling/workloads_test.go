package rolling

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const namespace = "shop"

// makeNodes makes the namespace and the nodes, and waits until Pods can be there.
func (r *run) makeNodes() error {
	if err := r.create("Namespace", func(ctx context.Context) error {
		_, err := r.client.CoreV1().Namespaces().Create(ctx,
			&core.Namespace{ObjectMeta: meta.ObjectMeta{Name: namespace}}, meta.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	for i := range *nodes {
		node := &core.Node{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("node-%d", i),
			Labels: map[string]string{"type": "kwok"}}}
		if err := r.create("Node", func(ctx context.Context) error {
			_, err := r.client.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return r.until("nodes", func(context.Context) error {
		if n := r.ledger.ready(); n < *nodes {
			return fmt.Errorf("%d of %d are ready", n, *nodes)
		}
		return nil
	})
}

// work makes the workloads and changes some of them until the end, each of them at least once. Half of the Pods belong
// to workloads that are made, and then left alone.
func (r *run) work(end time.Time) error {
	part := *pods / 20
	var makes []func() error
	for i := range 4 {
		makes = append(makes, func() error { return r.makeDeployment(fmt.Sprintf("kept-%d", i), 2*part) })
	}
	for i := range 2 {
		makes = append(makes, func() error { return r.makeStatefulSet(fmt.Sprintf("kept-set-%d", i), part) })
	}
	rounds := map[string]func(round int) error{
		"jobs": func(round int) error { return r.job(round, 2*part) },
	}
	for i := range 2 {
		rolled, scaled, set := fmt.Sprintf("rolled-%d", i), fmt.Sprintf("scaled-%d", i), fmt.Sprintf("scaled-set-%d", i)
		makes = append(makes, func() error { return r.makeDeployment(rolled, 2*part) },
			func() error { return r.makeDeployment(scaled, part) },
			func() error { return r.scaleStatefulSet(set, part, 0) })
		rounds[rolled] = func(round int) error { return r.rollOut(rolled, 2*part, round) }
		rounds[scaled] = func(int) error { return r.scaleDeployment(scaled, part) }
		rounds[set] = func(round int) error { return r.scaleStatefulSet(set, part, round) }
	}
	for _, make := range makes { // one after another: it is the servers' and the controllers' time that counts
		if err := make(); err != nil {
			return err
		}
	}
	if *fault == "pod" {
		if err := r.deleteOne("kept-0"); err != nil {
			return err
		}
	}
	errs := make(chan error, len(rounds))
	var wait sync.WaitGroup
	for _, round := range rounds {
		wait.Go(func() {
			for i := 1; i == 1 || time.Now().Before(end); i++ {
				if err := round(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// template returns the template of an app's Pods.
func template(app string, restart core.RestartPolicy) core.PodTemplateSpec {
	grace := int64(1)
	return core.PodTemplateSpec{
		ObjectMeta: meta.ObjectMeta{Labels: map[string]string{appLabel: app},
			Annotations: map[string]string{roundAnnotation: "0"}},
		Spec: core.PodSpec{RestartPolicy: restart, TerminationGracePeriodSeconds: &grace, Containers: []core.Container{{
			Name: "main", Image: "registry.example/" + app + ":1",
			Resources: core.ResourceRequirements{Requests: core.ResourceList{core.ResourceCPU: resource.MustParse("100m")}},
		}}},
	}
}

func selector(app string) *meta.LabelSelector {
	return &meta.LabelSelector{MatchLabels: map[string]string{appLabel: app}}
}

func (r *run) makeDeployment(app string, n int) error {
	r.ledger.order(app, n)
	replicas := int32(n)
	object := &apps.Deployment{ObjectMeta: meta.ObjectMeta{Name: app}, Spec: apps.DeploymentSpec{
		Replicas: &replicas, Selector: selector(app), Template: template(app, core.RestartPolicyAlways)}}
	if err := r.create("Deployment", func(ctx context.Context) error {
		_, err := r.client.AppsV1().Deployments(namespace).Create(ctx, object, meta.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	return r.deployed(app, n)
}

// deployed waits until a Deployment is completely rolled out, and Pods that were there before have gone.
func (r *run) deployed(app string, n int) error {
	if err := r.until(app, func(context.Context) error {
		var d *apps.Deployment
		if err := r.try("get Deployment", func(ctx context.Context) (err error) {
			d, err = r.client.AppsV1().Deployments(namespace).Get(ctx, app, meta.GetOptions{})
			return err
		}); err != nil {
			return err
		}
		s, n := d.Status, int32(n)
		if s.ObservedGeneration != d.Generation || s.Replicas != n || s.UpdatedReplicas != n || s.AvailableReplicas != n {
			return fmt.Errorf("%d replicas are wanted: %+v", n, s)
		}
		return nil
	}); err != nil {
		return err
	}
	return r.balanced(app)
}

// balanced waits until the account of an app is.
func (r *run) balanced(app string) error {
	return r.until(app, func(context.Context) error {
		if open := r.ledger.open(app); open != "" {
			return errors.New(open)
		}
		return nil
	})
}

func (r *run) makeStatefulSet(app string, n int) error {
	r.ledger.order(app, n)
	replicas := int32(n)
	object := &apps.StatefulSet{ObjectMeta: meta.ObjectMeta{Name: app}, Spec: apps.StatefulSetSpec{
		Replicas: &replicas, Selector: selector(app), Template: template(app, core.RestartPolicyAlways), ServiceName: app,
		PodManagementPolicy: apps.ParallelPodManagement}}
	if err := r.create("StatefulSet", func(ctx context.Context) error {
		_, err := r.client.AppsV1().StatefulSets(namespace).Create(ctx, object, meta.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	return r.populated(app, n)
}

// populated waits until a StatefulSet has its Pods, and no others.
func (r *run) populated(app string, n int) error {
	if err := r.until(app, func(context.Context) error {
		var d *apps.StatefulSet
		if err := r.try("get StatefulSet", func(ctx context.Context) (err error) {
			d, err = r.client.AppsV1().StatefulSets(namespace).Get(ctx, app, meta.GetOptions{})
			return err
		}); err != nil {
			return err
		}
		s, n := d.Status, int32(n)
		if s.ObservedGeneration != d.Generation || s.Replicas != n || s.ReadyReplicas != n {
			return fmt.Errorf("%d replicas are wanted: %+v", n, s)
		}
		return nil
	}); err != nil {
		return err
	}
	return r.balanced(app)
}

// rollOut replaces all Pods of a Deployment.
func (r *run) rollOut(app string, n, round int) error {
	next := strconv.Itoa(round)
	r.ledger.order(app, n)
	r.ledger.dismiss(app, n, func(p *core.Pod) bool { return p.Annotations[roundAnnotation] != next })
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, roundAnnotation, next)
	if err := r.patchDeployment(app, patch); err != nil {
		return err
	}
	return r.deployed(app, n)
}

func (r *run) patchDeployment(app, patch string) error {
	return r.try("patch Deployment", func(ctx context.Context) error {
		_, err := r.client.AppsV1().Deployments(namespace).Patch(ctx, app, types.MergePatchType, []byte(patch),
			meta.PatchOptions{})
		return err
	})
}

// scaleDeployment removes half of the Pods of a Deployment, any of them, and makes others.
func (r *run) scaleDeployment(app string, n int) error {
	r.ledger.dismiss(app, n-n/2, all)
	if err := r.patchDeployment(app, fmt.Sprintf(`{"spec":{"replicas":%d}}`, n/2)); err != nil {
		return err
	}
	if err := r.deployed(app, n/2); err != nil {
		return err
	}
	r.ledger.order(app, n-n/2)
	if err := r.patchDeployment(app, fmt.Sprintf(`{"spec":{"replicas":%d}}`, n)); err != nil {
		return err
	}
	return r.deployed(app, n)
}

// scaleStatefulSet makes a StatefulSet with half of its Pods, scales it up, and scales the one of the round before down
// and deletes it. No Pod has the name of one before: KWOK deletes Pods by their names and repeats that, and so would
// delete the next one, on any server.
func (r *run) scaleStatefulSet(app string, n, round int) error {
	name := func(round int) string { return fmt.Sprintf("%s-%d", app, round) }
	now, before := name(round), name(round-1)
	scale := func(name string, n int) error {
		if err := r.try("patch StatefulSet", func(ctx context.Context) error {
			_, err := r.client.AppsV1().StatefulSets(namespace).Patch(ctx, name, types.MergePatchType,
				fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n), meta.PatchOptions{})
			return err
		}); err != nil {
			return err
		}
		return r.populated(name, n)
	}
	if err := r.makeStatefulSet(now, n/2); err != nil {
		return err
	}
	r.ledger.order(now, n-n/2)
	if err := scale(now, n); err != nil || round == 0 {
		return err
	}
	r.ledger.dismiss(before, n-n/2, func(p *core.Pod) bool {
		ordinal, err := strconv.Atoi(p.Name[strings.LastIndex(p.Name, "-")+1:])
		return err == nil && ordinal >= n/2
	})
	if err := scale(before, n/2); err != nil {
		return err
	}
	r.ledger.dismiss(before, n/2, all)
	if err := r.remove("StatefulSet", func(ctx context.Context) error {
		return r.client.AppsV1().StatefulSets(namespace).Delete(ctx, before, inBackground())
	}); err != nil {
		return err
	}
	return r.balanced(before)
}

// job runs a Job and deletes the one before.
func (r *run) job(round, n int) error {
	app := fmt.Sprintf("job-%d", round)
	r.ledger.order(app, n)
	completions := int32(n)
	object := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: app}, Spec: batch.JobSpec{Completions: &completions,
		Parallelism: &completions, Template: template(app, core.RestartPolicyNever)}}
	if err := r.create("Job", func(ctx context.Context) error {
		_, err := r.client.BatchV1().Jobs(namespace).Create(ctx, object, meta.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	if err := r.until(app, func(context.Context) error {
		var j *batch.Job
		if err := r.try("get Job", func(ctx context.Context) (err error) {
			j, err = r.client.BatchV1().Jobs(namespace).Get(ctx, app, meta.GetOptions{})
			return err
		}); err != nil {
			return err
		}
		for _, c := range j.Status.Conditions {
			if c.Type == batch.JobComplete && c.Status == core.ConditionTrue && j.Status.Succeeded == completions {
				return nil
			}
		}
		return fmt.Errorf("%d completions are wanted: %+v", n, j.Status)
	}); err != nil {
		return err
	}
	if err := r.balanced(app); err != nil || round == 1 {
		return err
	}
	before := fmt.Sprintf("job-%d", round-1)
	r.ledger.dismiss(before, n, all)
	if err := r.remove("Job", func(ctx context.Context) error {
		return r.client.BatchV1().Jobs(namespace).Delete(ctx, before, inBackground())
	}); err != nil {
		return err
	}
	return r.balanced(before)
}

func inBackground() meta.DeleteOptions {
	policy := meta.DeletePropagationBackground
	return meta.DeleteOptions{PropagationPolicy: &policy}
}

// remove deletes an object. If an answer is lost, the object may be gone.
func (r *run) remove(what string, request func(context.Context) error) error {
	again := false
	return r.try("delete "+what, func(ctx context.Context) error {
		err := request(ctx)
		if again && apierrors.IsNotFound(err) {
			return nil
		}
		again = true
		return err
	})
}

// create makes an object. If an answer is lost, the object may be there.
func (r *run) create(what string, request func(context.Context) error) error {
	again := false
	return r.try("create "+what, func(ctx context.Context) error {
		err := request(ctx)
		if again && apierrors.IsAlreadyExists(err) {
			return nil
		}
		again = true
		return err
	})
}

// deleteOne deletes a Pod of an app that ought to stay: the fault pod.
func (r *run) deleteOne(app string) error {
	pods, err := r.client.CoreV1().Pods(namespace).List(r.Context(), meta.ListOptions{LabelSelector: appLabel + "=" + app,
		Limit: 1})
	if err != nil {
		return err
	}
	return r.client.CoreV1().Pods(namespace).Delete(r.Context(), pods.Items[0].Name, meta.DeleteOptions{})
}
