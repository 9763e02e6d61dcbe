package admission

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkWebhooks measures a create with one webhook that matches and 200 that do not, a half of them by their rules
// and a half by their selectors, and without any.
func BenchmarkWebhooks(b *testing.B) {
	for _, others := range []int{-1, 0, 200} {
		b.Run(fmt.Sprint(others, " others"), func(b *testing.B) {
			e, registry := newEngine(b, Selection{})
			bench := &bench{b, e, registry}
			h := newHooks(b, func(string, map[string]any) string { return `{"allowed":true}` })
			defer h.Close()
			if others >= 0 {
				bench.configure("validatingwebhookconfigurations", h.configuration("Validating", "one", "one", ""))
			}
			for i := range others {
				text := h.configuration("Validating", fmt.Sprint("other", i), "other", "")
				if i%2 == 0 {
					text = h.configuration("Validating", fmt.Sprint("other", i), "other",
						fmt.Sprintf(`,"objectSelector":{"matchLabels":{"hook":"h%d"}}`, i))
				} else {
					text = strings.Replace(text, "configmaps", "secrets", 1)
				}
				bench.configure("validatingwebhookconfigurations", text)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				err := bench.createIn("", "configmaps", "ns",
					fmt.Sprintf(`{"metadata":{"name":"c%d","labels":{"hook":"x"}}}`, i), false)
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// matching are policies that a Pod meets.
var matching = []string{
	`"validations":[{"expression":"!has(object.spec.hostNetwork) || !object.spec.hostNetwork"},
		{"expression":"!has(object.spec.hostPID) || !object.spec.hostPID"}]`,
	`"variables":[{"name":"containers","expression":"object.spec.containers + (has(object.spec.initContainers) ?
		object.spec.initContainers : [])"}],"validations":[{"messageExpression":"'images of ' + object.metadata.name",
		"expression":"variables.containers.all(c, !c.image.endsWith(':latest'))"}]`,
	`"matchConditions":[{"name":"users","expression":"!has(request.userInfo.uid)"}],"validations":[
		{"expression":"has(object.metadata.labels) && object.metadata.labels.all(k, k.size() < 64)"}]`,
	`"validations":[{"expression":"object.spec.containers.all(c, !has(c.securityContext) ||
		!has(c.securityContext.privileged))"}]`,
	`"validations":[{"expression":"namespaceObject.metadata.name == 'ns' && object.spec.containers.size() < 20"}]`,
}

// BenchmarkPolicies measures the create of a Pod, as a dry run, with 50 policies of which 5 match, a half of the others
// not by their rules and a half by their selectors, and without any.
func BenchmarkPolicies(b *testing.B) {
	for _, policies := range []int{0, 50} {
		b.Run(fmt.Sprint(policies), func(b *testing.B) {
			e, registry := newEngineWith(b, Config{Selection: Selection{Only: []string{validating}}})
			bench := &bench{b, e, registry}
			for i := range policies {
				name := fmt.Sprint("p", i)
				text := strings.NewReplacer("\n", " ", "\t", "").Replace(policyText(validating, name, matching[i%len(matching)]))
				if i < 5 || i%2 == 0 {
					text = strings.Replace(text, `"configmaps"`, `"pods"`, 1)
				}
				if i >= 5 && i%2 == 0 {
					text = strings.Replace(text, `"matchConstraints":{`,
						fmt.Sprintf(`"matchConstraints":{"objectSelector":{"matchLabels":{"l":"%d"}},`, i), 1)
				}
				bench.configure("validatingadmissionpolicies", text)
				bench.configure("validatingadmissionpolicybindings", bindingText(validating, name, name, deny))
			}
			b.ReportAllocs()
			for b.Loop() {
				err := bench.createIn("", "pods", "ns", `{"metadata":{"name":"p","labels":{"app":"web","hash":"5d59d67564"}},
					"spec":{"containers":[{"name":"a","image":"i:1","env":[{"name":"A","value":"b"}],"resources":{"limits":
					{"cpu":"1"}}},{"name":"b","image":"j:2","ports":[{"containerPort":80}]}]}}`, true)
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
