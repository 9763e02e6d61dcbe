package discovery

import (
	"testing"
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
		p := d.part(c, name)
		doc = (&part{name: name, version: p.version}).document(d)
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
		d.index(newCatalog(d.registry.Now(), nil))
	}
}

func BenchmarkAggregated(b *testing.B) {
	d := openAPIDocuments(b)
	for b.Loop() {
		d.aggregated(newCatalog(d.registry.Now(), nil), "apis", mediaJSON)
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
