package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plinth/internal/admission/hooks"
	"plinth/internal/engine"
)

// script is a chain that notes what is called and observed.
type script struct {
	chain
	notes []string
}

func (s *script) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// observe notes what an Observe is told.
func (s *script) observe(what string) Observe {
	return func(operation engine.Operation, rejected bool, took time.Duration) {
		s.note("%s %s %t", what, operation, rejected)
		if took < 0 || took > time.Minute {
			s.note("took %v", took)
		}
	}
}

// newScript makes a chain of plugins, each "NAME:STEPS": a mutates, p mutates in passes, v validates. fail are calls
// that refuse a request, want those that want a second pass: "NAME:STEP:PASS", of which the pass is 0 if there is only
// one.
func newScript(plugins, fail, want string) *script {
	s := &script{}
	has := func(list, item string) bool { return slices.Contains(strings.Fields(list), item) }
	call := func(name, step string, pass int) error {
		of := fmt.Sprintf("%s:%s:%d", name, step, pass)
		s.note("%s", of)
		if has(fail, of) {
			return errors.New(of)
		}
		return nil
	}
	for _, plugin := range strings.Fields(plugins) {
		name, which, _ := strings.Cut(plugin, ":")
		p := pluginSteps{admitted: s.observe(name + " admitted"), validated: s.observe(name + " validated")}
		passed := 0
		for _, step := range which {
			switch step {
			case 'a':
				p.admit = func(context.Context, *engine.Attributes) error {
					passed++
					return call(name, "a", passed-1)
				}
			case 'v':
				p.validate = func(context.Context, *engine.Attributes) error { return call(name, "v", 0) }
			case 'p':
				p.admitInPasses = func(_ context.Context, _ *engine.Attributes, passes *hooks.Passes) error {
					pass := map[bool]int{true: 1}[passes.Second]
					if has(want, fmt.Sprintf("%s:p:%d", name, pass)) {
						passes.Wanted = true
					}
					return call(name, "p", pass)
				}
			}
		}
		s.plugins = append(s.plugins, p)
	}
	s.admitted, s.validated = s.observe("admitted"), s.observe("validated")
	return s
}

// The plugins of a chain are called in order, up to the first error, and those that mutate a second time if one wants
// that. What they take is observed, for each plugin and as a whole.
//
// SPEC: AUTH-3
func TestChain(t *testing.T) {
	for _, c := range []struct{ plugins, fail, want, calls, err string }{
		{"x", "", "", "", ""},
		{"a:a b:v c:p d:av", "", "",
			"a:a:0, a admitted CREATE false, c:p:0, c admitted CREATE false, d:a:0, d admitted CREATE false, " +
				"admitted CREATE false, b:v:0, b validated CREATE false, d:v:0, d validated CREATE false, " +
				"validated CREATE false", ""},
		{"a:v", "", "", "a:v:0, a validated CREATE false, validated CREATE false", ""},
		{"a:p", "", "", "a:p:0, a admitted CREATE false, admitted CREATE false", ""},
		{"a:a b:a c:v", "a:a:0", "", "a:a:0, a admitted CREATE true, admitted CREATE true", "a:a:0"},
		{"a:a b:v c:v d:v", "c:v:0", "", "a:a:0, a admitted CREATE false, admitted CREATE false, b:v:0, " +
			"b validated CREATE false, c:v:0, c validated CREATE true, validated CREATE true", "c:v:0"},
		{"a:a b:p c:a", "", "b:p:0", "a:a:0, a admitted CREATE false, b:p:0, b admitted CREATE false, c:a:0, " +
			"c admitted CREATE false, a:a:1, a admitted CREATE false, b:p:1, b admitted CREATE false, c:a:1, " +
			"c admitted CREATE false, admitted CREATE false", ""},
		{"a:p", "", "a:p:0 a:p:1", "a:p:0, a admitted CREATE false, a:p:1, a admitted CREATE false, " +
			"admitted CREATE false", ""},
		{"a:p b:a c:v", "b:a:0", "a:p:0", "a:p:0, a admitted CREATE false, b:a:0, b admitted CREATE true, " +
			"admitted CREATE true", "b:a:0"},
		{"a:p b:a c:v", "b:a:1", "a:p:0", "a:p:0, a admitted CREATE false, b:a:0, b admitted CREATE false, a:p:1, " +
			"a admitted CREATE false, b:a:1, b admitted CREATE true, admitted CREATE true", "b:a:1"},
	} {
		s := newScript(c.plugins, c.fail, c.want)
		of, err := s.admission(), error(nil)
		a := &engine.Attributes{Operation: engine.OperationCreate}
		if of.Admit != nil {
			err = of.Admit(t.Context(), a)
		}
		if of.Validate != nil && err == nil {
			err = of.Validate(t.Context(), a)
		}
		if calls := strings.Join(s.notes, ", "); calls != c.calls {
			t.Errorf("%s: %s\nwant %s", c.plugins, calls, c.calls)
		}
		if said := fmt.Sprint(err); said != c.err && !(err == nil && c.err == "") {
			t.Errorf("%s: %s, want %q", c.plugins, said, c.err)
		}
	}
}

// What is observed is how long each plugin has taken, and all of them together.
//
// SPEC: AUTH-3
func TestTimesOfChains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times []string
		observe := func(what string) Observe {
			return func(_ engine.Operation, _ bool, took time.Duration) {
				times = append(times, fmt.Sprint(what, " ", took))
			}
		}
		takes := func(d time.Duration) func(context.Context, *engine.Attributes) error {
			return func(context.Context, *engine.Attributes) error { time.Sleep(d); return nil }
		}
		c := chain{admitted: observe("admit"), validated: observe("validate")}
		for i, d := range []time.Duration{time.Second, time.Minute, time.Hour} {
			c.plugins = append(c.plugins, pluginSteps{steps{admit: takes(d), validate: takes(d)},
				observe(fmt.Sprint("admit ", i)), observe(fmt.Sprint("validate ", i))})
		}
		a := &engine.Attributes{}
		if err := errors.Join(c.admit(t.Context(), a), c.validate(t.Context(), a)); err != nil {
			t.Fatal(err)
		}
		const want = "admit 0 1s, admit 1 1m0s, admit 2 1h0m0s, admit 1h1m1s, validate 0 1s, validate 1 1m0s, " +
			"validate 2 1h0m0s, validate 1h1m1s"
		if have := strings.Join(times, ", "); have != want {
			t.Errorf("observed %s, want %s", have, want)
		}
	})
}

// Metrics that are nil are not called, and the others stay.
func TestMetricsOfChains(t *testing.T) {
	complete := Metrics{}.complete()
	complete.Step(true)(engine.OperationCreate, true, 0)
	complete.Plugin("x", true)(engine.OperationCreate, true, 0)
	complete.Loaded("x", "", nil)
	var notes []string
	note := func(what string) { notes = append(notes, what) }
	observe := func(what string) Observe { return func(engine.Operation, bool, time.Duration) { note(what) } }
	complete = Metrics{
		Step:   func(mutating bool) Observe { return observe(fmt.Sprint("step ", mutating)) },
		Plugin: func(name string, mutating bool) Observe { return observe(fmt.Sprint(name, " ", mutating)) },
		Loaded: func(plugin, hash string, err error) { note(fmt.Sprint("loaded ", plugin, hash, err)) },
	}.complete()
	complete.Step(true)(engine.OperationCreate, true, 0)
	complete.Plugin("x", false)(engine.OperationCreate, true, 0)
	complete.Loaded("p", "h", nil)
	if have := strings.Join(notes, ", "); have != "step true, x false, loaded ph<nil>" {
		t.Errorf("called: %s", have)
	}
}

// The metrics that New is given are told of the steps and plugins by their names.
//
// SPEC: AUTH-3
func TestObservedPlugins(t *testing.T) {
	told := map[string]int{}
	observe := func(what string) Observe {
		return func(operation engine.Operation, rejected bool, _ time.Duration) {
			told[fmt.Sprint(what, " ", operation, " ", rejected)]++
		}
	}
	s := newStageOf(t, Config{Selection: Selection{Only: []string{"AlwaysDeny", "AlwaysPullImages"}}, Metrics: Metrics{
		Step:   func(mutating bool) Observe { return observe(fmt.Sprint("step ", mutating)) },
		Plugin: func(name string, mutating bool) Observe { return observe(fmt.Sprint(name, " ", mutating)) },
	}})
	if _, _, _, err := s.admit(t, "v1", "pods", fmt.Sprintf(podText, `{}`), ""); err == nil {
		t.Error("AlwaysDeny denies nothing")
	}
	if err := s.chain.Validate(t.Context(), &engine.Attributes{Request: &engine.Request{
		Resource: s.registry.Now().Find("", "v1", "pods")}, Operation: engine.OperationDelete}); err == nil {
		t.Error("AlwaysDeny denies nothing")
	}
	want := map[string]int{"AlwaysPullImages true CREATE false": 1, "AlwaysDeny true CREATE true": 1,
		"step true CREATE true": 1, "AlwaysPullImages false DELETE false": 1, "AlwaysDeny false DELETE true": 1,
		"step false DELETE true": 1}
	if fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("told %v\nwant %v", told, want)
	}
}
