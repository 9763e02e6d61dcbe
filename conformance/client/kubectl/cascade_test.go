package kubectl

import (
	"strings"
	"testing"
	"time"

	"plinth/conformance/internal/controlplane"
	"plinth/conformance/internal/harness"
)

// owned is a shell function that creates a ConfigMap with an owner of any kind: owned NAME OWNER.
const owned = `owned() {
  kubectl create configmap "$1" -o name &&
  kubectl patch configmap "$1" -o name -p "{\"metadata\":{\"ownerReferences\":[$(kubectl get "$2" -o go-template='{"apiVersion":"{{.apiVersion}}","kind":"{{.kind}}","name":"{{.metadata.name}}","uid":"{{.metadata.uid}}","blockOwnerDeletion":true}')]}}"
}
`

// cascades are commands and their output.
var cascades = []struct{ command, prints string }{
	{`kubectl create namespace cascade && kubectl config set-context --current --namespace=cascade >/dev/null`,
		"namespace/cascade created"},
	{`kubectl create configmap a -o name; owned b configmap/a; owned c configmap/b`,
		"configmap/a\nconfigmap/b\nconfigmap/b\nconfigmap/c\nconfigmap/c"},
	{`kubectl delete configmap a --cascade=orphan`, `configmap "a" deleted from cascade namespace`},
	{`kubectl get configmaps -l '!x' -o custom-columns=NAME:.metadata.name,OWNER:.metadata.ownerReferences[*].name --no-headers | grep -v kube-root | tr -s ' '`, "b <none>\nc b"},
	{`kubectl delete configmap b --cascade=foreground && kubectl get configmap b c`,
		`configmap "b" deleted from cascade namespace` + "\n" + `Error from server (NotFound): configmaps "b" not found` +
			"\n" + `Error from server (NotFound): configmaps "c" not found`},
	{`kubectl create configmap a -o name; owned b configmap/a; kubectl patch configmap b -o name -p '{"metadata":{"finalizers":["example.com/held"]}}'`, "configmap/a\nconfigmap/b\nconfigmap/b\nconfigmap/b"},
	{`kubectl delete configmap a --cascade=foreground --wait=false; kubectl wait configmap/b --for=jsonpath='{.metadata.deletionTimestamp}' -o name; kubectl get configmap a -o jsonpath='{.metadata.finalizers}'`,
		`configmap "a" deleted from cascade namespace` + "\nconfigmap/b\n" + `["foregroundDeletion"]`},
	{`kubectl patch configmap b -o name --type=merge -p '{"metadata":{"finalizers":null}}'; kubectl wait --for=delete configmap/a configmap/b >/dev/null && echo gone`, "configmap/b\ngone"},
	{`kubectl create deployment web --image=i --replicas=0 -o name; owned b deployment/web; kubectl delete deployment web; kubectl wait --for=delete configmap/b >/dev/null && echo gone`,
		"deployment.apps/web\nconfigmap/b\nconfigmap/b\n" + `deployment.apps "web" deleted from cascade namespace` +
			"\ngone"},
	{`kubectl create configmap x1 -o name; kubectl create configmap x2 -o name; owned y1 configmap/x1; kubectl delete configmap x1 x2 --cascade=orphan; kubectl get configmap y1 -o jsonpath='{.metadata.ownerReferences}'; kubectl delete configmap y1`,
		"configmap/x1\nconfigmap/x2\nconfigmap/y1\nconfigmap/y1\n" + `configmap "x1" deleted from cascade namespace` + "\n" +
			`configmap "x2" deleted from cascade namespace` + "\n" + `configmap "y1" deleted from cascade namespace`},
	{`kubectl delete configmap a --cascade=sideways`,
		`error: invalid cascade value (sideways). Must be "background", "foreground", or "orphan"`},
	{`kubectl create clusterrole cascade-owner --verb=get --resource=pods -o name; owned b clusterrole/cascade-owner; kubectl delete clusterrole cascade-owner --cascade=foreground; kubectl get configmap b`,
		"clusterrole.rbac.authorization.k8s.io/cascade-owner\nconfigmap/b\nconfigmap/b\n" +
			`clusterrole.rbac.authorization.k8s.io "cascade-owner" deleted` + "\n" +
			`Error from server (NotFound): configmaps "b" not found`},
	{`kubectl create job j --image=i -o name; kubectl get job j -o jsonpath='{.metadata.name}'; echo; owned b job/j; kubectl delete job j --cascade=orphan; kubectl get configmap b -o jsonpath='{.metadata.ownerReferences}'; kubectl delete configmap b`,
		"job.batch/j\nj\nconfigmap/b\nconfigmap/b\n" + `job.batch "j" deleted from cascade namespace` + "\n" +
			`configmap "b" deleted from cascade namespace`},
}

// kubectl's --cascade has its effect on the dependents, with Plinth's garbage collector and with the real one.
//
// SPEC: DEL-2, DEL-5
func TestCascade(t *testing.T) {
	t.Run("Plinth", func(t *testing.T) {
		t.Parallel()
		cascade(t, harness.RunTarget(t))
	})
	t.Run("Plinth with the real garbage collector", func(t *testing.T) {
		t.Parallel()
		server := harness.RunTarget(t, "--controllers=*,-garbage-collector-controller")
		controlplane.Run(t, server, controlplane.Options{NoScheduler: true,
			Manager: []string{"--controllers=garbage-collector-controller"}})
		cascade(t, server)
	})
	t.Run("Plinth with both", func(t *testing.T) {
		t.Parallel()
		server := harness.RunTarget(t)
		controlplane.Run(t, server, controlplane.Options{NoScheduler: true,
			Manager: []string{"--controllers=garbage-collector-controller"}})
		cascade(t, server)
	})
	if harness.WantReference() {
		t.Run("the reference", func(t *testing.T) {
			t.Parallel()
			server := harness.Run(t, harness.Options{Kind: harness.Reference})
			controlplane.Run(t, server, controlplane.Options{NoScheduler: true,
				Manager: []string{"--controllers=garbage-collector-controller"}})
			cascade(t, server)
		})
	}
}

func cascade(t *testing.T, server *harness.Server) {
	t.Helper()
	r, err := newRunner(server, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range cascades {
		began := time.Now()
		got := strings.ReplaceAll(r.run(owned+step.command+" 2>&1", ""), "\n\n", "\n")
		if got, _, _ = strings.Cut(got, "\n(exit status"); got != step.prints {
			t.Errorf("$ %s\nprints\n%s\nand not\n%s", step.command, got, step.prints)
		}
		t.Logf("%.1f s: %s", time.Since(began).Seconds(), step.command)
	}
}
