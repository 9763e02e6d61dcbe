package admission

import (
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/admission"
)

// SPEC: AUTH-3
func TestLimitRanger(t *testing.T) {
	r, count := seeded(5), tally{}
	quantities := func() string {
		return fields("cpu", r.one("", "100m", "500m", `"1"`, `"2"`), "memory", r.one("", "64Mi", "1Gi", "1073741824", "2G"),
			"example.com/gpu", r.one("", "", "1", "0"))
	}
	// Values of three resources in a few sizes meet the limits exactly, from above and from below.
	limit := func(kind string) string {
		ratio := ""
		if kind != "PersistentVolumeClaim" {
			ratio = r.one("", "", "{cpu: 2}", "{cpu: 1500m, memory: 1}")
		}
		defaults, defaultRequest := "", ""
		if kind == "Container" {
			defaults, defaultRequest = r.one("", quantities()), r.one("", quantities())
		}
		return fields("type", kind, "min", r.one("", quantities()), "max", r.one("", "{cpu: 1, memory: 1Gi}",
			quantities()),
			"maxLimitRequestRatio", ratio, "default", defaults, "defaultRequest", defaultRequest)
	}
	container := func() string {
		return fields("name", r.one("a", "b"), "image", "i", "resources",
			fields("requests", quantities(), "limits", quantities()))
	}
	initial := func() string {
		return fields("name", r.one("i", "j"), "image", "i", "restartPolicy", r.one("", "Always"), "resources",
			fields("requests", quantities(), "limits", quantities()))
	}
	random := func(meta []string) string {
		return pod(meta, "containers", r.one("["+container()+"]", "["+container()+", "+container()+"]"),
			"initContainers", r.list(2, initial),
			"resources", r.one("", "", fields("requests", quantities(), "limits", quantities())))
	}
	claimOf := func(storage string) string {
		return claim(nil, "resources", fields("requests", fields("storage", storage)))
	}
	for range 40 {
		kind := r.one("Container", "Pod", "PersistentVolumeClaim")
		limits := limit(kind) + ", " + limit("Pod") + ", " + limit("Container") +
			", {type: PersistentVolumeClaim, min: {storage: 1Gi}, max: {storage: 10Gi, example.com/x: 1}}"
		w := (&world{plugin: "LimitRanger", unordered: true, objects: []string{
			doc("v1", "LimitRange", "ns", "l", nil, "spec", fields("limits", "["+limits+"]")),
			doc("v1", "LimitRange", "elsewhere", "l", nil, "spec", "{limits: [{type: Pod, max: {cpu: 1m}}]}"),
		}}).build(t)
		for range 2 {
			for range 20 {
				w.compare(t, ofPod(admission.Create, random(nil), ""), &count)
				w.compare(t, ofPod(admission.Update, random(nil), random(nil)), &count)
			}
			for _, storage := range []string{"", "1Mi", "1Gi", "10Gi", "11Gi"} {
				w.compare(t, ofClaim(admission.Create, claimOf(storage), ""), &count)
			}
			w.validateOnly = true
		}
		// One that is being deleted may be written.
		deleted := claim([]string{"deletionTimestamp", quoted("2024-01-01T00:00:00Z")}, "resources",
			"{requests: {storage: 2Gi}}")
		w.compare(t, ofClaim(admission.Update, claimOf("20Gi"), deleted), &count)
	}
	for range 5 {
		w := (&world{plugin: "LimitRanger", objects: []string{doc("v1", "LimitRange", "ns", "l", nil, "spec",
			fields("limits",
				"["+fields("type", "Container", "default", quantities(), "defaultRequest", quantities())+", "+
					fields("type", "Container", "default", quantities(), "defaultRequest", quantities())+", "+
					fields("type", "Pod", "max", "{memory: 1Ti}")+"]"))}}).build(t)
		for range 40 {
			w.compare(t, ofPod(admission.Create, random([]string{"annotations", r.one("", "{a: b}")}), ""), &count)
		}
	}
	count.atLeast(t, 100, 300, 300)
	// Updates that change what is limited.
	w := (&world{plugin: "LimitRanger", unordered: true, objects: []string{doc("v1", "LimitRange", "ns", "l", nil,
		"spec",
		`{limits: [{type: Pod, max: {cpu: 2}, min: {cpu: 1}}, {type: Container, max: {cpu: 1}, default: {memory: 1Gi}},
			{type: PersistentVolumeClaim, min: {storage: 1Gi}, max: {storage: 10Gi}}]}`)}}).build(t)
	for _, storage := range []string{"", "1Mi", "1Gi", "10Gi", "11Gi"} {
		w.compare(t, ofClaim(admission.Update, claimOf(storage), claimOf("5Gi")), &count)
	}
	sized := func(cpu string) string {
		return pod(nil, "containers",
			fmt.Sprintf("[{name: c, image: i, resources: {requests: {cpu: %s}, limits: {cpu: %s}}}]",
				cpu, cpu))
	}
	for _, cpu := range []string{"500m", "1", "1500m", "3"} {
		a := ofPod(admission.Update, sized(cpu), sized("1200m"))
		w.compare(t, a, &count)
		a.subresource = "resize"
		w.compare(t, a, &count)
		a.subresource = "status"
		w.compare(t, a, &count)
	}
}

// What 1.38 does, and ours: quantities are compared exactly, and an update is not refused for what it does not change.
//
// SPEC: AUTH-3
func TestLimitRangerAsIn138(t *testing.T) {
	w := (&world{plugin: "LimitRanger", objects: []string{doc("v1", "LimitRange", "ns", "l", nil, "spec",
		"{limits: [{type: Pod, max: {cpu: 1}}, {type: PersistentVolumeClaim, max: {storage: 1Gi}}]}")}}).build(t)
	w.differs(t, ofClaim(admission.Update, claim([]string{"labels", "{a: b}"}, "resources",
		"{requests: {storage: 2Gi}}"),
		claim(nil, "resources", "{requests: {storage: 2Gi}}")),
		"maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi")
	text := pod(nil, "containers", "[{name: c, image: i, resources: {limits: {cpu: 2}}}]")
	a := ofPod(admission.Update, text, text)
	a.subresource = "resize"
	w.differs(t, a, "maximum cpu usage per Pod is 1, but limit is 2")
	// The containers are told apart by their names.
	w = (&world{plugin: "LimitRanger", unordered: true, objects: []string{doc("v1", "LimitRange", "ns", "l", nil, "spec",
		"{limits: [{type: Container, min: {cpu: 1}, max: {cpu: 2}}]}")}}).build(t)
	resize := func(before, after string) attempt {
		a := ofPod(admission.Update, pod(nil, "containers", after), pod(nil, "containers", before))
		a.subresource = "resize"
		return a
	}
	container := func(name, request, limit string) string {
		return fmt.Sprintf("{name: %s, image: i, resources: {requests: {cpu: %s}, limits: {cpu: %s}}}", name, request, limit)
	}
	small, big := container("c", "500m", "1"), container("d", "1", "3")
	w.differs(t, resize("["+big+"]", "["+big+"]"), "maximum cpu usage per Container is 2, but limit is 3")
	w.differs(t, resize("["+small+"]", "["+small+"]"), "minimum cpu usage per Container is 1, but request is 500m")
	w.differs(t, resize("["+container("c", "1", "1")+", "+big+"]", "["+container("c", "2", "2")+", "+big+"]"),
		"maximum cpu usage per Container is 2, but limit is 3")
	// What changes is looked at, as in 1.37: either of the two, and a request of zero that was absent.
	count := tally{}
	w.compare(t, resize("["+container("c", "1", "2")+"]", "["+container("c", "1", "3")+"]"), &count)
	w.compare(t, resize("["+container("c", "1", "3")+"]", "["+container("c", "2", "3")+"]"), &count)
	pods := (&world{plugin: "LimitRanger", objects: []string{doc("v1", "LimitRange", "ns", "l", nil, "spec",
		"{limits: [{type: Pod, min: {cpu: 1}}, {type: PersistentVolumeClaim, min: {storage: 5Gi}}]}")}}).build(t)
	pods.compareOne(t, resize("[{name: c, image: i, resources: {requests: {cpu: 0}}}]", "[{name: c, image: i}]"), &count)
	pods.differs(t, ofClaim(admission.Update, claim([]string{"labels", "{a: b}"}, "resources",
		"{requests: {storage: 2Gi}}"), claim(nil, "resources", "{requests: {storage: 2Gi}}")),
		"minimum storage usage per PersistentVolumeClaim is 5Gi, but request is 2Gi")
	w.compare(t, resize("["+container("c", "1", "3")+"]", "["+container("d", "1", "3")+"]"), &count)
	count.atLeast(t, 0, 0, 4)
}
