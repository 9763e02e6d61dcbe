package authz

import (
	"bytes"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"plinth/internal/access"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/object"
)

// The kinds of subjects and roles in bindings.
const (
	userKind           = "User"
	groupKind          = "Group"
	serviceAccountKind = "ServiceAccount"
	roleKind           = "Role"
	clusterRoleKind    = "ClusterRole"
)

const serviceAccountUser = "system:serviceaccount:"

// read parses a stored object. The text is copied first, because the parser keeps references into its input, and a few
// strings must not keep the whole object in memory.
func read(v *store.Version) (object.Value, error) {
	if v.Sidecar.Unreadable != nil {
		return object.Nil, v.Sidecar.Unreadable
	}
	parsed, err := object.ParseJSON(bytes.Clone(v.Data()))
	return parsed.Value, err
}

// roles has all roles of a collection by name ("namespace/name" for Roles). A role is parsed when it is first needed.
type roles struct {
	byName shared[string, *view.Parsed[[]Rule]]
}

// compileRoles implements view.Compile.
func compileRoles(before *roles, changes iter.Seq[view.Change]) *roles {
	var e edit[string, *view.Parsed[[]Rule]]
	if before != nil {
		e.next = before.byName
	}
	for change := range changes {
		if change.Version == nil {
			e.delete(change.Name)
			continue
		}
		e.set(change.Name, view.Parse(change.Version, func(v *store.Version) ([]Rule, error) {
			obj, err := read(v)
			return rulesOf(obj.At("rules")), err
		}))
	}
	return &roles{e.next}
}

// subject is a subject of a binding.
type subject struct {
	kind, namespace, name string
	user                  string // the name of the user, if isUser
}

// binding grants the rules of a role to subjects, in its namespace or, without one, everywhere.
type binding struct {
	namespace, name string
	kind, role      string // the role
	subjects        []subject
	reasons         []atomic.Pointer[string] // by subject: the reason of decisions, formatted on first use
}

func newBinding(v *store.Version) *binding {
	b := &binding{name: v.Key.Name}
	if namespace, name, ok := strings.Cut(v.Key.Name, "/"); ok {
		b.namespace, b.name = namespace, name
	}
	obj, err := read(v)
	if err != nil { // it has no subjects
		return b
	}
	ref := obj.At("roleRef")
	b.kind, b.role = ref.At("kind").Str(), ref.At("name").Str()
	items := obj.At("subjects").Items()
	b.subjects, b.reasons = make([]subject, len(items)), make([]atomic.Pointer[string], len(items))
	for i, item := range items {
		s := subject{kind: item.At("kind").Str(), namespace: item.At("namespace").Str(), name: item.At("name").Str()}
		if s.kind == serviceAccountKind && s.namespace == "" {
			s.namespace = b.namespace
		}
		switch {
		case s.kind == userKind:
			s.user = s.name
		case s.kind == serviceAccountKind && s.namespace != "":
			s.user = serviceAccountUser + s.namespace + ":" + s.name
		}
		b.subjects[i] = s
	}
	return b
}

// isUser says whether the subject is a user (a ServiceAccount is one), not a group.
func (s *subject) isUser() bool {
	return s.kind == userKind || s.kind == serviceAccountKind && s.namespace != ""
}

// applies says whether a user is the subject, directly or by a group.
func (s *subject) applies(u *access.User) bool {
	if s.kind == groupKind {
		return u.In(s.name)
	}
	return s.isUser() && s.user == u.Name
}

// reason returns the reason for a decision by this binding. As in the reference it names the first subject that
// applies. The text is kept, so that a decision allocates no memory; it may be formatted by several requests at once.
func (b *binding) reason(u *access.User) string {
	i := slices.IndexFunc(b.subjects, func(s subject) bool { return s.applies(u) })
	if known := b.reasons[i].Load(); known != nil {
		return *known
	}
	kind, name := "ClusterRoleBinding", b.name
	if b.namespace != "" {
		kind, name = "RoleBinding", b.name+"/"+b.namespace
	}
	s := &b.subjects[i]
	subject := s.name
	if s.kind == serviceAccountKind {
		subject += "/" + s.namespace
	}
	text := "RBAC: allowed by " + kind + " " + strconv.Quote(name) + " of " + b.kind + " " + strconv.Quote(b.role) +
		" to " + s.kind + " " + strconv.Quote(subject)
	b.reasons[i].Store(&text)
	return text
}

// scopedName is a name in a namespace, or in the cluster if namespace is "": that of a user, a group, a claim or a
// Secret.
type scopedName struct{ namespace, name string }

// bindings has all bindings of a collection, with an index by subject.
//
// Problem: a cluster has thousands of bindings, and every request is authorized. The reference checks all bindings of
// the cluster and of the namespace for each request. Here a request looks up its user and its groups only:
//
//	users  has scopedName{n, u} → list  ⇔  list is the bindings of namespace n with a subject that is user u,
//	                                sorted by name, and not empty
//	groups has scopedName{n, g} → list  ⇔  the same for group g
type bindings struct {
	byName        shared[string, *binding]
	users, groups shared[scopedName, []*binding]
}

// compileBindings implements view.Compile.
func compileBindings(before *bindings, changes iter.Seq[view.Change]) *bindings {
	if before == nil {
		before = &bindings{}
	}
	byName := edit[string, *binding]{next: before.byName}
	users, groups := lists[scopedName, *binding]{}, lists[scopedName, *binding]{}
	// each calls change for the list of each subject. A subject of another kind is in no list.
	each := func(b *binding, change func(of lists[scopedName, *binding], key scopedName, b *binding)) {
		for i := range b.subjects {
			switch s := &b.subjects[i]; {
			case s.kind == groupKind:
				change(groups, scopedName{b.namespace, s.name}, b)
			case s.isUser():
				change(users, scopedName{b.namespace, s.user}, b)
			}
		}
	}
	for change := range changes {
		if old, ok := byName.next.get(change.Name); ok {
			byName.delete(change.Name)
			each(old, lists[scopedName, *binding].remove)
		}
		if change.Version != nil {
			b := newBinding(change.Version)
			byName.set(change.Name, b)
			each(b, lists[scopedName, *binding].add)
		}
	}
	sorted := func(a, b *binding) int { return strings.Compare(a.name, b.name) }
	return &bindings{byName.next, users.update(before.users, sorted), groups.update(before.groups, sorted)}
}
