package cel

import (
	"context"
	"fmt"
	"strings"
	"testing"

	limits "k8s.io/apiserver/pkg/apis/cel"

	"plinth/object"
)

// The cost of an object's 20 rules when it is created, once they are compiled.
const (
	twentyRules = `{"rule":"self.replicas <= self.max"},{"rule":"self.name.startsWith('w')"},{"rule":"self.ports.all(p, p.number > 0)"},
		{"rule":"!has(self.gone)"},{"rule":"self.labels.all(k, k.size() < 63)"}`
	twentyObject = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"replicas":1,"max":3,"name":"widget",
		"ports":[{"name":"a","number":80},{"name":"b","number":443}],"labels":{"a":"b","c":"d"}}}`
)

func twenty() []byte {
	rules := strings.TrimSuffix(strings.Repeat(twentyRules+",", 4), ",")
	return []byte(fmt.Sprintf(`{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-validations":[%s],"properties":{
		"replicas":{"type":"integer"},"max":{"type":"integer"},"name":{"type":"string","maxLength":63},"gone":{"type":"string"},
		"ports":{"type":"array","maxItems":10,"items":{"type":"object","properties":{"name":{"type":"string"},"number":{"type":"integer"}}}},
		"labels":{"type":"object","maxProperties":20,"additionalProperties":{"type":"string"}}}}}}`, rules))
}

func BenchmarkTwentyRules(b *testing.B) {
	ours, obj := newPlinth(b, twenty()), parse(b, []byte(twentyObject))
	b.ReportAllocs()
	for b.Loop() {
		if errs, _ := ours.rules.Validate(context.Background(), obj, object.Nil, nil); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

func BenchmarkTwentyRulesReference(b *testing.B) {
	theirs, obj := newReference(b, twenty()), document(b, []byte(twentyObject))
	b.ReportAllocs()
	for b.Loop() {
		errs, _ := theirs.validator.Validate(context.Background(), nil, theirs.structural, obj, nil,
			limits.RuntimeCELCostBudget)
		if len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
