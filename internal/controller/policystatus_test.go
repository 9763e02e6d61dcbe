package controller

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"plinth/internal/controller/controllertest"
	"plinth/internal/engine"
	"plinth/object"
)

// The expressions of a policy are checked when it is written and when its spec changes.
//
// SPEC: AUTH-3
func TestPolicyStatus(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		controllertest.Run(ctx, (&PolicyStatus{Engine: b.Engine, Registry: b.Registry,
			Logger: slog.New(slog.DiscardHandler)}).Start)
	}()
	defer func() { cancel(); <-done }()
	of := b.Registry.Now().Find("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")
	body := func(expression string) object.Parsed {
		p, err := object.ParseJSON([]byte(`{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[
			{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["deployments"]}]},
			"validations":[{"expression":"` + expression + `"}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	// status waits until a generation was checked.
	status := func(generation int64) object.Value {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			result, err := b.Get(ctx, &engine.Request{Resource: of, Name: "p"}, "")
			if err != nil {
				t.Fatal(err)
			}
			obj, err := engine.ObjectOf(result.Object)
			if err != nil {
				t.Fatal(err)
			}
			if obj.At("status", "observedGeneration").Int() == generation {
				revision := object.StringOf(strconv.FormatInt(result.Object.Revision, 10))
				return obj.WithAt(revision, "metadata", "resourceVersion")
			}
		}
		t.Fatalf("generation %d is not checked", generation)
		return object.Nil
	}
	if _, err := b.Create(ctx, &engine.Request{Resource: of}, body("object.spec.replica > 1")); err != nil {
		t.Fatal(err)
	}
	obj := status(1)
	warnings := obj.At("status", "typeChecking", "expressionWarnings")
	const undefined = "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replica'"
	if warnings.Len() != 1 || warnings.Items()[0].At("fieldRef").Str() != "spec.validations[0].expression" ||
		!strings.HasPrefix(warnings.Items()[0].At("warning").Str(), undefined) {
		t.Errorf("the warnings are %v", warnings.Native())
	}
	if manager := obj.At("metadata", "managedFields").Items()[0]; manager.At("manager").Str() != policyStatusManager ||
		manager.At("subresource").Str() != "status" || manager.At("operation").Str() != "Apply" {
		t.Errorf("the status is owned by %v", manager.Native())
	}
	rq := &engine.Request{Resource: of, Name: "p"}
	next := body("object.spec.replicas > 1")
	next.Value = next.Value.WithAt(obj.At("metadata", "resourceVersion"), "metadata", "resourceVersion")
	if _, err := b.Update(ctx, rq, next); err != nil {
		t.Fatal(err)
	}
	if checked := status(2).At("status", "typeChecking"); checked.Len() != 0 {
		t.Errorf("a policy without errors has %v", checked.Native())
	}
}
