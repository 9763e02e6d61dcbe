package admission

import (
	"slices"
	"testing"

	"k8s.io/kubernetes/pkg/kubeapiserver/options"

	ours "plinth/internal/admission"
)

// here are the plugins that run with a selection, in their order.
func here(t *testing.T, s ours.Selection) []string {
	t.Helper()
	w := (&world{plugin: "AlwaysAdmit"}).build(t)
	var all []string
	// Some plugins do not start without a configuration.
	_, _ = ours.New(ours.Config{Selection: s, Store: w.stored, Registry: w.registry, Metrics: ours.Metrics{
		Plugin: func(name string, mutating bool) ours.Observe {
			if mutating {
				all = append(all, name)
			}
			return nil
		}}})
	return all
}

// The plugins are those of the reference, in its order, and on by default as there.
//
// SPEC: AUTH-3
func TestTableOfPlugins(t *testing.T) {
	all := options.AllOrderedPlugins
	if have := here(t, ours.Selection{Only: options.AllOrderedPlugins}); !slices.Equal(have, all) {
		t.Errorf("the plugins are\n%q, want\n%q", have, all)
	}
	off := options.DefaultOffAdmissionPlugins()
	byDefault := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return off.Has(name) })
	if have := here(t, ours.Selection{}); !slices.Equal(have, byDefault) {
		t.Errorf("by default these are on:\n%q, want\n%q", have, byDefault)
	}
	others := ours.Selection{Enabled: []string{"AlwaysDeny", "EventRateLimit"}, Disabled: []string{"EventRateLimit",
		"Priority"}}
	some := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return name == "Priority" || name != "AlwaysDeny" && off.Has(name)
	})
	if have := here(t, others); !slices.Equal(have, some) {
		t.Errorf("with others these are on:\n%q, want\n%q", have, some)
	}
	for _, name := range append(options.AllOrderedPlugins, "Nobody") {
		if known := ours.Known(name); known != (name != "Nobody") {
			t.Errorf("%s is known: %t", name, known)
		}
		if on := (&ours.Selection{}).On(name); on != slices.Contains(byDefault, name) {
			t.Errorf("%s is on: %t", name, on)
		}
		if on := others.On(name); on != slices.Contains(some, name) {
			t.Errorf("%s is on, with others: %t", name, on)
		}
	}
}
