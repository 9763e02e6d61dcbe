package builtin

// Absent is a resource that the reference serves and this server does not.
type Absent struct {
	Group, Resource, Subresource string
	Why                          string
}

// Missing lists the parts of the reference's built-in API that are not served, and why. Discovery does not list them.
var Missing = []Absent{
}
