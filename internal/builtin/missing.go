package builtin

// Absent is a resource or subresource that the reference serves and this server does not.
type Absent struct {
	Group, Resource, Subresource string
	Why                          string
	Methods                      []string // of HTTP, that a subresource would have
	Connect                      bool     // it is a connection to somewhere else
	Below                        bool     // there are URLs below it
	Creates                      bool     // connecting needs the verb create, even if the method is GET
}

const noNodes = "it goes to the node or the service itself, and this server talks to none"

// The methods of subresources that are not served.
var (
	reads    = []string{"GET"}
	connects = []string{"GET", "POST"}
	anything = []string{
		"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS",
	}
)

// Missing lists the parts of the reference's built-in API that are not served, and why. Requests for them get an error
// with the reason, and discovery does not list them.
var Missing = []Absent{
	{Resource: "nodes", Subresource: "proxy", Why: noNodes, Methods: anything, Connect: true, Below: true},
	{Resource: "pods", Subresource: "attach", Why: noNodes, Methods: connects, Connect: true, Creates: true},
	{Resource: "pods", Subresource: "exec", Why: noNodes, Methods: connects, Connect: true, Creates: true},
	{Resource: "pods", Subresource: "log", Why: noNodes, Methods: reads},
	{Resource: "pods", Subresource: "portforward", Why: noNodes, Methods: connects, Connect: true, Creates: true},
	{Resource: "pods", Subresource: "proxy", Why: noNodes, Methods: anything, Connect: true, Below: true},
	{Resource: "services", Subresource: "proxy", Why: noNodes, Methods: anything, Connect: true, Below: true},
}
