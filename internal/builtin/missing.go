package builtin

// Absent is something that the reference serves, and this server does not.
type Absent struct {
	Group, Resource, Subresource string
	Why                          string
}

const (
	noNodes    = "it goes to the node or the service itself, and this server talks to none"
	noAccounts = "service account tokens are not issued yet"
)

// Missing lists what of the reference's built-in API is not served, and why. Requests for it are answered with that, and
// discovery does not mention it.
var Missing = []Absent{
	{"", "nodes", "proxy", noNodes},
	{"", "pods", "attach", noNodes},
	{"", "pods", "exec", noNodes},
	{"", "pods", "log", noNodes},
	{"", "pods", "portforward", noNodes},
	{"", "pods", "proxy", noNodes},
	{"", "services", "proxy", noNodes},
	{"", "serviceaccounts", "token", noAccounts},
	{"apiextensions.k8s.io", "customresourcedefinitions", "", "custom resource definitions are not served yet"},
	{"apiregistration.k8s.io", "apiservices", "", "aggregation of other API servers is not served yet"},
}
