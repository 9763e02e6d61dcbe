package builtin

import (
	"slices"
	"testing"
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
