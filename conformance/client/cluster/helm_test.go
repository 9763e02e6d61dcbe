package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"plinth/conformance/internal/harness"
)

// helm is Helm 4 with a chart as `helm create` writes it: installed, upgraded, rolled back and removed by server-side
// apply, waiting for each step to complete.
func (s *scene) helm() {
	const release, name = "spring", "spring-boutique"
	program, err := harness.Helm()
	s.must(err)
	home := s.TempDir()
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(s.Context(), program, append(args, "--namespace", s.namespace)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home,
			"HELM_DATA_HOME="+home)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	do := func(args ...string) string {
		s.Helper()
		out, err := run(args...)
		if err != nil {
			s.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	deployment := func() *apps.Deployment {
		s.Helper()
		d, err := s.client.AppsV1().Deployments(s.namespace).Get(s.Context(), name, meta.GetOptions{})
		s.must(err)
		return d
	}
	// available demands that Helm has waited for completion: a Deployment with this image, all of whose Pods are new and
	// available. The autoscaler may change the number of Pods meanwhile, so a moment later may do.
	available := func(image string) {
		s.Helper()
		d := deployment()
		if err := errors.Join(same("the image", d.Spec.Template.Spec.Containers[0].Image, "registry.example/boutique:"+image),
			same("a Pod is available", d.Status.AvailableReplicas > 0, true)); err != nil {
			s.Error(err)
		}
		s.wait("all Pods are new", func(context.Context) error {
			d = deployment()
			return errors.Join(same("observedGeneration", d.Status.ObservedGeneration, d.Generation),
				same("updatedReplicas", d.Status.UpdatedReplicas, d.Status.Replicas))
		})
		owner := slices.ContainsFunc(d.ManagedFields, func(e meta.ManagedFieldsEntry) bool {
			return e.Manager == "helm" && e.Operation == meta.ManagedFieldsOperationApply
		})
		if !owner {
			s.Errorf("the Deployment was not applied by helm: %v", d.ManagedFields)
		}
	}

	do("install", release, "testdata/chart", "--wait", "--timeout=60s")
	available("1")
	s.rolledOut(name, 2) // by the autoscaler
	for _, get := range []func() error{
		func() error {
			_, err := s.client.NetworkingV1().Ingresses(s.namespace).Get(s.Context(), name, meta.GetOptions{})
			return err
		},
		func() error {
			_, err := s.client.AutoscalingV2().HorizontalPodAutoscalers(s.namespace).Get(s.Context(), name, meta.GetOptions{})
			return err
		},
		func() error {
			_, err := s.client.CoreV1().ServiceAccounts(s.namespace).Get(s.Context(), name, meta.GetOptions{})
			return err
		},
	} {
		s.must(get())
	}

	do("upgrade", release, "testdata/chart", "--wait", "--timeout=60s", "--set", "image.tag=2", "--set",
		"podAnnotations.color=green")
	available("2")

	// Another manager sets the image: an upgrade that sets another one is refused, unless it is forced.
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"boutique","image":"registry.example/boutique:hot"}]}}}}`
	_, err = s.client.AppsV1().Deployments(s.namespace).Patch(s.Context(), name, types.StrategicMergePatchType,
		[]byte(patch),
		meta.PatchOptions{FieldManager: "operator"})
	s.must(err)
	out, err := run("upgrade", release, "testdata/chart", "--set", "image.tag=3")
	if err == nil || !strings.Contains(out, `conflict with "operator"`) {
		s.Errorf("an upgrade that conflicts says %v\n%s", err, out)
	}
	do("upgrade", release, "testdata/chart", "--wait", "--timeout=60s", "--force-conflicts", "--set", "image.tag=3")
	available("3")
	if annotations := deployment().Spec.Template.Annotations; annotations["color"] != "" {
		s.Errorf("what the chart does not set any more is still there: %v", annotations)
	}

	do("rollback", release, "2", "--wait", "--timeout=60s")
	available("2")
	if annotations := deployment().Spec.Template.Annotations; annotations["color"] != "green" {
		s.Errorf("after the rollback the annotations are %v", annotations)
	}
	var history []struct {
		Revision int    `json:"revision"`
		Status   string `json:"status"`
	}
	s.must(json.Unmarshal([]byte(do("history", release, "--output=json")), &history))
	if have, want := fmt.Sprint(history),
		"[{1 superseded} {2 superseded} {3 failed} {4 superseded} {5 deployed}]"; have != want {
		s.Errorf("the history is %s, and not %s", have, want)
	}

	do("uninstall", release, "--wait", "--timeout=60s")
	s.wait("nothing is left of the release", func(ctx context.Context) error {
		selector := meta.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + release}
		pods, err := s.client.CoreV1().Pods(s.namespace).List(ctx, selector)
		if err != nil {
			return err
		}
		sets, err := s.client.AppsV1().ReplicaSets(s.namespace).List(ctx, selector)
		if err != nil {
			return err
		}
		secrets, err := s.client.CoreV1().Secrets(s.namespace).List(ctx, meta.ListOptions{
			FieldSelector: "type=" + string(core.SecretType("helm.sh/release.v1"))})
		if err != nil {
			return err
		}
		return same("what is left", len(pods.Items)+len(sets.Items)+len(secrets.Items), 0)
	})
	if _, err := s.client.CoreV1().Services(s.namespace).Get(s.Context(), name, meta.GetOptions{}); !apierrors.IsNotFound(
		err) {
		s.Errorf("the Service of the release: %v", err)
	}
}
