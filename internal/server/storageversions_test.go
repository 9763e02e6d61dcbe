package server

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"plinth/internal/controller"
	"plinth/internal/engine"
	"plinth/internal/peers"
)

const storageVersions = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"

// With its feature gate, a server says of each built-in resource how it stores it. Records of servers that have no
// Lease are removed, with the object if none is left.
//
// SPEC: RUN-4
func TestStorageVersions(t *testing.T) {
	config := quiet(t.TempDir())
	config.FeatureGates = []string{"StorageVersionAPI=true"}
	config.Versions.Pairs = []string{"internal.apiserver.k8s.io/v1alpha1=true"}
	config.Controllers = []string{"storage-version-gc"}
	c, s := serveFrom(t, config)
	path := storageVersions + "/storagemigration.k8s.io.storageversionmigrations"
	mine := func() error {
		_, obj, err := c.do(c.ctx, "GET", path, "", nil, 200)
		if err != nil {
			return err
		}
		records, _ := obj["status"].(map[string]any)["storageVersions"].([]any)
		want := fmt.Sprintf("[map[apiServerID:%s decodableVersions:[storagemigration.k8s.io/v1 storagemigration.k8s.io/v1beta1] "+
			"encodingVersion:storagemigration.k8s.io/v1beta1 servedVersions:[storagemigration.k8s.io/v1]]]", s.peers.Identity)
		if got := fmt.Sprint(records); got != want {
			return fmt.Errorf("the records are %s, and are to be %s", got, want)
		}
		if common := obj.text("status", "commonEncodingVersion"); common != "storagemigration.k8s.io/v1beta1" {
			return fmt.Errorf("the common version is %q", common)
		}
		return nil
	}
	c.waitFor("the record of the server is there", mine)
	c.waitFor("so are those of the others", func() error {
		list := c.must(200, "GET", storageVersions, nil)
		if items, _ := list["items"].([]any); len(items) < 60 {
			return fmt.Errorf("%d resources have a record", len(items))
		}
		return nil
	})

	add := func(name string) {
		t.Helper()
		records := &controller.StorageVersions{Engine: s.plane.Engine, Registry: s.plane.Registry, Now: s.clock}
		if err := records.Publish(context.Background(), name); err != nil {
			t.Fatal(err)
		}
	}
	add("apiserver-gone")
	c.waitFor("the record of a server without a Lease is removed", mine)

	lease := jsonObject{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{
		"name": "apiserver-other", "labels": map[string]any{peers.IdentityLabel: "kube-apiserver"}}}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	c.must(201, "POST", leases, lease)
	add("apiserver-other")
	c.waitFor("the record of a server with a Lease stays", func() error {
		if err := mine(); err == nil || !strings.Contains(err.Error(), "apiserver-other") {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	c.must(200, "DELETE", leases+"/apiserver-other", nil)
	c.waitFor("when its Lease is deleted, so is the record", mine)

	c.must(201, "POST", storageVersions, jsonObject{"apiVersion": "internal.apiserver.k8s.io/v1alpha1",
		"kind": "StorageVersion", "metadata": map[string]any{"name": "example.com.things"}, "spec": map[string]any{}})
	other := c.must(200, "GET", storageVersions+"/example.com.things", nil)
	other["status"] = map[string]any{"storageVersions": []any{map[string]any{"apiServerID": "apiserver-gone",
		"encodingVersion": "v1", "decodableVersions": []any{"v1"}}}, "commonEncodingVersion": "v1"}
	c.must(200, "PUT", storageVersions+"/example.com.things/status", other)
	c.waitFor("an object without records is deleted", func() error {
		_, _, err := c.do(c.ctx, "GET", storageVersions+"/example.com.things", "", nil, 404)
		return err
	})
}

const migrations = "/apis/storagemigration.k8s.io/v1/storageversionmigrations"

// migrate makes a migration, and returns its conditions when it has ended.
func (c *testClient) migrate(name, group, resource string) (said string) {
	c.t.Helper()
	c.must(201, "POST", migrations, jsonObject{"apiVersion": "storagemigration.k8s.io/v1",
		"kind": "StorageVersionMigration", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"resource": map[string]any{"group": group, "resource": resource}}})
	c.waitFor(name+" ends", func() error {
		obj := c.must(200, "GET", migrations+"/"+name, nil)
		status, _ := obj["status"].(map[string]any)
		conditions, _ := status["conditions"].([]any)
		said = ""
		for _, item := range conditions {
			condition := item.(map[string]any)
			said += fmt.Sprint(condition["type"], "=", condition["status"], " ")
		}
		if !strings.HasPrefix(said, "Running=False ") {
			return fmt.Errorf("the conditions are %s", said)
		}
		return nil
	})
	return said
}

// A migration stores every object in the version in which new ones are: those that were changed or deleted meanwhile
// are left alone, and one that cannot be written makes it fail.
//
// SPEC: RUN-4, EXT-1
func TestStorageMigration(t *testing.T) {
	config := quiet(t.TempDir())
	config.Controllers = []string{"storage-version-migrator-controller"}
	c, s := serveFrom(t, config)
	definition := definitionOf("a.example.com", "widgets", "Widget")
	versions := definition["spec"].(map[string]any)["versions"].([]any)
	second := map[string]any{}
	for k, v := range versions[0].(map[string]any) {
		second[k] = v
	}
	second["name"], second["storage"] = "v2", false
	definition["spec"].(map[string]any)["versions"] = append(versions, second)
	c.must(201, "POST", definitions, definition)
	const widgets = "/apis/a.example.com/v1/namespaces/default/widgets"
	for i := range 300 {
		c.must(201, "POST", widgets, widget(map[string]any{"name": fmt.Sprint("w", i)}))
	}
	stored := func() map[string]int {
		found := map[string]int{}
		list, err := s.plane.Engine.ListStored(c.ctx, s.plane.Registry.Now().Named("a.example.com", "widgets"))
		if err != nil {
			t.Fatal(err)
		}
		for o := range list.Items {
			head, err := engine.HeadOf(o)
			if err != nil {
				t.Fatal(err)
			}
			found[head.At("apiVersion").Str()]++
		}
		return found
	}
	live := c.must(200, "GET", definitions+"/widgets.a.example.com", nil)
	for i, v := range live["spec"].(map[string]any)["versions"].([]any) {
		v.(map[string]any)["storage"] = i == 1
	}
	c.must(200, "PUT", definitions+"/widgets.a.example.com", live)
	if got := fmt.Sprint(stored()); got != "map[a.example.com/v1:300]" {
		t.Fatalf("before the migration: %s", got)
	}
	if said := c.migrate("m", "a.example.com", "widgets"); said != "Running=False Succeeded=True " {
		t.Errorf("the migration says %s", said)
	}
	if got := fmt.Sprint(stored()); got != "map[a.example.com/v2:300]" {
		t.Errorf("after the migration: %s", got)
	}
	live = c.must(200, "GET", definitions+"/widgets.a.example.com", nil)
	if got := fmt.Sprint(live["status"].(map[string]any)["storedVersions"]); got != "[v2]" {
		t.Errorf("the definition has the stored versions %s", got)
	}
	if said := c.migrate("reviews", "authentication.k8s.io", "tokenreviews"); said != "Running=False Failed=True " {
		t.Errorf("the migration of what is not stored says %s", said)
	}

	// A write that nobody may make: the policy refuses the patch.
	c.must(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", jsonObject{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
		"metadata": map[string]any{"name": "p"}, "spec": map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []any{"a.example.com"},
				"apiVersions": []any{"*"}, "operations": []any{"UPDATE"}, "resources": []any{"widgets"}}}},
			"validations": []any{map[string]any{"expression": "false"}}}})
	c.must(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", jsonObject{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
		"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"policyName": "p",
			"validationActions": []any{"Deny"}}})
	if said := c.migrate("refused", "a.example.com", "widgets"); said != "Running=False Failed=True " {
		t.Errorf("the migration that a policy refuses says %s", said)
	}
	message := fmt.Sprint(c.must(200, "GET", migrations+"/refused", nil)["status"].(map[string]any)["conditions"])
	if !strings.Contains(message, "300/300 not yet migrated. migration encountered unhandled error: ") {
		t.Error(message)
	}
}
