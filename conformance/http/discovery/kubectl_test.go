package discovery

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"plinth/conformance/internal/harness"
)

// kubectl runs the linked kubectl with a separate cache.
func kubectl(t *testing.T, server *harness.Server, args ...string) string {
	t.Helper()
	program, err := harness.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"--kubeconfig", server.Kubeconfig, "--cache-dir", t.TempDir()},
		args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (c *clients) testKubectl(t *testing.T) {
	for _, run := range []struct {
		args []string
		want []string // lines of the output, white space aside
	}{
		{[]string{"api-versions"}, []string{"apps/v1", "autoscaling/v1", "autoscaling/v2", "v1",
			"storagemigration.k8s.io/v1"}},
		{[]string{"api-resources", "--no-headers"}, []string{
			"deployments deploy apps/v1 true Deployment", "pods po v1 true Pod", "nodes no v1 false Node",
			"horizontalpodautoscalers hpa autoscaling/v2 true HorizontalPodAutoscaler",
			"events ev v1 true Event", "events ev events.k8s.io/v1 true Event",
		}},
		{[]string{"api-resources", "--no-headers", "--api-group=apps", "--categories=all", "-o=name"}, []string{
			"daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps",
		}},
		{[]string{"version"}, []string{"Client Version: v1.37.1"}},
		{[]string{"explain", "deployment.spec.strategy", "--recursive"}, []string{
			"GROUP: apps", "KIND: Deployment", "VERSION: v1", "FIELD: strategy <DeploymentStrategy>",
			"rollingUpdate <RollingUpdateDeployment>", "maxSurge <IntOrString>", "maxUnavailable <IntOrString>", "type <string>",
			"enum: Recreate, RollingUpdate",
		}},
		{[]string{"explain", "pods.spec.containers.ports"}, []string{
			"FIELD: ports <[]ContainerPort>", "containerPort <integer> -required-", "protocol <string>", "enum: SCTP, TCP, UDP",
		}},
		{[]string{"explain", "hpa", "--api-version=autoscaling/v1"},
			[]string{"GROUP: autoscaling", "VERSION: v1", "spec <HorizontalPodAutoscalerSpec> -required-"}},
		{[]string{"explain", "secret.data"}, []string{"FIELD: data <map[string]string>"}},
		{[]string{"get", "--raw", "/openapi/v3/version"}, nil},
	} {
		out := kubectl(t, c.server, run.args...)
		lines := map[string]bool{}
		for line := range strings.Lines(out) {
			lines[strings.TrimSpace(strings.Join(strings.Fields(line), " "))] = true
		}
		for _, want := range run.want {
			if !lines[want] {
				t.Errorf("kubectl %s: no line %q in\n%s", strings.Join(run.args, " "), want, out)
			}
		}
	}
}

// TestKubectlSeesNoDifference compares what kubectl prints of the two servers' types.
func TestKubectlSeesNoDifference(t *testing.T) {
	if !harness.WantReference() {
		return
	}
	plinth := harness.Run(t, harness.Options{Kind: harness.Plinth})
	reference := harness.Run(t, harness.Options{Kind: harness.Reference})
	print := func(server *harness.Server, args ...string) []string {
		return slices.Collect(strings.Lines(kubectl(t, server, args...)))
	}
	args := []string{"api-resources", "-o=wide", "--no-headers", "--sort-by=name"}
	compareLines(t, args, print(plinth, args...), print(reference, args...))
	compareLines(t, []string{"api-versions"}, print(plinth, "api-versions"), print(reference, "api-versions"))
	types := print(plinth, "api-resources", "--no-headers", "--sort-by=name")
	if len(types) < 60 {
		t.Errorf("only %d types are compared", len(types))
	}
	for _, line := range types {
		fields := strings.Fields(line)
		kind, version := fields[0], fields[len(fields)-3]
		args := []string{"explain", kind, "--recursive", "--api-version=" + version}
		compareLines(t, args, print(plinth, args...), print(reference, args...))
	}
}

func compareLines(t *testing.T, args, got, want []string) {
	t.Helper()
	// kubectl pads its columns to the widest entry, which may be an entry that is left out here.
	plain := func(lines []string, i int) string {
		if i >= len(lines) {
			return "(nothing)"
		}
		return strings.Join(strings.Fields(lines[i]), " ")
	}
	for i := range max(len(got), len(want)) {
		if plain(got, i) != plain(want, i) {
			t.Errorf("kubectl %s: line %d is %q, of the reference %q", strings.Join(args, " "), i+1, plain(got, i),
				plain(want, i))
			return
		}
	}
}
