package cel

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plinth/object"
	"plinth/schema"
)

// SPEC: EXT-1: used rules stay compiled, idle ones are dropped, and no sweep is scheduled when none are left.
func TestCacheLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cache Cache
		typ, asked := structural(t, widgets), 0
		rules := cache.Rules(func() *schema.Type { asked++; return typ })
		obj := parsed(t, `spec: {min: -1, max: 2}`)
		use := func() {
			t.Helper()
			if errs, _ := rules.Validate(t.Context(), obj, object.Nil, nil); len(errs) != 1 {
				t.Fatalf("errors are %v", errs)
			}
		}
		use()
		for range 5 {
			time.Sleep(idle - time.Second)
			use()
		}
		if asked != 1 {
			t.Errorf("rules in use were compiled %d times", asked)
		}
		time.Sleep(3 * idle)
		synctest.Wait()
		if rules.compiled.compiled.Load() != nil || len(cache.all) != 0 || cache.timer != nil {
			t.Errorf("idle rules are held: %v, %d, %v", rules.compiled.compiled.Load(), len(cache.all), cache.timer)
		}
		if use(); asked != 2 {
			t.Errorf("dropped rules were compiled %d times", asked)
		}
		time.Sleep(3 * idle)
	})
}

// SPEC: EXT-1: rules beyond the limit displace others, and work nevertheless.
func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cache Cache
		obj := parsed(t, `spec: {min: -1, max: 2}`)
		typ := structural(t, widgets)
		for range 100 {
			errs, _ := cache.Rules(func() *schema.Type { return typ }).Validate(t.Context(), obj, object.Nil, nil)
			if len(errs) != 1 {
				t.Fatalf("errors are %v", errs)
			}
			cache.mu.Lock()
			if cache.count() > most {
				t.Fatalf("%d are held", cache.count())
			}
			cache.mu.Unlock()
		}
		cache.mu.Lock()
		if len(cache.all) == 0 || len(cache.all) == 100 {
			t.Errorf("the rules of %d types are held", len(cache.all))
		}
		cache.mu.Unlock()
		time.Sleep(3 * idle)
	})
}

// Each compilation and each evaluation is told, with what it took.
//
// SPEC: RUN-3
func TestExpressionsAreObserved(t *testing.T) {
	var compiled, evaluated int
	count := func(n *int) func(time.Duration) {
		return func(took time.Duration) {
			if took < 0 || took > time.Hour {
				t.Errorf("it took %s", took)
			}
			*n++
		}
	}
	cache := Cache{Observe: Observe{Compiled: count(&compiled), Evaluated: count(&evaluated)}}
	defer cache.Close()
	typ := structural(t, widgets)
	rules := cache.Rules(func() *schema.Type { return typ })
	for range 3 {
		rules.Validate(t.Context(), parsed(t, `spec: {min: -1, max: 2}`), object.Nil, nil)
	}
	none := cache.Rules(func() *schema.Type { return &schema.Type{} })
	none.Validate(t.Context(), parsed(t, `{}`), object.Nil, nil)
	if compiled != 1 || evaluated != 3 {
		t.Errorf("%d compilations and %d evaluations, not 1 and 3", compiled, evaluated)
	}
}

// SPEC: EXT-1: an expression that is nested too deeply, too long, or too expensive is an error, and so is one whose
// evaluation breaks down; no panic reaches the caller.
func TestRulesAreBounded(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("(", n) + "true" + strings.Repeat(")", n) }
	for name, rule := range map[string]string{
		"depth":   nested(5000),
		"length":  strings.Repeat("true || ", 20000) + "true",
		"lists":   strings.Repeat("[", 300) + strings.Repeat("]", 300) + ".size() == 1",
		"members": "self" + strings.Repeat(".a", 3000) + " == 1",
	} {
		text := object.AppendJSON(nil, object.Fields("type", object.StringOf("object"), "x-kubernetes-validations",
			object.ListOf(object.Fields("rule", object.StringOf(rule)))))
		typ := structural(t, string(text))
		start := time.Now()
		checked := len(Check(typ, nil, CheckOptions{}))
		errs, _ := Compile(typ).Validate(t.Context(), parsed(t, `{a: 1}`), object.Nil, nil)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s takes %v", name, took)
		}
		if (checked == 0) != (len(errs) == 0) || name != "lists" && checked == 0 {
			t.Errorf("%s: %d errors of the definition, %v", name, checked, errs)
		}
	}
	typ := structural(t, `{type: object, properties: {l: {type: array, items: {type: integer}}}, x-kubernetes-validations: [
		{rule: "self.l.all(x, self.l.all(y, self.l.all(z, x + y == z)))"}, {rule: "false"}]}`)
	obj := object.Fields("l", object.ListOf(make([]object.Value, 1000)...))
	for i := range obj.At("l").Items() {
		obj = obj.With("l", obj.At("l").WithItem(i, object.IntOf(0)))
	}
	errs, _ := Compile(typ).Validate(t.Context(), obj, object.Nil, nil)
	if len(errs) != 1 || !strings.Contains(errs[0].Detail, "call cost exceeds limit") {
		t.Errorf("an expensive rule: %v", errs)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if errs, _ := Compile(typ).Validate(ctx, obj, object.Nil, nil); len(errs) != 1 || errs[0].Type != "InternalError" {
		t.Errorf("a context that has ended: %v", errs)
	}
}

// SPEC: EXT-1: a panic of an expression is an error of it.
func TestPanicsAreErrors(t *testing.T) {
	typ := structural(t,
		`{type: object, x-kubernetes-preserve-unknown-fields: true, x-kubernetes-validations: [{rule: "'%s'.format([self]) != ''"}]}`)
	errs, _ := Compile(typ).Validate(t.Context(), parsed(t, `{b: {c: 1}}`), object.Nil, nil)
	if len(errs) != 1 {
		t.Errorf("errors are %v", errs)
	}
	if out := evaluate(t.Context(), nil, nil); out.err == nil || out.counted {
		t.Errorf("the absent program returns %+v", out)
	}
}

// Expressions of equal texts are one Lazy in a cache for all planes, each kind of them by itself, and in no other
// cache.
//
// SPEC: BEY-10
func TestSharedLazy(t *testing.T) {
	compile := func() (*int, int) { return new(int), 1 }
	other := func() (*string, int) { return new(string), 1 }
	shares, alone := &Cache{Sharing: true}, &Cache{}
	defer shares.Close()
	defer alone.Close()
	one := NewSharedLazy(shares, []byte("a"), compile)
	if NewSharedLazy(shares, []byte("a"), compile) != one || NewSharedLazy(shares, []byte("b"), compile) == one {
		t.Error("a Lazy is not found by its text")
	}
	if first := NewSharedLazy(alone, []byte("a"), compile); NewSharedLazy(alone, []byte("a"), compile) == first {
		t.Error("a cache shares without Sharing")
	}
	NewSharedLazy(shares, []byte("a"), other).Get()
	one.Get()
	NewSharedLazy(shares, []byte("a"), compile).Get()
	if n := shares.Compiled(); n != 2 {
		t.Errorf("%d expressions are compiled, want 2", n)
	}
}
