package columns

import (
	"cmp"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"plinth/object"
)

// flowcontrol.apiserver.k8s.io
var (
	FlowSchemas = ordered(byPrecedence, of(
		name,
		str("PriorityLevel", doc[flowcontrolv1.PriorityLevelConfigurationReference]("name"),
			text("spec", "priorityLevelConfiguration", "name")),
		str("MatchingPrecedence", doc[flowcontrolv1.FlowSchemaSpec]("matchingPrecedence"),
			whole("spec", "matchingPrecedence")),
		str("DistinguisherMethod", doc[flowcontrolv1.FlowSchemaSpec]("distinguisherMethod"),
			func(obj object.Value) any {
				if m := obj.At("spec", "distinguisherMethod"); !m.IsNull() {
					return m.At("type").Str()
				}
				return none
			}),
		age,
		str("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", func(obj object.Value) any {
			if c, has := condition(obj.At("status", "conditions"), "Dangling"); has {
				return c.At("status").Str()
			}
			return "?"
		}),
	))

	PriorityLevelConfigurations = of(name,
		str("Type", doc[flowcontrolv1.PriorityLevelConfigurationSpec]("type"), text("spec", "type")),
		str("NominalConcurrencyShares",
			doc[flowcontrolv1.LimitedPriorityLevelConfiguration]("nominalConcurrencyShares"),
			within("limited", "nominalConcurrencyShares")),
		str("Queues", doc[flowcontrolv1.QueuingConfiguration]("queues"), within("limited", "limitResponse", "queuing",
			"queues")),
		str("HandSize", doc[flowcontrolv1.QueuingConfiguration]("handSize"),
			within("limited", "limitResponse", "queuing", "handSize")),
		str("QueueLengthLimit", doc[flowcontrolv1.QueuingConfiguration]("queueLengthLimit"),
			within("limited", "limitResponse", "queuing", "queueLengthLimit")),
		age,
	)
)

// byPrecedence is the order in which FlowSchemas are matched with requests.
func byPrecedence(a, b object.Value) int {
	return cmp.Or(
		cmp.Compare(a.At("spec", "matchingPrecedence").Int(), b.At("spec", "matchingPrecedence").Int()),
		cmp.Compare(a.At("metadata", "name").Str(), b.At("metadata", "name").Str()),
	)
}

// within returns a cell with a number in a part of the spec that only some priority levels have.
func within(path ...string) cell {
	return func(obj object.Value) any {
		v := obj.At("spec")
		for _, key := range path[:len(path)-1] {
			if v = v.At(key); v.IsNull() {
				return none
			}
		}
		return v.At(path[len(path)-1]).Int()
	}
}
