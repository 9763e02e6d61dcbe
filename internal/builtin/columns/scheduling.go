package columns

import (
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// scheduling.k8s.io
var (
	PriorityClasses = of(name,
		integer("Value", doc[schedulingv1.PriorityClass]("value"), whole("value")),
		boolean("Global-Default", doc[schedulingv1.PriorityClass]("globalDefault"), truth(false, "globalDefault")),
		age,
		str("PreemptionPolicy", doc[schedulingv1.PriorityClass]("preemptionPolicy"), text("preemptionPolicy")),
	)
)
