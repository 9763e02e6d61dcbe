package cel

import (
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"plinth/internal/cel"
)

// deviceExpressions select devices or compute attributes, or do neither.
var deviceExpressions = []string{
	"true", "1", "'a'", "1.5", "[1]", "['a', 'b']", "[[1]]", "{}", "device", "device.driver", "device.nothing", "dyn(1)",
	"device.driver == 'd'", "device.driver.size() > 3", "device.allowMultipleAllocations", "has(device.capacity)",
	"device.attributes['d'].a", "device.attributes['d'].a == 1", "device.attributes['d']", "device.capacity['d'].c",
	"device.capacity['d'].c.isGreaterThan(quantity('1Gi'))", "device.attributes['d'].a.exists(x, x == 1)",
	"device.attributes['d'].a.includes('x')", "[1, 2].includes(1)",
	"device.attributes['d'].a.isGreaterThan(semver('1.0.0'))",
	"cel.bind(d, device.attributes['d'], d.a && d.b)", "semver('1.0.0')", "[semver('1.0.0')]", "quantity('1')",
	"device.attributes.all(a, device.attributes.all(b, a == b))", "device.driver + device.driver",
	"!device.attributes['d'].a", "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, " +
		"device.attributes.all(d, a == b && c == d))))",
	"device.driver.matches('[a-z]+')", "ip('1.2.3.4')", "timestamp('2020-01-01T00:00:00Z')",
	"device.attributes['d'].a + 1", "device.driver.lowerAscii()",
	"(", "authorizer", "device.attributes['d'].?a.orValue(1) == 1", "[dyn(1)]",
	"[device.driver]",
}

// Expressions about devices are valid with the gates that they depend on as with the reference's, for the same reasons
// and at the same cost.
//
// SPEC: EXT-1
func TestDevices(t *testing.T) {
	valid := 0
	new := environment.NewExpressions
	for _, shared := range []bool{true, false} {
		for _, lists := range []bool{true, false} {
			compiler := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: shared, EnableListTypeAttributes: lists})
			for _, computes := range []bool{true, false} {
				for _, expression := range deviceExpressions {
					there := compiler.CompileCELExpression(expression, dracel.Options{EnvType: &new, DerivedAttribute: computes})
					want := fmt.Sprint("valid, cost ", there.MaxCost)
					if there.Error != nil {
						want = there.Error.Detail
					}
					fault, cost, err := cel.CheckDevice(expression, computes, cel.DeviceOptions{NotShared: !shared, Lists: lists})
					got := fault
					if err != nil {
						got = err.Error()
					} else if fault == "" {
						got = fmt.Sprint("valid, cost ", cost)
						valid++
					}
					if got != want {
						t.Errorf("shared %t, lists %t, computes %t, %s: %s\nthe reference: %s", shared, lists, computes, expression, got, want)
					}
				}
			}
		}
	}
	if valid < 80 {
		t.Errorf("%d expressions are valid", valid)
	}
}
