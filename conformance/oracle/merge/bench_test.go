package merge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"plinth/object"
)

// subject is an object that benchmarks write to.
type subject struct {
	name    string
	kind    *kind
	intent  object.Value
	changed object.Value // the same with one field changed
}

func must(text string) object.Value {
	parsed, err := object.ParseYAML([]byte(text))
	if err != nil {
		panic(err)
	}
	v, err := parsed.Value.Untyped()
	if err != nil {
		panic(err)
	}
	return v
}

func kindOf(name string) *kind {
	for _, k := range builtinKinds() {
		if k.name == name {
			return k
		}
	}
	panic("no kind " + name)
}

func containers(n int, image string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `
- name: c%02d
  image: registry.example.com/team/app-%02d:%s
  command: [/bin/app, --verbose]
  env:
  - {name: FIRST, value: one}
  - {name: SECOND, value: two}
  - {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}
  ports:
  - {name: http, containerPort: 80%02d}
  - {name: metrics, containerPort: 90%02d, protocol: TCP}
  resources:
    limits: {cpu: "1", memory: 1Gi}
    requests: {cpu: 100m, memory: 128Mi}
  volumeMounts:
  - {name: data, mountPath: /data}
  readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 5}`, i, i, image, i, i)
	}
	return b.String()
}

func subjects() []subject {
	deployment := func(image string) object.Value {
		v := must(
			"metadata: {labels: {app: web, tier: front}}\nspec:\n  replicas: 3\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      volumes: [{name: data, emptyDir: {}}]\n")
		return v.WithAt(must(containers(2, image)), "spec", "template", "spec", "containers")
	}
	pod := func(image string) object.Value {
		v := must("metadata: {labels: {app: web}}\nspec:\n  restartPolicy: Always\n  volumes: [{name: data, emptyDir: {}}]\n")
		return v.WithAt(must(containers(20, image)), "spec", "containers")
	}
	node := func(zone string) object.Value {
		labels, images := object.MapOf(), []object.Value{}
		for i := range 30 {
			labels = labels.With(fmt.Sprintf("topology.example.com/label-%02d", i), object.StringOf("x"))
		}
		for i := range 50 {
			images = append(images, must(fmt.Sprintf("names: [registry.example.com/team/image-%02d:v1]\nsizeBytes: %d", i,
				1000000+i)))
		}
		v := must(
			"metadata: {}\nspec: {podCIDR: 10.0.0.0/24, taints: [{key: a, effect: NoSchedule}]}\nstatus:\n  capacity: {cpu: \"8\", memory: 32Gi, pods: \"110\"}\n  conditions:\n" +
				"  - {type: Ready, status: \"True\", reason: KubeletReady}\n  - {type: DiskPressure, status: \"False\"}\n  addresses:\n  - {type: InternalIP, address: 10.0.0.1}\n")
		return v.WithAt(labels.With("zone", object.StringOf(zone)), "metadata", "labels").WithAt(object.ListOf(images...),
			"status", "images")
	}
	items := func(value string) object.Value {
		var list []object.Value
		for i := range 500 {
			list = append(list, must(fmt.Sprintf("name: item-%03d\nport: %d\nvalue: x", i, i)))
		}
		list[250] = list[250].With("value", object.StringOf(value))
		return object.Fields("spec", object.Fields("items", object.ListOf(list...)))
	}
	large := func(value string) object.Value {
		var members []object.Member
		for i := range 1500 {
			text := strings.Repeat("0123456789", 12)
			members = append(members, object.Member{Key: fmt.Sprintf("entry-%04d", i),
				Value: object.Fields("host", object.StringOf(text), "weight", object.IntOf(int64(i)), "tags",
					object.Strings("a", "b"))})
		}
		return object.Fields("spec", object.Fields("mode", object.StringOf(value), "entries", object.MapOf(members...)))
	}
	custom := func(schemas string) *kind {
		k := &kind{group: "example.com", name: "Thing"}
		if err := k.readVersion("v1", schemas); err != nil {
			panic(err)
		}
		k.finish()
		return k
	}
	listKind := custom(
		"spec: {type: object, properties: {items: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, properties: {name: {type: string}, port: {type: integer}, value: {type: string}}}}}}")
	largeKind := custom(
		"spec: {type: object, properties: {mode: {type: string}, entries: {type: object, additionalProperties: {type: object, properties: {host: {type: string}, weight: {type: integer}, tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}}}}}}")
	return []subject{
		{"Deployment", kindOf("Deployment"), deployment("v1"), deployment("v2")},
		{"Pod20", kindOf("Pod"), pod("v1"), pod("v2")},
		{"Node", kindOf("Node"), node("a"), node("b")},
		{"ListMap500", listKind, items("x"), items("y")},
		{"Custom300kB", largeKind, large("x"), large("y")},
	}
}

// live returns the object with this many managers: alice has applied the intent, each of the others a label and the
// first part of alice's intent.
func (s subject) live(b *testing.B, managers int) object.Value {
	on := &state{kind: s.kind}
	now := time.Unix(1_700_000_000, 0)
	do := func(op step) {
		op.version = s.kind.versions[0].name
		if o := on.do(upstream{}, op, now); o.err != nil {
			b.Fatal(o.err)
		}
	}
	do(step{verb: apply, manager: "alice", body: s.intent})
	if status, ok := s.intent.Get("status"); ok && s.kind.status {
		do(step{verb: update, manager: "kubelet", subresource: "status", body: object.Fields("status", status)})
	}
	for i := 1; i < managers; i++ {
		do(step{verb: apply, manager: fmt.Sprintf("other-%d", i), body: object.Fields("metadata",
			object.Fields("labels", object.Fields(fmt.Sprintf("other-%d", i), object.StringOf("x"))))})
	}
	return on.live
}

// whole returns a body in the form in which engines get it.
func (s subject) whole(body object.Value) object.Value {
	return body.With("apiVersion", object.StringOf(s.kind.apiVersion(s.kind.versions[0].name))).With("kind",
		object.StringOf(s.kind.name)).
		WithAt(object.StringOf("x"), "metadata", "name")
}

// prepared is an upstream field manager with everything prepared that is not its work: built-in objects are Go structs.
type prepared struct {
	*managedfields.FieldManager
	kind *kind
}

func (s subject) prepare(b *testing.B) prepared {
	w := write{kind: s.kind, version: s.kind.versions[0].name}
	m, err := upstream{}.manager(w)
	if s.kind.builtin && err == nil {
		m, err = structs{}.manager(w)
	}
	if err != nil {
		b.Fatal(err)
	}
	return prepared{m, s.kind}
}

func (p prepared) objectOf(b *testing.B, v object.Value) runtime.Object {
	u := objectOf(v)
	if !p.kind.builtin {
		return u
	}
	o, err := structOf(u)
	if err != nil {
		b.Fatal(err)
	}
	return o
}

// BenchmarkApply compares both engines on the same applies. The times do not include decoding and encoding JSON.
func BenchmarkApply(b *testing.B) {
	for _, s := range subjects() {
		for _, c := range []struct {
			name     string
			managers int
			by       string
			body     object.Value
			refused  bool
		}{
			{"new", 0, "alice", s.intent, false},
			{"unchanged-1", 1, "alice", s.intent, false},
			{"unchanged-10", 10, "alice", s.intent, false},
			{"changed-1", 1, "alice", s.changed, false},
			{"changed-10", 10, "alice", s.changed, false},
			{"conflicting-1", 1, "bob", s.changed, true},
			{"conflicting-10", 10, "bob", s.changed, true},
		} {
			live := object.Nil
			if c.managers > 0 {
				live = s.live(b, c.managers)
			}
			intent := s.whole(c.body)
			w := write{kind: s.kind, version: s.kind.versions[0].name, manager: c.by, now: time.Unix(1_700_000_100, 0)}
			b.Run(s.name+"/"+c.name+"/plinth", func(b *testing.B) {
				k, writer := plinth{}.kind(w)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := k.Apply(live, intent, writer); (err != nil) != c.refused {
						b.Fatal(err)
					}
				}
			})
			b.Run(s.name+"/"+c.name+"/upstream", func(b *testing.B) {
				p := s.prepare(b)
				there, wish := runtime.Object(w.orEmpty(object.Nil)), objectOf(intent)
				if !live.IsNull() || s.kind.builtin {
					there = p.objectOf(b, valueOr(live, w))
				}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := p.Apply(there, wish, c.by, false); (err != nil) != c.refused {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// valueOr returns the live object or upstream's empty one.
func valueOr(live object.Value, w write) object.Value {
	if live.IsNull() {
		return valueOfObject(w.orEmpty(live))
	}
	return live
}

// BenchmarkUpdate compares both engines on updates by another manager.
func BenchmarkUpdate(b *testing.B) {
	for _, s := range subjects() {
		for _, c := range []struct {
			name     string
			managers int
			body     object.Value
		}{
			{"unchanged-1", 1, s.intent}, {"changed-1", 1, s.changed}, {"changed-10", 10, s.changed},
		} {
			live := s.live(b, c.managers)
			next := live
			for _, m := range c.body.Members() {
				if m.Key != "metadata" {
					next = next.With(m.Key, m.Value)
				}
			}
			w := write{kind: s.kind, version: s.kind.versions[0].name, manager: "editor", now: time.Unix(1_700_000_100, 0)}
			if s.kind.builtin {
				next = s.kind.stored(w, next)
			}
			b.Run(s.name+"/"+c.name+"/plinth", func(b *testing.B) {
				k, writer := plinth{}.kind(w)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := k.Update(live, next, writer); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(s.name+"/"+c.name+"/upstream", func(b *testing.B) {
				p := s.prepare(b)
				there, wish := p.objectOf(b, live), p.objectOf(b, next)
				managed := objectOf(live).GetManagedFields()
				b.ReportAllocs()
				for b.Loop() {
					type accessor interface {
						SetManagedFields([]metav1.ManagedFieldsEntry)
					}
					wish.(accessor).SetManagedFields(managed)
					if _, err := p.Update(there, wish, "editor"); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
