package convert

import (
	"os"
	"strings"
	"testing"

	"plinth/object"
)

const annotationPrefix = "autoscaling.alpha.kubernetes.io/"

var cases = []struct {
	name     string
	convert  func(object.Value) (object.Value, error)
	in, want string
}{
	{"CPU has a field in v1", HPAv2ToV1,
		`{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {},
		  "spec": {"maxReplicas": 3, "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}], "scaleTargetRef": {"kind": "a", "name": "b"}},
		  "status": {"currentMetrics": null, "desiredReplicas": 1}}`,
		`{"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {},
		  "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "a", "name": "b"}, "targetCPUUtilizationPercentage": 50},
		  "status": {"currentReplicas": 0, "desiredReplicas": 1}}`},
	{"all else is in annotations", HPAv2ToV1,
		`{"metadata": {"annotations": {"a": "b", "~metrics": "old", "~scale-up-tolerance": "1"}},
		  "spec": {"behavior": {"scaleUp": {"selectPolicy": "Max"}},
		    "metrics": [{"type": "Pods", "pods": {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": "1k"}}}]},
		  "status": {"conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": null}], "currentReplicas": 2,
		    "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}}]}}`,
		`{"apiVersion": "autoscaling/v1", "metadata": {"annotations": {"a": "b",
		    "~behavior": "{\"ScaleUp\":{\"StabilizationWindowSeconds\":null,\"SelectPolicy\":\"Max\",\"Policies\":null,\"Tolerance\":null},\"ScaleDown\":null}",
		    "~conditions": "[{\"type\":\"AbleToScale\",\"status\":\"True\",\"lastTransitionTime\":null}]",
		    "~current-metrics": "[{\"type\":\"Resource\",\"resource\":{\"name\":\"cpu\",\"currentAverageUtilization\":7,\"currentAverageValue\":\"0\"}}]",
		    "~metrics": "[{\"type\":\"Pods\",\"pods\":{\"metricName\":\"p\",\"targetAverageValue\":\"1k\"}}]"}},
		  "spec": {}, "status": {"currentCPUUtilizationPercentage": 7, "currentReplicas": 2}}`},
	{"CPU goes behind the metrics of the annotation", HPAv1ToV2,
		`{"apiVersion": "autoscaling/v1", "metadata": {"annotations": {"~metrics": "[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"targetAverageValue\":\"1Gi\"}}]"}},
		  "spec": {"targetCPUUtilizationPercentage": 50}, "status": {"currentReplicas": 0, "desiredReplicas": 0}}`,
		`{"apiVersion": "autoscaling/v2", "metadata": {},
		  "spec": {"metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
		    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
		  "status": {"currentMetrics": null, "desiredReplicas": 0}}`},
	{"text of all sorts stays as it is", HPAv1ToV2,
		`{"metadata": {"annotations": {"~metrics": "[{\"type\":\"\\u0000\\ud800<&\\u2028\\ufffd\",\"object\":null}]"}}, "spec": {}, "status": {}}`,
		`{"apiVersion": "autoscaling/v2", "metadata": {}, "spec": {"metrics": [{"type": "\u0000\ufffd<&\u2028\ufffd"}]}, "status": {"currentMetrics": null}}`},
	{"80 percent where nothing is said, and what annotations do not say is dropped", HPAv1ToV2,
		`{"metadata": {"annotations": {"a": "b", "~metrics": "{", "~behavior": "{}", "~conditions": "", "~current-metrics": "null"}},
		  "spec": {}, "status": {"currentCPUUtilizationPercentage": 3, "currentReplicas": 1}}`,
		`{"apiVersion": "autoscaling/v2", "metadata": {"annotations": {"a": "b"}},
		  "spec": {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]},
		  "status": {"currentMetrics": [], "currentReplicas": 1}}`},

	{"a core Event", EventCoreToEvents,
		`{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "count": 3, "eventTime": null, "firstTimestamp": "2026-01-02T03:04:05Z",
		  "involvedObject": {"kind": "Pod"}, "lastTimestamp": null, "message": "m", "reason": "r", "reportingComponent": "", "reportingInstance": "i",
		  "series": {"lastObservedTime": null}, "source": {"component": "c"}, "type": "Normal"}`,
		`{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"}, "deprecatedCount": 3, "eventTime": null, "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z",
		  "regarding": {"kind": "Pod"}, "deprecatedLastTimestamp": null, "note": "m", "reason": "r", "reportingInstance": "i",
		  "series": {"count": 0, "lastObservedTime": null}, "deprecatedSource": {"component": "c"}, "type": "Normal"}`},
	{"an Event of events.k8s.io", EventEventsToCore,
		`{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {}, "action": "a", "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
		  "deprecatedSource": {}, "eventTime": "2026-01-02T03:04:05.000006Z", "regarding": {}, "related": {"kind": "Node"}, "reportingController": "c",
		  "series": {"count": 2, "lastObservedTime": null}}`,
		`{"apiVersion": "v1", "kind": "Event", "metadata": {}, "action": "a", "firstTimestamp": null, "lastTimestamp": null, "source": {},
		  "eventTime": "2026-01-02T03:04:05.000006Z", "involvedObject": {}, "related": {"kind": "Node"}, "reportingComponent": "c", "reportingInstance": "",
		  "series": {"count": 2, "lastObservedTime": null}}`},
}

// A key that v1 cannot express is lost, and v1beta1 has its fields without a value.
//
// SPEC: VAL-4
func TestConvertCertificateRequests(t *testing.T) {
	const (
		v1     = `{"apiVersion": "certificates.k8s.io/v1", "spec": {"podName": "p", "stubPKCS10Request": "eA=="}}`
		stored = `{"apiVersion": "certificates.k8s.io/v1beta1", "spec": {"podName": "p", "stubPKCS10Request": "eA==",
			"pkixPublicKey": null, "proofOfPossession": null}}`
		sent = `{"apiVersion": "certificates.k8s.io/v1beta1", "spec": {"podName": "p", "stubPKCS10Request": "eA==",
			"pkixPublicKey": "eA==", "proofOfPossession": "eA=="}}`
	)
	if got, err := PodCertificateRequestV1ToV1beta1(parse(t, v1)); err != nil || !object.Equal(got, parse(t, stored)) {
		t.Errorf("%s, %v", object.AppendJSON(nil, got), err)
	}
	for _, text := range []string{stored, sent} {
		if got, err := PodCertificateRequestV1beta1ToV1(parse(t, text)); err != nil || !object.Equal(got, parse(t, v1)) {
			t.Errorf("%s, %v", object.AppendJSON(nil, got), err)
		}
	}
}

// SPEC: VAL-4
func TestConvert(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in, want := parse(t, c.in), parse(t, c.want)
			got, err := c.convert(in)
			if err != nil {
				t.Fatal(err)
			}
			if !object.Equal(got, want) {
				t.Errorf("\n got %s\nwant %s", object.AppendJSON(nil, got), object.AppendJSON(nil, want))
			}
			if !object.Equal(in, parse(t, c.in)) {
				t.Error("the input has changed")
			}
		})
	}
}

// Objects are converted as by upstream. Below the comment, testdata/recorded.txt has three lines a case: the
// conversion, the object, and the result.
//
// SPEC: VAL-4
func TestRecordedConversions(t *testing.T) {
	text, err := os.ReadFile("testdata/recorded.txt")
	if err != nil {
		t.Fatal(err)
	}
	conversions := map[string]func(object.Value) (object.Value, error){"HPAv1ToV2": HPAv1ToV2, "HPAv2ToV1": HPAv2ToV1,
		"EventCoreToEvents": EventCoreToEvents, "EventEventsToCore": EventEventsToCore}
	found := map[string]int{}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[3:]
	for i := 0; i+2 < len(lines); i += 3 {
		name, in, want := lines[i], lines[i+1], lines[i+2]
		convert := conversions[name]
		if convert == nil {
			t.Fatalf("line %d: %q is no conversion", i+4, name)
		}
		found[name]++
		obj := parse(t, in)
		converted, err := convert(obj)
		if have := string(object.AppendObject(nil, converted)); err != nil || have != want {
			t.Errorf("line %d: %s of %s\nhave %s (%v)\nwant %s", i+4, name, in, have, err, want)
		}
		if !object.Equal(obj, parse(t, in)) {
			t.Errorf("line %d: the input has changed", i+4)
		}
	}
	for name, floor := range map[string]int{"HPAv1ToV2": 15, "HPAv2ToV1": 15, "EventCoreToEvents": 8,
		"EventEventsToCore": 4} {
		if found[name] < floor {
			t.Errorf("%d cases of %s, want at least %d", found[name], name, floor)
		}
	}
}

// SPEC: VAL-4
func TestConvertNamesWhatItCannotRead(t *testing.T) {
	_, err := HPAv2ToV1(parse(t,
		`{"metadata": {}, "spec": {"metrics": [{"type": "Pods", "pods": {"target": {"averageValue": "many"}}}]}, "status": {}}`))
	want := "convert: HorizontalPodAutoscaler: quantities must match the regular expression " +
		"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func parse(t *testing.T, text string) object.Value {
	t.Helper()
	parsed, err := object.ParseJSON([]byte(strings.ReplaceAll(text, "~", annotationPrefix)))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return parsed.Value
}
