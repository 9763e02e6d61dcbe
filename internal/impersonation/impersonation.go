// Package impersonation decides whether somebody may act as somebody else (AUTH-1).
//
// There are several modes, which are tried in turn. Those of constrained impersonation (KEP-5284) each stand for one
// kind of user and ask twice: may this be done as such a user (verb impersonate-on:MODE:VERB), and may one be this user
// (verb impersonate:MODE). The old one asks for the verb impersonate alone, and holds for whatever is done then.
//
// The first mode that allows it decides; if none does, the first refusal is told.
package impersonation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/apierr"
)

// Impersonator decides by what an authorizer says.
type Impersonator struct {
	authorizer access.Authorizer
	modes      []mode

	// last is, by user, the mode that was successful last. It is tried first: who uses one mode is not asked for the
	// others each time, and is told of a refusal in that mode. As in the reference this changes no verdict.
	mu   sync.Mutex
	last map[string]int
}

// rememberedUsers bounds Impersonator.last.
const rememberedUsers = 10_000

// mode is one way to be somebody else.
type mode struct {
	name string // "": the old one
	// fits says whether the mode is for who is wanted by who asks.
	fits func(wanted, by *access.User) bool
}

// New makes an impersonator. Without constrained, there is the old mode alone (gate ConstrainedImpersonation).
func New(authorizer access.Authorizer, constrained bool) *Impersonator {
	i := &Impersonator{authorizer: authorizer, modes: []mode{{"", func(*access.User, *access.User) bool { return true }}},
		last: map[string]int{}}
	if constrained {
		i.modes = append([]mode{
			{associatedNode, func(wanted, by *access.User) bool {
				node, ok := nodeOf(wanted.Name)
				_, _, account := access.SplitServiceAccount(by.Name)
				return ok && account && onlyNamed(wanted) && slices.Equal(by.Extra[access.NodeName], []string{node})
			}},
			{"arbitrary-node", func(wanted, _ *access.User) bool { return isNode(wanted) && onlyNamed(wanted) }},
			{"serviceaccount", func(wanted, _ *access.User) bool { return isAccount(wanted) && onlyNamed(wanted) }},
			{"user-info", func(wanted, _ *access.User) bool { return !isNode(wanted) && !isAccount(wanted) }},
		}, i.modes...)
	}
	return i
}

// associatedNode is the mode in which a service account is the Node that its Pod is on. Who asks is known to the
// authorizer without the details of the Pod, and asks for every Node: that it is the right one is checked before.
const associatedNode = "associated-node"

// Impersonate says who the request goes on as, and by which verb that was allowed if it was by a constrained mode.
// Asked is what the request is about, and who it is from.
func (i *Impersonator) Impersonate(
	ctx context.Context, wanted access.User, asked *access.Attributes,
) (user access.User, constraint string, err error) {
	order := i.order(asked.User.Name)
	for _, n := range order {
		m := &i.modes[n]
		if !m.fits(&wanted, &asked.User) {
			continue
		}
		user, refused := i.try(ctx, m, wanted, asked)
		if refused == nil {
			i.remember(asked.User.Name, n)
			if m.name != "" {
				constraint = "impersonate:" + m.name
			}
			return user, constraint, nil
		}
		if err == nil {
			err = refused
		}
	}
	return access.User{}, "", err
}

// order is that in which modes are tried for a user.
func (i *Impersonator) order(user string) []int {
	i.mu.Lock()
	first, known := i.last[user]
	i.mu.Unlock()
	order := make([]int, 0, len(i.modes))
	if known {
		order = append(order, first)
	}
	for n := range i.modes {
		if !known || n != first {
			order = append(order, n)
		}
	}
	return order
}

func (i *Impersonator) remember(user string, n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if known, ok := i.last[user]; ok && known == n {
		return
	}
	if len(i.last) >= rememberedUsers {
		clear(i.last)
	}
	i.last[strings.Clone(user)] = n
}

// try asks everything that a mode asks.
func (i *Impersonator) try(ctx context.Context, m *mode, wanted access.User, asked *access.Attributes) (access.User,
	error) {
	c := &check{authorizer: i.authorizer, mode: m, by: asked.User, group: "authentication.k8s.io",
		verb: "impersonate:" + m.name}
	if m.name == "" {
		c.group, c.verb = "", "impersonate"
	}
	if m.name == associatedNode {
		c.by.Extra = map[string][]string{"authentication.kubernetes.io/associated-node-keys": slices.Sorted(
			maps.Keys(asked.User.Extra))}
	}
	if m.name != "" {
		on := *asked
		on.User, on.Verb = c.by, "impersonate-on:"+m.name+":"+asked.Verb
		if err := c.ask(ctx, &on); err != nil {
			return wanted, err
		}
	}
	for _, part := range []func(context.Context, *access.User) error{c.name, c.uid, c.groups, c.extra} {
		if err := part(ctx, &wanted); err != nil {
			return wanted, err
		}
	}
	switch {
	case wanted.Name == access.Anonymous:
		ensure(&wanted, access.Unauthenticated)
	case !wanted.In(access.Unauthenticated):
		ensure(&wanted, access.Authenticated)
	}
	return wanted, nil
}

func ensure(u *access.User, group string) {
	if !u.In(group) {
		u.Groups = append(slices.Clip(u.Groups), group)
	}
}

// check is one attempt to be somebody.
type check struct {
	authorizer  access.Authorizer
	mode        *mode
	by          access.User
	group, verb string   // of users and groups, and of every question
	fixed       []string // the groups that follow from the name; they need not be asked for
}

func (c *check) constrained() bool { return c.mode.name != "" }

// about is what is asked for a part of who is wanted.
func (c *check) about(group, resource, name string) *access.Attributes {
	return &access.Attributes{
		User: c.by, Verb: c.verb, IsResource: true, Group: group, Version: "v1", Resource: resource, Name: name,
	}
}

// ask asks the authorizer; what is not allowed is an error.
func (c *check) ask(ctx context.Context, a *access.Attributes) error {
	decision, reason, err := c.authorizer.Authorize(ctx, a)
	switch {
	case decision == access.Allow:
		return nil
	case err != nil && reason != "":
		reason = err.Error() + ": " + reason
	case err != nil:
		reason = err.Error()
	}
	return forbidden(a, reason)
}

func forbidden(a *access.Attributes, why string) error {
	return apierr.NewForbidden(apierr.Type{Group: a.Group, Name: a.Resource}, a.Name, a.Refusal(why))
}

// name asks whether who asks may have the name, and adds the groups that go with it.
func (c *check) name(ctx context.Context, wanted *access.User) error {
	a := c.about(c.group, "users", wanted.Name)
	if node, ok := nodeOf(wanted.Name); ok && c.constrained() {
		a.Resource, a.Name, c.fixed = "nodes", node, []string{"system:nodes"}
		if c.mode.name == associatedNode {
			a.Name = "*"
		}
	}
	if namespace, name, ok := access.SplitServiceAccount(wanted.Name); ok {
		a.Resource, a.Namespace, a.Name = "serviceaccounts", namespace, name
		if len(wanted.Groups) == 0 {
			c.fixed = []string{access.ServiceAccounts, access.ServiceAccountGroupPrefix + namespace}
		}
	}
	return c.ask(ctx, a)
}

func (c *check) uid(ctx context.Context, wanted *access.User) error {
	if wanted.UID == "" {
		return nil
	}
	return c.ask(ctx, c.about("authentication.k8s.io", "uids", wanted.UID))
}

// many is from how many parts on it is asked at first whether all of them are allowed.
const many = 4

func (c *check) groups(ctx context.Context, wanted *access.User) error {
	asked := wanted.Groups
	if c.fixed != nil {
		wanted.Groups = c.fixed
		return nil
	}
	if c.constrained() {
		a := c.about(c.group, "groups", "")
		switch {
		case slices.Contains(asked, ""):
			return forbidden(a, "impersonating the empty string group is not allowed")
		case slices.Contains(asked, access.Masters):
			a.Name = access.Masters
			return forbidden(a, "impersonating the system:masters group is not allowed")
		case len(asked) >= many && c.ask(ctx, c.about(c.group, "groups", "*")) == nil:
			return nil
		}
	}
	for _, group := range asked {
		if err := c.ask(ctx, c.about(c.group, "groups", group)); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) extra(ctx context.Context, wanted *access.User) error {
	about := func(key, value string) *access.Attributes {
		a := c.about("authentication.k8s.io", "userextras", value)
		a.Subresource = key
		return a
	}
	values := 0
	keys := slices.Sorted(maps.Keys(wanted.Extra))
	for _, key := range keys {
		values += len(wanted.Extra[key])
	}
	if c.constrained() && len(keys) > 0 {
		for _, key := range keys {
			if err := validExtra(key, wanted.Extra[key]); err != nil {
				return forbidden(about("", ""), err.Error())
			}
		}
		if max(values, len(keys)) >= many && c.ask(ctx, about("*", "*")) == nil {
			return nil
		}
	}
	for _, key := range keys {
		for _, value := range wanted.Extra[key] {
			if err := c.ask(ctx, about(key, value)); err != nil {
				return err
			}
		}
	}
	return nil
}

// validExtra refuses what constrained impersonation does not take.
func validExtra(key string, values []string) error {
	if key == "" {
		return errors.New("impersonating the empty string key in extra is not allowed")
	}
	if err := validation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); err != nil {
		return fmt.Errorf("impersonating an invalid key in extra is not allowed: %w", err)
	}
	switch {
	case key != strings.ToLower(key):
		return fmt.Errorf("impersonating a non-lowercase key in extra is not allowed: %q", key)
	case len(values) == 0:
		return errors.New("impersonating empty values in extra is not allowed")
	case slices.Contains(values, ""):
		return errors.New("impersonating the empty string value in extra is not allowed")
	}
	return nil
}

func onlyNamed(u *access.User) bool { return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 }

func isAccount(u *access.User) bool { _, _, ok := access.SplitServiceAccount(u.Name); return ok }

func isNode(u *access.User) bool { _, ok := nodeOf(u.Name); return ok }

// nodeOf is the name of the Node that a user is.
func nodeOf(user string) (string, bool) {
	name, ok := strings.CutPrefix(user, "system:node:")
	return name, ok && len(content.IsDNS1123Subdomain(name)) == 0
}
