package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// chores are what clients do beside the single writes of a worker: work that takes several requests, or a controller.
// Each is repeated for as long as the writers write.
var chores = map[string]func(w *worker, ctx context.Context, round int) error{
	"counted":    (*worker).counted,
	"namespaces": (*worker).namespaces,
	"owners":     (*worker).owners,
	"gadgets":    (*worker).gadgets,
	"services":   (*worker).services,
	"sweeps":     (*worker).sweeps,
}

// countedPods is the quota of the namespace "counted".
const countedPods = 6

const countedQuota = `{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: counted},
spec: {hard: {pods: "6", count/configmaps: "4", services.nodeports: "2"}}}`

// either is one of the two servers.
func (w *worker) either() *server { return w.servers[w.random.Intn(len(w.servers))] }

// tolerate returns nil for the errors that concurrent clients cause.
func tolerate(err error, also ...int32) error {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) {
		return err
	}
	code := status.Status().Code
	if code == 404 || code == 409 || slices.Contains(also, code) {
		return nil
	}
	return err
}

// counted creates and deletes objects in a namespace with a quota, through both servers, and sees that there are never
// more than the quota allows.
func (w *worker) counted(ctx context.Context, round int) error {
	ns, name := "counted", fmt.Sprint("c", w.random.Intn(12))
	s := w.either()
	var err error
	switch w.random.Intn(5) {
	case 0, 1:
		_, err = s.Resource(pods).Namespace(ns).Create(ctx, object(w.t, `{apiVersion: v1, kind: Pod, metadata: {name: %s},
spec: {containers: [{name: c, image: i}]}}`, name), metav1.CreateOptions{})
	case 2:
		_, err = s.Resource(services).Namespace(ns).Create(ctx, object(w.t, `{apiVersion: v1, kind: Service,
metadata: {name: %s}, spec: {type: NodePort, ports: [{port: 80}]}}`, name), metav1.CreateOptions{})
	case 3:
		err = s.Resource(pods).Namespace(ns).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	default:
		err = s.Resource(services).Namespace(ns).Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err := tolerate(err, 403); err != nil { // the quota is exhausted
		return err
	}
	if round%10 != 0 {
		return nil
	}
	list, err := w.either().Resource(pods).Namespace(ns).List(ctx, metav1.ListOptions{})
	if err == nil && len(list.Items) > countedPods {
		err = fmt.Errorf("%d Pods, the quota allows %d", len(list.Items), countedPods)
	}
	return err
}

// namespaces makes a namespace with objects through one server, deletes it through another one, and waits until it is
// gone for both.
func (w *worker) namespaces(ctx context.Context, round int) error {
	name := fmt.Sprintf("short-%d", round)
	maker, remover := w.either(), w.either()
	if _, err := maker.Resource(namespaces).Create(ctx, object(w.t,
		`{apiVersion: v1, kind: Namespace, metadata: {name: %s}}`, name), metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range 5 {
		s := w.either()
		_, err := s.Resource(configMaps).Namespace(name).Create(ctx, object(w.t,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: o%d, finalizers: []}}`, i), metav1.CreateOptions{})
		if err == nil {
			_, err = s.Resource(widgets).Namespace(name).Create(ctx, object(w.t,
				`{apiVersion: stable.example.com/v1, kind: Widget, metadata: {name: o%d}}`, i), metav1.CreateOptions{})
		}
		if err := tolerate(err, 403); err != nil { // another server's namespace may not have come yet
			return err
		}
	}
	if err := remover.Resource(namespaces).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return w.gone(ctx, "namespace "+name, func(s *server) error {
		_, err := s.Resource(namespaces).Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// gone waits until a read through each server says that there is no such object.
func (w *worker) gone(ctx context.Context, what string, read func(*server) error) error {
	for end := time.Now().Add(2 * time.Minute); ; {
		left := 0
		for _, s := range w.servers {
			if err := read(s); err == nil {
				left++
			} else if !apierrors.IsNotFound(err) {
				return err
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is still there", what)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// owners makes an owner and its dependents, deletes the owner in one of the three ways, and waits for what follows.
func (w *worker) owners(ctx context.Context, round int) error {
	const ns = "n0"
	name := fmt.Sprintf("owner-%d", round)
	owner, err := w.either().Resource(configMaps).Namespace(ns).Create(ctx, object(w.t,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}}`, name), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for i := range 3 {
		if _, err := w.either().Resource(widgets).Namespace(ns).Create(ctx, object(w.t, `{apiVersion: stable.example.com/v1,
kind: Widget, metadata: {name: %s-%d, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: %s, uid: %s,
blockOwnerDeletion: true}]}}`, name, i, name, owner.GetUID()), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	how := []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground,
		metav1.DeletePropagationOrphan}[round%3]
	if err := w.either().Resource(configMaps).Namespace(ns).Delete(ctx, name,
		metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
		return err
	}
	if err := w.gone(ctx, "the owner "+name, func(s *server) error {
		_, err := s.Resource(configMaps).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	for i := range 3 {
		dependent := fmt.Sprintf("%s-%d", name, i)
		if how == metav1.DeletePropagationOrphan {
			live, err := w.either().Resource(widgets).Namespace(ns).Get(ctx, dependent, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if n := len(live.GetOwnerReferences()); n != 0 {
				return fmt.Errorf("the orphan %s has %d owners", dependent, n)
			}
			if err := w.either().Resource(widgets).Namespace(ns).Delete(ctx, dependent, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		if err := w.gone(ctx, "the dependent "+dependent, func(s *server) error {
			_, err := s.Resource(widgets).Namespace(ns).Get(ctx, dependent, metav1.GetOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

var gadgetKind = resource("stable.example.com", "v1", "gadgets")

// gadgetDefinition is a definition whose default, and whose columns, depend on a number.
func gadgetDefinition(t testing.TB, n int) *unstructured.Unstructured {
	return object(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: C%d, type: string, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, default: {}, properties: {size: {type: string, default: s%d}, f%d: {type: integer}}}`, n, n, n)
}

// gadgets changes a definition while objects of it are written.
func (w *worker) gadgets(ctx context.Context, round int) error {
	if round%20 == 0 {
		s := w.either()
		live, err := s.Resource(definitions).Get(ctx, "gadgets.stable.example.com", metav1.GetOptions{})
		if err != nil {
			return err
		}
		live.Object["spec"] = gadgetDefinition(w.t, w.random.Intn(5)).Object["spec"]
		_, err = s.Resource(definitions).Update(ctx, live, metav1.UpdateOptions{})
		return tolerate(err)
	}
	name := fmt.Sprint("g", w.random.Intn(8))
	switch w.random.Intn(3) {
	case 0:
		err := w.either().Resource(gadgetKind).Namespace("n1").Delete(ctx, name, metav1.DeleteOptions{})
		return tolerate(err)
	default:
		_, err := w.either().Resource(gadgetKind).Namespace("n1").Patch(ctx, name, types.ApplyPatchType, fmt.Appendf(nil,
			`{"apiVersion":"stable.example.com/v1","kind":"Gadget","metadata":{"name":%q},"spec":{"f%d":%d}}`, name,
			w.random.Intn(5), w.random.Intn(9)), metav1.PatchOptions{FieldManager: "g", Force: new(true)})
		// Unknown for the moment in which a server takes up the definition; a field that the definition does not have now
		// is refused by an apply.
		return tolerate(err, 400, 422, 500, 503)
	}
}

// services changes the type and the kind of address of Services.
func (w *worker) services(ctx context.Context, _ int) error {
	name := fmt.Sprint("changing-", w.random.Intn(6))
	s := w.either()
	spec := w.one(`{"type":"ClusterIP","ports":[{"port":80}]}`, `{"type":"NodePort","ports":[{"port":80},{"port":81,"name":"b"}]}`,
		`{"type":"ClusterIP","clusterIP":"None","ports":[{"port":80}]}`, `{"type":"ExternalName","externalName":"e.example.com"}`,
		`{"type":"LoadBalancer","ports":[{"port":80}],"externalTrafficPolicy":"Local"}`)
	if w.random.Intn(3) == 0 {
		_, err := s.Resource(services).Namespace("n1").Patch(ctx, name, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"type":%q}}`, w.one("ClusterIP", "NodePort", "LoadBalancer")), metav1.PatchOptions{})
		return tolerate(err, 422)
	}
	if w.random.Intn(2) == 0 {
		return tolerate(s.Resource(services).Namespace("n1").Delete(ctx, name, metav1.DeleteOptions{}))
	}
	_, err := s.Resource(services).Namespace("n1").Create(ctx, object(w.t,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":%s}`, name, named(spec)), metav1.CreateOptions{})
	return tolerate(err, 422)
}

// named gives the first of several ports a name, which they need.
func named(spec string) string {
	var of map[string]any
	if json.Unmarshal([]byte(spec), &of) != nil {
		return spec
	}
	if ports, _ := of["ports"].([]any); len(ports) > 1 {
		ports[0].(map[string]any)["name"] = "a"
	}
	text, err := json.Marshal(of)
	if err != nil {
		return spec
	}
	return string(text)
}

// sweeps makes a collection and deletes it by its label.
func (w *worker) sweeps(ctx context.Context, _ int) error {
	for range 4 {
		_, err := w.either().Resource(configMaps).Namespace("n1").Create(ctx, object(w.t,
			`{apiVersion: v1, kind: ConfigMap, metadata: {generateName: swept-, labels: {swept: "yes"}}}`), metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	// A server may delete what the other one has deleted at that moment.
	return tolerate(w.either().Resource(configMaps).Namespace("n1").DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "swept=yes"}))
}

// prepare makes what the chores need.
func prepare(t *testing.T, s *server) {
	t.Helper()
	for _, o := range []struct {
		of schema.GroupVersionResource
		ns string
		is *unstructured.Unstructured
	}{
		{namespaces, "", object(t, `{apiVersion: v1, kind: Namespace, metadata: {name: counted}}`)},
		{quotas, "counted", object(t, "%s", countedQuota)},
		{definitions, "", gadgetDefinition(t, 0)},
	} {
		if _, err := s.Resource(o.of).Namespace(o.ns).Create(t.Context(), o.is, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// settled waits until the use of the quota is what is there.
func settled(t *testing.T, s *server) {
	t.Helper()
	eventually(t, "the quota counts what is there", func() error {
		list, err := s.Resource(pods).Namespace("counted").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		quota, err := s.Resource(quotas).Namespace("counted").Get(t.Context(), "q", metav1.GetOptions{})
		if err != nil {
			return err
		}
		used, _, err := unstructured.NestedString(quota.Object, "status", "used", "pods")
		if err == nil && used != fmt.Sprint(len(list.Items)) {
			err = fmt.Errorf("%s Pods are counted, %d are there", used, len(list.Items))
		}
		return err
	})
}

// noAddressTwice fails if two Services have an address or a node port of one protocol.
func noAddressTwice(t *testing.T, s *server) {
	t.Helper()
	list, err := s.Resource(services).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	give := func(what, to string) {
		if other := has[what]; other != "" && other != to {
			t.Errorf("%s is given to %s and to %s", what, other, to)
		}
		has[what] = to
	}
	for _, item := range list.Items {
		name := item.GetNamespace() + "/" + item.GetName()
		ips, _, _ := unstructured.NestedStringSlice(item.Object, "spec", "clusterIPs")
		for _, ip := range ips {
			if ip != "None" {
				give(ip, name)
			}
		}
		ports, _, _ := unstructured.NestedSlice(item.Object, "spec", "ports")
		for _, p := range ports {
			if port, _ := p.(map[string]any)["nodePort"].(int64); port != 0 {
				give(fmt.Sprintf("node port %d of %v", port, p.(map[string]any)["protocol"]), name)
			}
		}
	}
	if len(has) < 5 {
		t.Errorf("only %d addresses and ports are given", len(has))
	}
}

// alone has one server, without the other, change all that both have written: each object is as it was, but for the
// change.
func alone(t *testing.T, s *server, key string) {
	t.Helper()
	changed := 0
	for _, of := range []schema.GroupVersionResource{configMaps, deployments, services, widgets, gadgetKind} {
		list, err := s.Resource(of).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			before := &list.Items[i]
			after, err := s.Resource(of).Namespace(before.GetNamespace()).Patch(t.Context(), before.GetName(),
				types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"yes"}}}`, key), metav1.PatchOptions{})
			if apierrors.IsNotFound(err) {
				continue // a controller has deleted it
			}
			if err != nil {
				t.Errorf("%s alone, %s %s: %v", s.Kind, of.Resource, before.GetName(), err)
				continue
			}
			changed++
			if a, b := withoutAnnotation(t, before, key), withoutAnnotation(t, after, key); a != b {
				t.Errorf("%s alone changes %s %s:\nfrom %s\nto   %s", s.Kind, of.Resource, before.GetName(), a, b)
			}
		}
	}
	if changed < 10 {
		t.Errorf("only %d objects were changed by %s alone", changed, s.Kind)
	}
}

// withoutAnnotation is an object as text, without an annotation and what its change changes.
func withoutAnnotation(t *testing.T, u *unstructured.Unstructured, key string) string {
	t.Helper()
	u = u.DeepCopy()
	annotations := u.GetAnnotations()
	delete(annotations, key)
	if len(annotations) == 0 {
		annotations = nil
	}
	u.SetAnnotations(annotations)
	u.SetResourceVersion("")
	u.SetGeneration(0) // of a Deployment, annotations count
	u.SetManagedFields(nil)
	text, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
