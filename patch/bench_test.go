package patch

import (
	"fmt"
	"strings"
	"testing"

	"plinth/object"
	"plinth/schema"
)

const deploymentText = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"default","uid":"1","labels":{"app":"web"},
"annotations":{"deployment.kubernetes.io/revision":"1"}},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},"strategy":{"type":"RollingUpdate",
"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"web:1",
"ports":[{"containerPort":8080,"protocol":"TCP"}],"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"resources":{"limits":{"cpu":"1"}}},
{"name":"log","image":"log:1","volumeMounts":[{"name":"tmp","mountPath":"/tmp"}]}],"volumes":[{"name":"tmp","emptyDir":{}}]}}},
"status":{"replicas":3,"conditions":[{"type":"Available","status":"True"},{"type":"Progressing","status":"True"}]}}`

func benchmarks(b *testing.B) map[string]struct {
	live, patch object.Value
	typ         *schema.Type
} {
	many := func(n int, format string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = strings.ReplaceAll(format, "#", fmt.Sprint(i))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	containers := many(20, `{"name":"c#","image":"a:1","env":`+many(10, `{"name":"E#","value":"x"}`)+
		`,"ports":[{"containerPort":80}],"volumeMounts":[{"name":"v","mountPath":"/v"}]}`)
	return map[string]struct {
		live, patch object.Value
		typ         *schema.Type
	}{
		"Deployment": {
			parse(b, deploymentText),
			parse(b,
				`{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"web"},{"name":"log"}],"containers":[{"name":"web","image":"web:2"}]}}}}`), deploymentType,
		},
		"Pod of 20 containers": {
			parse(b, `{"kind":"Pod","metadata":{"name":"a"},"spec":{"containers":`+containers+`}}`),
			parse(b,
				`{"spec":{"containers":[{"name":"c7","image":"a:2"},{"name":"c9","env":[{"name":"E3","$patch":"delete"},{"name":"N","value":"1"}]}]}}`), podType,
		},
		"500 items": {
			parse(b, `{"kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"a","env":`+many(500,
				`{"name":"E#","value":"x"}`)+`}]}}`),
			parse(b, `{"spec":{"containers":[{"name":"a","env":`+many(500, `{"name":"E#","value":"y"}`)+
				`,"$setElementOrder/env":`+many(500, `{"name":"E#"}`)+`}]}}`), podType,
		},
	}
}

func BenchmarkStrategic(b *testing.B) {
	for name, c := range benchmarks(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Strategic(c.live, c.patch, c.typ); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMerge(b *testing.B) {
	live, patch := parse(b, deploymentText), parse(b, `{"spec":{"replicas":5},"metadata":{"labels":{"tier":"front"}}}`)
	b.ReportAllocs()
	for b.Loop() {
		Merge(live, patch)
	}
}
