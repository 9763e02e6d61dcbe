package forward

import (
	"fmt"
	"net/http"
	"strings"

	"plinth/internal/access"
)

// The headers by which another server knows the user of a request.
const (
	remoteUser  = "X-Remote-User"
	remoteUID   = "X-Remote-Uid"
	remoteGroup = "X-Remote-Group"
	remoteExtra = "X-Remote-Extra-"
)

// removeRemote removes the headers by which the client may try to be someone else.
func removeRemote(h http.Header) {
	for name := range h {
		switch canonical := http.CanonicalHeaderKey(name); {
		case canonical == remoteUser, canonical == remoteUID, canonical == remoteGroup,
			len(name) >= len(remoteExtra) && strings.EqualFold(name[:len(remoteExtra)], remoteExtra):
			delete(h, name)
		}
	}
}

// Identify replaces the headers that name the user; nil: there are none then.
func Identify(h http.Header, user *access.User) {
	removeRemote(h)
	if user == nil {
		return
	}
	h.Set(remoteUser, user.Name)
	if user.UID != "" {
		h.Set(remoteUID, user.UID)
	}
	for _, group := range user.Groups {
		h.Add(remoteGroup, group)
	}
	for key, values := range user.Extra {
		for _, value := range values {
			h.Add(remoteExtra+escapeKey(key), value)
		}
	}
}

// escapeKey makes the name of a header of a key: each byte that it may not have, and %, is escaped with %.
func escapeKey(key string) string {
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
