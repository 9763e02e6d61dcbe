// Package nodes sends requests on to nodes, Pods and Services (URI-7): the subresources log, exec, attach and
// portforward of Pods go to the kubelet of the Pod's node, and proxy goes to the Node, the Pod or the Service itself.
//
// [Nodes.Backend] finds who answers a subresource. It reads the Pod, Node or Service, decides on a URL (a location)
// and on the transport, and forwards the request by package forward. httpapi has authorized and admitted the request
// before. The decisions and the errors are the reference's.
//
// There are three transports: to kubelets, with a client certificate and verified by an authority, if there are flags
// for these; to kubelets whose certificate the reader of a log does not want to be verified; and to Pods and Services,
// whose certificates cannot be verified, as they are known by address only. Each is made when it is first used.
//
// Clients use WebSockets, and kubelets understand SPDY. What a client sends in the protocol v5.channel.k8s.io is
// therefore translated (translate.go), and a WebSocket that carries SPDY itself, as kubectl port-forward opens it, is
// unwrapped (tunnel.go). A kubelet that declares the feature ExtendWebSocketsToKubelet gets the WebSocket as it is.
package nodes
