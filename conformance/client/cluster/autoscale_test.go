package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	podMetrics = schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "pods"}
)

// podMetricsDefinition defines, as a custom type, the PodMetrics that a metrics server serves.
const podMetricsDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
 "metadata":{"name":"pods.metrics.k8s.io","annotations":{"api-approved.kubernetes.io":"unapproved, for a test"}},
 "spec":{"group":"metrics.k8s.io","scope":"Namespaced","names":{"plural":"pods","kind":"PodMetrics"},
  "versions":[{"name":"v1beta1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
   "x-kubernetes-preserve-unknown-fields":true}}}]}}`

// defineMetrics makes the custom type that autoscalers read.
func (s *scene) defineMetrics() {
	s.Helper()
	var definition unstructured.Unstructured
	s.must(json.Unmarshal([]byte(podMetricsDefinition), &definition.Object))
	_, err := s.dynamic.Resource(definitions).Create(s.Context(), &definition, meta.CreateOptions{})
	s.must(err)
	s.wait("metrics are served", func(ctx context.Context) error {
		_, err := s.dynamic.Resource(podMetrics).Namespace(s.namespace).List(ctx, meta.ListOptions{})
		return err
	})
}

// measure publishes how much CPU each Pod of an app uses, in thousandths, until the returned function is called.
func (s *scene) measure(app string, usage func() int) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := s.measureOnce(ctx, app, usage()); err != nil && ctx.Err() == nil {
				s.Errorf("writing metrics: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (s *scene) measureOnce(ctx context.Context, app string, usage int) error {
	pods, err := s.client.CoreV1().Pods(s.namespace).List(ctx, meta.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return err
	}
	metrics := s.dynamic.Resource(podMetrics).Namespace(s.namespace)
	for _, pod := range pods.Items {
		intent := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
			"metadata":  map[string]any{"name": pod.Name, "labels": map[string]any{"app": app}},
			"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "1s",
			"containers": []any{map[string]any{"name": "main", "usage": map[string]any{"cpu": fmt.Sprintf("%dm", usage),
				"memory": "10Mi"}}},
		}}
		if _, err := metrics.Apply(ctx, pod.Name, intent, meta.ApplyOptions{FieldManager: "metrics-server"}); err != nil {
			return err
		}
	}
	return nil
}

// applyDeployment applies the manifest of a Deployment as a user writes it, with replicas or without.
func (s *scene) applyDeployment(manager string, manifest map[string]any) error {
	manifest["apiVersion"], manifest["kind"] = "apps/v1", "Deployment"
	body, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	name := manifest["metadata"].(map[string]any)["name"].(string)
	_, err = s.client.AppsV1().Deployments(s.namespace).Patch(s.Context(), name, types.ApplyPatchType, body,
		meta.PatchOptions{FieldManager: manager})
	return err
}

// owners returns the managers that own the replicas of a Deployment.
func (s *scene) owners(app string) (managers []string) {
	d, err := s.client.AppsV1().Deployments(s.namespace).Get(s.Context(), app, meta.GetOptions{})
	s.must(err)
	for _, entry := range d.ManagedFields {
		var fields struct {
			Spec map[string]any `json:"f:spec"`
		}
		s.must(json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields))
		if _, ok := fields.Spec["f:replicas"]; ok {
			managers = append(managers, fmt.Sprintf("%s %s%s", entry.Manager, entry.Operation, entry.Subresource))
		}
	}
	slices.Sort(managers)
	return managers
}

// A Deployment that was applied with a number of replicas is handed over to an autoscaler, as the documentation of
// server-side apply describes it; then the autoscaler follows the metrics of a custom resource, and applies of the
// other fields do not change the number.
func (s *scene) autoscale() {
	const app = "elastic"
	manifest := func(image string, replicas int) map[string]any {
		spec := map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": app}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": app}},
				"spec": map[string]any{"terminationGracePeriodSeconds": 1,
					"containers": []any{map[string]any{"name": "main", "image": image,
						"resources": map[string]any{"requests": map[string]any{"cpu": "100m"}}}}}},
		}
		if replicas > 0 {
			spec["replicas"] = replicas
		}
		return map[string]any{"metadata": map[string]any{"name": app}, "spec": spec}
	}
	owned := func(want string) {
		s.Helper()
		if have := fmt.Sprint(s.owners(app)); have != want {
			s.Errorf("the replicas belong to %s, and not to %s", have, want)
		}
	}
	s.must(s.applyDeployment("kubectl", manifest("registry.example/elastic:1", 2)))
	owned("[kubectl Apply]")
	s.rolledOut(app, 2)

	s.must(s.applyDeployment("handover-to-hpa", map[string]any{"metadata": map[string]any{"name": app},
		"spec": map[string]any{"replicas": 2}}))
	owned("[handover-to-hpa Apply kubectl Apply]")
	s.must(s.applyDeployment("kubectl", manifest("registry.example/elastic:1", 0)))
	owned("[handover-to-hpa Apply]")
	s.rolledOut(app, 2)

	usage := make(chan int, 1)
	current := 50
	stop := s.measure(app, func() int {
		select {
		case current = <-usage:
		default:
		}
		return current
	})
	defer stop()
	s.hpa(app)
	usage <- 100
	s.rolledOut(app, 6)
	owned("[kube-controller-manager Updatescale]")
	s.must(s.applyDeployment("kubectl", manifest("registry.example/elastic:2", 0)))
	s.rolledOut(app, 6)
	if err := s.applyDeployment("kubectl", manifest("registry.example/elastic:2", 3)); !apierrors.IsConflict(err) {
		s.Errorf("an apply of the replicas that the autoscaler has set is answered with %v", err)
	}
	usage <- 10
	s.rolledOut(app, 2)
}

// hpa creates an autoscaler that keeps the CPU usage at half of the request, with 2 to 6 replicas, and waits until it
// works.
func (s *scene) hpa(app string) {
	s.Helper()
	hpas := s.client.AutoscalingV2().HorizontalPodAutoscalers(s.namespace)
	least, half, none := int32(2), int32(50), int32(0)
	_, err := hpas.Create(s.Context(), &autoscaling.HorizontalPodAutoscaler{ObjectMeta: meta.ObjectMeta{Name: app},
		Spec: autoscaling.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: app},
			MinReplicas:    &least, MaxReplicas: 6,
			Metrics: []autoscaling.MetricSpec{{Type: autoscaling.ResourceMetricSourceType,
				Resource: &autoscaling.ResourceMetricSource{
					Name: core.ResourceCPU, Target: autoscaling.MetricTarget{Type: autoscaling.UtilizationMetricType,
						AverageUtilization: &half}}}},
			Behavior: &autoscaling.HorizontalPodAutoscalerBehavior{
				ScaleDown: &autoscaling.HPAScalingRules{StabilizationWindowSeconds: &none}},
		}}, meta.CreateOptions{})
	s.must(err)
	s.wait("the autoscaler reads the metrics", func(ctx context.Context) error {
		h, err := hpas.Get(ctx, app, meta.GetOptions{})
		if err != nil {
			return err
		}
		var active string
		for _, c := range h.Status.Conditions {
			if c.Type == autoscaling.ScalingActive {
				active = fmt.Sprint(c.Status, " ", c.Message)
			}
		}
		if len(h.Status.CurrentMetrics) == 0 || h.Status.CurrentMetrics[0].Resource == nil {
			return errors.New("it has no metrics: " + active)
		}
		have := h.Status.CurrentMetrics[0].Resource.Current.AverageUtilization
		if have == nil {
			return errors.New("it has no use of CPU: " + active)
		}
		return same("the use of CPU", *have, 50)
	})
}
