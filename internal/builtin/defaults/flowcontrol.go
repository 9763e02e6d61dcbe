package defaults

import "plinth/object"

// FlowSchema defaults a FlowSchema.
func FlowSchema(obj object.Value) object.Value { return partOf(obj, "spec", flowSchemaSpec) }

func flowSchemaSpec(spec object.Value) object.Value {
	w := over(spec)
	w.number("matchingPrecedence", 1000)
	return w.done()
}

// PriorityLevelConfiguration defaults a PriorityLevelConfiguration.
func PriorityLevelConfiguration(obj object.Value) object.Value {
	return partOf(obj, "spec", priorityLevelSpec)
}

func priorityLevelSpec(spec object.Value) object.Value {
	w := over(spec)
	w.optional("exempt", exemptPriorityLevel)
	w.optional("limited", limitedPriorityLevel)
	return w.done()
}

func exemptPriorityLevel(level object.Value) object.Value {
	w := over(level)
	w.pointer("lendablePercent", zero)
	w.pointer("nominalConcurrencyShares", zero)
	return w.done()
}

func limitedPriorityLevel(level object.Value) object.Value {
	w := over(level)
	w.pointer("lendablePercent", zero)
	w.part("limitResponse", limitResponse)
	w.pointer("nominalConcurrencyShares", object.IntOf(30))
	return w.done()
}

func limitResponse(response object.Value) object.Value {
	return optionalOf(response, "queuing", queuing)
}

func queuing(q object.Value) object.Value {
	w := over(q)
	w.number("handSize", 8)
	w.number("queueLengthLimit", 50)
	w.number("queues", 64)
	return w.done()
}
