package discovery

import (
	"fmt"
	"strings"
	"testing"

	"plinth/internal/builtin"
	"plinth/object"
)

func BenchmarkOpenAPI3(b *testing.B) {
	d := openAPIDocuments(b)
	benchmarkPart(b, d, "apis/apps/v1")
}

func BenchmarkOpenAPI3Core(b *testing.B) {
	d := openAPIDocuments(b)
	benchmarkPart(b, d, "api/v1")
}

func benchmarkPart(b *testing.B, d *Documents, name string) {
	c := d.catalog()
	var doc *Document
	for b.Loop() {
		p := d.v3Document(c, name)
		doc = (&v3Document{name: name, version: p.version}).document(d)
	}
	b.ReportMetric(float64(len(doc.Gzip)), "gzip-bytes")
}

func BenchmarkOpenAPI2(b *testing.B) {
	d := openAPIDocuments(b)
	c := d.catalog()
	var doc *Document
	for b.Loop() {
		doc = d.openAPI2(c, false)
	}
	b.ReportMetric(float64(len(doc.Gzip)), "gzip-bytes")
}

func BenchmarkOpenAPI2Protobuf(b *testing.B) {
	d := openAPIDocuments(b)
	c := d.catalog()
	var doc *Document
	for b.Loop() {
		doc = d.openAPI2(c, true)
	}
	b.ReportMetric(float64(len(doc.Gzip)), "gzip-bytes")
}

func BenchmarkIndex(b *testing.B) {
	d := openAPIDocuments(b)
	for b.Loop() {
		d.index(newCatalog(d.registry.Now(), nil, nil, nil))
	}
}

func BenchmarkAggregated(b *testing.B) {
	d := openAPIDocuments(b)
	for b.Loop() {
		d.aggregated(newCatalog(d.registry.Now(), nil, nil, nil), "apis", aggregated, mediaJSON)
	}
}

func BenchmarkKept(b *testing.B) {
	d := openAPIDocuments(b)
	for b.Loop() {
		if _, ok, err := d.Get("/openapi/v3/apis/apps/v1", mediaJSON); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

// The cost of the next request after one more definition among thousands.
func BenchmarkOneDefinitionMore(b *testing.B) {
	definition := string(object.AppendJSON(nil, customDefinitions(b)[0]))
	// 45 kB
	definition = strings.Replace(definition, "What is wanted.", strings.Repeat("What is wanted, in many words. ", 1200), 1)
	s := newDefinitionStore(b, builtin.Resources(builtin.Config{}))
	n := 0
	put := func() {
		s.put(parse(b, []byte(strings.ReplaceAll(definition, "alpha.discovery.", fmt.Sprintf("g%05d.", n)))))
		n++
	}
	for range 2000 {
		put()
	}
	d := New(Config{Registry: s.registry, Version: testVersion, Models: builtin.Models})
	for _, path := range []string{"/apis", "/openapi/v3", "/openapi/v2"} {
		plain(b, d, path, mediaJSON)
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				put()
				b.StartTimer()
				if _, ok, err := d.Get(path, mediaJSON); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
