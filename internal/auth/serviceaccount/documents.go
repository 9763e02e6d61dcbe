package serviceaccount

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// The documents of OpenID Connect Discovery 1.0, by which other programs find the public keys: their paths, the media
// type of the keys, and the Cache-Control of both.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeysPath          = "/openid/v1/jwks"
	KeysType          = "application/jwk-set+json"
	DocumentCaching   = "public, max-age=3600"
)

// KeySet returns the document with the public keys (RFC 7517).
func (k *Keys) KeySet() ([]byte, error) {
	var set jose.JSONWebKeySet
	for _, p := range k.public {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: p.key, KeyID: p.id, Algorithm: string(p.alg), Use: "sig"})
	}
	return json.Marshal(set)
}

// Configuration returns the discovery document of an issuer whose keys are at keysURL.
func (k *Keys) Configuration(issuer, keysURL string) ([]byte, error) {
	var algorithms []string
	for _, p := range k.public {
		algorithms = append(algorithms, string(p.alg))
	}
	slices.Sort(algorithms)
	return json.Marshal(struct {
		Issuer    string   `json:"issuer"`
		KeysURL   string   `json:"jwks_uri"`
		Responses []string `json:"response_types_supported"`
		Subjects  []string `json:"subject_types_supported"`
		Signing   []string `json:"id_token_signing_alg_values_supported"`
	}{issuer, keysURL, []string{"id_token"}, []string{"public"}, slices.Compact(algorithms)})
}

// Discoverable returns an error if the documents cannot be served for an issuer, with the message of the reference.
func Discoverable(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https":
		return fmt.Errorf("issuer URL must use https scheme, got: %s", issuer)
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("issuer URL may not include a query or a fragment")
	}
	return nil
}
