package builtin

import (
	"time"

	"plinth/internal/builtin/defaults"
	"plinth/internal/builtin/validation"
	"plinth/object"
)

// Functions are the defaults and the rules in the row of a kind. The engine calls them within a write; tests call them
// alone, to compare each with the function of the reference that does the same.
type Functions struct {
	// Defaults sets fields that are not set; nil if the kind has no defaults. Timed says that they depend on the time.
	Defaults func(obj object.Value, now time.Time) object.Value
	Timed    bool
	Rules    validation.Rules
}

// FunctionsOf finds the functions of a kind. The zero Functions are those of a kind that has none, or is not served.
func FunctionsOf(group, version, kind string) Functions {
	return FunctionsAt(nil, group, version, kind)
}

// FunctionsAt is FunctionsOf with a clock for the rules (validation.Options).
func FunctionsAt(now func() time.Time, group, version, kind string) Functions {
	if group == "authentication.k8s.io" && kind == "TokenRequest" { // has no row: it is sent to a subresource
		return untimed(defaults.TokenRequest)
	}
	for _, g := range groups(Config{}) {
		if g.name != group {
			continue
		}
		for i := range g.kinds {
			k := &g.kinds[i]
			if k.kind != kind {
				continue
			}
			for j := range k.versions {
				if k.versions[j].name != version {
					continue
				}
				k := k.in(&k.versions[j])
				f := untimed(k.defaults)
				if k.timed != nil {
					f.Defaults, f.Timed = k.timed, true
				}
				f.Rules = k.rules.Rules(validation.Options{Now: now})
				return f
			}
		}
	}
	return Functions{}
}

func untimed(fill func(object.Value) object.Value) Functions {
	if fill == nil {
		return Functions{}
	}
	return Functions{Defaults: func(obj object.Value, _ time.Time) object.Value { return fill(obj) }}
}

// Every is c with all versions of all kinds served, also of those whose feature gates are off: for tests that compare
// each of them with the reference. The fields that are behind a gate depend on it as ever.
func (c Config) Every() Config {
	c.everyKind = true
	c.Serves = func(_, _, _ string, _ bool) bool { return true }
	return c
}
