// Package addresses allocates cluster IPs and node ports, which no two Services may share.
//
// Its nouns:
//
//   - a range is a network from which cluster IPs are allocated: those of --service-cluster-ip-range, which the
//     ServiceCIDR kubernetes has, and those of other ServiceCIDRs.
//   - a band is a part of a range. Addresses that no client has requested are taken from the upper band as long as it
//     has free ones, so that the lower band is left for clients that request a specific address.
//   - a family is IPv4 or IPv6. A cluster has the families of --service-cluster-ip-range, even if there are
//     ServiceCIDRs of another family.
//   - a claim is a key of the store that only the Service with that address or port may create (engine.Claim).
//   - a grant is the allocation for one Service, while it is being computed.
//
// The addresses and ports that are chosen here are allocated by the commit of the Service: it creates an IPAddress for
// each cluster IP, and a key of the store for each port. Whether one is free is looked up in the store, address by
// address. So this package keeps no state but the ranges.
package addresses
