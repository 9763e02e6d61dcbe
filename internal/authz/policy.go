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
	parsed, err := object.ParseJSON(bytes.Clone(v.Data))
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
	user                  string // the name of the user, see isUser
}

// binding gives the rules of a role to subjects, in its namespace or, without one, everywhere.
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

// reason is the reason for a decision by this binding. As in the reference it names the first subject that applies.
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

// holder is a user or a group in a namespace, or in the cluster if namespace is "".
type holder struct{ namespace, name string }

// bindings has all bindings of a collection, with an index by subject.
//
// Problem: a cluster has thousands of bindings, and every request is authorized. To check all bindings for each
// request costs time in proportion to all of them. So a request looks up its user and its groups only:
//
//	users  has holder{n, u} → list  ⇔  list is the bindings of namespace n with a subject that is user u,
//	                                sorted by name, and not empty
//	groups has holder{n, g} → list  ⇔  the same for group g
type bindings struct {
	byName        shared[string, *binding]
	users, groups shared[holder, []*binding]
}

// compileBindings implements view.Compile. Changes are collected by list first, and each changed list is rebuilt once.
// To insert the bindings one by one would take n² steps for a group with n bindings when the view is first compiled.
func compileBindings(before *bindings, changes iter.Seq[view.Change]) *bindings {
	var byName edit[string, *binding]
	var users, groups edit[holder, []*binding]
	if before != nil {
		byName.next, users.next, groups.next = before.byName, before.users, before.groups
	}
	type lists struct{ gone, added []*binding }
	ofUsers, ofGroups := map[holder]*lists{}, map[holder]*lists{}
	listsOf := func(b *binding, s *subject) *lists {
		of, key := ofUsers, holder{b.namespace, s.user}
		if s.kind == groupKind {
			of, key.name = ofGroups, s.name
		} else if !s.isUser() {
			return &lists{} // nobody
		}
		if of[key] == nil {
			of[key] = &lists{}
		}
		return of[key]
	}
	for change := range changes {
		if old, ok := byName.next.get(change.Name); ok {
			byName.delete(change.Name)
			for i := range old.subjects {
				l := listsOf(old, &old.subjects[i])
				l.gone = append(l.gone, old)
			}
		}
		if change.Version == nil {
			continue
		}
		b := newBinding(change.Version)
		byName.set(change.Name, b)
		for i := range b.subjects {
			if l := listsOf(b, &b.subjects[i]); !slices.Contains(l.added[max(0, len(l.added)-1):], b) {
				l.added = append(l.added, b)
			}
		}
	}
	renew := func(index *edit[holder, []*binding], changed map[holder]*lists) {
		for key, l := range changed {
			old, _ := index.next.get(key)
			next := make([]*binding, 0, len(old)+len(l.added))
			for _, b := range old {
				if !slices.Contains(l.gone, b) {
					next = append(next, b)
				}
			}
			next = append(next, l.added...)
			if len(next) == 0 {
				index.delete(key)
				continue
			}
			slices.SortFunc(next, func(a, b *binding) int { return strings.Compare(a.name, b.name) })
			index.set(key, slices.Clip(next))
		}
	}
	renew(&users, ofUsers)
	renew(&groups, ofGroups)
	return &bindings{byName.next, users.next, groups.next}
}
