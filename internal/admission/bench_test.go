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
