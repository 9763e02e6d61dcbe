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

// The kinds of subjects and of what a binding refers to.
const (
	userKind           = "User"
	groupKind          = "Group"
	serviceAccountKind = "ServiceAccount"
	roleKind           = "Role"
	clusterRoleKind    = "ClusterRole"
)

const serviceAccountUser = "system:serviceaccount:"

// read parses a stored object. The parser takes its input over, and what is kept of an object is not to keep the whole
// text.
func read(v *store.Version) (object.Value, error) {
	if v.Sidecar.Unreadable != nil {
		return object.Nil, v.Sidecar.Unreadable
	}
	parsed, err := object.ParseJSON(bytes.Clone(v.Data))
	return parsed.Value, err
}

// roles is all roles of a collection by name, "namespace/name" for those of a namespace. A role is parsed when it is
// first asked for.
type roles struct {
	byName shared[string, *view.Parsed[[]Rule]]
}

// compileRoles is view.Compile.
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

// subject is one to whom a binding gives a role.
type subject struct {
	kind, namespace, name string
	user                  string // the name of the user that it is, see isUser
}

// binding gives the rules of a role to its subjects, in its namespace or, without one, everywhere.
type binding struct {
	namespace, name string
	kind, role      string // what it refers to
	subjects        []subject
	reasons         []atomic.Pointer[string] // why each of the subjects is allowed something, worded when it first is
}

func newBinding(v *store.Version) *binding {
	b := &binding{name: v.Key.Name}
	if namespace, name, ok := strings.Cut(v.Key.Name, "/"); ok {
		b.namespace, b.name = namespace, name
	}
	obj, err := read(v)
	if err != nil { // it gives nothing to nobody
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

// isUser says whether the subject is a user, and not a group, nor nobody.
func (s *subject) isUser() bool {
	return s.kind == userKind || s.kind == serviceAccountKind && s.namespace != ""
}

// applies says whether a user is the subject.
func (s *subject) applies(u *access.User) bool {
	if s.kind == groupKind {
		return u.In(s.name)
	}
	return s.isUser() && s.user == u.Name
}

// reason is why a user is allowed something by the binding. As in the reference the first subject counts that the user
// is.
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

// holder is a user or a group, by name, in a namespace, or "" for the whole cluster.
type holder struct{ namespace, name string }

// bindings is all bindings of a collection, with an index of those who are bound.
//
//	users  has holder{n, u} → list  ⇔  list is the bindings of namespace n with a subject that is user u, by
//	                                name, and not empty
//	groups has holder{n, g} → list  ⇔  the same of group g
//
// A request asks for its user and its groups, so that it costs what they are bound by, and not all that there is.
type bindings struct {
	byName        shared[string, *binding]
	users, groups shared[holder, []*binding]
}

// compileBindings is view.Compile. Each list of the index is made anew once, however many of its bindings have changed:
// one by one, the first state of a group with n bindings would cost n² steps.
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
