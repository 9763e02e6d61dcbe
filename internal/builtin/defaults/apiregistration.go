package defaults

import "plinth/object"

// APIService defaults an APIService.
func APIService(obj object.Value) object.Value { return partOf(obj, "spec", apiServiceSpec) }

func apiServiceSpec(spec object.Value) object.Value {
	return optionalOf(spec, "service", webhookService)
}
