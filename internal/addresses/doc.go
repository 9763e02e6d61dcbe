// Package addresses gives Services what no two of them may have: cluster IPs and ports of nodes.
//
// Its nouns. A range is a network from which cluster IPs come: those of --service-cluster-ip-range, which are in the
// ServiceCIDR kubernetes, and those of further ServiceCIDRs. A band is a part of a range: addresses that nobody has
// asked for come from the upper band as long as there are any, so that the lower one is free for those who ask for a
// certain address. A family is IPv4 or IPv6. A cluster has the families of --service-cluster-ip-range, whatever
// ServiceCIDRs there are.
//
// What is chosen here is taken by the commit of the Service (engine.Claim): a cluster IP together with an IPAddress
// of its name, a port by a key of the store. What is free is asked of the store, address by address, and so nothing
// is kept here but the ranges.
package addresses
