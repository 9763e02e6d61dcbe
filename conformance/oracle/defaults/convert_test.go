package defaults

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/conformance/internal/scheme"
	"plinth/conformance/internal/valuediff"
	"plinth/internal/builtin/convert"
	"plinth/object"
)

// conversion is one of our conversions between two versions of a kind.
type conversion struct {
	name     string
	from, to schema.GroupVersionKind
	convert  func(object.Value) (object.Value, error)
}

var conversions = []conversion{
	{"HPAv1ToV2", hpa("v1"), hpa("v2"), convert.HPAv1ToV2},
	{"HPAv2ToV1", hpa("v2"), hpa("v1"), convert.HPAv2ToV1},
	{"EventCoreToEvents", event(""), event("events.k8s.io"), convert.EventCoreToEvents},
	{"EventEventsToCore", event("events.k8s.io"), event(""), convert.EventEventsToCore},
	{"PodCertificateRequestV1ToV1beta1", certificate("v1"), certificate("v1beta1"),
		convert.PodCertificateRequestV1ToV1beta1},
	{"PodCertificateRequestV1beta1ToV1", certificate("v1beta1"), certificate("v1"),
		convert.PodCertificateRequestV1beta1ToV1},
	{"ResourceClaimV1ToV1beta1", devices("v1", "ResourceClaim"), devices("v1beta1", "ResourceClaim"),
		convert.ResourceClaimV1ToV1beta1},
	{"ResourceClaimV1beta1ToV1", devices("v1beta1", "ResourceClaim"), devices("v1", "ResourceClaim"),
		convert.ResourceClaimV1beta1ToV1},
	{"ResourceClaimTemplateV1ToV1beta1", devices("v1", "ResourceClaimTemplate"),
		devices("v1beta1", "ResourceClaimTemplate"), convert.ResourceClaimTemplateV1ToV1beta1},
	{"ResourceClaimTemplateV1beta1ToV1", devices("v1beta1", "ResourceClaimTemplate"),
		devices("v1", "ResourceClaimTemplate"), convert.ResourceClaimTemplateV1beta1ToV1},
	{"ResourceSliceV1ToV1beta1", devices("v1", "ResourceSlice"), devices("v1beta1", "ResourceSlice"),
		convert.ResourceSliceV1ToV1beta1},
	{"ResourceSliceV1beta1ToV1", devices("v1beta1", "ResourceSlice"), devices("v1", "ResourceSlice"),
		convert.ResourceSliceV1beta1ToV1},
}

func devices(version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "resource.k8s.io", Version: version, Kind: kind}
}

func hpa(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "autoscaling", Version: version, Kind: "HorizontalPodAutoscaler"}
}

func event(group string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Event"}
}

func certificate(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "certificates.k8s.io", Version: version, Kind: "PodCertificateRequest"}
}

// SPEC: VAL-4
func TestConversionsAreUpstreams(t *testing.T) {
	kinds := corpus(t)
	for _, c := range conversions {
		t.Run(c.name, func(t *testing.T) {
			documents := c.documents(t, kinds)
			for i, compared := 0, 0; compared < *objects; i++ {
				typed, err := scheme.Decode(c.from, c.variant(t, documents, i))
				if err != nil {
					continue
				}
				compared++
				scheme.Scheme.Default(typed)
				decoded := marshal(t, typed)
				want := parse(t, upstreamConversion(t, c.from, decoded, c.to))
				got, err := c.convert(parse(t, decoded))
				if err != nil {
					t.Fatalf("variant %d: %v\nof %s", i, err, decoded)
				}
				if d := valuediff.First(want, got); d != "" {
					t.Fatalf("variant %d: %s\nof %s", i, d, decoded)
				}
			}
		})
	}
}

// documents returns the objects whose variants are converted.
func (c conversion) documents(t *testing.T, kinds map[schema.GroupVersionKind][]document) []document {
	documents := slices.Clone(kinds[c.from])
	for _, doc := range kinds[c.to] { // a converted object of the other version has more fields than a vector
		if text := marshal(t, doc); decodable(c.to, text) {
			documents = append(documents, decodeDocument(t, upstreamConversion(t, c.to, text, c.from)))
		}
	}
	return documents
}

// decodable says whether a document is of its type: some in the corpus are there because they are not.
func decodable(kind schema.GroupVersionKind, text []byte) bool {
	_, err := scheme.Decode(kind, text)
	return err == nil
}

// variant returns the i-th variant of the documents.
func (c conversion) variant(t *testing.T, documents []document, i int) []byte {
	text := variant(t, c.from, documents, i)
	if c.from == hpa("v1") {
		text = annotated(t, text, uint64(i))
	}
	return text
}

// upstreamConversion converts as the reference does: through the internal type.
func upstreamConversion(t *testing.T, from schema.GroupVersionKind, text []byte, to schema.GroupVersionKind) []byte {
	t.Helper()
	typed, err := scheme.Decode(from, text)
	if err != nil {
		t.Fatal(err)
	}
	internal, err := scheme.Scheme.ConvertToVersion(typed, runtime.InternalGroupVersioner)
	if err != nil {
		t.Fatal(err)
	}
	out, err := scheme.Scheme.ConvertToVersion(internal, to.GroupVersion())
	if err != nil {
		t.Fatal(err)
	}
	return marshal(t, out)
}

func decodeDocument(t *testing.T, text []byte) document {
	t.Helper()
	doc, ok := parsedDocument(text)
	if !ok {
		t.Fatalf("no object: %s", text)
	}
	return doc
}

// annotationTexts are values of the annotations of an autoscaler, valid and invalid.
var annotationTexts = []string{"", "null", "[]", "{}", "[{}]", "x",
	`[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":5}}]`,
	`[{"type":"Object","object":{"target":{"kind":"a"},"metricName":"b","targetValue":"0","averageValue":"5"}}]`,
	`[{"type":"Object","object":{"targetValue":"7","averageValue":"5"}}]`,
	`[{"type":"Object","object":{"targetValue":"x"}}]`,
	`[{"type":"External","external":{"metricName":"b","targetAverageValue":"1.5"}}]`,
	`[{"TYPE":"Pods","Pods":{"unknown":1}}]`,
	`[{"type":"ContainerResource","containerResource":{"name":"cpu","container":"c"}}]`, `[{"type":1}]`,
	`{"ScaleUp":null,"ScaleDown":{"Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":2}],"Tolerance":"10m"}}`,
	`{"scaleUp":{}}`, `{"scaleUp":{},"scaleDown":5}`, `{"ScaleUp":{"SelectPolicy":"Min","StabilizationWindowSeconds":0}}`,
	`[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z"}]`,
	`[{"lastTransitionTime":"yesterday"}]`}

var annotationNames = []string{"metrics", "current-metrics", "behavior", "conditions", "scale-down-tolerance",
	"scale-up-tolerance"}

// annotated puts some of these texts into an object.
func annotated(t *testing.T, text []byte, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 2))
	doc := decodeDocument(t, text)
	metadata, _ := doc["metadata"].(map[string]any)
	if metadata == nil || rng.IntN(4) == 0 {
		return text
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	for range rng.IntN(4) {
		name := "autoscaling.alpha.kubernetes.io/" + annotationNames[rng.IntN(len(annotationNames))]
		annotations[name] = annotationTexts[rng.IntN(len(annotationTexts))]
		if old, ok := annotations[name].(string); ok && rng.IntN(10) == 0 {
			annotations[name] = strings.Replace(old, "}", "", 1)
		}
	}
	return marshal(t, doc)
}
