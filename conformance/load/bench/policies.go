package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"plinth/conformance/internal/load"
)

const (
	governed = "governed"
	// governedPods are created without policies and with them, governedTurns times.
	governedPods  = 2000
	governedTurns = 7
	// otherPolicies match no request of the row, a half by their rules and a half by their selectors.
	otherPolicies = 45
	// dearTurns is how often GETs are measured beside the dear policy, and beside that of another server.
	dearTurns = 5
)

// matchingPolicies are what clusters demand of Pods. All Pods of the row meet them.
var matchingPolicies = []string{
	`"validations":[{"expression":"!has(object.spec.hostNetwork) || !object.spec.hostNetwork"},
		{"expression":"!has(object.spec.hostPID) || !object.spec.hostPID"}]`,
	`"variables":[{"name":"containers","expression":"object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])"}],
		"validations":[{"expression":"variables.containers.all(c, !c.image.endsWith(':latest'))",
		"messageExpression":"'images of ' + object.metadata.name + ' need a version'"}]`,
	`"matchConditions":[{"name":"users","expression":"!('system:nodes' in request.userInfo.groups)"}],
		"validations":[{"expression":"has(object.metadata.labels) && object.metadata.labels.all(k, k.size() < 64)"}]`,
	`"validations":[{"expression":"object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",
		"message":"privileged containers are not allowed"}]`,
	`"validations":[{"expression":"namespaceObject.metadata.name == 'governed' && object.spec.containers.size() < 20"}]`,
}

const policyAPI = "/apis/admissionregistration.k8s.io/v1/"

// govern writes a policy for creates of a resource, and a binding.
func (b *bench) govern(ctx context.Context, name, resource, selector, spec string) error {
	for path, body := range map[string]string{
		"validatingadmissionpolicies": fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1",
			"kind":"ValidatingAdmissionPolicy","metadata":{"name":%q},"spec":{"matchConstraints":{"resourceRules":[
			{"apiGroups":["","apps"],"apiVersions":["v1"],"operations":["CREATE"],"resources":[%q]}]%s},%s}}`, name,
			resource, selector, spec),
		"validatingadmissionpolicybindings": fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1",
			"kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%q},"spec":{"policyName":%q,
			"validationActions":["Deny"]}}`, name, name),
	} {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost, Path: policyAPI + path, Body: []byte(body)})
		if err != nil {
			return err
		}
	}
	return nil
}

// createGoverned creates Pods, and returns the processor time of the server for one, in milliseconds.
func (b *bench) createGoverned(ctx context.Context, round string) (float64, error) {
	before, err := load.CPU(b.server)
	if err != nil {
		return 0, err
	}
	err = load.Each(8, governedPods, func(i int) error {
		_, err := b.client.Discard(ctx, load.Request{Method: http.MethodPost,
			Path: "/api/v1/namespaces/" + governed + "/pods", Body: load.Pod(governed, fmt.Sprint(round, i), 0)})
		return err
	})
	if err != nil {
		return 0, err
	}
	after, err := load.CPU(b.server)
	return float64((after - before).Microseconds()) / 1000 / governedPods, err
}

// policies measures what 50 policies of which 5 match add to the create of a Pod. Their share is smaller than what the
// processor time of a create differs from one second to the next: so it is measured several times, each time against
// the creates before and after, and the median counts.
func (b *bench) policies(ctx context.Context) error {
	if err := b.client.Namespace(ctx, governed); err != nil {
		return err
	}
	plain, err := b.createGoverned(ctx, "plain")
	if err != nil {
		return err
	}
	added := make([]float64, governedTurns)
	for turn := range added {
		if err := b.governPods(ctx); err != nil {
			return b.refused(err, "policies")
		}
		time.Sleep(3 * time.Second) // the reference's informers
		if _, err := b.createGoverned(ctx, fmt.Sprint("warm", turn, "-")); err != nil {
			return err
		}
		with, err := b.createGoverned(ctx, fmt.Sprint("with", turn, "-"))
		if err != nil {
			return err
		}
		for _, path := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
			_, err := b.client.Discard(ctx, load.Request{Method: http.MethodDelete, Path: policyAPI + path})
			if err != nil {
				return err
			}
		}
		time.Sleep(3 * time.Second)
		again, err := b.createGoverned(ctx, fmt.Sprint("plain", turn, "-"))
		if err != nil {
			return err
		}
		added[turn], plain = with-(plain+again)/2, again
	}
	slices.Sort(added)
	fmt.Fprintf(os.Stderr, "%s: policies add %.3f ms to a Pod created, in each turn\n", b.kind, added)
	b.set("policies", added[len(added)/2])
	return b.dearPolicy(ctx)
}

// governPods writes the policies of the row.
func (b *bench) governPods(ctx context.Context) error {
	for i, spec := range matchingPolicies {
		if err := b.govern(ctx, fmt.Sprint("matching", i), "pods", "", spec); err != nil {
			return err
		}
	}
	for i := range otherPolicies {
		resource, selector := "deployments", ""
		if i%2 == 0 {
			resource, selector = "pods", fmt.Sprintf(`,"objectSelector":{"matchLabels":{"policy":"other%d"}}`, i)
		}
		if err := b.govern(ctx, fmt.Sprint("other", i), resource, selector, matchingPolicies[i%5]); err != nil {
			return err
		}
	}
	return nil
}

// dearPolicy compares GETs beside a client whose requests meet a policy that is nearly as dear as allowed with those
// beside another server that has this client. In both cases a processor evaluates such expressions, and the garbage
// collector clears up after them. What the first take longer is for what requests of one server wait for each other.
func (b *bench) dearPolicy(ctx context.Context) error {
	if err := b.governDearly(ctx); err != nil {
		return b.refused(err, "policies-get")
	}
	neighbour := *b
	if err := neighbour.start("neighbour"); err != nil {
		return err
	}
	defer neighbour.server.Kill()
	err := errors.Join(neighbour.client.Namespace(ctx, governed), neighbour.governDearly(ctx))
	if err != nil {
		return err
	}
	time.Sleep(3 * time.Second) // the reference's informers
	quiet := b.reads()
	time.Sleep(3 * time.Second)
	alone, err := quiet()
	if err != nil {
		return err
	}
	var beside, floor []float64
	for turn := range dearTurns {
		for of, took := range map[*bench]*[]float64{b: &beside, &neighbour: &floor} {
			busy := b.reads()
			failed := of.createDearly(ctx, fmt.Sprint("dear", turn, "-"))
			p99, err := busy()
			if err := errors.Join(failed, err); err != nil {
				return err
			}
			*took = append(*took, p99)
		}
	}
	own, others := load.Quantile(beside, 0.5), load.Quantile(floor, 0.5)
	b.set("policies-get", own/others)
	fmt.Fprintf(os.Stderr, "%s: GETs take %.2f ms (p99) alone, %.2f beside the policy, %.2f beside another server with it\n",
		b.kind, alone, own, others)
	return nil
}

// governDearly writes the policy of dearPolicy.
func (b *bench) governDearly(ctx context.Context) error {
	expression := "a0 < 10"
	for i := range 6 {
		expression = fmt.Sprintf("[1, 2, 3, 4, 5, 6, 7].all(a%d, %s)", i, expression)
	}
	return b.govern(ctx, "dear", "secrets", "", fmt.Sprintf(`"validations":[{"expression":%q}]`, expression))
}

// createDearly creates objects that the policy checks, one after the other, for a while.
func (b *bench) createDearly(ctx context.Context, round string) error {
	writes, end := load.New(b.server, 1), time.Now().Add(3*time.Second)
	defer writes.Close()
	for i := 0; time.Now().Before(end); i++ {
		_, err := writes.Discard(ctx, load.Request{Method: http.MethodPost,
			Path: "/api/v1/namespaces/" + governed + "/secrets",
			Body: fmt.Appendf(nil, `{"metadata":{"name":%q}}`, fmt.Sprint(round, i))})
		if err != nil {
			return err
		}
	}
	return nil
}
