package columns

import (
	"plinth/object"
)

// policy
var (
	PodDisruptionBudgets = of(name,
		str("Min Available", "The minimum number of pods that must be available.",
			intOrPercent("spec", "minAvailable")),
		str("Max Unavailable", "The maximum number of pods that may be unavailable.",
			intOrPercent("spec", "maxUnavailable")),
		integer("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time.",
			whole("status", "disruptionsAllowed")),
		age,
	)
)

func intOrPercent(path ...string) cell {
	return func(obj object.Value) any {
		switch v := obj.At(path...); v.Kind() {
		case object.Int:
			return itoa(v.Int())
		case object.String:
			return v.Str()
		}
		return "N/A"
	}
}
