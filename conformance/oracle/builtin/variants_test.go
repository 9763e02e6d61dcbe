package builtin

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"plinth/conformance/internal/scheme"
	"plinth/conformance/internal/vectors"
	"plinth/internal/engine"
	"plinth/object"
	plinth "plinth/schema"
)

type document = map[string]any

// vectorsByKind returns the documents from which all variants are made.
func vectorsByKind(t testing.TB) map[schema.GroupVersionKind]document {
	t.Helper()
	all := map[schema.GroupVersionKind]document{}
	for _, v := range vectors.All(t) {
		all[v.Kind] = v.Document(t)
	}
	return all
}

// mutator makes variants of a document: fields removed, nulled and emptied, list items repeated and reordered, and
// words inserted at which code branches.
type mutator struct {
	rng  *rand.Rand
	rate float64
}

func (m *mutator) mapping(doc document) document {
	out := document{}
	for _, key := range sorted(doc) {
		value := doc[key]
		switch roll := m.rng.Float64(); {
		case roll < m.rate*0.5:
		case roll < m.rate*0.6:
			out[key] = nil
		case roll < m.rate*0.8:
			out[key] = vectors.Emptied(value)
		default:
			out[key] = m.field(key, value)
		}
	}
	return out
}

func (m *mutator) field(key string, value any) any {
	if choices := words[key]; choices != nil && m.rng.Float64() < 0.3 {
		choice := choices[m.rng.IntN(len(choices))]
		switch value.(type) {
		case string, float64, bool:
			return choice
		}
	}
	switch v := value.(type) {
	case document:
		if (key == "requests" || key == "limits") && m.rng.IntN(2) == 0 {
			return m.resources()
		}
		return m.mapping(v)
	case []any:
		var out []any
		for _, item := range v {
			for range 1 + m.rng.IntN(6)/5 + m.rng.IntN(9)/8*2 {
				if inner, is := item.(document); is {
					if inner = m.mapping(inner); key == "volumes" || key == "sources" {
						inner = m.oneOf(inner)
					}
					item = inner
				} else if choices := words[key]; choices != nil && m.rng.IntN(2) == 0 {
					item = choices[m.rng.IntN(len(choices))]
				}
				out = append(out, item)
			}
		}
		if m.rng.IntN(8) == 0 {
			slices.Reverse(out)
		}
		return out
	}
	return value
}

// resources makes a list of resources, some of which have a meaning.
func (m *mutator) resources() document {
	out := document{}
	for _, name := range []string{"cpu", "memory", "hugepages-2Mi", "storage", "limits.cpu"} {
		if m.rng.IntN(2) == 0 {
			out[name] = []string{"0", "1", "1500m", "1Gi", "1024Mi"}[m.rng.IntN(5)]
		}
	}
	return out
}

// oneOf leaves a name and one of the other members, as validation demands of volumes.
func (m *mutator) oneOf(doc document) document {
	keys := slices.DeleteFunc(sorted(doc), func(key string) bool { return key == "name" })
	if len(keys) == 0 {
		return doc
	}
	key := keys[m.rng.IntN(len(keys))]
	out := document{key: doc[key]}
	if name, has := doc["name"]; has {
		out["name"] = name
	}
	return out
}

func sorted(doc document) []string { return slices.Sorted(maps.Keys(doc)) }

var times = []any{"2001-01-01T01:01:01Z", "2020-02-03T04:05:06Z", "2026-01-02T03:04:05Z"}

// words are the values at which code branches, by the name of the field.
var words = map[string][]any{
	"type": {
		"", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "Ready", "Initialized", "PodScheduled",
		"Approved", "Denied",
		"Failed", "Issued", "Complete", "Suspended", "FailureTarget", "SuccessCriteriaMet", "Dangling", "Running",
		"Succeeded",
		"Resource", "Pods", "Object", "External", "ContainerResource", "InternalIP", "ExternalIP", "Limited", "Exempt",
	},
	"status": {"True", "False", "Unknown"},
	"phase":  {"Pending", "Running", "Succeeded", "Failed", "Bound", "Active", ""},
	"reason": {"", "Completed", "Error", "CrashLoopBackOff", "SchedulingGated", "NodeLost",
		"PodInitializing"},
	"exitCode":                      {0.0, 1.0},
	"signal":                        {0.0, 9.0},
	"ready":                         {true, false},
	"started":                       {true, false},
	"restartPolicy":                 {"Always", "OnFailure"},
	"name":                          {"a", "b", "c"},
	"conditionType":                 {"Ready", "x"},
	"manualSelector":                {true, false},
	"unschedulable":                 {true, false},
	"namespace":                     {"", "default"},
	"apiGroup":                      {"", "snapshot.storage.k8s.io", "x"},
	"kind":                          {"PersistentVolumeClaim", "VolumeSnapshot", "User", "Group", "ServiceAccount", "Pod"},
	"apiVersion":                    {"v1", "apps/v1"},
	"clusterIP":                     {"", "None", "10.0.0.1", "10.0.0.2"},
	"clusterIPs":                    {"10.0.0.1", "10.0.0.2", "None"},
	"externalTrafficPolicy":         {"Local", "Cluster"},
	"nodePort":                      {0.0, 30000.0, 30001.0},
	"port":                          {80.0, 443.0},
	"healthCheckNodePort":           {0.0, 31000.0},
	"accessModes":                   {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod", "x"},
	"protocol":                      {"TCP", "UDP"},
	"effect":                        {"NoSchedule", "NoExecute"},
	"operator":                      {"In", "NotIn", "Exists", "DoesNotExist"},
	"controller":                    {true, false},
	"host":                          {"", "example.com"},
	"restartCount":                  {0.0, 1.0, 5.0},
	"finishedAt":                    times,
	"startTime":                     times,
	"completionTime":                times,
	"creationTimestamp":             times,
	"timeAdded":                     times,
	"parallelism":                   {0.0, 1.0, 3.0},
	"finalizers":                    {"kubernetes", "x"},
	"count":                         {0.0, 1.0, 7.0},
	"deprecatedCount":               {0.0, 1.0, 7.0},
	"message":                       {" a ", "b"},
	"lastUpdateTime":                times,
	"lastTransitionTime":            times,
	"observedGeneration":            {0.0, 3.0},
	"volumeName":                    {"", "v"},
	"volumeLifecycleModes":          {"Persistent", "Ephemeral"},
	"driver":                        {"a", "b"},
	"pool":                          {"a", "b"},
	"device":                        {"a", "b"},
	"nodeName":                      {"", "n1"},
	"matchLabelKeys":                {"labelsKey", "a"},
	"mismatchLabelKeys":             {"labelsKey", "b"},
	"qosClass":                      {"", "Guaranteed"},
	"maxUnavailable":                {"5%", 3.0},
	"minAvailable":                  {"5%", 3.0},
	"lastPhaseTransitionTime":       times,
	"is-default-class":              {"true", "false"},
	"key":                           {"a", "kubernetes.io/role"},
	"ip":                            {"", "10.0.0.1", "10.0.0.2"},
	"hostname":                      {"", "h"},
	"storageClassName":              {"", "s"},
	"expirationSeconds":             {600.0, 86400.0},
	"localhostProfile":              {"a"},
	"terminationGracePeriodSeconds": {0.0, 30.0},
}

// annotations and labels with a meaning, sometimes put into variants.
var meaningful = map[string]map[string][]string{
	"annotations": {
		"container.apparmor.security.beta.kubernetes.io/nameValue": {"runtime/default", "unconfined", "localhost/a",
			"localhost/", "x"},
		"container.apparmor.security.beta.kubernetes.io/a": {"runtime/default", "localhost/b"},
		"deprecated.daemonset.template.generation":         {"0", "7"},
		"deprecated.deployment.rollback.to":                {"3"},
		"volume.beta.kubernetes.io/storage-class":          {"", "beta"},
		"ingressclass.kubernetes.io/is-default-class":      {"true", "false"},
		"storageclass.kubernetes.io/is-default-class":      {"true", "false"},
		"storageclass.beta.kubernetes.io/is-default-class": {"true", "false"},
	},
	"labels": {
		"node-role.kubernetes.io/worker": {""}, "node-role.kubernetes.io/": {""}, "kubernetes.io/role": {"", "r"},
		"a": {"1"}, "a-b": {"2"}, "b": {""}, "job-name": {"mine"},
	},
}

// variant returns a variant of a document, with its type and a name.
func (m *mutator) variant(doc document) document {
	out := m.mapping(doc)
	out["apiVersion"], out["kind"] = doc["apiVersion"], doc["kind"]
	meta, _ := out["metadata"].(document)
	if meta == nil {
		meta = document{}
	}
	for where, choices := range meaningful {
		in, _ := meta[where].(document)
		if in == nil {
			in = document{}
		}
		for _, key := range slices.Sorted(maps.Keys(choices)) {
			if m.rng.IntN(6) == 0 {
				in[key] = choices[key][m.rng.IntN(len(choices[key]))]
			}
		}
		meta[where] = in
	}
	for _, key := range []string{"managedFields", "selfLink", "resourceVersion", "generateName",
		"deletionGracePeriodSeconds"} {
		delete(meta, key)
	}
	meta["name"], meta["namespace"], meta["uid"] = "n", "default", "u"
	if m.rng.IntN(8) == 0 {
		delete(meta, "labels")
	}
	out["metadata"] = meta
	return out
}

// received returns a document as the strategies of both sides get it: decoded, defaulted, and converted if need be. ok
// is false for a document that cannot be decoded.
func received(t testing.TB, r *engine.Resource, gvk schema.GroupVersionKind, doc document) (theirs runtime.Object,
	ours object.Value, ok bool) {
	t.Helper()
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	typed, err := scheme.Decode(gvk, text)
	if err != nil {
		return nil, object.Nil, false
	}
	scheme.Scheme.Default(typed)
	theirs, err = scheme.Scheme.ConvertToVersion(typed, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, object.Nil, false
	}
	parsed, err := object.ParseJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := r.Schema().Decode(parsed.Value)
	if err != nil {
		t.Fatal(err)
	}
	// As in the engine, rules see empty values that they tell from absent ones.
	if ours = plinth.WithEmpty(decoded.Value, decoded.Empty); r.Default != nil {
		ours = r.Default(ours)
	}
	return theirs, ours, true
}

// stored returns an object as the reference reads it back from its store: encoded to protobuf, decoded and defaulted.
func stored(t testing.TB, gvk schema.GroupVersionKind, obj runtime.Object) (theirs runtime.Object,
	ours object.Value, ok bool) {
	t.Helper()
	typed, err := scheme.Scheme.ConvertToVersion(obj.DeepCopyObject(), gvk.GroupVersion())
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := typed.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		return nil, object.Nil, false
	}
	back, err := scheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	if err := back.(interface{ Unmarshal([]byte) error }).Unmarshal(bytes); err != nil {
		t.Fatal(err)
	}
	scheme.Scheme.Default(back)
	theirs, err = scheme.Scheme.ConvertToVersion(back, runtime.InternalGroupVersioner)
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = scheme.Value(gvk, theirs); err != nil {
		t.Fatal(err)
	}
	return theirs, ours, true
}

func metaOf(t testing.TB, obj runtime.Object) metav1.Object {
	t.Helper()
	meta, ok := obj.(metav1.ObjectMetaAccessor)
	if !ok {
		t.Fatalf("%T has no metadata", obj)
	}
	return meta.GetObjectMeta()
}
