package auth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// tokenOf returns the bearer token of a request; "" if it has none. Other schemes, such as Basic, are ignored.
func tokenOf(r *http.Request) (string, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	// As in the reference, text after the token is ignored, and two spaces before it make it empty.
	token, _, _ = strings.Cut(token, " ")
	if strings.EqualFold(scheme, "Bearer") && token != "" {
		return token, nil
	}
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return takeSocketToken(r.Header)
	}
	return "", nil
}

// UnverifiedIssuer returns the claim iss of a JSON Web Token in compact form, without verifying anything. It decides
// which authenticator verifies the token. The error says why the text is not such a token.
func UnverifiedIssuer(token string) (string, error) {
	if strings.HasPrefix(strings.TrimSpace(token), "{") {
		return "", errors.New("token is not compact JWT")
	}
	parts := strings.SplitN(token, ".", 4) // not Split: the text may be a million dots
	if len(parts) != 3 {
		return "", errors.New("malformed token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", fmt.Errorf("error decoding token: %w", err)
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", fmt.Errorf("while unmarshaling token: %w", err)
	}
	return claims.Issuer, nil
}

const (
	socketProtocols = "Sec-Websocket-Protocol"
	socketBearer    = "base64url.bearer.authorization.k8s.io."
)

// takeSocketToken returns the bearer token among the subprotocols of a WebSocket, and removes it from the header:
// browsers let a page set no other header of a WebSocket. There must be another subprotocol, because the server has to
// select one, and must not echo the token. It matches package websocket of the reference's authenticators.
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
		if err != nil || len(raw) == 0 || !utf8.Valid(raw) || token != "" {
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
