// Package access holds the nouns of access control, which authentication, authorization, admission and the engine
// share: who somebody is ([User]), what is asked ([Attributes]), and the names that Kubernetes itself gives to users and
// groups. It decides nothing: package auth does.
package access

import "slices"

// The users and groups that Kubernetes names itself.
const (
	Anonymous       = "system:anonymous"       // the user of a request without credentials
	Authenticated   = "system:authenticated"   // the group of everybody who has shown credentials
	Unauthenticated = "system:unauthenticated" // the group of everybody else
	Masters         = "system:masters"         // the group that may do everything
)

// User is who sends a request, as authentication found out.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Nobody is the user of a request without credentials.
func Nobody() User { return User{Name: Anonymous, Groups: []string{Unauthenticated}} }

// In says whether the user is in a group.
func (u *User) In(group string) bool { return slices.Contains(u.Groups, group) }

// Attributes are what authorization decides about.
type Attributes struct {
	User User
	Verb string // "list"; for a path that is no resource, the HTTP method in lower case
	Path string
	// The rest is set for requests to resources only.
	IsResource                            bool
	Group, Version, Resource, Subresource string
	Namespace, Name                       string
}
