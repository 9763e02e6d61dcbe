// Package nodes runs kubectl's commands that end at a node, a Pod or a Service: logs, exec, attach, cp, port-forward
// and get --raw …/proxy/…, against a kubelet of package containers. testdata/session.txt has what they print with the
// reference, and their exit status:
//
//	go test ./client/nodes                              compare Plinth with the records
//	go test ./client/nodes -rewrite                     record anew what kubectl prints with the reference
//	CONFORMANCE_REFERENCE=1 go test ./client/nodes      compare the reference with the records, too
package nodes
