package columns

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
)

// coordination.k8s.io
var (
	Leases = of(name, str("Holder", doc[coordinationv1.LeaseSpec]("holderIdentity"), text("spec", "holderIdentity")),
		age)

	LeaseCandidates = of(name,
		str("LeaseName", doc[coordinationv1alpha2.LeaseCandidateSpec]("leaseName"), text("spec", "leaseName")),
		str("BinaryVersion", "", text("spec", "binaryVersion")),
		str("EmulationVersion", "", text("spec", "emulationVersion")),
		age)
)
