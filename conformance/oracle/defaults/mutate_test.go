package defaults

import (
	"maps"
	"math/rand/v2"
	"slices"

	"plinth/conformance/internal/vectors"
)

// mutator makes variants of a JSON document, the same ones for the same seed. It removes, empties and nulls fields,
// repeats list items, and puts words for which a defaulting rule looks into fields; the vectors contain none of them.
type mutator struct {
	rng  *rand.Rand
	rate float64 // how often a field is touched
}

// rates range from nearly complete objects to nearly empty ones; deep documents lose most of their fields early, so
// some of the rates are low.
var rates = []float64{0.004, 0.03, 0.08, 0.12, 0.18, 0.25, 0.35, 0.5}

func newMutator(seed uint64) *mutator {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	return &mutator{rng: rng, rate: rates[rng.IntN(len(rates))]}
}

// object makes a variant of a whole object, without changing its type.
func (m *mutator) object(doc map[string]any) map[string]any {
	variant := m.mapping(doc)
	variant["apiVersion"], variant["kind"] = doc["apiVersion"], doc["kind"]
	return variant
}

func (m *mutator) mapping(doc map[string]any) map[string]any {
	out := make(map[string]any, len(doc))
	for _, key := range slices.Sorted(maps.Keys(doc)) { // the order decides which random numbers a field gets
		value := doc[key]
		switch roll := m.rng.Float64(); {
		case roll < m.rate*0.5: // removed
		case roll < m.rate*0.7:
			out[key] = nil
		case roll < m.rate:
			out[key] = vectors.Emptied(value)
		default:
			out[key] = m.field(key, value)
		}
	}
	return out
}

func (m *mutator) field(key string, value any) any {
	if choices, ok := words[key]; ok && m.rng.Float64() < 0.5 {
		if choice := choices[m.rng.IntN(len(choices))]; sameKind(choice, value) {
			return choice
		}
	}
	return m.value(value)
}

func (m *mutator) value(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if isResourceList(v) {
			return m.resourceList(v)
		}
		return m.mapping(v)
	case []any:
		return m.list(v)
	}
	return value
}

func (m *mutator) list(items []any) []any {
	out := make([]any, 0, len(items))
	for _, item := range items {
		for range 1 + m.rng.IntN(8)/7 {
			out = append(out, m.value(item))
		}
	}
	return out
}

// isResourceList says whether a map is a map of quantities, by the key that the vectors have there.
func isResourceList(doc map[string]any) bool {
	for key, value := range doc {
		if _, text := value.(string); !text || !slices.Contains(resourceNames, key) {
			return false
		}
	}
	return len(doc) > 0
}

func (m *mutator) resourceList(list map[string]any) map[string]any {
	out := make(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(list)) {
		if m.rng.Float64() >= m.rate {
			out[key] = list[key]
		}
	}
	for range m.rng.IntN(3) {
		out[resourceNames[m.rng.IntN(len(resourceNames))]] = quantities[m.rng.IntN(len(quantities))]
	}
	return out
}

var resourceNames = []string{"nameKey", "defaultKey", "defaultRequestKey", "maxKey", "minKey",
	"maxLimitRequestRatioKey",
	"limitsKey", "requestsKey", "capacityKey", "allocatableKey", "allocatedResourcesKey", "overheadKey", "hardKey",
	"usedKey",
	"cpu", "memory", "storage", "pods", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"}

var quantities = []string{"0", "1", "100m", "1500u", "1n", "0.1", "1.0001Ki", "2Gi", "1e3", "1e-9", "1E-6", "-1u",
	"12345678901234567890", "999999999999999999u", "0.0000001", "1.5", "1000m"}

// words are the values at which a rule branches, and some others.
var words = map[string][]any{
	"type": {"", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "RollingUpdate", "OnDelete", "Recreate",
		"Container",
		"Pod", "Resource"},
	"sessionAffinity":               {"None", "ClientIP"},
	"externalTrafficPolicy":         {"", "Local"},
	"podIP":                         {"", "ipValue", "10.0.0.1"},
	"ip":                            {"", "10.0.0.1", "10.0.0.2"},
	"serviceAccount":                {"", "a", "b"},
	"serviceAccountName":            {"", "a", "b"},
	"terminationGracePeriodSeconds": {-1.0, 0.0, 5.0},
	"hostNetwork":                   {true, false},
	"containerPort":                 {0.0, 80.0},
	"hostPort":                      {0.0, 8080.0},
	"targetPort":                    {0.0, "", "0", 80.0, "http"},
	"protocol":                      {"", "TCP", "UDP"},
	"image":                         {"", "a", "a:latest", "a:1", "A", "example.com:5000/a/b", "a@sha256:00"},
	"reference":                     {"", "a", "a:latest", "a:1", "A"},
	"kind":                          {"User", "Group", "ServiceAccount"},
	"apiGroup":                      {"", "a"},
	"allocationMode":                {"", "ExactCount", "All"},
	"operator":                      {"", "Equal", "Exists"},
	"status":                        {"", "True", "False"},
	"name":                          {"", "a", "cpu"},
	"service":                       {"", "a"},
	"reportingComponent":            {""},
	"reportingInstance":             {""},
	"averageUtilization":            {0.0, 5.0},
	"count":                         {0.0, 1.0},
}

// sameKind keeps a word out of fields that only share their name with the one it is meant for.
func sameKind(a, b any) bool {
	switch a.(type) {
	case string:
		_, text := b.(string)
		_, number := b.(float64) // int-or-string
		return text || number
	case float64:
		_, number := b.(float64)
		_, text := b.(string)
		return number || text
	case bool:
		_, ok := b.(bool)
		return ok
	}
	return false
}
