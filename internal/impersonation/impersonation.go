// Package impersonation decides whether a user may act as another one (AUTH-1).
//
// There are several modes, which are tried in order. Each mode of constrained impersonation (KEP-5284) is for one sort
// of user and requires two permissions: to do the request as such a user (verb impersonate-on:MODE:VERB), and to be
// this user (verb impersonate:MODE). The original mode requires the verb impersonate only, for all requests.
//
// The first mode that allows the impersonation decides. If none does, the error is that of the first one that was
// tried.
//
// In messages and names, the requester is the user who sends the request, and the wanted user is the one in the
// Impersonate-* headers.
package impersonation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"plinth/internal/access"
	"plinth/internal/apierr"
	"plinth/internal/recent"
)

// Impersonator decides with an authorizer. It may be used concurrently.
type Impersonator struct {
	authorizer access.Authorizer
	modes      []mode

	// last has, by requester, the mode that succeeded last, which is tried first. So a requester who uses one mode does
	// not cause authorizations for the others with every request, and gets the error of that mode. As in the reference it
	// does not change whether the impersonation is allowed.
	last recent.Cache[string, int]
}

// mode is a mode of impersonation.
type mode struct {
	name string // "": the original mode
	// fits says whether the mode is for this wanted user and requester.
	fits func(wanted, by *access.User) bool
}

// New returns an Impersonator. Without constrained (gate ConstrainedImpersonation) it has the original mode only.
func New(authorizer access.Authorizer, constrained bool) *Impersonator {
	i := &Impersonator{authorizer: authorizer, modes: []mode{{"", func(*access.User, *access.User) bool { return true }}}}
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

// associatedNode is the mode in which a service account may be the Node that its Pod runs on, such as an agent in a
// DaemonSet. fits checks that it is this Node. Therefore the authorizer is asked about all Nodes ("*"), and about a
// requester without the extra values of the Pod: so its decision is the same for all Pods of the service account.
const associatedNode = "associated-node"

// Impersonate returns the user that the request continues as, with the groups that the reference adds, and the verb
// that allowed it if the mode is a constrained one. asked are the attributes of the request, with the requester. The
// error is a 403.
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

// order returns the order in which the modes are tried for a requester.
func (i *Impersonator) order(user string) []int {
	first, known := i.last.Get(user)
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
	if known, ok := i.last.Get(user); !ok || known != n {
		i.last.Set(strings.Clone(user), n, 1)
	}
}

// try checks all permissions that a mode requires. It returns the wanted user with added groups.
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

// check checks one mode.
type check struct {
	authorizer access.Authorizer
	mode       *mode
	by         access.User // the requester
	group      string      // the API group of the resources users and groups
	verb       string
	fixed      []string // the groups that follow from the name of the wanted user: no permission is required
}

func (c *check) constrained() bool { return c.mode.name != "" }

// about returns the attributes of the authorization for a part of the wanted user.
func (c *check) about(group, resource, name string) *access.Attributes {
	return &access.Attributes{
		User: c.by, Verb: c.verb, IsResource: true, Group: group, Version: "v1", Resource: resource, Name: name,
	}
}

// ask returns a 403 if the authorizer does not allow a.
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

// name checks the name of the wanted user, and sets the groups that follow from it.
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

// many is the number of groups or extra values from which on "*" is tried first, which saves the single ones if it is
// allowed.
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

// validExtra validates an extra key and its values for constrained impersonation.
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

// nodeOf returns the name of the Node of a user system:node:NAME.
func nodeOf(user string) (string, bool) {
	name, ok := strings.CutPrefix(user, "system:node:")
	return name, ok && len(content.IsDNS1123Subdomain(name)) == 0
}
