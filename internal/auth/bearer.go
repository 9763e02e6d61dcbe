package auth

import (
	"encoding/base64"
	"net/http"
	"strings"
)

// tokenOf returns the bearer token of a request; "" if it has none.
func tokenOf(r *http.Request) (string, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	// as in the reference what follows means nothing, and two spaces are no token
	token, _, _ = strings.Cut(token, " ")
	if strings.EqualFold(scheme, "Bearer") && token != "" { // other schemes are nobody's credentials here
		return token, nil
	}
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return takeSocketToken(r.Header)
	}
	return "", nil
}

const (
	socketProtocols = "Sec-Websocket-Protocol"
	socketBearer    = "base64url.bearer.authorization.k8s.io."
)

// takeSocketToken takes a bearer token out of the subprotocols of a WebSocket: there is no other header of one that a
// browser lets its pages set. A server has to choose among the subprotocols, and it cannot choose the token: there must
// be another.
func takeSocketToken(header http.Header) (string, error) {
	var others []string
	token := ""
	for protocol := range strings.SplitSeq(strings.Join(header[socketProtocols], ","), ",") {
		protocol = strings.TrimSpace(protocol)
		encoded, ok := strings.CutPrefix(protocol, socketBearer)
		if !ok {
			others = append(others, protocol)
			continue
		}
		raw, err := base64.RawURLEncoding.DecodeString(encoded)
		if err != nil || len(raw) == 0 || token != "" {
			return "", ErrInvalid
		}
		token = string(raw)
	}
	switch {
	case token == "":
		return "", nil
	case len(others) == 0:
		return "", ErrInvalid
	}
	header.Set(socketProtocols, strings.Join(others, ","))
	return token, nil
}
