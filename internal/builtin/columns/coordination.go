package columns

import (
	coordinationv1 "k8s.io/api/coordination/v1"
)

// coordination.k8s.io
var (
	Leases = of(name, str("Holder", doc[coordinationv1.LeaseSpec]("holderIdentity"), text("spec", "holderIdentity")),
		age)
)
