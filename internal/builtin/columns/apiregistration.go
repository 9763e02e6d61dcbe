package columns

import (
	"plinth/object"
)

// apiregistration.k8s.io
var (
	APIServices = of(
		name,
		str("Service", "The reference to the service that hosts this API endpoint.", func(obj object.Value) any {
			service := obj.At("spec", "service")
			if service.IsNull() {
				return "Local"
			}
			return service.At("namespace").Str() + "/" + service.At("name").Str()
		}),
		str("Available", "Whether this service is available.", func(obj object.Value) any {
			available, has := condition(obj.At("status", "conditions"), "Available")
			status := available.At("status").Str()
			switch reason := available.At("reason").Str(); {
			case !has:
				return "Unknown"
			case status != "True" && reason != "":
				return status + " (" + reason + ")"
			}
			return status
		}),
		age,
	)
)
