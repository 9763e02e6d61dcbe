package tokens

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/utils/clock"

	"plinth/internal/access"
	"plinth/internal/authz"
	"plinth/internal/builtin"
	"plinth/internal/controller"
	"plinth/internal/controller/controllertest"
	"plinth/internal/engine"
	"plinth/internal/store"
	"plinth/internal/store/memlog"
	"plinth/object"
)

// period is how long a token may be unused in this test.
const period = 6 * 24 * time.Hour

// history is an engine whose objects change at random.
type history struct {
	*rand.Rand
	*engine.Engine
	t     *testing.T
	types *engine.Registry
}

var (
	secretNames  = []string{"s0", "s1", "s2", "s3"}
	accountNames = []string{"a0", "a1"}
	spaces       = []string{"m", "n"}
)

func pick[T any](h *history, of []T) T { return of[h.IntN(len(of))] }

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 1)), t: t,
		types: engine.NewRegistry(builtin.Resources(builtin.Config{}))}
	s, err := store.Open(store.Config{Log: memlog.New(), Describe: engine.Describe(h.types)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	h.Engine = engine.New(engine.Config{Store: s, Registry: h.types})
	for _, name := range append(spaces, "kube-system") {
		h.create("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return h
}

func (h *history) request(resource, namespace, name string) *engine.Request {
	return &engine.Request{Resource: h.types.Now().Find("", "v1", resource), Namespace: namespace, Name: name}
}

// create creates an object, unless its name is taken.
func (h *history) create(resource string, obj metav1.Object) {
	text, err := json.Marshal(obj)
	if err != nil {
		h.t.Fatal(err)
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		h.t.Fatal(err)
	}
	rq := h.request(resource, obj.GetNamespace(), "")
	if _, err := h.Get(h.t.Context(), h.request(resource, obj.GetNamespace(), obj.GetName()), ""); err == nil {
		return
	}
	if _, err := h.Create(h.t.Context(), rq, parsed); err != nil {
		h.t.Fatalf("%s: %v", text, err)
	}
}

// patch changes an object if it exists.
func (h *history) patch(resource, namespace, name, body string) {
	_, _ = h.Patch(h.t.Context(), h.request(resource, namespace, name),
		engine.Patch{Type: engine.MergePatch, Body: []byte(body)})
}

// day returns a date near the time at which a token may be due, or "".
func (h *history) day() string {
	switch h.IntN(12) {
	case 0:
		return `"soon"`
	case 1:
		return `""`
	case 2:
		return `null`
	}
	at := time.Now().Add(-period).AddDate(0, 0, h.IntN(7)-3)
	return `"` + at.UTC().Format(time.DateOnly) + `"`
}

// change changes some of the objects.
func (h *history) change() {
	for range 1 + h.IntN(5) {
		space, secret, account := pick(h, spaces), pick(h, secretNames), pick(h, accountNames)
		switch h.IntN(12) {
		case 0, 1, 2:
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: secret},
				Type: corev1.SecretTypeServiceAccountToken}
			s.Annotations = map[string]string{corev1.ServiceAccountNameKey: account}
			switch h.IntN(8) {
			case 0:
				s.Annotations[corev1.ServiceAccountUIDKey] = "another"
			case 1:
				s.Type = corev1.SecretTypeOpaque
			case 2:
				s.Finalizers = []string{"a.b/c"}
			}
			h.create("secrets", s)
		case 3, 4:
			a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: account}}
			for _, name := range secretNames {
				a.Secrets = append(a.Secrets, corev1.ObjectReference{Name: name})
			}
			h.create("serviceaccounts", a)
		case 5:
			h.patch("serviceaccounts", space, account, fmt.Sprintf(`{"secrets":[{"name":%q},{"name":%q}]}`, secret,
				pick(h, secretNames)))
		case 6:
			resource, name := "pods", "p"
			switch h.IntN(8) {
			case 0:
				resource, name = "serviceaccounts", account
			case 1:
				resource, name = "secrets", secret
			}
			_, _ = h.Delete(h.t.Context(), h.request(resource, space, name), engine.DeleteOptions{})
		case 7:
			h.create("pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "p"}, Spec: h.pod(secret)})
		case 8, 9:
			h.patch("secrets", space, secret, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`,
				access.LegacyTokenLastUsed, h.day()))
		case 10:
			h.patch("secrets", space, secret, fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`,
				access.LegacyTokenInvalidSince, h.day()))
		case 11:
			h.create("configmaps", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
				Name: access.LegacyTokenTracking}})
			if h.IntN(3) == 0 {
				h.patch("configmaps", "kube-system", access.LegacyTokenTracking, fmt.Sprintf(`{"data":{"since":%s}}`, h.day()))
			} else {
				h.patch("configmaps", "kube-system", access.LegacyTokenTracking, `{"data":{"since":"1999-01-01"}}`)
			}
		}
	}
}

// pod returns a Pod that refers to a Secret in one of the possible places, or has its name elsewhere.
func (h *history) pod(secret string) corev1.PodSpec {
	spec := corev1.PodSpec{NodeName: "x", Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	local := corev1.LocalObjectReference{Name: secret}
	env := []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local, Key: "k"}}}}
	from := []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local}}}
	volumes := []corev1.VolumeSource{
		{Secret: &corev1.SecretVolumeSource{SecretName: secret}},
		{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: local}}}}},
		{AzureFile: &corev1.AzureFileVolumeSource{SecretName: secret, ShareName: "x"}},
		{CephFS: &corev1.CephFSVolumeSource{Monitors: []string{"x"}, SecretRef: &local}},
		{Cinder: &corev1.CinderVolumeSource{VolumeID: "x", SecretRef: &local}},
		{FlexVolume: &corev1.FlexVolumeSource{Driver: "a/b", SecretRef: &local}},
		{RBD: &corev1.RBDVolumeSource{CephMonitors: []string{"x"}, RBDImage: "x", SecretRef: &local}},
		{ScaleIO: &corev1.ScaleIOVolumeSource{Gateway: "x", System: "x", VolumeName: "x", SecretRef: &local}},
		{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "1.2.3.4:1", IQN: "iqn.2015-02.a.b:c", SecretRef: &local,
			SessionCHAPAuth: true}},
		{StorageOS: &corev1.StorageOSVolumeSource{VolumeName: "x", SecretRef: &local}},
		{CSI: &corev1.CSIVolumeSource{Driver: "a.b", NodePublishSecretRef: &local}},
		{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local}}, // not a Secret
		{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: secret}},
	}
	switch i := h.IntN(len(volumes) + 5); i - len(volumes) {
	case 0:
		spec.ImagePullSecrets = []corev1.LocalObjectReference{local}
	case 1:
		spec.Containers[0].Env = env
	case 2:
		spec.InitContainers = []corev1.Container{{Name: "i", Image: "i", Env: env}}
	case 3:
		spec.Containers[0].EnvFrom = from
	case 4:
		spec.Containers[0].Image = secret
	default:
		spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: volumes[i]}}
	}
	return spec
}

// all lists the objects of a type, with their revisions.
func all[T runtime.Object](h *history, resource string, empty func() T) (list []runtime.Object) {
	result, err := h.List(h.t.Context(), h.request(resource, "", ""), engine.ListOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	for o := range result.Items {
		obj := empty()
		if err := json.Unmarshal(o.Data(), obj); err != nil {
			h.t.Fatal(err)
		}
		list = append(list, obj)
	}
	return list
}

// theirs returns what the reference's controller does with the current objects, by Secret.
func (h *history) theirs() map[string]string {
	objs := slices.Concat(
		all(h, "secrets", func() *corev1.Secret { return &corev1.Secret{} }),
		all(h, "serviceaccounts", func() *corev1.ServiceAccount { return &corev1.ServiceAccount{} }),
		all(h, "pods", func() *corev1.Pod { return &corev1.Pod{} }),
		all(h, "configmaps", func() *corev1.ConfigMap { return &corev1.ConfigMap{} }))
	client := fake.NewSimpleClientset(objs...)
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	cleaner, err := serviceaccount.NewLegacySATokenCleaner(core.ServiceAccounts(), core.Secrets(), core.Pods(), client,
		clock.RealClock{}, serviceaccount.LegacySATokenCleanerOptions{CleanUpPeriod: period, SyncInterval: time.Hour})
	if err != nil {
		h.t.Fatal(err)
	}
	h.run(func(ctx context.Context) {
		factory.Start(ctx.Done())
		cleaner.Run(ctx)
		factory.Shutdown()
	})
	did := map[string]string{}
	for _, action := range client.Actions() {
		at := action.GetNamespace() + "/"
		switch action := action.(type) {
		case clienttesting.PatchAction:
			var patch struct {
				Metadata struct{ Labels map[string]string }
			}
			if err := json.Unmarshal(action.GetPatch(), &patch); err != nil {
				h.t.Fatal(err)
			}
			did[at+action.GetName()] = fmt.Sprint(patch.Metadata.Labels)
		case clienttesting.DeleteAction:
			did[at+action.GetName()] = "deleted"
		}
	}
	return did
}

// run runs a controller for a minute.
func (h *history) run(controller func(context.Context)) {
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	controller(ctx)
}

// labels returns the labels of the Secrets.
func (h *history) labels() map[string]map[string]string {
	have := map[string]map[string]string{}
	for _, obj := range all(h, "secrets", func() *corev1.Secret { return &corev1.Secret{} }) {
		s := obj.(*corev1.Secret)
		if have[s.Namespace+"/"+s.Name] = s.Labels; s.DeletionTimestamp != nil {
			have[s.Namespace+"/"+s.Name] = map[string]string{"being": "deleted"}
		}
	}
	return have
}

// ours returns what our controller does with the current objects, by Secret.
func (h *history) ours() map[string]string {
	before := h.labels()
	h.run(func(ctx context.Context) {
		controllertest.Run(ctx, (&controller.TokenCleaner{Engine: h.Engine, Registry: h.types,
			Logger: slog.New(slog.DiscardHandler), Period: period, PodSecrets: authz.PodSecrets}).Start)
	})
	did := map[string]string{}
	after := h.labels()
	for name, was := range before {
		switch is, ok := after[name]; {
		case !ok || is["being"] != was["being"]:
			did[name] = "deleted"
		case !maps.Equal(is, was):
			changed := map[string]string{}
			for key, value := range is {
				if was[key] != value {
					changed[key] = value
				}
			}
			did[name] = fmt.Sprint(changed)
		}
	}
	return did
}

// Our controller marks and deletes the same Secrets as the reference's, however the objects change.
//
// SPEC: AUTH-2
func TestTokenCleaner(t *testing.T) {
	marked, deleted := 0, 0
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			h := newHistory(t, seed)
			for range 40 {
				h.change()
				// First the reference runs, for a minute, and then Plinth: no token becomes due in between.
				theirs := h.theirs()
				ours := h.ours()
				if !maps.Equal(theirs, ours) {
					t.Errorf("seed %d, %s: the reference does %v, Plinth %v", seed, time.Now().UTC(), theirs, ours)
				}
				for _, what := range theirs {
					if what == "deleted" {
						deleted++
					} else {
						marked++
					}
				}
				time.Sleep(time.Duration(4+h.IntN(30)) * time.Hour)
			}
		})
	}
	t.Logf("%d Secrets were marked, %d deleted", marked, deleted)
	if marked < 100 || deleted < 50 {
		t.Errorf("only %d Secrets were marked and %d deleted", marked, deleted)
	}
}
