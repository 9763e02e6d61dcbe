package fairness

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"

	"plinth/internal/access"
	"plinth/internal/store"
	"plinth/internal/view"
	"plinth/object"
)

// Group is the API group of the two types; the collections are Group/flowschemas and Group/prioritylevelconfigurations.
const Group = "flowcontrol.apiserver.k8s.io"

// The names of the mandatory objects of both types.
const (
	Exempt   = "exempt"
	CatchAll = "catch-all"
)

// Schema is a FlowSchema.
type Schema struct {
	Name, UID  string
	Level      string // the name of its level
	precedence int64
	method     string // "ByUser", "ByNamespace" or "": all requests are one flow
	rules      []rule
	uidHeader  []string
}

// rule matches a request whose user is one of the subjects, and that one of the resource rules or path rules matches.
type rule struct {
	subjects  []subject
	resources []resourceRule
	paths     []pathRule
}

type subject struct{ kind, namespace, name string }

type resourceRule struct {
	verbs, groups, resources, namespaces names
	clusterScope                         bool
}

type pathRule struct {
	verbs names
	paths []string
}

// names are the names that a rule lists. The validation of the objects sees to it that "*" is alone.
type names struct {
	all  bool
	list []string
}

func (n *names) has(name string) bool { return n.all || slices.Contains(n.list, name) }

func namesOf(v object.Value) names {
	list := textsOf(v)
	return names{all: len(list) == 1 && list[0] == "*", list: list}
}

func textsOf(v object.Value) []string {
	items := v.Items()
	list := make([]string, len(items))
	for i := range items {
		list[i] = items[i].Str()
	}
	return list
}

func schemaOf(name string, obj object.Value) *Schema {
	spec := obj.At("spec")
	s := &Schema{
		Name: name, UID: obj.At("metadata", "uid").Str(), Level: spec.At("priorityLevelConfiguration", "name").Str(),
		precedence: spec.At("matchingPrecedence").Int(), method: spec.At("distinguisherMethod", "type").Str(),
	}
	s.uidHeader = []string{s.UID}
	for _, r := range spec.At("rules").Items() {
		var one rule
		for _, sub := range r.At("subjects").Items() {
			switch kind := sub.At("kind").Str(); kind {
			case "User":
				one.subjects = append(one.subjects, subject{kind: kind, name: sub.At("user", "name").Str()})
			case "Group":
				one.subjects = append(one.subjects, subject{kind: kind, name: sub.At("group", "name").Str()})
			case "ServiceAccount":
				account := sub.At("serviceAccount")
				one.subjects = append(one.subjects, subject{kind, account.At("namespace").Str(), account.At("name").Str()})
			}
		}
		for _, resource := range r.At("resourceRules").Items() {
			one.resources = append(one.resources, resourceRule{
				verbs: namesOf(resource.At("verbs")), groups: namesOf(resource.At("apiGroups")),
				resources: namesOf(resource.At("resources")), namespaces: namesOf(resource.At("namespaces")),
				clusterScope: resource.At("clusterScope").Bool(),
			})
		}
		for _, path := range r.At("nonResourceRules").Items() {
			one.paths = append(one.paths, pathRule{namesOf(path.At("verbs")), textsOf(path.At("nonResourceURLs"))})
		}
		s.rules = append(s.rules, one)
	}
	return s
}

// matches says whether the schema applies to a request.
func (s *Schema) matches(a *access.Attributes) bool {
	for i := range s.rules {
		if r := &s.rules[i]; r.matchesUser(&a.User) && r.matchesTarget(a) {
			return true
		}
	}
	return false
}

func (r *rule) matchesUser(user *access.User) bool {
	for i := range r.subjects {
		if r.subjects[i].is(user) {
			return true
		}
	}
	return false
}

func (s *subject) is(user *access.User) bool {
	switch s.kind {
	case "User":
		return s.name == "*" || s.name == user.Name
	case "Group":
		return s.name == "*" || user.In(s.name)
	}
	// A ServiceAccount: system:serviceaccount:NAMESPACE:NAME.
	rest, ok := strings.CutPrefix(user.Name, access.ServiceAccountPrefix)
	if !ok {
		return false
	}
	if rest, ok = strings.CutPrefix(rest, s.namespace); !ok {
		return false
	}
	name, ok := strings.CutPrefix(rest, ":")
	return ok && (s.name == "*" || s.name == name)
}

func (r *rule) matchesTarget(a *access.Attributes) bool {
	if !a.IsResource {
		return slices.ContainsFunc(r.paths, func(p pathRule) bool { return p.verbs.has(a.Verb) && p.matches(a.Path) })
	}
	for i := range r.resources {
		if r.resources[i].matches(a) {
			return true
		}
	}
	return false
}

func (r *resourceRule) matches(a *access.Attributes) bool {
	if !r.verbs.has(a.Verb) || !r.groups.has(a.Group) || !r.matchesResource(a) {
		return false
	}
	if a.Namespace == "" {
		return r.clusterScope
	}
	return r.namespaces.has(a.Namespace)
}

func (r *resourceRule) matchesResource(a *access.Attributes) bool {
	if r.resources.all || a.Subresource == "" {
		return r.resources.has(a.Resource)
	}
	for _, one := range r.resources.list {
		rest, ok := strings.CutPrefix(one, a.Resource)
		if ok && strings.HasPrefix(rest, "/") && rest[1:] == a.Subresource {
			return true
		}
	}
	return false
}

// matches says whether a path is one of the rule, or below one: "/a" and "/a/*" both match "/a/b".
func (r *pathRule) matches(path string) bool {
	for _, one := range r.paths {
		if one == "*" || one == path {
			return true
		}
		prefix := strings.TrimSuffix(one, "*")
		if !strings.HasSuffix(prefix, "/") {
			prefix += "/"
		}
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// flow returns the distinguisher of a request, and the hash of its flow.
func (s *Schema) flow(a *access.Attributes) (distinguisher string, hash uint64) {
	switch s.method {
	case "ByUser":
		distinguisher = a.User.Name
	case "ByNamespace":
		distinguisher = a.Namespace
	}
	var buffer [128]byte
	text := append(append(append(buffer[:0], s.Name...), 0), distinguisher...)
	sum := sha256.Sum256(text)
	return distinguisher, binary.LittleEndian.Uint64(sum[:8])
}

// levelSpec is the part of a PriorityLevelConfiguration that this package needs.
type levelSpec struct {
	Name, UID string
	exempt    bool
	shares    int64
	lendable  int64  // percent
	borrowing *int64 // percent; nil: no limit
	shape     Shape
}

var (
	errUnion = errors.New("its type does not fit the fields that are set")
	errName  = errors.New("exempt is the name of the exempt level, and of no other")
)

// levelOf reads a PriorityLevelConfiguration. The server's validation refuses the errors, but the objects may be those
// of another server.
func levelOf(name string, obj object.Value) (*levelSpec, error) {
	spec := obj.At("spec")
	l := &levelSpec{Name: name, UID: obj.At("metadata", "uid").Str(), exempt: spec.At("type").Str() == "Exempt"}
	limited, exempt := spec.At("limited"), spec.At("exempt")
	switch {
	case (spec.At("type").Str() == "Limited") == limited.IsNull(), l.exempt == exempt.IsNull():
		return nil, errUnion
	case l.exempt != (name == Exempt):
		return nil, errName
	case l.exempt:
		l.shape = Shape{Queues: -1}
		l.shares, l.lendable = exempt.At("nominalConcurrencyShares").Int(), exempt.At("lendablePercent").Int()
		return l, nil
	}
	if l.shares = 30; !limited.At("nominalConcurrencyShares").IsNull() {
		l.shares = limited.At("nominalConcurrencyShares").Int()
	}
	l.lendable = limited.At("lendablePercent").Int()
	if percent := limited.At("borrowingLimitPercent"); !percent.IsNull() {
		l.borrowing = new(percent.Int())
	}
	queuing := limited.At("limitResponse", "queuing")
	if (limited.At("limitResponse", "type").Str() == "Reject") != queuing.IsNull() {
		return nil, errUnion
	}
	if !queuing.IsNull() {
		l.shape = Shape{Queues: int(queuing.At("queues").Int()), HandSize: int(queuing.At("handSize").Int()),
			Length: int(queuing.At("queueLengthLimit").Int())}
	}
	return l, l.shape.check()
}

// read parses a version of an object.
func read(v *store.Version) (object.Value, error) {
	if v.Sidecar.Unreadable != nil {
		return object.Nil, v.Sidecar.Unreadable
	}
	parsed, err := object.ParseJSON(bytes.Clone(v.Data()))
	return parsed.Value, err
}

// schemaSet and levelSet are the values of the views: the objects that can be used. A broken object counts as if it did
// not exist.
type (
	schemaSet struct{ all []*Schema } // in the order in which they are matched
	levelSet  struct{ all map[string]*levelSpec }
)

// compileSchemas implements view.Compile.
func compileSchemas(before *schemaSet, changes iter.Seq[view.Change]) *schemaSet {
	byName := map[string]*Schema{}
	if before != nil {
		for _, s := range before.all {
			byName[s.Name] = s
		}
	}
	for change := range changes {
		delete(byName, change.Name)
		if change.Version == nil {
			continue
		}
		if obj, err := read(change.Version); err == nil {
			byName[change.Name] = schemaOf(change.Name, obj)
		}
	}
	return &schemaSet{slices.SortedFunc(maps.Values(byName), func(a, b *Schema) int {
		return cmp.Or(cmp.Compare(a.precedence, b.precedence), cmp.Compare(a.Name, b.Name))
	})}
}

// compileLevels implements view.Compile.
func compileLevels(before *levelSet, changes iter.Seq[view.Change]) *levelSet {
	next := &levelSet{map[string]*levelSpec{}}
	if before != nil {
		maps.Copy(next.all, before.all)
	}
	for change := range changes {
		delete(next.all, change.Name)
		if change.Version == nil {
			continue
		}
		if obj, err := read(change.Version); err == nil {
			if level, err := levelOf(change.Name, obj); err == nil {
				next.all[change.Name] = level
			}
		}
	}
	return next
}
