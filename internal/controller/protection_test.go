package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"plinth/internal/apierr"
	"plinth/internal/builtin"
	"plinth/internal/controller/controllertest"
	"plinth/internal/engine"
	"plinth/internal/features"
	"plinth/internal/scenario"
	"plinth/object"
)

// A claim stays while a Pod on a node uses it, a volume while it is bound, a class while a claim or a volume has it,
// and a PodGroup while it has a Pod that has not ended.
//
// SPEC: DEL-1
func TestProtection(t *testing.T) {
	scenario.Run(t, "testdata/protection.txt", func(t *testing.T, steps []string) (printed string) {
		synctest.Test(t, func(t *testing.T) { printed = playProtection(t, steps) })
		return printed
	})
}

// playProtection plays a scenario beside the controllers that protect objects.
func playProtection(t *testing.T, steps []string) string {
	t.Helper()
	set, _, err := features.Parse("GenericWorkload=true")
	if err != nil {
		t.Fatal(err)
	}
	p := &protectionPlayer{bench: newBenchOf(t, builtin.Config{Features: set}.Every())}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer func() { cancel(); work.Wait() }()
	quiet := slog.New(slog.DiscardHandler)
	work.Go(func() {
		controllertest.Run(ctx, (&Claims{Engine: p.Engine, Registry: p.Registry, Logger: quiet}).Start)
	})
	for kind := range ProtectedKind(len(protected)) {
		work.Go(func() {
			controllertest.Run(ctx, (&Protection{Engine: p.Engine, Registry: p.Registry, Logger: quiet, Kind: kind}).Start)
		})
	}
	p.Make("namespaces", "", `{"metadata":{"name":"default"}}`)
	for _, line := range steps {
		p.step(line)
	}
	return p.printed.String()
}

// protectionPlayer plays what users do.
type protectionPlayer struct {
	*bench
	printed strings.Builder
}

// protectedTypes are the types by the words of the steps. Those without a namespace are cluster-scoped.
var protectedTypes = map[string]struct{ group, version, resource, namespace string }{
	"claim":    {"", "v1", "persistentvolumeclaims", "default"},
	"volume":   {"", "v1", "persistentvolumes", ""},
	"class":    {"storage.k8s.io", "v1", "volumeattributesclasses", ""},
	"podgroup": {"scheduling.k8s.io", "v1beta1", "podgroups", "default"},
	"pod":      {"", "v1", "pods", "default"},
}

// step plays one step:
//
//	create claim NAME [class=NAME]
//	create volume NAME
//	create class NAME
//	create podgroup NAME [finalizers=A,B]
//	create pod NAME [node=NAME] [claim=NAME] [podgroup=NAME]
//	phase TYPE NAME PHASE       set status.phase
//	delete TYPE NAME            without a grace period
//	show TYPE NAME              wait until no controller has anything to do, and print the object's finalizers
func (p *protectionPlayer) step(line string) {
	p.Helper()
	s := scenario.Parse(line)
	verb, kind, name := s.Word(0), s.Word(1), s.Word(2)
	row := protectedTypes[kind]
	rq := &engine.Request{Resource: p.Registry.Now().Find(row.group, cmp.Or(row.version, "v1"), row.resource),
		Namespace: row.namespace, Name: name}
	if rq.Resource == nil {
		p.Fatalf("%s: there is no type %s", line, kind)
	}
	var err error
	switch verb {
	case "create":
		var body object.Parsed
		if body, err = object.ParseJSON([]byte(protectionBody(s, kind, name))); err == nil {
			rq.Name = ""
			_, err = p.Create(p.Context(), rq, body)
		}
	case "phase":
		rq.Subresource = rq.Resource.Subresource("status")
		body := fmt.Sprintf(`{"status":{"phase":%q}}`, s.Word(3))
		_, err = p.Patch(p.Context(), rq, engine.Patch{Type: engine.MergePatch, Body: []byte(body)})
	case "delete":
		zero := int64(0)
		_, err = p.Delete(p.Context(), rq, engine.DeleteOptions{GracePeriodSeconds: &zero})
	case "show":
		synctest.Wait()
		fmt.Fprintf(&p.printed, "%s %s: %s\n", kind, name, p.show(rq))
	default:
		p.Fatalf("%s: there is no such step", line)
	}
	if err == nil {
		err = s.Unused()
	}
	if err != nil {
		p.Fatalf("%s: %v", line, err)
	}
}

// protectionBody is the body of a create.
func protectionBody(s *scenario.Step, kind, name string) string {
	meta, rest := fmt.Sprintf(`"name":%q`, name), ""
	switch kind {
	case "claim":
		rest = `"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}`
		if class, ok := s.Option("class"); ok {
			rest += fmt.Sprintf(`,"volumeAttributesClassName":%q`, class)
		}
	case "volume":
		rest = `"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/x"},` +
			`"persistentVolumeReclaimPolicy":"Retain"`
	case "class":
		return `{"metadata":{` + meta + `},"driverName":"d.example","parameters":{"a":"b"}}`
	case "podgroup":
		rest = `"schedulingPolicy":{"basic":{}}`
		if finalizers, ok := s.Option("finalizers"); ok {
			meta += `,"finalizers":["` + strings.ReplaceAll(finalizers, ",", `","`) + `"]`
		}
	case "pod":
		rest = `"containers":[{"name":"c","image":"i"}]`
		if node, ok := s.Option("node"); ok {
			rest += fmt.Sprintf(`,"nodeName":%q`, node)
		}
		if claim, ok := s.Option("claim"); ok {
			rest += fmt.Sprintf(`,"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":%q}}]`, claim)
		}
		if group, ok := s.Option("podgroup"); ok {
			rest += fmt.Sprintf(`,"schedulingGroup":{"podGroupName":%q}`, group)
		}
	}
	return `{"metadata":{` + meta + `},"spec":{` + rest + `}}`
}

// show prints the finalizers of an object, and whether it is being deleted.
func (p *protectionPlayer) show(rq *engine.Request) string {
	p.Helper()
	result, err := p.Get(p.Context(), rq, "")
	if apierr.Is(err, apierr.NotFound) {
		return "gone"
	}
	if err != nil {
		p.Fatal(err)
	}
	obj, err := parsed(result.Object)
	if err != nil {
		p.Fatal(err)
	}
	var words []string
	if result.Object.Sidecar.Deleting {
		words = append(words, "being deleted,")
	}
	for _, f := range obj.At("metadata", "finalizers").Items() {
		words = append(words, f.Str())
	}
	return cmp.Or(strings.Join(words, " "), "no finalizers")
}
