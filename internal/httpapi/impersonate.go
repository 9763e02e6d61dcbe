package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"plinth/internal/access"
	"plinth/internal/apierr"
)

// The headers by which somebody asks to be somebody else.
const (
	impersonatePrefix = "Impersonate-"
	impersonateUser   = impersonatePrefix + "User"
	impersonateUID    = impersonatePrefix + "Uid"
	impersonateGroup  = impersonatePrefix + "Group"
	impersonateExtra  = impersonatePrefix + "Extra-"
)

// impersonate lets a request go on as another user, if its headers ask for that and its sender may do that. From here
// on rs.user is that user: authorization, admission and managedFields know no other. The sender is in the audit record.
func (h *Handler) impersonate(rs *requestState) error {
	for name := range rs.r.Header {
		if strings.HasPrefix(name, impersonatePrefix) {
			return h.actAs(rs)
		}
	}
	return nil
}

// actAs replaces the user of the request. The headers are removed, so that nothing behind takes them for its own, and
// the record keeps both users.
func (h *Handler) actAs(rs *requestState) error {
	wanted, err := impersonated(rs.r.Header)
	if err == nil && wanted.Name == "" {
		return nil
	}
	var user access.User
	var constraint string
	if err == nil {
		rs.ask()
		user, constraint, err = h.Impersonate(rs.ctx, wanted, &rs.asked)
	}
	if err != nil {
		rs.w.Header()["X-Content-Type-Options"] = []string{"nosniff"}
		return err
	}
	for name := range rs.r.Header {
		if strings.HasPrefix(name, impersonatePrefix) {
			delete(rs.r.Header, name)
		}
	}
	rs.record.Impersonates(user, constraint)
	rs.user = user
	return nil
}

// impersonated is the user that the headers ask for; without a name, none. Headers that ask for groups, a UID or
// extra values must ask for a name, too.
func impersonated(header http.Header) (access.User, error) {
	wanted := access.User{
		Name: header.Get(impersonateUser), UID: header.Get(impersonateUID), Groups: header[impersonateGroup],
	}
	extra := false
	for name, values := range header {
		key, ok := strings.CutPrefix(name, impersonateExtra)
		if !ok {
			continue
		}
		extra = true
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		if wanted.Extra == nil {
			wanted.Extra = map[string][]string{}
		}
		wanted.Extra[key] = append(wanted.Extra[key], values...)
	}
	if wanted.Name == "" && (wanted.UID != "" || len(wanted.Groups) > 0 || extra) {
		// The reference prints the Go value of a type with the same fields.
		shown := strings.TrimPrefix(fmt.Sprintf("%#v", wanted), "access.User")
		return wanted, apierr.NewBadRequest("requested &user.DefaultInfo" + shown + " without impersonating a user name")
	}
	return wanted, nil
}
