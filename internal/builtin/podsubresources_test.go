package builtin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/object"
)

// An existing Pod is validated again when its ephemeral containers or its resources change, except for the rules that
// apply to new Pods only; errors that the old Pod already has are tolerated. The old Pod here has all of these:
// ephemeral containers, a node beside scheduling gates (as a Pod that another server stored may have), and annotations
// that were added after its creation and contradict its security context.
//
// SPEC: VAL-1, VAL-4
func TestPodsThatAreThereAreNotValidatedAsNewOnes(t *testing.T) {
	const meta = `"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"localhost/other"},"name":"p","namespace":"n"}`
	const spec = `"dnsPolicy":"Default","nodeName":"n","restartPolicy":"Always","schedulingGates":[{"name":"a/b"}],` +
		`"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}},"serviceAccountName":"s","terminationGracePeriodSeconds":1`
	const container = `"image":"i","imagePullPolicy":"Always","terminationMessagePolicy":"File"`
	const debugger = `"ephemeralContainers":[{"name":"d",` + container + `}]`
	pod := func(name, more string) string {
		return `{` + meta + `,"spec":{"containers":[{"name":"` + name + `",` + container + `}],` + more + spec + `}}`
	}
	mirrored := `{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"containers":[{"name":"c",` +
		container + `}],` + spec + `}}`
	for _, c := range []struct {
		what, subresource, old, body string
		want                         []string
	}{
		{"one more container for debugging", "ephemeralcontainers", pod("c", ""), pod("c", debugger+","), nil},
		{"as it was", "ephemeralcontainers", pod("c", debugger+","), pod("c", debugger+","), nil},
		{"resources", "resize", pod("c", debugger+","), pod("c", debugger+","), nil},
		{
			"a container for debugging without an image", "ephemeralcontainers", pod("c", ""),
			pod("c", `"ephemeralContainers":[{"name":"d","imagePullPolicy":"Always","terminationMessagePolicy":"File"}],`),
			[]string{"spec.ephemeralContainers[0].image: Required value"},
		},
		{
			"a mirror of a Pod: nothing else is told", "ephemeralcontainers", mirrored,
			pod("c", `"ephemeralContainers":[{"name":"d"}],`),
			[]string{"[]: Forbidden: static pods do not support ephemeral containers"},
		},
		{
			"a mirror of a Pod: nothing else is told", "resize", mirrored, pod("x", ""),
			[]string{"[]: Forbidden: static pods cannot be resized"},
		},
	} {
		t.Run(c.subresource+" "+c.what, func(t *testing.T) {
			sub := types(t)["pods"].Subresource(c.subresource)
			old, body := parse(t, c.old), parse(t, c.body)
			obj, err := sub.Write(old, body)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, fault := range sub.Validate(t.Context(), body, obj, old) {
				got = append(got, fault.Error())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("have %q\nwant %q", got, c.want)
			}
		})
	}
}

// With the gate, a resize changes the limits of volumes in memory, and nothing else of volumes; without it, it takes no
// volumes.
func TestResizedVolumes(t *testing.T) {
	const memory, disk, unlimited, secret = `{"emptyDir":{"medium":"Memory","sizeLimit":"1Gi"},"name":"m"}`,
		`{"emptyDir":{"sizeLimit":"1Gi"},"name":"d"}`, `{"emptyDir":{"medium":"Memory"},"name":"u"}`,
		`{"name":"s","secret":{"secretName":"x"}}`
	pod := func(volumes ...string) string {
		return `{"metadata":{"name":"p","namespace":"n"},"spec":{"containers":[{"image":"i","imagePullPolicy":"Always","name":"c",` +
			`"terminationMessagePolicy":"File"}],"dnsPolicy":"Default","nodeName":"n","restartPolicy":"Always",` +
			`"securityContext":{},"serviceAccountName":"s","terminationGracePeriodSeconds":1,"volumes":[` +
			strings.Join(volumes, ",") + `]}}`
	}
	with := func(old, is, was string) string { return strings.Replace(old, was, is, 1) }
	const at = "spec.volumes"
	old := pod(memory, disk, unlimited, secret)
	for body, want := range map[string][]string{
		old: nil,
		pod(with(memory, "2Gi", "1Gi"), disk, unlimited, secret): nil,
		pod(memory, with(disk, "2Gi", "1Gi"), unlimited, secret): {
			at + "[1].emptyDir.sizeLimit: Forbidden: sizeLimit is only mutable for memory-backed emptyDir volumes"},
		pod(with(memory, "0", "1Gi"), disk, with(unlimited, `"Memory","sizeLimit":"1Gi"`, `"Memory"`), secret): {
			at + "[0].emptyDir.sizeLimit: Forbidden: adding or removing sizeLimit on an existing volume is not allowed",
			at + "[2].emptyDir.sizeLimit: Forbidden: adding or removing sizeLimit on an existing volume is not allowed"},
		pod(memory, disk, unlimited): {at + ": Forbidden: volumes may not be added or removed on resize"},
		pod(disk, memory, unlimited, secret): {
			at + "[0].name: Forbidden: volumes may not be renamed or reordered on resize",
			at + "[1].name: Forbidden: volumes may not be renamed or reordered on resize"},
		pod(with(memory, "", `"medium":"Memory",`), disk, unlimited, with(secret, `"y"`, `"x"`)): {
			at + "[0]: Forbidden: only sizeLimit of memory-backed emptyDir volumes is mutable on resize",
			at + "[3]: Forbidden: only sizeLimit of memory-backed emptyDir volumes is mutable on resize"},
	} {
		for _, gate := range []bool{false, true} {
			set := features.Set{}.With(features.InPlacePodVerticalScalingMemoryBackedVolumes, gate)
			all := Resources(Config{Now: func() time.Time { return now }, Features: set})
			i := slices.IndexFunc(all, func(r *engine.Resource) bool { return r.Group == "" && r.Name == "pods" })
			sub := all[i].Subresource("resize")
			obj, err := sub.Write(parse(t, old), parse(t, body))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, fault := range sub.Validate(t.Context(), object.Nil, obj, parse(t, old)) {
				got = append(got, fault.Error())
			}
			if !gate && (got != nil || !object.Equal(obj.At("spec", "volumes"), parse(t, old).At("spec", "volumes"))) {
				t.Errorf("%s without the gate: have %q and %v, want the volumes as they were", body, got, obj)
			}
			if gate && !slices.Equal(got, want) {
				t.Errorf("%s: have %q\nwant %q", body, got, want)
			}
			if gate && !object.Equal(obj.At("spec", "volumes"), parse(t, body).At("spec", "volumes")) {
				t.Errorf("%s: the volumes are %v", body, obj.At("spec", "volumes"))
			}
		}
	}
}
