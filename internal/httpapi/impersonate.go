package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"plinth/internal/access"
	"plinth/internal/apierr"
)

// The headers with which a user acts as another one.
const (
	impersonatePrefix = "Impersonate-"
	impersonateUser   = impersonatePrefix + "User"
	impersonateUID    = impersonatePrefix + "Uid"
	impersonateGroup  = impersonatePrefix + "Group"
	impersonateExtra  = impersonatePrefix + "Extra-"
)

// impersonate continues the request as another user, if its headers name one and its sender may act as that one. From
// here on rs.user is that user: authorization, admission and managedFields see no other. The audit record has both.
func (h *Handler) impersonate(rs *requestState) error {
	for name := range rs.r.Header {
		if strings.HasPrefix(name, impersonatePrefix) {
			return h.actAs(rs)
		}
	}
	return nil
}

// actAs replaces the user of the request. It removes the headers, so that no later handler evaluates them again.
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
	rs.actor, rs.user = rs.user.Name, user
	return nil
}

// impersonated returns the user that the headers name; its name is empty if they name none. Groups, a UID or extra
// values without a name are an error.
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
