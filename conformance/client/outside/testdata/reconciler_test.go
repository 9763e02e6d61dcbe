// Package check is the test of a project with a controller of its own, on the Kubernetes libraries of its go.mod.
package check

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"plinth/plinthtest/outside"
)

const settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {color: red}
`

var settingsRef = outside.Ref{Version: "v1", Resource: "configmaps", Namespace: "default", Name: "settings"}

// painter gives every ConfigMap with a color another one. It reads from the cache of its manager.
type painter struct{ client.Client }

func (p painter) Reconcile(ctx context.Context, rq ctrl.Request) (ctrl.Result, error) {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		var m corev1.ConfigMap
		if err := p.Get(ctx, rq.NamespacedName, &m); err != nil {
			return client.IgnoreNotFound(err)
		}
		if m.Data["color"] == "" || m.Data["color"] == "green" {
			return nil
		}
		m.Data = map[string]string{"color": "green"}
		return p.Update(ctx, &m)
	})
	return ctrl.Result{}, err
}

// paint runs a manager with the controller until ctx ends.
func paint(ctx context.Context, p *outside.Plane) {
	again := true
	manager, err := ctrl.NewManager(&rest.Config{Host: p.Host(), Transport: p.Transport(), QPS: -1}, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &again}})
	if err == nil {
		err = ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(painter{manager.GetClient()})
	}
	if err == nil {
		err = manager.Start(ctx)
	}
	if err != nil && ctx.Err() == nil {
		panic(err)
	}
}

func green(object []byte) bool { return strings.Contains(string(object), `"green"`) }

// The controller paints after a conflict and after a write whose answer was lost, on planes that begin with one image.
func TestPaint(t *testing.T) {
	image := outside.New(t, outside.Objects([]byte(settings))).Snapshot()
	for _, effect := range []outside.Effect{outside.Conflict, outside.CommitThenTimeout} {
		t.Run(effect.Type, func(t *testing.T) {
			t.Parallel()
			p := outside.New(t, outside.From(image))
			fault := p.Fault(outside.On{Verb: "update", Resource: "configmaps", Nth: 1}, effect)
			p.Run(paint)
			p.Wait(t, settingsRef, green)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := p.Settle(ctx); err != nil {
				t.Fatal(err)
			}
			log := p.Requests()
			if fault.Hits() != 1 || len(log.Verb("update").On("configmaps")) == 0 || len(log.Verb("watch")) == 0 {
				t.Errorf("%d hits\n%s", fault.Hits(), log)
			}
			p.NoFights(t)
		})
	}
}

// A client that is made of the URL, the authority and the token reaches the plane, and so does one with a certificate.
func TestAccess(t *testing.T) {
	p := outside.New(t, outside.Objects([]byte(settings)))
	access := p.Access()
	if !strings.Contains(access.URL, "/clusters/") {
		t.Errorf("the plane is at %s", access.URL)
	}
	for name, c := range map[string]*rest.Config{
		"token": {Host: access.URL, BearerToken: access.Token, TLSClientConfig: rest.TLSClientConfig{CAData: access.CA}},
		"certificate": {Host: access.URL, TLSClientConfig: rest.TLSClientConfig{CAData: access.CA,
			CertData: access.Cert, KeyData: access.Key}},
	} {
		m, err := kubernetes.NewForConfigOrDie(c).CoreV1().ConfigMaps("default").Get(context.Background(), "settings",
			metav1.GetOptions{})
		if err != nil || m.Data["color"] != "red" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
