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
	impersonate      = "Impersonate-"
	impersonateUser  = impersonate + "User"
	impersonateUID   = impersonate + "Uid"
	impersonateGroup = impersonate + "Group"
	impersonateExtra = impersonate + "Extra-"
)

// impersonate refuses requests of somebody who asks to be somebody else: to take no notice would be to do more than was
// asked for. A request that does not say whom is a bad one, as in the reference.
func (h *Handler) impersonate(x *exchange) error {
	for name := range x.r.Header {
		if strings.HasPrefix(name, impersonate) {
			return impersonation(x.r.Header)
		}
	}
	return nil
}

func impersonation(header http.Header) error {
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
	switch {
	case wanted.Name != "":
		return notImplemented("impersonation is not available on this server", nil)
	case wanted.UID != "" || len(wanted.Groups) > 0 || extra:
		// The reference prints the Go value of a type with the same fields.
		shown := strings.TrimPrefix(fmt.Sprintf("%#v", wanted), "access.User")
		return apierr.NewBadRequest("requested &user.DefaultInfo" + shown + " without impersonating a user name")
	}
	return nil
}
