package gotypes

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/object"
	"plinth/schema"
)

// The table equals the one generated from the module in go.mod.
func TestFactsAreUpToDate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "facts.txt")
	if out, err := exec.Command("go", "run", "./facts", "-o", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	made, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made, []byte(factsText)) {
		t.Error("facts.txt is out of date: go generate ./internal/gotypes")
	}
}

// SPEC: SSA-8.
func TestMarkers(t *testing.T) {
	spec := Of[core.PodSpec]()
	for name, want := range map[string]schema.Type{
		"containers": {ListType: schema.Associative, ListKeys: []string{"name"}, Marked: true},
		"volumes":    {ListType: schema.Associative, ListKeys: []string{"name"}, Marked: true},
		"topologySpreadConstraints": {ListType: schema.Associative,
			ListKeys: []string{"topologyKey", "whenUnsatisfiable"}, Marked: true},
		"tolerations":  {ListType: schema.Atomic, Marked: true},
		"nodeSelector": {AtomicMap: true, Marked: true},
		"overhead":     {},
	} {
		got := spec.Field(name).Type
		if got.ListType != want.ListType || !slices.Equal(got.ListKeys, want.ListKeys) ||
			got.AtomicMap != want.AtomicMap || got.Marked != want.Marked {
			t.Errorf("%s: %v %v, atomic map %v, marked %v", name, got.ListType, got.ListKeys, got.AtomicMap, got.Marked)
		}
	}
	if finalizers := Of[meta.ObjectMeta]().Field("finalizers"); finalizers.Type.ListType != schema.Set ||
		finalizers.PatchStrategy != "merge" {
		t.Errorf("finalizers: %+v", finalizers)
	}
	if volumes := spec.Field("volumes"); volumes.PatchStrategy != "merge,retainKeys" ||
		volumes.PatchMergeKey != "name" {
		t.Errorf("volumes: %q, %q", volumes.PatchStrategy, volumes.PatchMergeKey)
	}
	// The marker of a field does not affect the type, which other fields share.
	claim := Of[core.PersistentVolumeSpec]().Field("claimRef").Type
	if !claim.AtomicMap && !claim.Marked || claim.Unmarked() != Of[core.ObjectReference]() {
		t.Errorf("claimRef: %+v", claim)
	}
	if !Of[meta.LabelSelector]().AtomicMap {
		t.Error("a label selector is replaced as a whole")
	}
}

func TestFactsOfFieldsAndTypes(t *testing.T) {
	ports := Of[core.ContainerPort]()
	if f := ports.Field("protocol"); !object.Equal(f.Default, object.StringOf("TCP")) || !slices.Equal(f.Type.Enum,
		[]string{"SCTP", "TCP", "UDP"}) {
		t.Errorf("protocol: %+v, %q", f, f.Type.Enum)
	}
	if !ports.Field("containerPort").Required || ports.Field("name").Required {
		t.Error("required")
	}
	// A default that names a constant, and constants of another package.
	if f := Of[core.AzureDiskVolumeSource]().Field("cachingMode"); !object.Equal(f.Default,
		object.StringOf("ReadWrite")) {
		t.Errorf("cachingMode: %+v", f)
	}
	if enum := Of[discovery.EndpointSlice]().Field("addressType").Type.Enum; !slices.Equal(enum,
		[]string{"FQDN", "IPv4", "IPv6"}) {
		t.Errorf("addressType: %q", enum)
	}
	if Of[batch.JobSpec]().Field("template").Number != 6 {
		t.Error("protobuf number")
	}
	pod := Of[core.Pod]()
	if pod.Name != "io.k8s.api.core.v1.Pod" || pod.GoName != "Pod" || !strings.HasPrefix(pod.Doc(),
		"Pod is a collection of containers") {
		t.Errorf("%s, %s: %s", pod.Name, pod.GoName, pod.Doc())
	}
	if doc := pod.Field("spec").Doc(); !strings.HasPrefix(doc, "Specification of the desired behavior of the pod.") {
		t.Error(doc)
	}
	// A field of an embedded struct has the description in that struct.
	if doc := Of[core.Probe]().Field("httpGet").Doc(); !strings.HasPrefix(doc,
		"HTTPGet specifies an HTTP GET request") {
		t.Error(doc)
	}
}

// Types are compiled once, by the first caller.
func TestTypesAreShared(t *testing.T) {
	compiler := schema.NewCompiler(facts{})
	var wait sync.WaitGroup
	found := make([]*schema.Type, 16)
	for i := range found {
		wait.Go(func() { found[i] = compiler.Type(reflect.TypeFor[core.Pod]()) })
	}
	wait.Wait()
	for _, got := range found {
		if got != found[0] {
			t.Fatal("a type was compiled twice")
		}
	}
	if template := compiler.Type(reflect.TypeFor[core.PodTemplateSpec]()); template.Field("spec").Type != found[0].Field(
		"spec").Type {
		t.Error("one Go type has two types")
	}
}

// The cost of the first request for a Pod, and of compiling what documents describe beside resources.
func BenchmarkCompile(b *testing.B) {
	for name, types := range map[string][]reflect.Type{"Pod": {reflect.TypeFor[core.Pod]()},
		"models": Models()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				compiler := schema.NewCompiler(facts{})
				for _, t := range types {
					compiler.Type(t)
				}
			}
		})
	}
}

// What is looked up is all that the table has: every type with each of its lines.
func TestFactsOfEveryType(t *testing.T) {
	types, lines := 0, 0
	for path, text := range packages() {
		for line := range strings.SplitSeq(text, "\n") {
			lines++
			line, isType := strings.CutPrefix(line, "type ")
			if !isType {
				continue
			}
			types++
			name, _, _ := strings.Cut(line, " ")
			_, block, _ := strings.Cut(text, "\ntype "+line+"\n")
			block, _, _ = strings.Cut(block, "\ntype ")
			want := map[string]bool{}
			for field := range strings.FieldsFuncSeq(block, func(r rune) bool { return r == '\n' }) {
				if field, _, _ := strings.Cut(field, " "); field != "doc" {
					want[field] = true
				}
			}
			_, own := readMarkers(line)
			gotOwn, got := find(path, name)
			if gotOwn.Doc, own.Doc = "", ""; !reflect.DeepEqual(gotOwn, own) {
				t.Errorf("%s.%s: %+v, want %+v", path, name, gotOwn, own)
			}
			if !maps.EqualFunc(got, want, func(schema.Markers, bool) bool { return true }) {
				t.Errorf("%s.%s: fields %v, want %v", path, name, slices.Collect(maps.Keys(got)), want)
			}
		}
	}
	if all := strings.Count(factsText, "\ntype "); types != all || types < 700 || lines < strings.Count(factsText, "\n") {
		t.Errorf("%d of %d types, %d lines", types, all, lines)
	}
}
