package server

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
)

func TestConfigNamesEveryFault(t *testing.T) {
	c := Defaults()
	if err := c.validate(); err != nil {
		t.Fatalf("the defaults are refused: %v", err)
	}
	c.Storage, c.BindAddress, c.SecurePort, c.TLSCertFile, c.FeatureGates = "tape", "here", 70000, "x.crt", []string{"A"}
	c.MinRequestTimeout, c.StrictTransport = -1, []string{"max-age=1", "max-age", "includeSubdomains", ""}
	err := c.validate()
	for _, flag := range []string{"--storage", "--bind-address", "--secure-port", "--tls-private-key-file",
		"--feature-gates",
		"--min-request-timeout", `"max-age"`, `"includeSubdomains"`, `""`,
	} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("the error does not name %s: %v", flag, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "max-age=1\"") {
		t.Errorf("a good directive is refused: %v", err)
	}
}

// The fields of a gate that is on are kept in objects; a gate that has no effect in this server is logged, once.
//
// SPEC: RUN-1
func TestFeatureGates(t *testing.T) {
	for _, test := range []struct {
		gates   []string
		kept    bool
		ignored string // the log's text
	}{
		{gates: nil},
		{gates: []string{"VolumeBindMountOptions=false", "EmptyDirVolumeMode=true"}, kept: true},
		{gates: []string{"EmptyDirVolumeMode=true", "WatchList=false", "APIServingWithRoutine=true"}, kept: true,
			ignored: "gates=\"[APIServingWithRoutine WatchList]\""},
	} {
		var log strings.Builder
		c := quiet(t.TempDir())
		c.Storage, c.FeatureGates, c.Logger = "memory", test.gates,
			slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		client := clientOf(t, s)
		answer, err := client.send(t.Context(), "POST", "/api/v1/namespaces/default/pods", "application/json",
			map[string]any{
				"metadata": map[string]any{"name": "p"},
				"spec": map[string]any{
					"containers": []any{map[string]any{"name": "c", "image": "i"}},
					"volumes":    []any{map[string]any{"name": "v", "emptyDir": map[string]any{"mode": 493}}},
				},
			})
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		client.CloseIdleConnections() // otherwise the server waits for it
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if kept := strings.Contains(string(text), `"mode":493`); answer.StatusCode != 201 || kept != test.kept {
			t.Errorf("%q: %d, want the field kept: %v: %s", test.gates, answer.StatusCode, test.kept, text)
		}
		said := strings.Count(log.String(), "feature gates")
		if test.ignored == "" && said != 0 || test.ignored != "" &&
			(said != 1 || !strings.Contains(log.String(), test.ignored)) {
			t.Errorf("%q: the log says\n%s", test.gates, &log)
		}
	}
}

// Addresses with leading zeros, and ranges with bits beyond their prefix, are refused unless the gate is turned off;
// text that is not an address is refused in any case.
//
// SPEC: VAL-4, RUN-1
func TestStrictAddressesAreGated(t *testing.T) {
	for gates, want := range map[string]int{"": 422, "StrictIPCIDRValidation=true": 422,
		"StrictIPCIDRValidation=false": 201} {
		c := quiet(t.TempDir())
		c.Storage, c.FeatureGates = "memory", []string{gates}
		s, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		client := clientOf(t, s)
		for kind, send := range map[string]struct {
			path string
			body map[string]any
			code int
		}{
			"endpoints": {"/api/v1/namespaces/default/endpoints", map[string]any{
				"subsets": []any{map[string]any{"addresses": []any{map[string]any{"ip": "192.168.3.011"}},
					"ports": []any{map[string]any{"port": 1}}}},
			}, want},
			"policy": {"/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", map[string]any{
				"spec": map[string]any{"podSelector": map[string]any{},
					"ingress": []any{map[string]any{"from": []any{map[string]any{
						"ipBlock": map[string]any{"cidr": "172.017.0.0/16", "except": []any{"172.17.001.0/24"}},
					}}}}},
			}, want},
			"nonsense": {"/api/v1/namespaces/default/endpoints", map[string]any{
				"subsets": []any{map[string]any{"addresses": []any{map[string]any{"ip": "192.168.3.x"}},
					"ports": []any{map[string]any{"port": 1}}}},
			}, 422},
		} {
			send.body["metadata"] = map[string]any{"name": kind}
			answer, err := client.send(t.Context(), "POST", send.path, "application/json", send.body)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != send.code {
				t.Errorf("%q %s: %d, want %d: %s", gates, kind, answer.StatusCode, send.code, text)
			}
		}
		client.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Gates that decide what validation accepts.
//
// SPEC: VAL-4, RUN-1
func TestValidationIsGated(t *testing.T) {
	const jobs, sets = "/apis/batch/v1/namespaces/default/jobs", "/apis/apps/v1/namespaces/default/statefulsets"
	pod := func(cpu, zone string, labels map[string]any) map[string]any {
		spec := map[string]any{"restartPolicy": "Never", "containers": []any{map[string]any{"name": "c", "image": "i",
			"resources": map[string]any{"requests": map[string]any{"cpu": cpu}}}}}
		if zone != "" {
			spec["nodeSelector"] = map[string]any{"zone": zone}
		}
		template := map[string]any{"spec": spec}
		if labels != nil { // null in a patch would remove those that the server has set
			template["metadata"] = map[string]any{"labels": labels}
		}
		return template
	}
	const resources, scheduling = "MutablePodResourcesForSuspendedJobs", "MutableSchedulingDirectivesForSuspendedJobs"
	for gates, want := range map[string][4]int{ // resources, scheduling, scheduling of one that has run; Recreate
		"":                                 {200, 200, 200, 422},
		resources + "=false":               {422, 200, 200, 422},
		scheduling + "=false":              {200, 200, 422, 422},
		"StatefulSetRecreateStrategy=true": {200, 200, 200, 201},
	} {
		s := started(t, func(c *Config) { c.FeatureGates = []string{gates} })
		client := clientOf(t, s)
		send := func(method, path string, body jsonObject) int {
			t.Helper()
			kind := "application/json"
			if method == "PATCH" {
				kind = "application/merge-patch+json"
			}
			answer, err := client.send(t.Context(), method, path, kind, body)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			t.Log(gates, method, path, answer.StatusCode, string(text))
			return answer.StatusCode
		}
		job := jsonObject{"metadata": map[string]any{"name": "j"},
			"spec": map[string]any{"suspend": true, "template": pod("1", "", nil)}}
		var have [4]int
		if code := send("POST", jobs, job); code != 201 {
			t.Fatalf("a Job: %d", code)
		}
		template := func(cpu, zone string) jsonObject {
			return jsonObject{"spec": map[string]any{"template": pod(cpu, zone, nil)}}
		}
		have[0] = send("PATCH", jobs+"/j", template("2", ""))
		cpu := map[bool]string{true: "2", false: "1"}[have[0] == 200]
		have[1] = send("PATCH", jobs+"/j", template(cpu, "a"))
		ran := jsonObject{"status": map[string]any{"startTime": "2026-01-01T00:00:00Z", "conditions": []any{
			map[string]any{"type": "Suspended", "status": "True"}}}}
		if code := send("PATCH", jobs+"/j/status", ran); code != 200 {
			t.Fatalf("a Job has run and is suspended: %d", code)
		}
		have[2] = send("PATCH", jobs+"/j", template(cpu, "b"))
		always := pod("1", "", map[string]any{"a": "b"})
		always["spec"].(map[string]any)["restartPolicy"] = "Always"
		have[3] = send("POST", sets, jsonObject{"metadata": map[string]any{"name": "s"}, "spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "template": always,
			"updateStrategy": map[string]any{"type": "Recreate"}}})
		if have != want {
			t.Errorf("%q: %v, want %v", gates, have, want)
		}
	}
}

// The status of a Pod keeps the ResourceClaims that a client leaves out, since it may not know the field, and drops
// them when it sends an empty list.
//
// SPEC: WRITE-4
func TestClaimStatusesOfPods(t *testing.T) {
	s := started(t, func(*Config) {})
	client := clientOf(t, s)
	const pods = "/api/v1/namespaces/default/pods"
	do := func(method, path, kind string, body jsonObject, code int) jsonObject {
		t.Helper()
		_, answer, err := client.do(t.Context(), method, path, kind, body, code)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	claims := []any{map[string]any{"name": "gpu", "resourceClaimName": "c"}}
	status := func(claims any) jsonObject {
		return jsonObject{"status": map[string]any{"resourceClaimStatuses": claims}}
	}
	const merge = "application/merge-patch+json"
	full := func() jsonObject {
		t.Helper()
		answer := do("PATCH", pods+"/p/status", merge, status(claims), 200)
		if fmt.Sprint(answer.at("status", "resourceClaimStatuses")) != fmt.Sprint(claims) {
			t.Fatalf("the claims of %v are not set", answer)
		}
		return answer
	}
	do("POST", pods, "application/json", jsonObject{"metadata": map[string]any{"name": "p"}, "spec": map[string]any{
		"containers":     []any{map[string]any{"name": "c", "image": "i"}},
		"resourceClaims": []any{map[string]any{"name": "gpu", "resourceClaimName": "c"}}}}, 201)
	pod := full()
	delete(pod["status"].(map[string]any), "resourceClaimStatuses")
	if answer := do("PUT", pods+"/p/status", "application/json", pod, 200); fmt.Sprint(
		answer.at("status", "resourceClaimStatuses")) != fmt.Sprint(claims) {
		t.Errorf("a client that does not know the claims dropped them: %v", answer)
	}
	cleared := func(answer jsonObject) {
		t.Helper()
		if left := answer.at("status", "resourceClaimStatuses"); left != nil {
			t.Errorf("the claims are still there: %v", left)
		}
		for _, manager := range answer.at("metadata", "managedFields").([]any) {
			if strings.Contains(fmt.Sprint(manager), "resourceClaimStatuses") {
				t.Errorf("somebody owns the claims: %v", manager)
			}
		}
	}
	cleared(do("PATCH", pods+"/p/status", merge, status([]any{}), 200))
	pod = full()
	pod["status"].(map[string]any)["resourceClaimStatuses"] = []any{}
	cleared(do("PUT", pods+"/p/status", "application/json", pod, 200))
}

// The flags of the mixed-version proxy need its feature gate, as in the reference, and a certificate by which other
// servers know this one.
//
// SPEC: URI-12
func TestPeerFlags(t *testing.T) {
	const gate = "UnknownVersionInteroperabilityProxy feature to be turned on"
	off := func(c *Config) { c.FeatureGates = []string{"UnknownVersionInteroperabilityProxy=false"} }
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"an address":     {func(c *Config) { c.PeerAdvertiseIP, c.PeerAdvertisePort = "10.0.0.1", "1" }, ""},
		"no port":        {func(c *Config) { c.PeerAdvertisePort = "https" }, "--peer-advertise-port"},
		"no certificate": {func(c *Config) { c.PeerCAFile = "ca" }, "--proxy-client-cert-file"},
		"a certificate": {func(c *Config) {
			c.PeerCAFile = "ca"
			c.Aggregation.ClientCertFile, c.Aggregation.ClientKeyFile = "crt", "key"
		}, ""},
		"off":       {off, ""},
		"off, CA":   {func(c *Config) { off(c); c.PeerCAFile = "ca" }, "--peer-ca-file requires " + gate},
		"off, IP":   {func(c *Config) { off(c); c.PeerAdvertiseIP = "::1" }, "--peer-advertise-ip requires " + gate},
		"off, port": {func(c *Config) { off(c); c.PeerAdvertisePort = "1" }, "--peer-advertise-port requires " + gate},
	} {
		c := Defaults()
		test.change(&c)
		err := c.validate()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
